/* error.h: the library's errors as the answer of a call, in the request's words.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_ERROR_H
#define WEIR_SERVER_API_COMMON_ERROR_H

#include <weir/weir.h>

#include "server/request/serve.h"

/* True if a call of the library was OK; otherwise the call's answer is its error. */
bool serve_call_passes(serve_call *call, weir_status status, weir_error *error);

/* Reports the schema keywords that are not enforced, the lines of weir_chat_relaxed, as serve_hint_name
 * does. */
void serve_call_relaxed(serve_call *call, const char *lines);

/* Reports, likewise, the messages that lost lines, in the request's terms, and the lines of
 * weir_chat_reshaped. Both may be NULL. add_reshaped: adds the latter as a member, if there are any; lines
 * may be NULL. */
void serve_call_reshaped(serve_call *call, const char *dropped, const char *lines);
void serve_call_add_reshaped(const serve_call *call, const char *lines, weir__text *text);

/* Refuses a prompt for which the context has no room, in words by which clients tell that from other errors.
 * Returns false. */
bool serve_call_too_long(serve_call *call, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The request's field for the library's `field`. */
void serve_names_field(const char *field, const serve_terms *terms, char *out, size_t capacity);

/* The error's message, with the names of the request's fields and the server's options in place of the
 * library's. */
void serve_names_message(const weir_error *error, const serve_terms *terms, char *out, size_t capacity);

#endif

/* error.h: the library's errors as the answer of a call. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_ERROR_H
#define WEIR_SERVER_API_COMMON_ERROR_H

#include "server/request/serve.h"

/* Whether a call of the library was OK; otherwise the call's answer is its error. */
bool serve_call_passes(serve_call *call, weir_status status, weir_error *error);

/* Reports the schema keywords that are not enforced, the lines of weir_chat_relaxed, as serve_hint_name
 * does. */
void serve_call_relaxed(serve_call *call, const char *lines);

/* The same for the messages that lost lines, in the request's terms, and the lines of weir_chat_reshaped.
 * Both may be NULL. add_reshaped: adds the latter as a member, if there are any; lines may be NULL. */
void serve_call_reshaped(serve_call *call, const char *dropped, const char *lines);
void serve_call_add_reshaped(const serve_call *call, const char *lines, weir__text *text);

#endif

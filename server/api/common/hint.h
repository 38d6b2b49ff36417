/* hint.h: parts of a request that have no effect here. They are served and named in X-Weir-Relaxed, or with
 * `strict` refused (ADR 0110). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_HINT_H
#define WEIR_SERVER_API_COMMON_HINT_H

#include <stddef.h>

#include "server/request/serve.h"

/* Names it in the header, and once in the process's lifetime in the log. False: out of memory, and the call
 * has its answer. */
bool serve_hint_name(serve_call *call, const char *name);

/* Takes a hint: `field` has a value that asks for something else than this server does. It is named, without
 * the numbers of its place; strict: "FIELD must be WHAT", unless that is NULL. False: the call has its
 * answer. */
bool serve_hint_take(serve_call *call, const char *field, const char *what);

/* Takes a value that should be one of these words, a list that ends with NULL: another one is a hint, but
 * "FIELD must be WHAT" if it is nearly one of them or no string (NULL). False: the call has its answer. */
bool serve_hint_word(serve_call *call, const char *field, const char *word, const char *const *words,
                     const char *what);

/* The i-th name that a field may have; NULL: there is none. */
typedef const char *serve_known_name(const void *of, size_t i);

/* Takes a field without a row: refused where its name is nearly one of the known ones, and else a hint; of a
 * thousand more than the header holds, all others are hints. place: of its object, "messages[0]"; "" = the
 * request itself. False: the call has its answer. */
bool serve_hint_unknown(serve_call *call, const char *place, const char *name, serve_known_name *known,
                        const void *of);

/* Refuses a field as serve_hint_unknown does with `strict`; place as above. Returns false. */
bool serve_hint_refuse(serve_call *call, const char *place, const char *name);

/* "messages[0].content[2]" as "messages[].content[]", with ".NAME" behind it: the same of all messages. */
void serve_hint_place(const char *place, const char *name, char *out, size_t capacity);

#endif

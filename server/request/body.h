/* body.h: a request's body as JSON, and the arguments of its address. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_BODY_H
#define WEIR_SERVER_REQUEST_BODY_H

#include "serve.h"

/* True if the body is JSON; *json is an object that the caller frees, or NULL after an answer. */
bool serve_call_read_json(serve_call *call, json_t **json);

/* True if the body is any JSON value, likewise. */
bool serve_call_read_any(serve_call *call, json_t **json);

/* True if it is a whole number, which may be written as 1.0; into *n, else 0. */
bool serve_json_whole(const json_t *value, json_int_t *n);

/* The value of an argument of a query, which is the address behind "?", as it stands there, [*n]; NULL: it is
 * not given. */
const char *serve_argument_find(const char *query, const char *name, size_t *n);

/* Text [n] with its %XX as bytes, as much as there is room for. False: it is wrongly encoded, or has a
 * NUL. */
bool serve_argument_decode(const char *from, size_t n, char *to, size_t capacity);

/* Copies an argument of the call's address, likewise. False: it is not given. */
bool serve_call_argument(const serve_call *call, const char *name, char *value, size_t capacity);

/* True if the address has no arguments but these, a list "order limit". False: the call has its answer. */
bool serve_call_arguments(serve_call *call, const char *known);

#endif

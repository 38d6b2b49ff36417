/* names.h: translates the library's names into those of clients. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_NAMES_H
#define WEIR_SERVER_API_COMMON_NAMES_H

#include <weir/weir.h>

#include "server/request/places.h"

/* The request's field for the library's `field`. */
void serve_names_field(const char *field, const serve_terms *terms, char *out, size_t capacity);

/* The error's message, with the names of the request's fields and the server's options in place of the
 * library's. Text in quotation marks, which quotes the request, is not changed. */
void serve_names_message(const weir_error *error, const serve_terms *terms, char *out, size_t capacity);

#endif

/* names.h: what clients call what the library calls otherwise. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_NAMES_H
#define WEIR_SERVER_NAMES_H

#include <weir/weir.h>

/* The field of a request that the library's `field` stands for. schema_field: where the answer's schema
 * stands in the request; NULL: there is none. */
void serve_names_field(const char *field, const char *schema_field, char *out, size_t capacity);

/* The error's message with the names of fields and of the server's options in place of the library's. What
 * stands in quotation marks, the request's own words, stays as it is. */
void serve_names_message(const weir_error *error, const char *schema_field, char *out, size_t capacity);

#endif

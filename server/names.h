/* names.h: translates the library's names into those of clients. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_NAMES_H
#define WEIR_SERVER_NAMES_H

#include <weir/weir.h>

#include "places.h"

/* The names that a request has for members of the library's structs, if its dialect or its choice of fields
 * decides them. */
typedef struct serve_terms {
    unsigned where;               /* bits of SERVE_ASK_*, which fields it has; 0 = any */
    const char *schema_field;     /* the field with the answer's schema; NULL: none */
    const char *parameters;       /* of a tool, which has no "function"; NULL: it has */
    serve_places messages, tools; /* of another dialect; none: they are as given */
} serve_terms;

/* The request's field for the library's `field`. */
void serve_names_field(const char *field, const serve_terms *terms, char *out, size_t capacity);

/* The error's message, with the names of the request's fields and the server's options in place of the
 * library's. Text in quotation marks, which quotes the request, is not changed. */
void serve_names_message(const weir_error *error, const serve_terms *terms, char *out, size_t capacity);

#endif

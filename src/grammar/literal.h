/* literal.h: JSON values as literals of a grammar.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_LITERAL_H
#define WEIR_GRAMMAR_LITERAL_H

#include <jansson.h>

#include "base/text.h"

/* Appends a GBNF literal that matches the value's compact JSON text alone: keys in their order, numbers with
 * as few digits as identify them. Recurses over the value. */
void weir__literal_add(weir__text *text, const json_t *value);

/* Appends a GBNF literal that matches the JSON text of a string, which is NUL-terminated, well-formed
 * UTF-8. */
void weir__literal_add_string(weir__text *text, const char *string);

#endif

/* schema_grammar.h: JSON Schemas, and what they consist of, as GBNF.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_SCHEMA_GRAMMAR_H
#define WEIR_GRAMMAR_SCHEMA_GRAMMAR_H

#include <jansson.h>
#include <stdint.h>

#include <weir/weir.h>

#include "base/text.h"

/* A schema that weir__schema_rewrite has made, as GBNF; the text is freed with weir_free. GRAMMAR: no finite
 * text satisfies it, or its grammar is too large. error->field is `field`. */
weir_status weir__grammar_from_schema(const json_t *rewritten, const char *field, char **grammar,
                                      weir_error *error);

/* ---- Digits ---- */

/* Appends GBNF alternatives, without parentheses around them, that match the decimal numbers from least to
 * most, both included, without leading zeros. least <= most. */
void weir__digits_add(weir__text *text, uint64_t least, uint64_t most);

/* ---- Literals ---- */

/* Appends a GBNF literal that matches the value's compact JSON text alone: keys in their order, numbers with
 * as few digits as identify them. Recurses over the value. */
void weir__literal_add(weir__text *text, const json_t *value);

/* Appends a GBNF literal that matches the JSON text of a string, which is NUL-terminated, well-formed
 * UTF-8. */
void weir__literal_add_string(weir__text *text, const char *string);

#endif

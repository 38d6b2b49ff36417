/* schema_grammar.h: JSON Schemas as GBNF.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_SCHEMA_GRAMMAR_H
#define WEIR_GRAMMAR_SCHEMA_GRAMMAR_H

#include <jansson.h>
#include <weir/weir.h>

/* A schema that weir__schema_rewrite has made, as GBNF; the text is freed with weir_free. GRAMMAR: no finite
 * text satisfies it, or its grammar is too large. error->field is `field`. */
weir_status weir__grammar_from_schema(const json_t *rewritten, const char *field, char **grammar,
                                      weir_error *error);

#endif

/* schema_grammar.h: JSON Schemas as GBNF.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_SCHEMA_GRAMMAR_H
#define WEIR_GRAMMAR_SCHEMA_GRAMMAR_H

#include <jansson.h>
#include <weir/weir.h>

#include "base/text.h"
#include "grammar/schema_emit.h"

/* Adds the rule `name` for a schema that weir__schema_rewrite has made, or a part of one, and all rules that
 * it needs: those of its parts have that name and a number, those of definitions (may be NULL) have their
 * names, and those that schemas share begin with "any-". A rule is a line. Errors: GRAMMAR (more than
 * WEIR__GRAMMAR_BYTES_MAX), NO_MEMORY, ABORTED. */
weir_status weir__grammar_add_rules(const json_t *schema, const json_t *definitions, const char *name,
                                    weir__text *rules, weir_error *error);

/* A schema that weir__schema_rewrite has made, as GBNF; the text is freed with weir_free. GRAMMAR: no finite
 * text satisfies it, or its grammar is too large. error->field is `field`. */
weir_status weir__grammar_from_schema(const json_t *rewritten, const char *field, char **grammar,
                                      weir_error *error);

#endif

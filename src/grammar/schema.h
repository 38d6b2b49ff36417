/* schema.h: rewrites JSON Schemas in a subset of which grammars enforce everything.
 * SPDX-License-Identifier: Apache-2.0
 *
 * schema_grammar.c makes GBNF of the result. This walk refuses keywords that cannot be enforced, and writes
 * the rest in few forms: conjunctions are merged, conditions become alternatives. The result never accepts
 * more than the given schema; it may accept less, as listed. tests/json_schema_suite.py holds it against the
 * JSON Schema Test Suite.
 *
 * Honoured:
 *   - type (one or several), const, enum (with what schema_value.c can judge beside them: not formats
 *     of strings, patterns that pattern.h refuses, or unevaluated parts), anyOf, oneOf (branches that
 *     exclude each other, or if it is known what contradicts them), allOf (merged, property by property;
 *     recursive schemas, too), not, if, then, else (if it is known what contradicts the schema: see
 *     schema_condition.c), $ref into the same document (also recursive, with keywords beside it, to an
 *     $anchor, and by the $id of a part), $dynamicRef where one schema can be meant, boolean schemas;
 *   - object: properties, required, additionalProperties, patternProperties (at most 6), propertyNames,
 *     unevaluatedProperties, minProperties (of properties that are not listed one counts), maxProperties,
 *     dependentRequired, dependentSchemas, dependencies;
 *   - array: items, prefixItems, additionalItems, minItems, maxItems, unevaluatedItems, contains,
 *     minContains, maxContains (if it is known what contradicts `contains`), uniqueItems of at most 8
 *     listed values, or at most one item;
 *   - string: pattern (see pattern.h), minLength, maxLength, the formats of JSON Schema except regex
 *     (schema_type.c), together, too;
 *   - integer: minimum, maximum, exclusiveMinimum, exclusiveMaximum (numbers, or booleans as in draft 4),
 *     multipleOf up to 250, and up to 1,000 where many factors are 2 and 5 (multiples.h), or between bounds
 *     that leave at most 1,001 values, format int32;
 *   - number: the same bounds in every spelling (range.h); multipleOf of 1, 0.1, 0.01 … with any bounds, of
 *     integers as above, of others with no bound but a minimum of 0, or between bounds as above.
 *
 * Accepted with less than the schema says:
 *   - listed properties come in their order, and then those that only `required` names; others in any place;
 *   - so do the members of listed objects, unless they are two plain ones in a list of fewer than 64;
 *   - integers have at most 16 digits, and numbers as many on each side of the point;
 *   - maxItems is lowered to 1,999, maxLength to 1,000,000 (and by up to a thousandth above 1,000);
 *     maxProperties, maxLength beside a pattern, and the properties that are not listed, where the grammar
 *     would become too large;
 *   - strings with pattern, format or lengths use no \u escapes; nor do names beside listed ones;
 *   - where `not` excludes a boolean, an array or an object beside other types, it excludes all of that type.
 * With relax also:
 *   - an object with `properties`, `required` or `patternProperties` has no others;
 *   - a schema without `type` has only the types that its keywords are about;
 *   - an array with prefixItems has exactly these items;
 *   - numbers of enum and const are written as in the schema.
 *
 * Ignored are annotations: title, description, default, examples, $schema, $comment, contentEncoding and
 * others, OpenAPI's among them (nullable, discriminator, xml); names and formats that JSON Schema does not
 * know; keywords of other types than the given one. Everything else is refused, and so
 * is a name that is nearly a keyword's (see weir__words_near), unless it begins with "x-" or "_"; with
 * weir__schema_terms.relax it is left out and listed. */
#ifndef WEIR_GRAMMAR_SCHEMA_H
#define WEIR_GRAMMAR_SCHEMA_H

#include <stdbool.h>

#include "base/json.h"
#include "base/text.h"
#include "grammar/schema_work.h"

void weir__schema_work_init(weir__schema_work *work);

typedef struct weir__schema_terms {
    const char *where; /* prefix of the JSON pointer in error->field, e.g. "/0/function/parameters" */
    const char *tag;   /* letters and digits; different for schemas of one grammar, where llama.cpp
                        * distinguishes references by their names only */
    bool inline_root; /* for tools: the result is an object schema and not a reference to one; anything but an
                        * object is refused */
    bool relax; /* leave out keywords that cannot be enforced; the result may accept more than the schema,
                 * and in what the schema does not describe less: see above */
    weir__text *relaxed;     /* with relax: a line is added for each keyword left out; may be NULL */
    weir__schema_work *work; /* left for several schemas; NULL: this schema has a budget of its own */
} weir__schema_terms;

/* Rewrites `schema` to *rewritten, freed with json_decref. Errors: GRAMMAR (field: the pointer, shortened in
 * its middle; message: keyword and reason; with relax only if it is malformed, nothing satisfies it, or it
 * takes too much work), NO_MEMORY, ABORTED. */
weir_status weir__schema_rewrite(const json_t *schema, const weir__schema_terms *terms, json_t **rewritten,
                                 weir_error *error);

#endif

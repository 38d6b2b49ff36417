/* schema.h: JSON Schemas, rewritten in a small subset whose grammars enforce all of it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * schema_grammar.c makes GBNF of the result. So does llama.cpp's converter, for the tools and schemas of
 * chats whose template it has a handler for; it ignores most keywords without a word, lets one keyword win
 * over another, and gets some right names wrong. This walk refuses what cannot be honoured and writes the
 * rest in the subset that both convert exactly. What that accepts is never more than what the given schema
 * accepts; it may be less, as listed.
 *
 * Honoured:
 *   - type (one or several), const, enum, anyOf, oneOf (branches that provably exclude each other by type, by
 *     values or by a common required property with distinct values), allOf (merged), not (of types, and of
 *     values beside enum or const), $ref into the same document (also recursive), $defs and definitions,
 *     boolean schemas;
 *   - object: properties, required, additionalProperties, unevaluatedProperties: false; propertyNames with an
 *     enum; minProperties and maxProperties where the others imply them;
 *   - array: items, prefixItems, additionalItems, minItems, maxItems, unevaluatedItems: false; uniqueItems
 *     where there is at most one item;
 *   - string: pattern (see pattern.h), minLength, maxLength; pattern or format with lengths where they imply
 *     them; format date, time, date-time, duration, email, hostname, ipv4, ipv6, uri, uri-reference, uuid
 *     (schema_format.c);
 *   - integer: minimum, maximum, exclusiveMinimum, exclusiveMaximum (numbers, or booleans as in draft 4),
 *     multipleOf between bounds that leave at most 1,001 values, format int32 and int64;
 *   - number: bounds that are both given and at most 100 apart, multipleOf as of integers, format float and
 *     double.
 *
 * Accepted with less than the schema says:
 *   - an object with `properties` (or `required`) holds no others, and its properties come in their order,
 *     those required first;
 *   - an array with prefixItems holds exactly these;
 *   - integers have at most 16 digits;
 *   - numbers with bounds have at most three decimal places, and fewer the farther these are apart;
 *   - maxItems is lowered to 1,999, maxLength to 1,000,000 (and by up to a thousandth above 1,000);
 *   - strings with pattern, format or lengths use no \u escapes.
 *
 * Read over are annotations: title, description, default, examples, $schema, $comment, deprecated, readOnly,
 * writeOnly; OpenAPI's nullable: false, example, discriminator, externalDocs, xml; names that begin with
 * "x-"; $id on the root; keywords that say nothing about the given type. Everything else is refused, unknown
 * keywords too; with weir__schema_terms.relax it is left out, and a list tells what. */
#ifndef WEIR_GRAMMAR_SCHEMA_H
#define WEIR_GRAMMAR_SCHEMA_H

#include <stdbool.h>

#include "base/budget.h"
#include "base/json.h"
#include "base/text.h"

#define WEIR__SCHEMA_DEPTH_MAX      64   /* schemas in each other, references followed */
#define WEIR__SCHEMA_NODES_MAX      4096 /* after references were followed once each */
#define WEIR__SCHEMA_PROPERTIES_MAX 256  /* of one object: llama.cpp's work grows with their cube */
/* bytes of a property's name: a regex of llama.cpp recurses over it */
#define WEIR__SCHEMA_NAME_MAX  256
#define WEIR__SCHEMA_ITEMS_MAX 1999 /* of an array: GBNF allows 2,000 rules in what is repeated */
#define WEIR__SCHEMA_FORKS_MAX                                                                               \
    4000 /* values of an enum that go on differently at one place: see automaton.h */

/* For all schemas of a request: steps of work, about one for each value or name that is looked at, and
 * elements of their grammar, about one for each character that is given and each item that is counted. */
#define WEIR__SCHEMA_RELAXED_MAX  4096 /* bytes of lines about what was left out */
#define WEIR__SCHEMA_STEPS_MAX    4000000
#define WEIR__SCHEMA_ELEMENTS_MAX 390000 /* WEIR__GRAMMAR_ELEMENTS_MAX, less the form around them */

typedef struct weir__schema_work {
    weir__budget budget;
    size_t elements; /* left */
} weir__schema_work;

void weir__schema_work_init(weir__schema_work *work);

typedef struct weir__schema_terms {
    const char *where; /* what error->field says before the JSON pointer, e.g. "/0/function/parameters" */
    const char *tag;   /* letters and digits; different for schemas whose rules meet in one grammar, where
                        * llama.cpp tells references apart by their names only */
    bool inline_root; /* the result is an object schema itself and no reference to one, as tools need it; then
                        * anything but an object is refused */
    bool relax; /* what cannot be honoured is left out, so that the result may be weaker than the schema */
    weir__text *relaxed;     /* with relax: gets a line for each keyword that was left out; may be NULL */
    weir__schema_work *work; /* what is left, for several schemas; NULL: the whole for this one */
} weir__schema_terms;

/* Rewrites `schema` to *rewritten, freed with json_decref. Errors: GRAMMAR (field: the pointer, cut in its
 * middle when it is long; message: keyword and reason; with relax only for what is no schema at all, what
 * nothing satisfies and what takes too much work), NO_MEMORY, ABORTED. */
weir_status weir__schema_rewrite(const json_t *schema, const weir__schema_terms *terms, json_t **rewritten,
                                 weir_error *error);

#endif

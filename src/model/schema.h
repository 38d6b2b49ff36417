/* schema.h: JSON Schemas, rewritten so that llama.cpp's converter enforces all of them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The converter (common/json-schema*.cpp of the pin) ignores most keywords without a word, lets one keyword
 * win over another, and gets some right names wrong. This walk refuses what it cannot be made to honour and
 * writes the rest in the subset that it converts exactly. What it accepts is never more than what the given
 * schema accepts; it may be less, as listed.
 *
 * Honoured:
 *   - type (one or several), const, enum, anyOf, oneOf (branches that provably exclude each other by type, by
 *     values or by a common required property with distinct values), allOf (merged), $ref into the same
 *     document (also recursive), $defs and definitions, boolean schemas;
 *   - object: properties, required, additionalProperties, unevaluatedProperties: false; minProperties and
 *     maxProperties where the others imply them;
 *   - array: items, prefixItems, additionalItems, minItems, maxItems, unevaluatedItems: false; uniqueItems
 *     where there is at most one item;
 *   - string: pattern (see pattern.h), minLength, maxLength; pattern with lengths where the pattern implies
 *     them; format date, time, date-time, uuid (their shape, not whether that day exists);
 *   - integer: minimum, maximum, exclusiveMinimum, exclusiveMaximum (numbers, or booleans as in draft 4),
 *     multipleOf: 1, format int32 and int64;
 *   - number: format float and double.
 *
 * Accepted with less than the schema says:
 *   - an object with `properties` (or `required`) holds no others, and its properties come in their order,
 *     those required first;
 *   - an array with prefixItems holds exactly these;
 *   - integers have at most 16 digits;
 *   - maxItems is lowered to 1,999, maxLength to 1,000,000 (and by up to a thousandth above 1,000);
 *   - strings with pattern or lengths use no \u escapes.
 *
 * Read over are annotations: title, description, default, examples, $schema, $comment, deprecated, readOnly,
 * writeOnly; OpenAPI's nullable: false, example, discriminator, externalDocs, xml; names that begin with
 * "x-"; $id on the root; keywords that say nothing about the given type. Everything else is refused, unknown
 * keywords too. */
#ifndef WEIR_MODEL_SCHEMA_H
#define WEIR_MODEL_SCHEMA_H

#include <stdbool.h>

#include "base/budget.h"
#include "model/json.h"

#define WEIR__SCHEMA_DEPTH_MAX      64   /* schemas in each other, references followed */
#define WEIR__SCHEMA_NODES_MAX      4096 /* after references were followed once each */
#define WEIR__SCHEMA_PROPERTIES_MAX 256  /* of one object: the converter's work grows with their cube */
/* bytes of a property's name: a regex of the converter recurses over it */
#define WEIR__SCHEMA_NAME_MAX  256
#define WEIR__SCHEMA_ITEMS_MAX 1999 /* of an array: GBNF allows 2,000 rules in what is repeated */
#define WEIR__SCHEMA_FORKS_MAX                                                                               \
    4000 /* values of an enum that go on differently at one place: see automaton.h */

/* For all schemas of a request: steps of work, about one for each value or name that is looked at, and
 * elements of their grammar, about one for each character that is given and each item that is counted. */
#define WEIR__SCHEMA_STEPS_MAX    4000000
#define WEIR__SCHEMA_ELEMENTS_MAX 390000 /* WEIR__GRAMMAR_ELEMENTS_MAX, less the form around them */

typedef struct weir__schema_work {
    weir__budget budget;
    size_t elements; /* left */
} weir__schema_work;

void weir__schema_work_init(weir__schema_work *work);

typedef struct weir__schema_terms {
    const char *where; /* what error->field says before the JSON pointer, e.g. "/0/function/parameters" */
    const char *tag;   /* letters and digits; different for schemas whose rules meet in one grammar, where the
                        * converter tells references apart by their names only */
    bool inline_root; /* the result is an object schema itself and no reference to one, as tools need it; then
                        * anything but an object is refused */
    weir__schema_work *work; /* what is left, for several schemas; NULL: the whole for this one */
} weir__schema_terms;

/* Rewrites `schema` to *rewritten, freed with json_decref. Errors: GRAMMAR (field: the pointer, cut in its
 * middle when it is long; message: keyword and reason), NO_MEMORY. */
weir_status weir__schema_rewrite(const json_t *schema, const weir__schema_terms *terms, json_t **rewritten,
                                 weir_error *error);

#endif

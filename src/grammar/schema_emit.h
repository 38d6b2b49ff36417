/* schema_emit.h: shared by the files that write rewritten schemas as GBNF.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_SCHEMA_EMIT_H
#define WEIR_GRAMMAR_SCHEMA_EMIT_H

#include <jansson.h>
#include <stddef.h>

#include "base/budget.h"
#include "base/text.h"

#define SPACE_RULE "any-space"
#define COMMA      "\",\" " SPACE_RULE " " /* between the parts of an object or array */

typedef struct weir__emitter weir__emitter;
struct weir__emitter {
    /* Adds the name of the schema's rule, which is added, too, unless it exists. */
    void (*add_item)(weir__emitter *e, weir__text *text, const json_t *schema);
    weir__text rules;    /* whole lines */
    json_t *wanted;      /* an array: references to definitions, in the order of their first use */
    json_t *known;       /* an object: the names of these definitions, and of rules that stand there once */
    const char *name;    /* of the current definition's rule */
    size_t n_parts;      /* of that definition, numbered from 1 */
    unsigned shared;     /* shared rules in use */
    weir__budget budget; /* of the rules; nothing is added once it is over */
};

/* Adds a rule of this name. The body is freed. */
void weir__emit_named_rule(weir__emitter *e, const char *name, weir__text *body);

/* Adds a rule of the current definition; part 0: its own. The body is freed. */
void weir__emit_rule(weir__emitter *e, size_t part, weir__text *body);

/* Appends a JSON text as a GBNF literal. */
void weir__emit_literal(weir__text *text, const char *json);

/* Appends a GBNF literal that matches the value's compact JSON text alone: keys in their order, numbers with
 * as few digits as identify them. Recurses over the value. */
void weir__literal_add(weir__text *text, const json_t *value);

/* Appends a GBNF literal that matches the JSON text of a string, which is NUL-terminated, well-formed
 * UTF-8. */
void weir__literal_add_string(weir__text *text, const char *string);

/* -- schema_members.c -- */

/* Adds an object of listed properties, and perhaps others. It uses the rule for space. */
void weir__emit_members(weir__emitter *e, weir__text *text, const json_t *schema);

#endif

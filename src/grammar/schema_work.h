/* schema_work.h: limits of JSON Schemas, and of the work for them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_SCHEMA_WORK_H
#define WEIR_GRAMMAR_SCHEMA_WORK_H

#include <stddef.h>

#include "base/budget.h"

#define WEIR__SCHEMA_DEPTH_MAX      64   /* of nested schemas, references followed */
#define WEIR__SCHEMA_NODES_MAX      4096 /* with each reference followed once */
#define WEIR__SCHEMA_PROPERTIES_MAX 256  /* of one object: llama.cpp's work grows with their cube */
/* bytes of a property's name: a regex of llama.cpp recurses over it */
#define WEIR__SCHEMA_NAME_MAX  256
#define WEIR__SCHEMA_ITEMS_MAX 1999 /* of an array: GBNF allows 2,000 rules in a repeated item */
#define WEIR__SCHEMA_FORKS_MAX                                                                               \
    4000 /* values of an enum that differ in the character after a common prefix: see automaton.h */
#define WEIR__SCHEMA_RELAXED_MAX 4096 /* bytes of the list of omitted keywords */

/* Bounds for all schemas of a request: steps of work, about one for each value or name that is read, and
 * elements of their grammar, about one for each given character and each counted item. */
#define WEIR__SCHEMA_STEPS_MAX    3500000
#define WEIR__SCHEMA_ELEMENTS_MAX 390000 /* WEIR__GRAMMAR_ELEMENTS_MAX, less the rules around them */

typedef struct weir__schema_work {
    weir__budget budget;
    size_t elements; /* left */
} weir__schema_work;

#endif

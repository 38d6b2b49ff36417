/* regular.h: regular languages of texts in JSON strings: intersections and differences of patterns.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_REGULAR_H
#define WEIR_GRAMMAR_REGULAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/budget.h"
#include "base/text.h"

/* A pattern of pattern.h, rewritten. */
typedef struct weir__regular_part {
    const char *pattern;
    bool excluded; /* a text must not match it */
} weir__regular_part;

#define WEIR__REGULAR_PARTS_MAX  16
#define WEIR__REGULAR_STATES_MAX 6000

/* A deterministic automaton of the texts that match all parts [n] but the excluded ones: an array of states,
 * of which the first is the start, and each [ends, class, state, class, state, …] with classes in GBNF. All
 * states lead to an end; the array is empty if no text matches. At least one part is not excluded. NULL:
 * *too_large, or the budget is over, or no memory. *cost: of its rules, in elements of a grammar. */
json_t *weir__regular_make(const weir__regular_part *parts, size_t n, weir__budget *budget, size_t *cost,
                           bool *too_large);

/* Appends the name, well-formed UTF-8, as a rewritten pattern without ^ and $. */
void weir__regular_add_name(weir__text *pattern, const char *name);

#endif

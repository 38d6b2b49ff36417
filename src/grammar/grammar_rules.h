/* grammar_rules.h: checks that the rules of a grammar can become an automaton.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_GRAMMAR_RULES_H
#define WEIR_GRAMMAR_GRAMMAR_RULES_H

#include "grammar/automaton_rules.h"
#include "weir/weir.h"

/* Bounds of the work for a step of the automaton. */
#define WEIR__GRAMMAR_CHAIN_MAX 1000    /* rules that start with one another */
#define WEIR__GRAMMAR_CALLS_MAX 4000000 /* rules opened at the starts of all rules */

/* A rule of the text, or one made for a group or a repetition. */
typedef struct weir__grammar_rule {
    const char *name; /* in the text; a made rule has that of the rule around it */
    size_t name_length;
    size_t line;    /* of its first mention */
    size_t defined; /* line of its definition, 0 = none */
    int32_t next;   /* in its hash bucket, -1 = last */
} weir__grammar_rule;

/* Refuses left recursion and too long chains among rules [n_rules], whose elements begin at starts. ends: a
 * rule that must be able to match a finite text, or -1. Errors: GRAMMAR (line and rule), NO_MEMORY. */
weir_status weir__grammar_rules_check(const weir__automaton_element *elements, const uint32_t *starts,
                                      const weir__grammar_rule *rules, size_t n_rules, int32_t ends,
                                      weir_error *error);

#endif

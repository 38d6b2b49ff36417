/* grammar_rules.h: the rules of a parsed grammar, and whether an automaton can be made of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_GRAMMAR_RULES_H
#define WEIR_GRAMMAR_GRAMMAR_RULES_H

#include "grammar/automaton_rules.h"

/* A rule, from the text or made for a group or a repetition. */
typedef struct weir__grammar_rule {
    const char *name; /* in the text; a made one has that of the rule it is part of */
    size_t name_length;
    size_t line;    /* of its first mention */
    size_t defined; /* line of its definition, 0 = none */
    int32_t next;   /* in its hash bucket, -1 = last */
} weir__grammar_rule;

/* Whether rules [n_rules], whose elements begin at starts, can be used: no left recursion, and no chains of
 * rules that are too long. ends: a rule that must be able to come to an end, or -1. Errors: GRAMMAR (line and
 * rule), NO_MEMORY. */
weir_status weir__grammar_rules_check(const weir__automaton_element *elements, const uint32_t *starts,
                                      const weir__grammar_rule *rules, size_t n_rules, int32_t ends,
                                      weir_error *error);

#endif

/* automaton_rules.h: the rules of an automaton, in which alternatives share their beginnings.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_AUTOMATON_RULES_H
#define WEIR_GRAMMAR_AUTOMATON_RULES_H

#include "grammar/automaton.h"

/* Types of elements. */
enum { END, ALTERNATIVE, RULE, CHARACTER, NOT_CHARACTER, UPPER, OR_CHARACTER, ANY, TOKEN, NOT_TOKEN };

typedef struct weir__automaton_rules {
    weir__automaton_element *elements; /* [n_elements] */
    size_t n_elements, elements_capacity;
    uint32_t *starts; /* [n_rules] */
    size_t n_rules, starts_capacity;
} weir__automaton_rules;

/* Alternatives of a rule from which on they are looked at: an enumeration has thousands, and each would be a
 * way to read even the quotation mark that all begin with. */
#define WEIR__AUTOMATON_SHARED_MIN 64

/* Copies rules [n_rules]. Those with many alternatives are written anew: what some of these begin with stands
 * there once, and what follows is a rule of its own, behind the given ones. The texts that match are the
 * same. rules->... is zeroed before; freed with fini in any case. False: out of memory. */
bool weir__automaton_share(const weir__automaton_element *elements, size_t n_elements, const uint32_t *starts,
                           size_t n_rules, weir__automaton_rules *rules);

/* Sets marks [n_rules], zeroes before, of the rules that can match nothing or, with `terminals`, of those
 * that can match anything and come to an end. False: more passes over the rules are needed than that. */
bool weir__automaton_mark(const weir__automaton_element *elements, const uint32_t *starts, size_t n_rules,
                          bool terminals, size_t most_passes, uint8_t *marks);

void weir__automaton_rules_fini(weir__automaton_rules *rules);

#endif

/* automaton_rules.h: the rules of an automaton, in which alternatives share their prefixes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_AUTOMATON_RULES_H
#define WEIR_GRAMMAR_AUTOMATON_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An element of a rule. */
typedef struct weir__automaton_element {
    uint32_t type;
    uint32_t value; /* a code point, rule or token */
} weir__automaton_element;

/* Types of elements. */
enum { END, ALTERNATIVE, RULE, CHARACTER, NOT_CHARACTER, UPPER, OR_CHARACTER, ANY, TOKEN, NOT_TOKEN };

/* True if an alternative ends here. */
static inline bool weir__automaton_is_end(const weir__automaton_element *e)
{
    return e->type == END || e->type == ALTERNATIVE;
}

typedef struct weir__automaton_rules {
    weir__automaton_element *elements; /* [n_elements] */
    size_t n_elements, elements_capacity;
    uint32_t *starts; /* [n_rules] */
    size_t n_rules, starts_capacity;
} weir__automaton_rules;

/* Rules with at least this many alternatives share prefixes: an enumeration has thousands, and each would be
 * a way to read even the quotation mark at the start. */
#define WEIR__AUTOMATON_SHARED_MIN 64

/* Copies rules [n_rules]. Of those with many alternatives, a common prefix is written once, and a new rule
 * after the given ones has the rests. The matching texts stay the same. *rules is zeroed before the call and
 * freed with fini in any case. False: out of memory. */
bool weir__automaton_share(const weir__automaton_element *elements, size_t n_elements, const uint32_t *starts,
                           size_t n_rules, weir__automaton_rules *rules);

/* Sets the marks [n_rules], which are 0 before, of rules that can match the empty text or, with `terminals`,
 * any finite text. False: it takes more passes over the rules. */
bool weir__automaton_mark(const weir__automaton_element *elements, const uint32_t *starts, size_t n_rules,
                          bool terminals, size_t most_passes, uint8_t *marks);

void weir__automaton_rules_fini(weir__automaton_rules *rules);

#endif

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

/* True if the element belongs to the class before it. */
static inline bool weir__automaton_goes_on(const weir__automaton_element *e)
{
    return e->type == UPPER || e->type == OR_CHARACTER;
}

/* The element after the item at e: a class of characters is several elements. */
static inline const weir__automaton_element *weir__automaton_after(const weir__automaton_element *e)
{
    do e++;
    while (weir__automaton_goes_on(e));
    return e;
}

/* True if the items are equal. Reads no further than both are the same. */
static inline bool weir__automaton_same_item(const weir__automaton_element *a,
                                             const weir__automaton_element *b)
{
    do {
        if (a->type != b->type || a->value != b->value) return false;
        a++;
        b++;
    } while (weir__automaton_goes_on(a) && weir__automaton_goes_on(b));
    return !weir__automaton_goes_on(a) && !weir__automaton_goes_on(b);
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

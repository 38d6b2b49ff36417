/* automaton.h: a grammar as an automaton that is made while it is used: which tokens may follow, and what
 * follows from each.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_AUTOMATON_H
#define WEIR_GRAMMAR_AUTOMATON_H

#include <weir/weir.h>

#include "grammar/trie.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An element of a rule; its types are in automaton_rules.h. */
typedef struct weir__automaton_element {
    uint32_t type;
    uint32_t value; /* a code point, rule or token */
} weir__automaton_element;

/* Ways to read a text above which only some are followed on. Ambiguous grammars double them with each
 * character; where there are more, most are left out, always the same ones. Then some texts of the grammar
 * cannot be made, but whatever was begun can be ended. Alternatives that share a beginning are one way while
 * they share it. */
#define WEIR__AUTOMATON_WAYS_MAX 4096

typedef struct weir__automaton weir__automaton;

/* How far a text has come in the grammar. A plain value: copies can be gone back to. */
typedef struct weir__automaton_place {
    uint32_t state;
    weir__partial partial;
} weir__automaton_place;

/* rules: all elements [n_elements], rule after rule, each with its end; starts [n_rules] are the indexes of
 * their first ones. They have been checked: no left recursion, no reference to nowhere (grammar_rules.h). All
 * is copied but the tree, which must outlive the automaton. GRAMMAR: no text matches; NO_MEMORY. */
weir_status weir__automaton_create(const weir__automaton_element *rules, size_t n_elements,
                                   const uint32_t *starts, size_t n_rules, uint32_t root,
                                   const weir__trie *trie, weir__automaton **automaton);

/* Counted; any thread, as are all functions here: what the automaton has learned is shared and locked. */
weir__automaton *weir__automaton_hold(weir__automaton *automaton);
void weir__automaton_release(weir__automaton *automaton);

/* Bytes that it takes; grows with the places that texts come to. */
size_t weir__automaton_size(weir__automaton *automaton);

/* How often ways were left out, in all that the automaton has computed so far. */
uint64_t weir__automaton_n_cuts(weir__automaton *automaton);

weir__automaton_place weir__automaton_start(const weir__automaton *automaton);

/* Goes on with a token. REFUSED: the grammar does not allow it there; NO_MEMORY. *place is unchanged unless
 * OK. */
weir_status weir__automaton_accept(weir__automaton *automaton, weir__automaton_place *place, int32_t token);

/* The same with bytes [n] in place of the token's own: the end of a token. */
weir_status weir__automaton_accept_bytes(weir__automaton *automaton, weir__automaton_place *place,
                                         int32_t token, const char *bytes, size_t n);

/* Bit t % 64 of bits[t / 64], for each token t of the vocabulary: whether accept would say OK. bits has
 * WEIR__AUTOMATON_WORDS(n_vocab) words. NO_MEMORY. */
#define WEIR__AUTOMATON_WORDS(n_vocab) (((size_t)(n_vocab) + 63) / 64)
weir_status weir__automaton_mask(weir__automaton *automaton, const weir__automaton_place *place,
                                 uint64_t *bits);

#ifdef __cplusplus
}
#endif
#endif

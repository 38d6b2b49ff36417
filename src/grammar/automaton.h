/* automaton.h: a grammar as an automaton that grows while it is used: which tokens may follow a text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_AUTOMATON_H
#define WEIR_GRAMMAR_AUTOMATON_H

#include <weir/weir.h>

#include "grammar/trie.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An element of a rule: see automaton_rules.h. */
typedef struct weir__automaton_element weir__automaton_element;

typedef struct weir__automaton weir__automaton;

/* A position of a text in the grammar. A plain value: a copy is a way back. */
typedef struct weir__automaton_place {
    uint32_t state;
    weir__partial partial;
} weir__automaton_place;

/* rules: the elements [n_elements] of all rules, each with its END; starts [n_rules]: the index of each
 * rule's first element. They have been checked (grammar_rules.h): no left recursion, no undefined rule. Both
 * are copied. The tree is not and must outlive the automaton. GRAMMAR: no text matches; NO_MEMORY. */
weir_status weir__automaton_create(const weir__automaton_element *rules, size_t n_elements,
                                   const uint32_t *starts, size_t n_rules, uint32_t root,
                                   const weir__trie *trie, weir__automaton **automaton);

/* Reference-counted. Any thread may call the functions here; a mutex guards the states. GRAMMAR: it has
 * WEIR__AUTOMATON_BYTES_MAX bytes and would need more states. */
weir__automaton *weir__automaton_hold(weir__automaton *automaton);
void weir__automaton_release(weir__automaton *automaton);

/* The size in bytes, with the slices that it uses; grows with the positions that texts reach. */
size_t weir__automaton_size(weir__automaton *automaton);

/* True if it would have needed more states than it may have: texts that reach no new ones go on. */
bool weir__automaton_is_full(weir__automaton *automaton);

/* The number of times that there were too many ways so far. */
uint64_t weir__automaton_n_cuts(weir__automaton *automaton);

/* The number of masks computed so far: the others were known, or another state's. */
uint64_t weir__automaton_n_masks(weir__automaton *automaton);

weir__automaton_place weir__automaton_start(const weir__automaton *automaton);

/* Moves on by a token. REFUSED: the grammar does not allow it there; NO_MEMORY. *place is unchanged unless
 * OK. */
weir_status weir__automaton_accept(weir__automaton *automaton, weir__automaton_place *place, int32_t token);

/* Moves on by bytes [n] instead of the token's own, as for the last part of a token. */
weir_status weir__automaton_accept_bytes(weir__automaton *automaton, weir__automaton_place *place,
                                         int32_t token, const char *bytes, size_t n);

/* Sets bit t % 64 of bits[t / 64] for each token t that accept would allow, and clears the others. bits has
 * WEIR__AUTOMATON_WORDS(n_vocab) words. NO_MEMORY. */
weir_status weir__automaton_mask(weir__automaton *automaton, const weir__automaton_place *place,
                                 uint64_t *bits);

#ifdef __cplusplus
}
#endif
#endif

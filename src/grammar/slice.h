/* slice.h: the tokens of a vocabulary that consist of a class of characters, for masks within long runs of
 * it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_SLICE_H
#define WEIR_GRAMMAR_SLICE_H

#include <stdbool.h>

#include "grammar/trie_nodes.h"

/* The code points below this are control characters: JSON has none of them in its strings. */
#define WEIR__SLICE_CONTROLS 0x20

/* The code points of a token in a slice at most. Longer ones are judged one by one. */
#define WEIR__SLICE_LONGEST 250

/* The slices that a grammar uses at most. Its classes beyond have none, and their masks cost more. */
#define WEIR__SLICES_MAX 16

/* The ranges of a class at most. */
#define WEIR__CLASS_MAX 64

/* A class of characters: ascending ranges of code points that do not touch. */
typedef struct weir__class {
    struct {
        uint32_t low, high;
    } ranges[WEIR__CLASS_MAX]; /* [n] */
    size_t n;
} weir__class;

bool weir__same_class(const weir__class *a, const weir__class *b);

/* What a class makes of a vocabulary. Immutable, but for the first two. */
typedef struct weir__token_slice {
    struct weir__token_slice *next; /* protected by the lock of all slices, as is refs */
    size_t refs;
    weir__class of;
    uint64_t ascii[2]; /* the class's first 128 code points as bits */
    uint64_t
        *tokens; /* bits of the tokens with all their characters in the class, WEIR__SLICE_LONGEST at most
                        * and the last one complete */
    uint64_t
        *stops; /* bits of the trie's nodes on the way to any other token: where one ends or where a character
                        * is not in the class, and those above */
    uint64_t
        *text_stops; /* the same without tokens that have a control character outside of the class first */
} weir__token_slice;

/* The slices of a trie, made when they are first asked for, and freed when no grammar uses them; those of
 * JSON strings stay. Any thread may call the functions here. Their lock is the last one: it is taken within
 * an automaton's, and none is taken within it. */
typedef struct weir__slices weir__slices;

/* NULL: out of memory. The trie outlives them. */
weir__slices *weir__slices_create(const weir__trie *trie);
void weir__slices_destroy(weir__slices *slices);

/* True if the slice's class has the code point. */
bool weir__slice_has(const weir__token_slice *slice, uint32_t code);

/* True if so many characters of tokens are in the class that a slice is worth its memory. */
bool weir__slices_worth(const weir__slices *slices, const weir__class *of);

/* True if the class has a slice already. */
bool weir__slices_known(weir__slices *slices, const weir__class *of);

/* The class's slice, to be released. NULL: out of memory. */
weir__token_slice *weir__slices_hold(weir__slices *slices, const weir__class *of);
void weir__slices_release(weir__slices *slices, weir__token_slice *slice);

/* The bytes of a slice. */
size_t weir__slices_size(const weir__slices *slices);

/* The code points of the longest token in any slice. */
size_t weir__slices_longest(const weir__slices *slices);

/* Sets the bits of the slice's tokens of up to n code points. */
void weir__slices_allow(const weir__slices *slices, const weir__token_slice *slice, size_t n, uint64_t *bits);

#endif

/* slice.h: the tokens of a vocabulary that consist of a class of characters, for masks within long runs of
 * it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_SLICE_H
#define WEIR_GRAMMAR_SLICE_H

#include <stdbool.h>

#include "grammar/trie_nodes.h"

/* The code points below this are control characters: JSON has none of them in its strings. */
#define WEIR__SLICE_CONTROLS 0x20

/* The most code points of a token in a slice. Longer ones are judged one by one. */
#define WEIR__SLICE_LONGEST 250

/* The most slices that a grammar uses. Its classes beyond have none, and their masks cost more. */
#define WEIR__SLICES_MAX 16

/* The most ranges of a class. */
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
    /* Bits of the tokens whose characters are all in the class, at most WEIR__SLICE_LONGEST, the last one
     * complete. */
    uint64_t *tokens;
    /* Bits of the trie's nodes where another token ends or a character is not in the class, and of those
     * above: weir__slices_words, and then a bit for each of these words that is not 0. */
    uint64_t *stops;
    /* The same, without tokens whose first character outside of the class is a control character. */
    uint64_t *text_stops;
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

/* The words of a bit for each node of the tree. */
static inline size_t weir__slices_words(const weir__trie *trie)
{
    return trie->n_nodes / 64 + 1;
}

/* The bytes of a slice. */
size_t weir__slices_size(const weir__slices *slices);

/* Counts an automaton that had `before` bytes and has `now`. */
void weir__slices_count(weir__slices *slices, size_t before, size_t now);

/* The bytes of all slices, of the tokens by length, and of the automata that were counted. Takes no lock. */
size_t weir__slices_all_bytes(weir__slices *slices);

/* The code points of the longest token in any slice. */
size_t weir__slices_longest(const weir__slices *slices);

/* Sets bits to those of `with` and of the slice's tokens of up to n code points. `with` has no longer token
 * of the slice. */
void weir__slices_allow(const weir__slices *slices, const weir__token_slice *slice, size_t n,
                        const uint64_t *with, uint64_t *bits);

#endif

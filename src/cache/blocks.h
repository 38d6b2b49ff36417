/* blocks.h: which blocks of tokens are cached in which memory, and the changes since they were last taken.
 * Pure data, not thread-safe.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_BLOCKS_H
#define WEIR_CACHE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/more.h>

#include "base/hash.h"

/* A block of tokens, together with all tokens before it. */
typedef struct weir__block weir__block;

/* The blocks that a memory has, or had when the changes were last taken. A change is kept as a difference
 * between the two, so that a reader who comes late misses nothing and needs no more memory: a block that came
 * and went in between is no change. */
typedef struct weir__blocks {
    int32_t size;              /* tokens of a block */
    weir__hash_table table;    /* by id */
    weir__block *first, *last; /* changed */
} weir__blocks;

/* size: at least 1. */
void weir__blocks_init(weir__blocks *blocks, int32_t size);
void weir__blocks_fini(weir__blocks *blocks);

/* A text's first n tokens are in the memory: counts their whole blocks from the one behind `deepest` on,
 * which was the last one counted for this text (NULL: none). Returns the last one counted now. It ends before
 * an image or a sound, and where memory runs out; a later call continues. */
weir__block *weir__blocks_add(weir__blocks *blocks, weir__block *deepest, const int32_t *tokens, int32_t n,
                              weir_cache_memory memory);

/* The text that was counted up to `deepest` is no longer in the memory. NULL is ignored. */
void weir__blocks_remove(weir__blocks *blocks, weir__block *deepest, weir_cache_memory memory);

/* Copies at most `capacity` changes, and the tokens of each to tokens [capacity × size]; returns their
 * number. A block is stored after its parent. */
size_t weir__blocks_take(weir__blocks *blocks, weir_cache_change *changes, int32_t *tokens, size_t capacity);

/* Forgets the taken changes: every block that is in a memory is a change. */
void weir__blocks_restart(weir__blocks *blocks);

/* The tokens of the block and of all before it into tokens [capacity], if they fit; returns their number. 0:
 * no memory has the block. */
size_t weir__blocks_find(const weir__blocks *blocks, uint64_t id, int32_t *tokens, size_t capacity);

/* The number of blocks in the memory. Visits all; for tests. */
size_t weir__blocks_count(const weir__blocks *blocks, weir_cache_memory memory);

#endif

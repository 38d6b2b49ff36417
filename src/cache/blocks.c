/* blocks.c: a hash table of blocks with counts by memory, and a list of those whose state differs from the
 * one last taken.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache/blocks.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* A block is freed when no text has it, no change is left to take, and no other block continues it. */
struct weir__block {
    weir__hash_link link;     /* its hash is the id */
    weir__block *parent;      /* NULL: the text's first */
    weir__block *next, *prev; /* in the list of changes */
    bool changed;             /* it is in that list */
    uint8_t taken;            /* bit m: the last change taken says that memory m has it */
    int32_t depth;            /* blocks up to and with this one */
    int32_t n_children;
    int32_t n_texts[WEIR_CACHE_MEMORIES]; /* that have it, in each memory */
    int32_t tokens[];                     /* [size] */
};

/* ---- Life ---- */

void weir__blocks_init(weir__blocks *blocks, int32_t size)
{
    *blocks = (weir__blocks){.size = size};
}

/* All blocks in any order: the first is the one after NULL. */
static weir__block *block_after(const weir__blocks *blocks, const weir__block *block)
{
    return (weir__block *)weir__hash_table_after(&blocks->table, block != NULL ? &block->link : NULL);
}

void weir__blocks_fini(weir__blocks *blocks)
{
    for (weir__block *block = block_after(blocks, NULL), *next; block != NULL; block = next) {
        next = block_after(blocks, block);
        weir__mem_free(block);
    }
    weir__hash_table_clear(&blocks->table);
    *blocks = (weir__blocks){0};
}

/* ---- Finding ---- */

static weir__block *new_block(weir__blocks *blocks, weir__block *parent, uint64_t id, const int32_t *tokens)
{
    size_t n_bytes = (size_t)blocks->size * sizeof *tokens;
    if (!weir__hash_table_grow(&blocks->table)) return NULL;
    weir__block *block = weir__mem_calloc(1, sizeof *block + n_bytes);
    if (block == NULL) return NULL;
    block->parent = parent;
    block->depth = parent != NULL ? parent->depth + 1 : 1;
    memcpy(block->tokens, tokens, n_bytes);
    weir__hash_table_add(&blocks->table, &block->link, id);
    if (parent != NULL) parent->n_children++;
    return block;
}

/* The block of these tokens behind the parent, which is created if it is unknown; NULL: out of memory. */
static weir__block *find_block(weir__blocks *blocks, weir__block *parent, const int32_t *tokens)
{
    size_t n_bytes = (size_t)blocks->size * sizeof *tokens;
    uint64_t id = weir__hash(parent != NULL ? parent->link.hash : 0, tokens, n_bytes);
    if (id == 0) id = 1; /* 0 = no parent */
    weir__block *block = (weir__block *)weir__hash_table_find(&blocks->table, id);
    while (block != NULL && (block->parent != parent || memcmp(block->tokens, tokens, n_bytes) != 0))
        block = (weir__block *)weir__hash_table_same(&block->link);
    return block != NULL ? block : new_block(blocks, parent, id, tokens);
}

/* ---- Counting ---- */

static uint8_t present_in(const weir__block *block)
{
    unsigned present = 0;
    for (unsigned m = 0; m < WEIR_CACHE_MEMORIES; m++)
        if (block->n_texts[m] > 0) present |= 1U << m;
    return (uint8_t)present;
}

static void enlist_block(weir__blocks *blocks, weir__block *block)
{
    block->changed = true;
    block->next = NULL;
    block->prev = blocks->last;
    *(blocks->last != NULL ? &blocks->last->next : &blocks->first) = block;
    blocks->last = block;
}

static void unlist_block(weir__blocks *blocks, weir__block *block)
{
    *(block->prev != NULL ? &block->prev->next : &blocks->first) = block->next;
    *(block->next != NULL ? &block->next->prev : &blocks->last) = block->prev;
    block->changed = false;
}

/* Lists the block while it differs from the state last taken: otherwise blocks would pile up without a
 * reader. */
static void note_change(weir__blocks *blocks, weir__block *block)
{
    bool changed = present_in(block) != block->taken;
    if (changed == block->changed) return;
    if (changed)
        enlist_block(blocks, block);
    else
        unlist_block(blocks, block);
}

/* Frees the block, and those before it, if nothing needs them. */
static void drop_unused(weir__blocks *blocks, weir__block *block)
{
    while (block != NULL && !block->changed && block->n_children == 0 && present_in(block) == 0) {
        weir__block *parent = block->parent;
        assert(block->taken == 0);
        weir__hash_table_remove(&blocks->table, &block->link);
        if (parent != NULL) parent->n_children--;
        weir__mem_free(block);
        block = parent;
    }
}

static bool has_media(const int32_t *tokens, int32_t n)
{
    int32_t i = 0;
    while (i < n && tokens[i] >= 0) i++;
    return i < n;
}

weir__block *weir__blocks_add(weir__blocks *blocks, weir__block *deepest, const int32_t *tokens, int32_t n,
                              weir_cache_memory memory)
{
    int32_t size = blocks->size;
    for (int32_t depth = deepest != NULL ? deepest->depth : 0; depth < n / size; depth++) {
        const int32_t *own = tokens + (size_t)depth * (size_t)size;
        weir__block *block = has_media(own, size) ? NULL : find_block(blocks, deepest, own);
        if (block == NULL) break;
        block->n_texts[memory]++;
        note_change(blocks, block);
        deepest = block;
    }
    return deepest;
}

void weir__blocks_remove(weir__blocks *blocks, weir__block *deepest, weir_cache_memory memory)
{
    for (weir__block *block = deepest; block != NULL; block = block->parent) {
        block->n_texts[memory]--;
        note_change(blocks, block);
    }
    drop_unused(blocks, deepest);
}

/* ---- Taking ---- */

/* The memories that have the block although the changes taken so far do not say so. */
static unsigned unreported_in(const weir__block *block)
{
    return present_in(block) & ~(unsigned)block->taken;
}

/* The next block to take changes from. One that is to be stored waits for its parent. */
static weir__block *next_block(const weir__blocks *blocks)
{
    weir__block *block = blocks->first;
    while (block != NULL && unreported_in(block) != 0 && block->parent != NULL && block->parent->changed)
        block = block->parent;
    return block;
}

/* The next difference of a changed block becomes a change: where it is now, before where it was. */
static weir_cache_change next_change(weir__block *block)
{
    unsigned differs = unreported_in(block), m = 0;
    if (differs == 0) differs = (unsigned)block->taken ^ present_in(block);
    while ((differs & 1U << m) == 0) m++;
    block->taken ^= (uint8_t)(1U << m);
    return (weir_cache_change){
        .id = block->link.hash,
        .parent = block->parent != NULL ? block->parent->link.hash : 0,
        .memory = (weir_cache_memory)m,
        .stored = block->n_texts[m] > 0,
    };
}

size_t weir__blocks_take(weir__blocks *blocks, weir_cache_change *changes, int32_t *tokens, size_t capacity)
{
    size_t n = 0, size = (size_t)blocks->size;
    for (weir__block *block; (block = next_block(blocks)) != NULL;) {
        for (; present_in(block) != block->taken && n < capacity; n++) {
            changes[n] = next_change(block);
            memcpy(tokens + n * size, block->tokens, size * sizeof *tokens);
        }
        if (present_in(block) != block->taken) break;
        unlist_block(blocks, block);
        drop_unused(blocks, block);
    }
    return n;
}

void weir__blocks_restart(weir__blocks *blocks)
{
    for (weir__block *block = NULL; (block = block_after(blocks, block)) != NULL;) {
        block->taken = 0;
        if (!block->changed) note_change(blocks, block); /* one without a change goes when it is taken */
    }
}

size_t weir__blocks_find(const weir__blocks *blocks, uint64_t id, int32_t *tokens, size_t capacity)
{
    const weir__block *block = (const weir__block *)weir__hash_table_find(&blocks->table, id);
    while (block != NULL && present_in(block) == 0)
        block = (const weir__block *)weir__hash_table_same(&block->link);
    if (block == NULL) return 0;
    size_t size = (size_t)blocks->size, n = (size_t)block->depth * size;
    if (n > capacity) return n;
    for (size_t at = n; block != NULL; block = block->parent) {
        at -= size;
        memcpy(tokens + at, block->tokens, size * sizeof *tokens);
    }
    return n;
}

size_t weir__blocks_count(const weir__blocks *blocks, weir_cache_memory memory)
{
    size_t n = 0;
    for (const weir__block *block = NULL; (block = block_after(blocks, block)) != NULL;)
        n += block->n_texts[memory] > 0;
    return n;
}

/* blocks_test.c: changes that are taken lead from one listing of the texts' blocks to the next.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cache/prefix_tree.h"
#include "support/dice.h"

#define TEXTS  32
#define LENGTH 24
#define SIZE   4
#define KNOWN  2048

/* ---- A reader, who knows only the changes ---- */

typedef struct told {
    uint64_t id, parent;
    int32_t tokens[SIZE];
    bool in[WEIR_CACHE_MEMORIES];
} told;

typedef struct reader {
    told blocks[KNOWN];
    size_t n;
} reader;

static told *find_told(reader *r, uint64_t id)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->blocks[i].id == id) return &r->blocks[i];
    return NULL;
}

/* Each change is one: nothing is stored or removed twice, and no block comes before its parent. */
static void apply_change(reader *r, const weir_cache_change *change, const int32_t *tokens)
{
    told *block = find_told(r, change->id);
    assert_true(change->id != 0 && (unsigned)change->memory < WEIR_CACHE_MEMORIES);
    if (block == NULL) {
        assert_true(change->stored && r->n < KNOWN);
        block = &r->blocks[r->n++];
        *block = (told){.id = change->id, .parent = change->parent};
        memcpy(block->tokens, tokens, sizeof block->tokens);
    }
    assert_true(block->parent == change->parent);
    assert_memory_equal(block->tokens, tokens, sizeof block->tokens);
    assert_int_equal(block->in[change->memory], !change->stored);
    const told *parent = find_told(r, change->parent);
    if (change->stored && change->parent != 0) {
        assert_non_null(parent);
        assert_true(parent->in[0] || parent->in[1] || parent->in[2]);
    }
    block->in[change->memory] = change->stored;
}

static size_t take_changes(reader *r, weir__blocks *blocks, size_t capacity)
{
    weir_cache_change changes[16];
    int32_t tokens[16 * SIZE];
    size_t n = weir__blocks_take(blocks, changes, tokens, capacity);
    assert_true(n <= capacity);
    for (size_t i = 0; i < n; i++) apply_change(r, &changes[i], &tokens[i * SIZE]);
    return n;
}

/* ---- The texts themselves ---- */

typedef struct text_of_mine {
    weir__prefix_end end;
    int32_t key;
    int32_t n;
    int32_t tokens[LENGTH];
} text_of_mine;

typedef struct world {
    dice d;
    weir__prefix_tree tree;
    weir__blocks blocks;
    text_of_mine texts[TEXTS];
    reader reader;
} world;

static const weir__prefix_key keys[] = {{NULL, 0, 0}, {"a", 1, 0}, {NULL, 0, 7}};

/* The number of the text's first blocks that are in the memory by the contract. */
static int32_t blocks_in(const text_of_mine *t, int memory)
{
    static const int memories[] = {WEIR_CACHE_DEVICE, WEIR_CACHE_HOST, WEIR_CACHE_DISK, WEIR_CACHE_DEVICE,
                                   -1};
    if (t->end.node == NULL || t->key != 0 || t->end.rank >= WEIR__PREFIX_TOMBSTONE ||
        memories[t->end.rank] != memory)
        return 0;
    int32_t n = t->end.rank == WEIR__PREFIX_LIVE ? t->end.n_ready : t->n, at = 0;
    while (at < n && t->tokens[at] >= 0) at++; /* an image */
    return at / SIZE;
}

static size_t count_naively(const world *w, int memory)
{
    size_t n = 0;
    for (int i = 0; i < TEXTS; i++)
        for (int32_t depth = 1; depth <= blocks_in(&w->texts[i], memory); depth++) {
            bool counted = false; /* with a text before this one */
            for (int j = 0; j < i && !counted; j++)
                counted = blocks_in(&w->texts[j], memory) >= depth &&
                          memcmp(w->texts[j].tokens, w->texts[i].tokens,
                                 (size_t)(depth * SIZE) * sizeof(int32_t)) == 0;
            n += !counted;
        }
    return n;
}

/* The reader knows every block of the text that is in the memory. */
static void find_text(world *w, const text_of_mine *t, int memory)
{
    uint64_t parent = 0;
    for (int32_t depth = 0; depth < blocks_in(t, memory); depth++) {
        const told *found = NULL;
        for (size_t i = 0; i < w->reader.n && found == NULL; i++) {
            const told *block = &w->reader.blocks[i];
            if (block->parent == parent &&
                memcmp(block->tokens, t->tokens + (size_t)depth * SIZE, sizeof block->tokens) == 0)
                found = block;
        }
        assert_non_null(found);
        assert_true(found->in[memory]);
        parent = found->id;
    }
}

static void check_all(world *w)
{
    while (take_changes(&w->reader, &w->blocks, (size_t)dice_in(&w->d, 1, 16)) > 0) {
    }
    for (int memory = 0; memory < WEIR_CACHE_MEMORIES; memory++) {
        size_t n_told = 0, n = count_naively(w, memory);
        for (size_t i = 0; i < w->reader.n; i++) n_told += w->reader.blocks[i].in[memory];
        assert_int_equal(n_told, n);
        assert_int_equal(weir__blocks_count(&w->blocks, (weir_cache_memory)memory), n);
        for (int i = 0; i < TEXTS; i++) find_text(w, &w->texts[i], memory);
    }
}

static void insert_text(world *w, text_of_mine *t)
{
    const text_of_mine *like = &w->texts[dice_in(&w->d, 0, TEXTS - 1)];
    int32_t n = dice_in(&w->d, 1, LENGTH), kept = dice_in(&w->d, 0, like->n);
    for (int32_t i = 0; i < n; i++)
        t->tokens[i] = i < kept ? like->tokens[i] : dice_one_in(&w->d, 60) ? -5 : dice_in(&w->d, 0, 1);
    t->n = n;
    t->key = dice_one_in(&w->d, 8) ? dice_in(&w->d, 1, 2) : 0;
    weir__prefix_rank rank = (weir__prefix_rank)dice_in(&w->d, 0, WEIR__PREFIX_RANKS - 1);
    assert_true(weir__prefix_tree_insert(&w->tree, &keys[t->key], t->tokens, n, &t->end, rank));
}

static void change_text(world *w, text_of_mine *t)
{
    if (dice_one_in(&w->d, 3))
        weir__prefix_tree_remove(&w->tree, &t->end);
    else if (t->end.rank == WEIR__PREFIX_LIVE)
        weir__prefix_tree_ready(&w->tree, &t->end,
                                dice_one_in(&w->d, 4) ? 0 : dice_in(&w->d, t->end.n_ready, LENGTH), true);
    else
        weir__prefix_tree_rerank(&w->tree, &t->end,
                                 (weir__prefix_rank)(dice_in(&w->d, 0, 3) % 4 == 3 ? WEIR__PREFIX_TOMBSTONE
                                                                                   : dice_in(&w->d, 0, 2)));
}

static void run_world(uint64_t seed)
{
    static world w;
    memset(&w, 0, sizeof w);
    w.d.state = seed;
    long live = weir__mem_live();
    weir__prefix_tree_init(&w.tree);
    weir__blocks_init(&w.blocks, SIZE);
    w.tree.blocks = &w.blocks;
    for (int i = 0; i < 300; i++) {
        text_of_mine *t = &w.texts[dice_in(&w.d, 0, TEXTS - 1)];
        if (t->end.node == NULL)
            insert_text(&w, t);
        else
            change_text(&w, t);
        if (t->end.rank == WEIR__PREFIX_LIVE && t->end.n_ready > t->n) t->end.n_ready = t->n;
        if (dice_one_in(&w.d, 3)) take_changes(&w.reader, &w.blocks, (size_t)dice_in(&w.d, 0, 5));
        if (dice_one_in(&w.d, 30)) { /* another reader, who knows nothing */
            memset(&w.reader, 0, sizeof w.reader);
            weir__blocks_restart(&w.blocks);
        }
        if (dice_one_in(&w.d, 10)) check_all(&w);
    }
    for (int i = 0; i < TEXTS; i++) weir__prefix_tree_remove(&w.tree, &w.texts[i].end);
    check_all(&w);
    assert_int_equal(w.blocks.table.n_links,
                     0); /* memory follows the cached blocks and the changes not taken */
    weir__prefix_tree_fini(&w.tree);
    weir__blocks_fini(&w.blocks);
    assert_int_equal(weir__mem_live(), live);
}

static void test_changes_against_the_texts(void **state)
{
    (void)state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    uint64_t n = dice_environment("WEIR_TEST_SCHEDULES", 200);
    print_message("%llu worlds from WEIR_TEST_SEED=%llu\n", (unsigned long long)n, (unsigned long long)seed);
    for (uint64_t i = 0; i < n; i++) run_world(seed + i);
}

/* ---- Single cases ---- */

static const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

static void test_a_block_added_and_removed_is_not_reported(void **state)
{
    (void)state;
    weir__blocks blocks;
    weir_cache_change changes[8];
    int32_t tokens[8 * SIZE];
    weir__blocks_init(&blocks, SIZE);
    weir__block *deepest = weir__blocks_add(&blocks, NULL, text, 10, WEIR_CACHE_HOST);
    weir__blocks_remove(&blocks, deepest, WEIR_CACHE_HOST);
    assert_int_equal(blocks.table.n_links, 0); /* also without a reader */
    assert_int_equal(weir__blocks_take(&blocks, changes, tokens, 8), 0);
    weir__blocks_fini(&blocks);
}

/* Ids do not depend on the engine: routers may compare those of two machines. */
static void test_ids_are_of_the_tokens(void **state)
{
    (void)state;
    weir_cache_change changes[2][8];
    int32_t tokens[8 * SIZE];
    for (int i = 0; i < 2; i++) {
        weir__blocks blocks;
        weir__blocks_init(&blocks, SIZE);
        weir__block *deepest = weir__blocks_add(&blocks, NULL, text, 4, WEIR_CACHE_DEVICE);
        deepest = weir__blocks_add(&blocks, deepest, text, 10, WEIR_CACHE_DEVICE);
        assert_int_equal(weir__blocks_take(&blocks, changes[i], tokens, 8), 2);
        assert_memory_equal(tokens, text, 2 * SIZE * sizeof *tokens);
        assert_true(changes[i][0].parent == 0 && changes[i][1].parent == changes[i][0].id);
        weir__blocks_fini(&blocks);
    }
    for (int i = 0; i < 2; i++) assert_true(changes[0][i].id == changes[1][i].id);
}

/* Fewer blocks are counted when memory is short, and a later call goes on. */
static void test_memory_runs_out(void **state)
{
    (void)state;
    long live = weir__mem_live();
    for (long at = 0;; at++) {
        weir__blocks blocks;
        weir_cache_change changes[8];
        int32_t tokens[8 * SIZE];
        weir__blocks_init(&blocks, SIZE);
        weir__mem_fail_after(at);
        weir__block *deepest = weir__blocks_add(&blocks, NULL, text, 10, WEIR_CACHE_DEVICE);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (!pending) assert_true(weir__blocks_count(&blocks, WEIR_CACHE_DEVICE) < 2);
        deepest = weir__blocks_add(&blocks, deepest, text, 10, WEIR_CACHE_DEVICE);
        assert_int_equal(weir__blocks_count(&blocks, WEIR_CACHE_DEVICE), 2);
        assert_int_equal(weir__blocks_take(&blocks, changes, tokens, 8), 2);
        weir__blocks_remove(&blocks, deepest, WEIR_CACHE_DEVICE);
        assert_int_equal(weir__blocks_take(&blocks, changes, tokens, 8), 2);
        assert_int_equal(blocks.table.n_links, 0);
        weir__blocks_fini(&blocks);
        if (pending) break;
    }
    assert_int_equal(weir__mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_against_the_texts),
        cmocka_unit_test(test_a_block_added_and_removed_is_not_reported),
        cmocka_unit_test(test_ids_are_of_the_tokens),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

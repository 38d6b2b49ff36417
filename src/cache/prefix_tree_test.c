/* prefix_tree_test.c: random texts beside plain arrays, and damage that the check finds.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cache/prefix_tree.h"
#include "support/dice.h"

#define TEXTS  64
#define LENGTH 24

/* The naive model: texts as arrays, compared one by one. */
typedef struct text_of_mine {
    weir__prefix_end end;
    int key;
    int32_t n;
    int32_t tokens[LENGTH];
    uint64_t age; /* of its rank: larger is newer */
} text_of_mine;

typedef struct world {
    dice d;
    weir__prefix_tree tree;
    text_of_mine texts[TEXTS];
    uint64_t age;
} world;

static const weir__prefix_key keys[] = {
    {NULL, 0, 0}, {"a", 1, 0}, {"a\0b", 3, 0}, {"a", 1, 7}, {NULL, 0, 7},
};
#define N_KEYS ((int)(sizeof keys / sizeof *keys))

static bool is_in(const text_of_mine *t)
{
    return t->end.node != NULL;
}

static int32_t common(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b)
{
    int32_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

/* Makes a text that is often a beginning of one that is there, or goes on behind one. */
static int32_t random_text(world *w, int32_t *tokens)
{
    const text_of_mine *like = &w->texts[dice_in(&w->d, 0, TEXTS - 1)];
    int32_t n = dice_in(&w->d, 1, LENGTH), kept = 0;
    if (like->n > 0 && !dice_one_in(&w->d, 4)) kept = dice_in(&w->d, 1, like->n);
    for (int32_t i = 0; i < n; i++) tokens[i] = i < kept ? like->tokens[i] : dice_in(&w->d, 0, 2);
    return n;
}

static void check_tree(world *w)
{
    const char *wrong = weir__prefix_tree_check(&w->tree);
    if (wrong != NULL) fail_msg("%s", wrong);
    for (int rank = 0; rank < WEIR__PREFIX_RANKS; rank++) {
        const text_of_mine *oldest = NULL;
        for (int i = 0; i < TEXTS; i++)
            if (is_in(&w->texts[i]) && (int)w->texts[i].end.rank == rank &&
                (oldest == NULL || w->texts[i].age < oldest->age))
                oldest = &w->texts[i];
        assert_ptr_equal(w->tree.oldest[rank], oldest != NULL ? &oldest->end : NULL);
    }
}

/* Ends that stand for each other: files for files, memory for memory. */
static bool is_like(const text_of_mine *o, const text_of_mine *t)
{
    return o->end.rank < WEIR__PREFIX_KEPT &&
           (o->end.rank == WEIR__PREFIX_DISK) == (t->end.rank == WEIR__PREFIX_DISK);
}

static void check_text(world *w, const text_of_mine *t)
{
    int32_t n;
    if (!is_in(t)) return;
    const int32_t *tokens = weir__prefix_tree_tokens(&t->end, &n);
    assert_int_equal(n, t->n);
    assert_memory_equal(tokens, t->tokens, (size_t)n * sizeof *tokens);
    for (int host = 0; host < 2; host++) {
        bool covered = false;
        for (int i = 0; i < TEXTS; i++) {
            const text_of_mine *o = &w->texts[i];
            if (o == t || !is_in(o) || o->key != t->key || o->n < t->n) continue;
            if (common(o->tokens, o->n, t->tokens, t->n) < t->n) continue;
            covered |= o->end.rank == WEIR__PREFIX_DEVICE || (host && o->end.rank == WEIR__PREFIX_HOST);
        }
        assert_int_equal(weir__prefix_tree_is_covered(&t->end, host), covered);
    }
    int32_t own = t->n;
    for (int i = 0; i < TEXTS && t->end.rank <= WEIR__PREFIX_HOST; i++) {
        const text_of_mine *o = &w->texts[i];
        if (o == t || !is_in(o) || o->key != t->key || o->end.rank > WEIR__PREFIX_HOST) continue;
        int32_t rest = t->n - common(o->tokens, o->n, t->tokens, t->n);
        if (rest < own) own = rest;
    }
    if (t->end.rank <= WEIR__PREFIX_HOST) assert_int_equal(weir__prefix_tree_own(&t->end), own);
    bool alone = true;
    for (int i = 0; i < TEXTS; i++) {
        const text_of_mine *o = &w->texts[i];
        alone &= o == t || !is_in(o) || o->key != t->key || common(o->tokens, o->n, t->tokens, t->n) < t->n;
    }
    assert_int_equal(weir__prefix_tree_is_alone(&t->end), alone);
    int32_t most = 0;
    for (int i = 0; i < TEXTS; i++) {
        const text_of_mine *o = &w->texts[i];
        bool is_above = o != t && is_in(o) && o->key == t->key && o->n <= t->n && is_like(o, t) &&
                        common(o->tokens, o->n, t->tokens, t->n) == o->n;
        if (is_above && o->n > most) most = o->n;
    }
    const weir__prefix_end *above = weir__prefix_tree_above(&t->end);
    n = 0;
    if (above != NULL) {
        weir__prefix_tree_tokens(above, &n);
        assert_true(above->rank < WEIR__PREFIX_KEPT && above != &t->end);
    }
    assert_int_equal(n, most);
    int32_t begun = 0, whole = 0;
    for (int i = 0; i < TEXTS; i++) {
        const text_of_mine *o = &w->texts[i];
        if (!is_in(o) || o->key != t->key || o->end.rank != WEIR__PREFIX_DISK) continue;
        int32_t met = common(o->tokens, o->n, t->tokens, t->n);
        if (met > begun) begun = met;
        if (met == t->n && o->n == t->n) whole = t->n;
    }
    assert_int_equal(weir__prefix_tree_on_disk(&t->end, false), begun);
    assert_int_equal(weir__prefix_tree_on_disk(&t->end, true), whole);
}

static void check_match(world *w)
{
    int32_t tokens[LENGTH], n = random_text(w, tokens), most = dice_in(&w->d, 0, n);
    int key = dice_in(&w->d, 0, N_KEYS - 1);
    const text_of_mine *self = dice_one_in(&w->d, 2) ? &w->texts[dice_in(&w->d, 0, TEXTS - 1)] : NULL;
    uint64_t serial = dice_one_in(&w->d, 2) ? UINT64_MAX : (uint64_t)dice_in(&w->d, 0, 4);
    weir__prefix_match m;
    int32_t n_known = 0, n_entry = 0, n_exact = 0, n_part = 0, n_live = 0, n_leader = 0;
    int best = WEIR__PREFIX_KEPT;
    bool diverges = false;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < TEXTS; i++) {
            const text_of_mine *t = &w->texts[i];
            if (!is_in(t) || t->key != key) continue;
            int32_t met = common(t->tokens, t->n, tokens, n), use = met < most ? met : most;
            if (pass == 1) {
                int32_t there = n_entry > n_live ? n_entry : n_live;
                if (t->end.rank == WEIR__PREFIX_PART && met == t->n && met <= there && met > n_part)
                    n_part = met;
                if ((int)t->end.rank < best && use == n_entry) best = (int)t->end.rank;
                diverges |= met == n_known && t->n > met;
                continue;
            }
            if (met > n_known) n_known = met;
            if (t->end.rank < WEIR__PREFIX_KEPT && use > n_entry) n_entry = use;
            if (t->end.rank < WEIR__PREFIX_KEPT && use == t->n && use > n_exact) n_exact = use;
            if (t->end.rank != WEIR__PREFIX_LIVE || (self != NULL && t == self)) continue;
            int32_t ready = use < t->end.n_ready ? use : t->end.n_ready;
            if (ready > n_live) n_live = ready;
            if (t->end.serial < serial && use > n_leader) n_leader = use;
        }
    long live = weir__mem_live();
    weir__mem_fail_after(0);
    weir__prefix_tree_match(&w->tree, &keys[key], tokens, n, most, WEIR__PREFIX_DISK,
                            self != NULL ? &self->end : NULL, serial, &m);
    assert_true(weir__mem_fail_pending()); /* nothing was allocated */
    weir__mem_fail_after(-1);
    assert_int_equal(weir__mem_live(), live);

    assert_int_equal(m.n_known, n_known);
    assert_int_equal(m.n_entry, n_entry);
    assert_int_equal(m.n_exact, n_exact);
    assert_int_equal(m.n_part, n_part);
    assert_int_equal(m.n_live, n_live);
    assert_int_equal(m.n_leader, n_leader);
    assert_int_equal(m.entry != NULL, n_entry > 0);
    assert_int_equal(m.exact != NULL, n_exact > 0);
    assert_int_equal(m.part != NULL, n_part > 0);
    if (n_part > 0)
        assert_ptr_equal(weir__prefix_tree_find(&w->tree, &keys[key], tokens, n_part, NULL)->node,
                         m.part->node);
    assert_int_equal(m.live != NULL, n_live > 0);
    assert_int_equal(m.leader != NULL, n_leader > 0);
    if (n_entry > 0) assert_int_equal(m.entry->rank, best);
    const weir__prefix_end *found[] = {m.entry, m.exact, m.live, m.leader};
    const int32_t shared[] = {n_entry, n_exact, n_live, n_leader};
    for (int i = 0; i < 4; i++) {
        if (found[i] == NULL) continue;
        const text_of_mine *t = (const text_of_mine *)(const void *)found[i]; /* its first member */
        assert_true(is_in(t) && t->key == key && common(t->tokens, t->n, tokens, n) >= shared[i]);
        assert_true(i != 1 || t->n == shared[i]);
        assert_true(i < 2 || (t->end.rank == WEIR__PREFIX_LIVE && t != self));
    }
    assert_int_equal(m.n_other > 0, diverges);
    if (m.n_other > 0 && n_known < n) assert_int_not_equal(m.other[0], tokens[n_known]);
}

static void insert(world *w, text_of_mine *t)
{
    t->n = random_text(w, t->tokens);
    t->key = dice_in(&w->d, 0, N_KEYS - 1);
    weir__prefix_rank rank = (weir__prefix_rank)dice_in(&w->d, 0, WEIR__PREFIX_RANKS - 1);
    size_t n_nodes = w->tree.table.n_links, n_bytes = w->tree.n_bytes, n_buckets = w->tree.table.n_buckets;
    if (dice_one_in(&w->d, 4)) weir__mem_fail_after(dice_in(&w->d, 0, 5));
    bool done = weir__prefix_tree_insert(&w->tree, &keys[t->key], t->tokens, t->n, &t->end, rank);
    weir__mem_fail_after(-1);
    if (!done) {
        assert_false(is_in(t));
        assert_int_equal(w->tree.table.n_links, n_nodes);
        assert_int_equal(w->tree.n_bytes, n_bytes + (w->tree.table.n_buckets - n_buckets) * sizeof(void *));
        t->n = 0;
        return;
    }
    t->age = ++w->age;
    t->end.n_ready = dice_in(&w->d, 0, t->n);
    t->end.serial = (uint64_t)dice_in(&w->d, 0, 4);
}

static void run_world(uint64_t seed, int n_steps)
{
    static world w;
    memset(&w, 0, sizeof w);
    w.d.state = seed;
    long live = weir__mem_live();
    weir__prefix_tree_init(&w.tree);
    for (int i = 0; i < n_steps; i++) {
        text_of_mine *t = &w.texts[dice_in(&w.d, 0, TEXTS - 1)];
        if (!is_in(t)) {
            if (!dice_one_in(&w.d, 3)) insert(&w, t);
        } else if (dice_one_in(&w.d, 2)) {
            weir__prefix_tree_remove(&w.tree, &t->end);
            t->n = 0;
        } else {
            weir__prefix_tree_rerank(&w.tree, &t->end,
                                     (weir__prefix_rank)dice_in(&w.d, 0, WEIR__PREFIX_RANKS - 1));
            t->age = ++w.age;
        }
        check_tree(&w);
        check_text(&w, &w.texts[dice_in(&w.d, 0, TEXTS - 1)]);
        check_match(&w);
    }
    if (dice_one_in(&w.d, 2)) {
        for (int i = 0; i < TEXTS; i++) weir__prefix_tree_remove(&w.tree, &w.texts[i].end);
        assert_int_equal(w.tree.table.n_links, 0);
        assert_int_equal(w.tree.n_bytes, w.tree.table.n_buckets * sizeof(void *));
    }
    weir__prefix_tree_fini(&w.tree);
    assert_int_equal(weir__mem_live(), live);
}

static void test_random_texts_against_arrays(void **state)
{
    (void)state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    uint64_t n = dice_environment("WEIR_TEST_SCHEDULES", 200);
    print_message("%llu worlds from WEIR_TEST_SEED=%llu\n", (unsigned long long)n, (unsigned long long)seed);
    for (uint64_t i = 0; i < n; i++) run_world(seed + i, 400);
}

/* A text that was found within a longer one keeps little of its memory, even if many nodes share it. */
static void test_memory_of_a_short_text_within_a_long_one(void **state)
{
    (void)state;
    enum { N = 1000, SHORT = 8 };
    static int32_t tokens[N];
    int32_t n;
    weir__prefix_tree tree;
    weir__prefix_end long_one, short_one, shorter_one;
    for (int starved = 0; starved < 2; starved++) {
        weir__prefix_tree_init(&tree);
        assert_true(weir__prefix_tree_insert(&tree, &keys[0], tokens, N, &long_one, WEIR__PREFIX_LIVE));
        assert_true(weir__prefix_tree_insert(&tree, &keys[0], tokens, SHORT, &short_one, WEIR__PREFIX_HOST));
        assert_true(
            weir__prefix_tree_insert(&tree, &keys[0], tokens, SHORT / 2, &shorter_one, WEIR__PREFIX_HOST));
        if (starved) weir__mem_fail_after(0);
        weir__prefix_tree_remove(&tree, &long_one);
        weir__mem_fail_after(-1);
        assert_int_equal(tree.n_bytes < N * sizeof *tokens, !starved);
        assert_null(weir__prefix_tree_check(&tree));
        assert_memory_equal(weir__prefix_tree_tokens(&short_one, &n), tokens, SHORT * sizeof *tokens);
        assert_int_equal(n, SHORT);
        weir__prefix_tree_remove(&tree, &short_one);
        assert_true(tree.n_bytes < N * sizeof *tokens);
        weir__prefix_tree_remove(&tree, &shorter_one);
        assert_int_equal(tree.n_bytes, tree.table.n_buckets * sizeof(void *));
        weir__prefix_tree_fini(&tree);
    }
}

/* Memory follows the texts that are there, not those that were. */
static void test_memory_of_what_has_gone(void **state)
{
    (void)state;
    enum { N = 1000 };
    static int32_t tokens[N];
    weir__prefix_tree tree;
    weir__prefix_end long_one, short_one, third;
    weir__prefix_tree_init(&tree);
    for (int32_t i = 0; i < N; i++) tokens[i] = i;
    assert_true(weir__prefix_tree_insert(&tree, &keys[0], tokens, N, &long_one, WEIR__PREFIX_DEVICE));
    tokens[10] = -1;
    assert_true(weir__prefix_tree_insert(&tree, &keys[0], tokens, 12, &short_one, WEIR__PREFIX_HOST));
    tokens[10] = -2;
    assert_true(weir__prefix_tree_insert(&tree, &keys[0], tokens, 12, &third, WEIR__PREFIX_HOST));
    assert_int_equal(tree.table.n_links, 5);
    assert_true(tree.n_bytes > N * sizeof *tokens);
    weir__prefix_tree_remove(&tree, &long_one);
    assert_int_equal(tree.table.n_links, 4);
    assert_true(tree.n_bytes < N * sizeof *tokens);
    weir__prefix_tree_remove(&tree, &third);
    assert_int_equal(tree.table.n_links, 2);
    weir__prefix_tree_remove(&tree, &short_one);
    weir__prefix_tree_remove(&tree, &short_one); /* once more: nothing */
    assert_int_equal(tree.table.n_links, 0);
    weir__prefix_tree_fini(&tree);
}

/* Keys have nothing in common, even where many share a bucket. */
static void test_keys_have_nothing_in_common(void **state)
{
    (void)state;
    enum { KEYS = 48 };
    static const char salt[KEYS] = {0};
    static weir__prefix_end ends[KEYS];
    weir__prefix_tree tree;
    weir__prefix_match match;
    weir__prefix_tree_init(&tree);
    for (int32_t i = 0; i < KEYS; i++) {
        weir__prefix_key key = {salt, (size_t)i, 0};
        int32_t tokens[2] = {1, i};
        weir__prefix_tree_match(&tree, &key, tokens, 2, 2, WEIR__PREFIX_DISK, NULL, UINT64_MAX, &match);
        assert_int_equal(match.n_known, 0);
        assert_true(weir__prefix_tree_insert(&tree, &key, tokens, 2, &ends[i], WEIR__PREFIX_HOST));
    }
    for (int32_t i = 0; i < KEYS; i++) {
        weir__prefix_key key = {salt, (size_t)i, 0};
        int32_t tokens[2] = {1, -1};
        weir__prefix_tree_match(&tree, &key, tokens, 2, 2, WEIR__PREFIX_DISK, NULL, UINT64_MAX, &match);
        assert_int_equal(match.n_known, 1);
        assert_int_equal(match.other[0], i);
        assert_ptr_equal(match.entry, &ends[i]);
    }
    weir__prefix_tree_fini(&tree);
}

/* A text of another key is found by nobody: the salts are as long as each other and share their buckets, and
 * so are the adapters. */
static void test_strangers_see_nothing(void **state)
{
    (void)state;
    enum { TENANTS = 20, STRANGERS = 780 };
    static weir__prefix_end ends[2 * TENANTS];
    static char salts[TENANTS + STRANGERS][12];
    const int32_t tokens[6] = {1, 2, 3, 4, 5, 6};
    weir__prefix_tree tree;
    weir__prefix_match match;
    weir__prefix_tree_init(&tree);
    for (int i = 0; i < TENANTS + STRANGERS; i++) snprintf(salts[i], sizeof salts[i], "tenant-%03d", i);
    for (int i = 0; i < TENANTS; i++) {
        const weir__prefix_key salted = {salts[i], 10, 0}, adapted = {NULL, 0, (uint64_t)i + 1};
        assert_true(weir__prefix_tree_insert(&tree, &salted, tokens, 6, &ends[2 * i], WEIR__PREFIX_HOST));
        assert_true(
            weir__prefix_tree_insert(&tree, &adapted, tokens, 6, &ends[2 * i + 1], WEIR__PREFIX_LIVE));
    }
    for (int i = TENANTS; i < TENANTS + STRANGERS; i++) {
        const weir__prefix_key strange[] = {{salts[i], 10, 0},
                                            {NULL, 0, (uint64_t)i + 1},
                                            {salts[i % TENANTS], 10, 5},
                                            {salts[i % TENANTS], 9, 0}};
        for (size_t k = 0; k < sizeof strange / sizeof *strange; k++) {
            weir__prefix_tree_match(&tree, &strange[k], tokens, 6, 6, WEIR__PREFIX_DISK, NULL, UINT64_MAX,
                                    &match);
            assert_true(match.n_known == 0 && match.n_other == 0 && match.entry == NULL &&
                        match.exact == NULL && match.live == NULL && match.leader == NULL);
        }
    }
    for (int i = 0; i < TENANTS; i++) { /* and each sees its own */
        const weir__prefix_key salted = {salts[i], 10, 0};
        weir__prefix_tree_match(&tree, &salted, tokens, 6, 6, WEIR__PREFIX_DISK, NULL, UINT64_MAX, &match);
        assert_ptr_equal(match.entry, &ends[2 * i]);
    }
    weir__prefix_tree_fini(&tree);
}

/* Prints, but does not check, how long a look-up takes among many nodes. */
static void test_many_nodes(void **state)
{
    (void)state;
    enum { ENTRIES = 10000, TOKENS = 400, PREFIX = 100, LOOKUPS = 2000 };
    static weir__prefix_end ends[ENTRIES];
    static int32_t tokens[TOKENS];
    weir__prefix_tree tree;
    weir__prefix_match match;
    dice d = {1};
    weir__prefix_tree_init(&tree);
    for (int32_t i = 0; i < TOKENS; i++) tokens[i] = i;
    for (int e = 0; e < ENTRIES; e++) {
        int32_t at = dice_in(&d, PREFIX, TOKENS - 2);
        tokens[at] = 1000 + e;
        assert_true(weir__prefix_tree_insert(&tree, &keys[0], tokens, TOKENS, &ends[e],
                                             e < 64    ? WEIR__PREFIX_LIVE
                                             : e < 250 ? WEIR__PREFIX_DEVICE
                                                       : WEIR__PREFIX_HOST));
        tokens[at] = at;
    }
    assert_null(weir__prefix_tree_check(&tree));
    int64_t start = weir__clock_now_ns();
    for (int i = 0; i < LOOKUPS; i++) {
        int32_t at = dice_in(&d, PREFIX, TOKENS - 2);
        tokens[at] = 1000 + dice_in(&d, 0, 2 * ENTRIES);
        weir__prefix_tree_match(&tree, &keys[0], tokens, TOKENS, TOKENS - 1, WEIR__PREFIX_DISK, NULL,
                                UINT64_MAX, &match);
        assert_true(match.n_known >= PREFIX && match.entry != NULL && match.n_entry >= PREFIX);
        tokens[at] = at;
    }
    int64_t ns = (weir__clock_now_ns() - start) / LOOKUPS;
    print_message("%zu nodes, %zu bytes, 64 live: a look-up takes %.1f us\n", tree.table.n_links,
                  tree.n_bytes, (double)ns / 1000);
    weir__prefix_tree_fini(&tree);
}

static void expect_wrong(const weir__prefix_tree *tree, const char *what)
{
    const char *wrong = weir__prefix_tree_check(tree);
    assert_non_null(wrong);
    assert_string_equal(wrong, what);
}

/* The check of debug builds finds ends that their owner has spoiled, of any rank. */
static void test_the_check_finds_damage(void **state)
{
    (void)state;
    static const int32_t tokens[] = {1, 2, 3};
    for (int rank = 0; rank < WEIR__PREFIX_RANKS; rank++) {
        weir__prefix_tree tree;
        weir__prefix_end a = {0}, b = {0};
        weir__prefix_tree_init(&tree);
        assert_true(weir__prefix_tree_insert(&tree, &keys[0], tokens, 3, &a, (weir__prefix_rank)rank));
        assert_true(weir__prefix_tree_insert(&tree, &keys[0], tokens, 2, &b, (weir__prefix_rank)rank));
        assert_null(weir__prefix_tree_check(&tree));
        tree.table.n_links++;
        expect_wrong(&tree, "nodes are miscounted");
        tree.table.n_links--;
        tree.n_ends[rank]++;
        expect_wrong(&tree, "ends are miscounted");
        tree.n_ends[rank]--;
        tree.oldest[rank] = &b;
        expect_wrong(&tree, "ends are miscounted");
        tree.oldest[rank] = &a;
        a.newer = NULL;
        expect_wrong(&tree, "the order by age is broken");
        a.newer = &b;
        a.node = b.node;
        expect_wrong(&tree, "an end is not where its node has it");
        weir__prefix_tree_fini(&tree);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_texts_against_arrays),
        cmocka_unit_test(test_memory_of_a_short_text_within_a_long_one),
        cmocka_unit_test(test_memory_of_what_has_gone),
        cmocka_unit_test(test_keys_have_nothing_in_common),
        cmocka_unit_test(test_strangers_see_nothing),
        cmocka_unit_test(test_many_nodes),
        cmocka_unit_test(test_the_check_finds_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

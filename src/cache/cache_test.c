/* cache_test.c: entries on their way through the states, beside the fake's memory and files.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/cache/cache.h"
#include "support/temp.h"

static const weir__prefix_key open_key = {0};

/* ---- One thing at a time -------------------------------------------------------------------------- */

static void test_finished_texts_serve_cut_anywhere(void **state)
{
    (void)state;
    for (size_t l = 0; l < N_ELEMENTS(layouts); l++) {
        shelf s;
        shelf_init(&s, "", layouts[l], 4, 0);
        assert_true(keep(&s, &open_key, "one two three", 0));
        assert_int_equal(look(&s, &open_key, "one two three").n, 12); /* its last token is computed */
        assert_fetches(&s, &open_key, "one two three four", 13, WEIR__PREFIX_DEVICE, 5);
        assert_fetches(&s, &open_key, "one two five", 8, WEIR__PREFIX_DEVICE, 6);
        weir__cache_hit hit = look(&s, &open_key, "one two five");
        assert_int_equal(hit.miss, WEIR_MISS_DIVERGED);
        assert_int_equal(hit.n_matched, 8);
        assert_int_equal(hit.n_other, 5);
        assert_int_equal(hit.other[0], 't');
        assert_int_equal(look(&s, &open_key, "one two").miss, WEIR_MISS_NONE);
        assert_int_equal(look(&s, &open_key, "another").miss, WEIR_MISS_COLD);
        assert_int_equal(look(&s, &open_key, "one two three four").miss, WEIR_MISS_COLD);
        assert_int_equal(weir__cache_sequence(look(&s, &open_key, "one").entry), 0);
        assert_ptr_equal(weir__cache_entry_of(s.cache, 0), look(&s, &open_key, "one").entry);
        assert_null(weir__cache_entry_of(s.cache, 1));
        shelf_fini(&s);
    }
}

static void test_a_longer_text_stands_for_its_beginning(void **state)
{
    (void)state;
    shelf s;
    shelf_init(&s, "", WEIR_LAYOUT_UNIFIED, 4, 0);
    assert_true(keep(&s, &open_key, "ab", 0));
    assert_true(keep(&s, &open_key, "abcd", 1)); /* "ab" goes */
    assert_int_equal(weir__cache_count(s.cache).n_device, 1);
    assert_int_equal(s.r.ops->seq_pos_max(s.r.context, 0), -1);
    assert_false(keep(&s, &open_key, "abc", 2));
    assert_false(keep(&s, &open_key, "abcd", 2));
    assert_true(keep(&s, &open_key, "abx", 2));
    assert_int_equal(weir__cache_count(s.cache).n_device, 2);
    assert_int_equal(weir__cache_count(s.cache).n_evicted, 0);
    weir__cache_check(s.cache);
    shelf_fini(&s);
}

/* Device, then host, then gone: the least recently used first. */
static void test_the_least_recently_used_goes_first(void **state)
{
    (void)state;
    for (size_t l = 0; l < N_ELEMENTS(layouts); l++) {
        shelf s;
        /* a state of the fake has 4 bytes, and 8 for each token */
        shelf_init(&s, "", layouts[l], 2, 2 * (4 + 8 * 3));
        assert_true(keep(&s, &open_key, "abc", 0));
        assert_true(keep(&s, &open_key, "def", 1));
        assert_fetches(&s, &open_key, "abcX", 3, WEIR__PREFIX_DEVICE, 9);
        assert_true(keep(&s, &open_key, "ghi", 2));
        assert_int_equal(s.r.ops->seq_pos_max(s.r.context, 1), -1);
        assert_fetches(&s, &open_key, "defX", 3, WEIR__PREFIX_HOST, 9);
        assert_fetches(&s, &open_key, "deX", 2, WEIR__PREFIX_HOST, 9);
        assert_fetches(&s, &open_key, "abcX", 3, WEIR__PREFIX_DEVICE, 9);
        assert_int_equal(weir__cache_evict(s.cache, NULL), 2); /* ghi */
        assert_int_equal(weir__cache_count(s.cache).n_evicted, 0);
        assert_fetches(&s, &open_key, "defX", 3, WEIR__PREFIX_HOST, 9);
        assert_int_equal(weir__cache_evict(s.cache, weir__cache_entry_of(s.cache, 0)), -1);
        assert_int_equal(weir__cache_evict(s.cache, NULL), 0); /* abc: ghi has to leave the host */
        assert_int_equal(weir__cache_evict(s.cache, NULL), -1);
        weir__cache_counts counts = weir__cache_count(s.cache);
        assert_int_equal(counts.n_evicted, 1);
        assert_int_equal(counts.n_host, 2);
        weir__cache_hit hit = look(&s, &open_key, "ghiX");
        assert_int_equal(hit.n, 0);
        assert_int_equal(hit.miss, WEIR_MISS_EVICTED);
        assert_int_equal(hit.n_matched, 3);
        assert_true(keep(&s, &open_key, "ghi", 3)); /* again */
        assert_fetches(&s, &open_key, "ghiX", 3, WEIR__PREFIX_DEVICE, 9);
        shelf_fini(&s);
    }
}

static void test_somebody_elses_bytes_come_first(void **state)
{
    (void)state;
    shelf s;
    shelf_init(&s, "", WEIR_LAYOUT_UNIFIED, 1, 100);
    assert_true(keep(&s, &open_key, "abc", 0));
    assert_true(keep(&s, &open_key, "def", 1));
    assert_int_equal(weir__cache_count(s.cache).n_host, 1);
    assert_false(weir__cache_claim(s.cache, 101));
    assert_true(weir__cache_claim(s.cache, 72)); /* leaves room for 28 */
    assert_int_equal(weir__cache_count(s.cache).n_host, 1);
    assert_true(weir__cache_claim(s.cache, 1));
    assert_int_equal(weir__cache_count(s.cache).n_host, 0);
    assert_false(weir__cache_claim(s.cache, 28));
    weir__cache_check(s.cache);
    weir__cache_unclaim(s.cache, 73);
    assert_true(weir__cache_claim(s.cache, 100));
    weir__cache_unclaim(s.cache, 100);
    shelf_fini(&s);
}

static void test_salts_and_adapters_are_apart(void **state)
{
    (void)state;
    static const weir__prefix_key a = {"a", 1, 0}, b = {"b", 1, 0}, with_adapter = {NULL, 0, 5};
    shelf s;
    shelf_init(&s, "", WEIR_LAYOUT_UNIFIED, 4, 0);
    assert_true(keep(&s, &a, "secret one", 0));
    assert_true(keep(&s, &open_key, "known to all", 1));
    assert_int_equal(look(&s, &a, "secret one!").n, 10);
    const weir__prefix_key *others[] = {&b, &open_key, &with_adapter};
    for (size_t i = 0; i < N_ELEMENTS(others); i++) {
        weir__cache_hit hit = look(&s, others[i], "secret one!");
        assert_int_equal(hit.n, 0);
        assert_int_equal(hit.n_matched, 0);
        assert_int_equal(hit.n_other, 0);
        assert_int_equal(hit.miss, WEIR_MISS_COLD);
    }
    assert_int_equal(look(&s, &a, "known to all").miss, WEIR_MISS_SALT);
    assert_int_equal(look(&s, &a, "known to all").n_other, 0);
    assert_int_equal(look(&s, &with_adapter, "known to all").miss, WEIR_MISS_COLD);
    /* a text that is gone is not cached without a salt, either */
    assert_int_equal(weir__cache_evict(s.cache, NULL), 0);
    assert_int_equal(look(&s, &a, "known to all").miss, WEIR_MISS_SALT);
    assert_int_equal(weir__cache_evict(s.cache, NULL), 1);
    assert_int_equal(look(&s, &open_key, "known to all").miss, WEIR_MISS_EVICTED);
    assert_int_equal(look(&s, &a, "known to all").miss, WEIR_MISS_COLD);
    shelf_fini(&s);
}

/* Requests that arrive while the prefix is being computed: the cells that they find, and the slots that they
 * wait for. */
static void test_running_requests_serve_and_lead(void **state)
{
    (void)state;
    shelf s;
    int32_t tokens[64];
    weir__prefix_end first = {0}, second = {0}, out = {0};
    shelf_init(&s, "", WEIR_LAYOUT_PER_SLOT, 0, 0);
    int32_t n = ids("one two three", tokens);
    assert_true(weir__cache_begin(s.cache, &open_key, tokens, n, 0, &first));
    weir__cache_hit hit = look(&s, &open_key, "one two four");
    assert_int_equal(hit.n, 0);
    assert_ptr_equal(hit.leader, &first);
    assert_int_equal(hit.n_leader, 8);
    hit = look(&s, &open_key, "one two three"); /* the same: all but its last token */
    assert_int_equal(hit.n_leader, 12);
    assert_int_equal(hit.miss, WEIR_MISS_COLD);

    feed(&s, 3, "one t");
    weir__cache_advance(s.cache, &first, 5, 0);
    hit = look(&s, &open_key, "one two four");
    assert_int_equal(hit.n, 5);
    assert_ptr_equal(hit.live, &first);
    assert_ptr_equal(hit.leader, &first);
    assert_ok(weir__cache_fetch(s.cache, &hit, 3, 4, error));
    assert_holds(&s, 4, tokens, 5);

    feed(&s, 3, "wo three");
    weir__cache_advance(s.cache, &first, 13, 0);
    hit = look(&s, &open_key, "one two four");
    assert_int_equal(hit.n, 8);
    assert_null(hit.leader);

    /* one that waits itself leads those that came after it only */
    n = ids("one two four five", tokens);
    assert_true(weir__cache_begin(s.cache, &open_key, tokens, n, 7, &second));
    hit = look(&s, &open_key, "one two four six");
    assert_int_equal(hit.n_leader, 13);
    n = ids("one two four six", tokens);
    weir__cache_look(s.cache, &open_key, tokens, n, true, NULL, 7, &hit);
    assert_null(hit.leader);
    weir__cache_look(s.cache, &open_key, tokens, n, true, &second, UINT64_MAX, &hit);
    assert_null(hit.leader);

    weir__mem_fail_after(0);
    assert_false(weir__cache_begin(s.cache, &open_key, tokens, n, 8, &out));
    weir__cache_advance(s.cache, &out, 1, 0); /* not known: nothing */
    weir__cache_end(s.cache, &out);
    weir__mem_fail_after(-1);
    weir__cache_end(s.cache, &first);
    weir__cache_end(s.cache, &second);
    assert_int_equal(look(&s, &open_key, "one two four").n_matched, 0);
    weir__memory_cut(&s.memory, 3, 0, 0);
    weir__memory_cut(&s.memory, 4, 0, 0);
    shelf_fini(&s);
}

/* A text of n tokens that shares none with another number's; it comes and goes at once. */
static void pass_by(shelf *s, int32_t number, int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++) tokens[i] = number;
    weir__memory_append(&s->memory, 0, n);
    assert_true(weir__cache_keep(s->cache, &open_key, tokens, n, 0, 0));
    assert_int_equal(weir__cache_evict(s->cache, NULL), 0);
}

/* The number of the texts 0 to most that are remembered; those must be the last ones. */
static int32_t remembered(shelf *s, int32_t most, int32_t *tokens, int32_t n)
{
    int32_t count = 0;
    for (int32_t number = 0; number < most; number++) {
        weir__cache_hit hit;
        for (int32_t i = 0; i < n; i++) tokens[i] = number;
        weir__cache_look(s->cache, &open_key, tokens, n, true, NULL, UINT64_MAX, &hit);
        assert_int_equal(hit.n, 0);
        assert_true(hit.miss == WEIR_MISS_EVICTED || hit.miss == WEIR_MISS_COLD);
        assert_false(count > 0 && hit.miss == WEIR_MISS_COLD);
        count += hit.miss == WEIR_MISS_EVICTED;
    }
    return count;
}

/* Tombstones serve only reports: no more than 4,096 texts, nor 16 MiB. */
static void test_tombstones_are_limited(void **state)
{
    (void)state;
    enum { SHORT = 3, LONG = 20000 };
    int32_t *tokens = weir__mem_alloc(LONG * sizeof *tokens);
    shelf s;
    shelf_init_sized(&s, "n_ctx_train=100000", LONG * SEQS, WEIR_LAYOUT_UNIFIED, 2, 0, NULL, 0);
    for (int32_t i = 0; i < 5000; i++) pass_by(&s, i, tokens, SHORT);
    assert_int_equal(remembered(&s, 5000, tokens, SHORT), 4096);
    weir__cache_check(s.cache);
    shelf_fini(&s);
    shelf_init_sized(&s, "n_ctx_train=100000", LONG * SEQS, WEIR_LAYOUT_UNIFIED, 2, 0, NULL, 0);
    for (int32_t i = 0; i < 300; i++) pass_by(&s, i, tokens, LONG);
    int32_t n = remembered(&s, 300, tokens, LONG), fit = (16 << 20) / (LONG * (int32_t)sizeof *tokens);
    assert_in_range(n, fit / 2, fit);
    weir__cache_check(s.cache);
    shelf_fini(&s);
    weir__mem_free(tokens);
}

static void test_memory_that_cannot_be_cut(void **state)
{
    (void)state;
    for (size_t l = 0; l < N_ELEMENTS(layouts); l++) {
        shelf s;
        int32_t tokens[64];
        shelf_init(&s, "recurrent=1", layouts[l], 4, 1000);
        int32_t n = ids("one two three", tokens);
        feed(&s, 0, "one");
        assert_false(weir__cache_keep(s.cache, &open_key, tokens, 3, 0, 0));
        assert_true(weir__cache_save(s.cache, &open_key, tokens, 3, 0, 0, false));
        assert_false(weir__cache_save(s.cache, &open_key, tokens, 3, 0, 0, false)); /* it is there */
        feed(&s, 0, " two three");
        assert_true(weir__cache_save(s.cache, &open_key, tokens, n, 0, 0, false));
        weir__memory_cut(&s.memory, 0, 0, 0);
        assert_int_equal(weir__cache_count(s.cache).n_host, 2);

        assert_fetches(&s, &open_key, "one two four", 3, WEIR__PREFIX_HOST, 5);
        assert_int_equal(look(&s, &open_key, "one two four").miss, WEIR_MISS_UNCUTTABLE);
        assert_fetches(&s, &open_key, "one two three four", 13, WEIR__PREFIX_HOST, 5);
        assert_int_equal(look(&s, &open_key, "one").n, 0);
        assert_int_equal(look(&s, &open_key, "one").miss, WEIR_MISS_UNCUTTABLE);
        assert_true(weir__cache_claim(s.cache, 1000));
        assert_int_equal(look(&s, &open_key, "one two three four").miss, WEIR_MISS_EVICTED);
        weir__cache_unclaim(s.cache, 1000);
        shelf_fini(&s);
    }
}

/* A longer sequence is cut by the part of a state that was saved on its way, shared or taken over, on the
 * device and from host memory. */
static void test_memory_that_a_part_cuts(void **state)
{
    (void)state;
    static const char *const kinds[] = {"hybrid=1", "n_swa=3"};
    for (size_t l = 0; l < 2 * N_ELEMENTS(layouts); l++) {
        shelf s;
        int32_t tokens[64];
        shelf_init(&s, kinds[l / 2], layouts[l % 2], 4, 1000);
        int32_t n = ids("one two three four", tokens);
        feed(&s, 0, "one two");
        assert_true(weir__cache_save(s.cache, &open_key, tokens, 7, 0, 0, false));
        assert_false(weir__cache_save(s.cache, &open_key, tokens, 7, 0, 0, false)); /* it is there */
        assert_int_equal(weir__cache_count(s.cache).n_bytes, 16);                   /* not the whole state */
        assert_int_equal(look(&s, &open_key, "one two 3").n, 0); /* nobody has the other cells */
        feed(&s, 0, " three four");
        assert_true(weir__cache_keep(s.cache, &open_key, tokens, n, 0, 0));

        assert_int_equal(look(&s, &open_key, "one two 3").miss, WEIR_MISS_UNCUTTABLE); /* one more is there */
        assert_fetches(&s, &open_key, "one two 3", 7, WEIR__PREFIX_DEVICE, 5);
        assert_int_equal(weir__cache_evict(s.cache, NULL), 0);
        assert_fetches(&s, &open_key, "one two 3", 7, WEIR__PREFIX_HOST, 5);
        weir__cache_check(s.cache);

        feed(&s, 0, "one two three four");
        assert_true(weir__cache_keep(s.cache, &open_key, tokens, n, 0, 0));
        weir__cache_hit hit = look(&s, &open_key, "one two 3");
        assert_int_equal(weir__cache_take_over(s.cache, &hit), 0);
        assert_holds(&s, 0, tokens, 7);
        weir__cache_check(s.cache);
        assert_fetches(&s, &open_key, "one two three four.", n, WEIR__PREFIX_HOST, 5); /* not lost */
        weir__memory_cut(&s.memory, 0, 0, 0);
        shelf_fini(&s);
    }
}

/* Feeds `n` tokens, which repeat the alphabet, and saves a part after each `step`; the first one is kept
 * keep_ms. At the end the sequence is kept, too. tokens: one more than n. */
static void feed_parts(shelf *s, int32_t *tokens, int32_t n, int32_t step, int32_t keep_ms, uint64_t most)
{
    for (int32_t i = 0; i <= n; i++) tokens[i] = 'a' + i % 26;
    for (int32_t end = step; end <= n; end += step) {
        char text[8] = "";
        for (int32_t i = 0; i < step; i++) text[i] = (char)tokens[end - step + i];
        feed(s, 0, text);
        assert_true(weir__cache_save(s->cache, &open_key, tokens, end, 0, end == step ? keep_ms : 0, false));
        assert_true(weir__cache_count(s->cache).n_bytes <= most);
    }
    assert_true(weir__cache_keep(s->cache, &open_key, tokens, n, 0, 0));
}

/* Of more parts than have room, those stay that save the most tokens. */
static void test_parts_are_spread(void **state)
{
    (void)state;
    enum { N_TOKENS = 240, STEP = 4, N_STAY = 8 };
    shelf s;
    int32_t tokens[N_TOKENS + 1];
    shelf_init(&s, "hybrid=1", WEIR_LAYOUT_PER_SLOT, 4, 16 * N_STAY);
    feed_parts(&s, tokens, N_TOKENS, STEP, 0, 16 * N_STAY);
    for (int32_t n = 1; n < N_TOKENS; n++) {
        weir__cache_hit hit;
        int32_t other = tokens[n];
        tokens[n] = '-';
        weir__cache_look(s.cache, &open_key, tokens, n + 1, true, NULL, UINT64_MAX, &hit);
        assert_in_range(hit.n, n > 60 ? n - 60 : 0, n);
        tokens[n] = other;
    }
    shelf_fini(&s);
}

/* A part that is to be kept stays, however little it saves, until its time is over. */
static void test_some_parts_go_later(void **state)
{
    (void)state;
    enum { N_TOKENS = 80, STEP = 4, N_STAY = 4 };
    for (int32_t keep_ms = 0; keep_ms <= 3600000; keep_ms += 3600000) {
        shelf s;
        int32_t tokens[N_TOKENS + 1];
        shelf_init(&s, "hybrid=1", WEIR_LAYOUT_PER_SLOT, 4, 16 * N_STAY);
        feed_parts(&s, tokens, N_TOKENS, STEP, keep_ms, 16 * N_STAY);
        weir__cache_hit hit;
        tokens[STEP] = '-';
        weir__cache_look(s.cache, &open_key, tokens, STEP + 1, true, NULL, UINT64_MAX, &hit);
        assert_int_equal(hit.n, keep_ms > 0 ? STEP : 0);
        weir__cache_counts counts = weir__cache_count(s.cache);
        assert_int_equal(counts.n_host, N_STAY);
        assert_int_equal(counts.n_evicted, N_TOKENS / STEP - N_STAY);
        shelf_fini(&s);
    }
}

static void test_entries_move_and_are_handed_over(void **state)
{
    (void)state;
    for (size_t l = 0; l < N_ELEMENTS(layouts); l++) {
        shelf s;
        int32_t tokens[64], n = ids("one two", tokens);
        shelf_init(&s, "", layouts[l], 4, 1000);
        assert_true(keep(&s, &open_key, "one two", 2));
        assert_true(weir__cache_move(s.cache, 2, 6));
        weir__cache_check(s.cache);
        assert_holds(&s, 2, NULL, 0);
        assert_holds(&s, 6, tokens, n);
        atomic_store(&s.r.fake->fail_share, true);
        assert_false(weir__cache_move(s.cache, 6, 1));
        atomic_store(&s.r.fake->fail_share, false);
        weir__cache_check(s.cache);
        assert_int_equal(weir__cache_adopt(s.cache, weir__cache_entry_of(s.cache, 6), n), 6);
        assert_holds(&s, 6, tokens, n);
        assert_int_equal(look(&s, &open_key, "one two").n_matched, 0);
        weir__memory_cut(&s.memory, 6, 0, 0);
        weir__cache_check(s.cache);
        shelf_fini(&s);
    }
}

/* A request that takes an entry's sequence and needs less of it leaves the whole in host memory, unless other
 * entries have all of it or nearly all. */
static void test_an_adopted_entry_is_saved_unless_others_have_it(void **state)
{
    (void)state;
    static const struct {
        const char *other;
        int32_t n, n_host, n_evicted;
    } cases[] = {
        {"something else!!", 13, 2, 0}, {"something else!!", 14, 1, 1}, {"something else!!", 16, 1, 0},
        {"sixteen token???", 13, 2, 0}, {"sixteen tokens??", 13, 1, 1}, {"sixteen tokens!!!", 15, 1, 0},
    };
    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        shelf s;
        shelf_init(&s, "", WEIR_LAYOUT_UNIFIED, 4, 1000);
        assert_true(keep(&s, &open_key, cases[i].other, 1));
        assert_int_equal(weir__cache_evict(s.cache, NULL), 1); /* into host memory */
        assert_true(keep(&s, &open_key, "sixteen tokens!!", 0));
        assert_int_equal(weir__cache_adopt(s.cache, weir__cache_entry_of(s.cache, 0), cases[i].n), 0);
        assert_int_equal(s.r.context->seqs[0].n, cases[i].n);
        weir__cache_counts counts = weir__cache_count(s.cache);
        assert_int_equal(counts.n_device, 0);
        assert_int_equal(counts.n_host, cases[i].n_host);
        assert_int_equal(counts.n_evicted, cases[i].n_evicted);
        weir__cache_check(s.cache);
        weir__memory_cut(&s.memory, 0, 0, 0);
        shelf_fini(&s);
    }
}

/* ---- Files ---------------------------------------------------------------------------------------- */

#define ONCE "once upon a time there was "

/* All that should be in files is. */
static void settle(shelf *s, int64_t now)
{
    for (int i = 0; i < 20; i++) {
        weir__cache_archive(s->cache, now, true);
        weir__archive_wait(s->params.archive);
        weir__cache_check(s->cache);
    }
}

static void test_files_are_another_place(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    int64_t now = weir__clock_now_ns() + LATER;
    temp_path(path, "kept");
    for (size_t l = 0; l < N_ELEMENTS(layouts); l++) {
        shelf s;
        shelf_init_with(&s, "", layouts[l], 4, 0, path, 1 << 20);
        assert_int_equal(weir__cache_archive_due(s.cache), WEIR__CLOCK_NEVER);
        assert_true(keep(&s, &open_key, ONCE "a king", 0));
        assert_true(keep(&s, &open_key, "short", 1));
        assert_true(weir__cache_archive_due(s.cache) < now);
        assert_false(weir__cache_archive(s.cache, weir__clock_now_ns(), true)); /* not yet */
        assert_false(weir__archive_is_busy(s.params.archive));
        settle(&s, now);
        weir__cache_counts counts = weir__cache_count(s.cache);
        assert_int_equal(counts.n_disk, 1); /* five tokens are not worth it */
        assert_true(counts.disk_bytes > 30 * 12);
        assert_int_equal(weir__cache_archive_due(s.cache), WEIR__CLOCK_NEVER);

        /* a sequence comes first, then the file; an entry in a file is not evicted */
        assert_fetches(&s, &open_key, ONCE "a king!", 33, WEIR__PREFIX_DEVICE, 7);
        assert_int_equal(weir__cache_evict(s.cache, weir__cache_entry_of(s.cache, 1)), 0);
        assert_int_equal(weir__cache_count(s.cache).n_evicted, 0);
        assert_fetches(&s, &open_key, ONCE "a king!", 33, WEIR__PREFIX_DISK, 7);
        assert_fetches(&s, &open_key, ONCE "no king", 27, WEIR__PREFIX_DISK, 7);
        assert_int_equal(weir__cache_count(s.cache).n_restored, 2);

        /* a little more is not written, much more takes the place of its beginning */
        assert_true(keep(&s, &open_key, ONCE "a king of", 2));
        settle(&s, now += LATER);
        assert_int_equal(weir__cache_count(s.cache).n_disk, 1);
        assert_true(keep(&s, &open_key, ONCE "a king of whom nobody knew the name", 3));
        settle(&s, now += LATER);
        assert_int_equal(weir__cache_count(s.cache).n_disk, 1);
        shelf_fini(&s);
        shelf_init_with(&s, "", layouts[l], 4, 0, path, 1 << 20);
        assert_fetches(&s, &open_key, ONCE "a king of whom nobody knew the end", 58, WEIR__PREFIX_DISK, 7);
        assert_int_equal(look(&s, &open_key, "short").n_matched, 0);
        shelf_fini(&s);
        temp_remove();
        temp_path(path, "kept");
    }
}

/* A part that cannot be loaded goes. The state or file that it would have cut stays. */
static void test_a_bad_part_costs_no_state(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    for (size_t l = 0; l < 2 * N_ELEMENTS(layouts); l++) {
        shelf s;
        int32_t tokens[64], n = ids(ONCE "a king", tokens);
        bool on_disk = l / 2 == 1;
        weir__prefix_rank rank = on_disk ? WEIR__PREFIX_DISK : WEIR__PREFIX_HOST;
        temp_path(path, "parts");
        shelf_init_with(&s, "hybrid=1", layouts[l % 2], 4, on_disk ? 100 : 1000, on_disk ? path : NULL,
                        1 << 20);
        feed(&s, 0, ONCE);
        assert_true(weir__cache_save(s.cache, &open_key, tokens, n - 6, 0, 0, false));
        feed(&s, 0, "a king");
        assert_true(weir__cache_keep(s.cache, &open_key, tokens, n, 0, 0));
        if (on_disk) settle(&s, weir__clock_now_ns() + LATER);
        assert_int_equal(weir__cache_evict(s.cache, NULL), 0);
        assert_fetches(&s, &open_key, ONCE "no king", n - 6, rank, 5);
        weir__cache_hit hit = look(&s, &open_key, ONCE "no king");
        atomic_store(&s.r.fake->fail_part_load, true);
        assert_int_equal(fetch(&s, &hit, -1, 5), WEIR_NOT_FOUND);
        atomic_store(&s.r.fake->fail_part_load, false);
        assert_holds(&s, 5, NULL, 0);
        assert_int_equal(look(&s, &open_key, ONCE "no king").n, 0);
        assert_fetches(&s, &open_key, ONCE "a king!", n, rank, 5);
        shelf_fini(&s);
        temp_remove();
    }
}

/* Overwrites the state's last byte in the only file of the folder, or counts the files. */
static int damage(const char *path, bool really)
{
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char at[2 * TEMP_PATH_MAX + 256];
        if (strstr(e->d_name, ".weirkv") == NULL) continue;
        n++;
        snprintf(at, sizeof at, "%s/%s", path, e->d_name);
        FILE *f = really ? fopen(at, "r+") : NULL;
        if (f == NULL) continue;
        fseek(f, -1, SEEK_END);
        int last = fgetc(f);
        fseek(f, -1, SEEK_END);
        fputc(last ^ 1, f);
        fclose(f);
    }
    closedir(dir);
    return n;
}

/* A damaged file is detected when it is read, and removed. */
static void test_a_damaged_file_goes(void **state)
{
    (void)state;
    shelf s;
    char path[TEMP_PATH_MAX];
    int32_t tokens[256], n = ids(ONCE "a king!", tokens);
    temp_path(path, "damaged");
    shelf_init_with(&s, "", WEIR_LAYOUT_UNIFIED, 4, 0, path, 1 << 20);
    assert_true(keep(&s, &open_key, ONCE "a king", 0));
    settle(&s, weir__clock_now_ns() + LATER);
    shelf_fini(&s);
    assert_int_equal(damage(path, true), 1);
    shelf_init_with(&s, "", WEIR_LAYOUT_UNIFIED, 4, 0, path, 1 << 20);
    weir__cache_hit hit;
    weir__cache_look(s.cache, &open_key, tokens, n, true, NULL, UINT64_MAX, &hit);
    assert_int_equal(hit.n, n - 1);
    assert_int_equal(fetch(&s, &hit, -1, 5), WEIR_NOT_FOUND);
    assert_int_equal(look(&s, &open_key, ONCE "a king!").n, 0);
    assert_int_equal(weir__cache_count(s.cache).n_disk, 0);
    shelf_fini(&s);
    assert_int_equal(damage(path, false), 0);
    temp_remove();
}

/* An entry is written now and then under load that never pauses; states that leave host memory are handed
 * over. */
static void test_files_without_a_pause(void **state)
{
    (void)state;
    shelf s;
    char path[TEMP_PATH_MAX];
    int64_t now = weir__clock_now_ns();
    temp_path(path, "busy");
    shelf_init_with(&s, "", WEIR_LAYOUT_UNIFIED, 1, 560, path, 1 << 20);
    assert_true(keep(&s, &open_key, ONCE "a king", 0));
    weir__cache_archive(s.cache, now + LATER / 1000, false); /* one second on */
    assert_false(weir__archive_is_busy(s.params.archive));
    weir__cache_archive(s.cache, now + LATER / 50, false);
    assert_true(weir__archive_is_busy(s.params.archive));
    weir__archive_wait(s.params.archive);
    assert_true(
        keep(&s, &open_key, "twice upon a time there was a king", 1)); /* the first goes to the host */
    assert_true(keep(&s, &open_key, "never there was such a king again", 2));
    assert_int_equal(weir__cache_count(s.cache).n_host, 2);
    assert_true(keep(&s, &open_key, "nor will there be such another one", 3)); /* which is in a file */
    assert_false(weir__archive_is_busy(s.params.archive));
    assert_true(keep(&s, &open_key, "but there was a queen, and she was", 4)); /* the second is in none */
    assert_true(weir__archive_is_busy(s.params.archive));
    weir__archive_wait(s.params.archive);
    assert_true(weir__cache_archive(s.cache, now + LATER / 50, false));
    assert_int_equal(weir__cache_count(s.cache).n_disk, 2);
    assert_fetches(&s, &open_key, "twice upon a time there was a king!", 34, WEIR__PREFIX_DISK, 9);
    assert_int_equal(look(&s, &open_key, ONCE "a king!").n, 33);
    weir__cache_check(s.cache);
    shelf_fini(&s);
    temp_remove();
}

static void test_misses_have_names(void **state)
{
    (void)state;
    assert_string_equal(weir_miss_name(WEIR_MISS_NONE), "none");
    assert_string_equal(weir_miss_name(WEIR_MISS_OFF), "off");
    assert_string_equal(weir_miss_name((weir_miss)WEIR_MISS_COUNT), "unknown");
}

/* Keeps the text in the sequence, as if it had been used that much later. */
static void keep_for(shelf *s, const char *text, int32_t seq, int32_t keep_ms)
{
    int32_t tokens[256], n = ids(text, tokens);
    feed(s, seq, text);
    assert_true(weir__cache_keep(s->cache, &open_key, tokens, n, seq, keep_ms));
}

static void some_entries_go_later(void **state)
{
    (void)state;
    const int32_t hour = 3600000;
    for (size_t l = 0; l < N_ELEMENTS(layouts); l++) {
        shelf s;
        struct timespec pause = {.tv_nsec = 5000000};
        shelf_init(&s, "", layouts[l], 4, 0);
        keep_for(&s, "abc", 0, 2 * hour);
        keep_for(&s, "def", 1, hour);
        keep_for(&s, "ghi", 2, 0);
        assert_fetches(&s, &open_key, "abcX", 3, WEIR__PREFIX_DEVICE, 9);
        assert_int_equal(weir__cache_evict(s.cache, weir__cache_entry_of(s.cache, 2)),
                         1); /* def: ghi is spared */
        assert_int_equal(weir__cache_evict(s.cache, NULL), 2);
        assert_int_equal(weir__cache_evict(s.cache, NULL), 0);
        assert_int_equal(weir__cache_evict(s.cache, NULL), -1);
        keep_for(&s, "abc", 0, 1);
        nanosleep(&pause, NULL); /* its time is over */
        keep_for(&s, "def", 1, 0);
        assert_int_equal(weir__cache_evict(s.cache, NULL), 0);
        shelf_fini(&s);

        /* one sequence, and host memory for two */
        shelf_init(&s, "", layouts[l], 1, 2 * (4 + 8 * 3));
        keep_for(&s, "abc", 0, hour);
        static const char *const others[] = {"def", "ghi", "jkl"};
        for (size_t i = 0; i < N_ELEMENTS(others); i++) {
            int32_t tokens[8], n = ids(others[i], tokens);
            feed(&s, 1, others[i]);
            assert_false(weir__cache_keep(s.cache, &open_key, tokens, n, 1, 0));
            assert_int_equal(s.memory.n[1], 0);
        }
        assert_fetches(&s, &open_key, "abcX", 3, WEIR__PREFIX_DEVICE, 9);
        assert_fetches(&s, &open_key, "jklX", 3, WEIR__PREFIX_HOST, 9);
        assert_int_equal(look(&s, &open_key, "defX").n, 0);
        assert_int_equal(weir__cache_evict(s.cache, NULL), 0); /* abc, into host memory */
        keep_for(&s, "mno", 0, 0);
        keep_for(&s, "pqr", 1, 0);
        keep_for(&s, "stu", 2, 0);
        assert_fetches(&s, &open_key, "abcX", 3, WEIR__PREFIX_HOST, 9);
        assert_fetches(&s, &open_key, "pqrX", 3, WEIR__PREFIX_HOST, 9);
        assert_int_equal(look(&s, &open_key, "mnoX").n, 0);
        shelf_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_entries_go_later),
        cmocka_unit_test(test_finished_texts_serve_cut_anywhere),
        cmocka_unit_test(test_a_longer_text_stands_for_its_beginning),
        cmocka_unit_test(test_the_least_recently_used_goes_first),
        cmocka_unit_test(test_somebody_elses_bytes_come_first),
        cmocka_unit_test(test_salts_and_adapters_are_apart),
        cmocka_unit_test(test_running_requests_serve_and_lead),
        cmocka_unit_test(test_tombstones_are_limited),
        cmocka_unit_test(test_memory_that_cannot_be_cut),
        cmocka_unit_test(test_memory_that_a_part_cuts),
        cmocka_unit_test(test_parts_are_spread),
        cmocka_unit_test(test_some_parts_go_later),
        cmocka_unit_test(test_a_bad_part_costs_no_state),
        cmocka_unit_test(test_entries_move_and_are_handed_over),
        cmocka_unit_test(test_an_adopted_entry_is_saved_unless_others_have_it),
        cmocka_unit_test(test_files_are_another_place),
        cmocka_unit_test(test_a_damaged_file_goes),
        cmocka_unit_test(test_files_without_a_pause),
        cmocka_unit_test(test_misses_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

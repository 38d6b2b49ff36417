/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/fake_internal.h"
#include "backend/testing.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cache/cache.h"
#include "support/dice.h"
#include "support/temp.h"

#define SEQS 10

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};
static const weir__prefix_key open_key = {0};

/* ---- A rig with a cache --------------------------------------------------------------------------- */

typedef struct shelf {
    rig r;
    weir__memory memory;
    weir__cache *cache;
    weir__cache_params params;
} shelf;

static void ring(void *user)
{
    (void)user;
}

/* path: a folder for files, NULL = none. */
static void shelf_init_sized(shelf *s, const char *options, int32_t n_ctx, weir_layout layout,
                             int32_t n_sequences, uint64_t n_bytes, const char *path, uint64_t disk_bytes)
{
    rig_init(&s->r, options, n_ctx, SEQS, layout);
    assert_ok(weir__memory_init(&s->memory, s->r.ops, s->r.context, &s->r.info, error));
    s->params = (weir__cache_params){
        .memory = &s->memory,
        .n_sequences = n_sequences,
        .n_bytes = n_bytes,
        .least = 1,
        .exact = s->r.model->info.is_recurrent,
    };
    const weir__archive_params kept = {
        .path = path, .n_bytes = disk_bytes, .limits = {1, s->r.info.n_ctx_seq, 320}, .ring = ring};
    if (path != NULL) assert_ok(weir__archive_open(&kept, &s->params.archive, error));
    assert_ok(weir__cache_create(&s->params, &s->cache, error));
}

static void shelf_init_with(shelf *s, const char *options, weir_layout layout, int32_t n_sequences,
                            uint64_t n_bytes, const char *path, uint64_t disk_bytes)
{
    shelf_init_sized(s, options, 256 * SEQS, layout, n_sequences, n_bytes, path, disk_bytes);
}

static void shelf_init(shelf *s, const char *options, weir_layout layout, int32_t n_sequences,
                       uint64_t n_bytes)
{
    shelf_init_with(s, options, layout, n_sequences, n_bytes, NULL, 0);
}

static void shelf_fini(shelf *s)
{
    weir__cache_destroy(s->cache);
    weir__memory_check(&s->memory);
    assert_int_equal(s->memory.n_used, 0);
    weir__memory_fini(&s->memory);
    assert_int_equal(atomic_load(&s->r.fake->faults), 0);
    rig_fini(&s->r);
}

static int32_t ids(const char *text, int32_t *tokens)
{
    int32_t n = 0;
    for (; text[n] != '\0'; n++) tokens[n] = (unsigned char)text[n];
    return n;
}

static weir__cache_hit look(shelf *s, const weir__prefix_key *key, const char *text)
{
    int32_t tokens[256], n = ids(text, tokens);
    weir__cache_hit hit;
    weir__cache_look(s->cache, key, tokens, n, NULL, UINT64_MAX, &hit);
    return hit;
}

static void feed(shelf *s, int32_t seq, const char *text)
{
    assert_int_equal(append(&s->r, seq, text), WEIR_OK);
    weir__memory_append(&s->memory, seq, (int32_t)strlen(text));
}

static bool keep(shelf *s, const weir__prefix_key *key, const char *text, int32_t seq)
{
    int32_t tokens[256], n = ids(text, tokens);
    feed(s, seq, text);
    if (weir__cache_keep(s->cache, key, tokens, n, seq)) return true;
    weir__memory_cut(&s->memory, seq, 0);
    return false;
}

static void assert_holds(shelf *s, int32_t seq, const int32_t *tokens, int32_t n)
{
    const weir__fake_seq *held = &s->r.context->seqs[seq];
    assert_int_equal(held->n, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(held->token[i], tokens[i]);
        assert_int_equal(held->pos[i], i);
    }
}

static void assert_fetches(shelf *s, const weir__prefix_key *key, const char *text, int32_t n,
                           weir__prefix_rank rank, int32_t to)
{
    int32_t tokens[256];
    ids(text, tokens);
    weir__cache_hit hit = look(s, key, text);
    assert_int_equal(hit.n, n);
    assert_non_null(hit.entry);
    assert_int_equal(hit.entry->rank, rank);
    assert_ok(weir__cache_fetch(s->cache, &hit, -1, to, error));
    assert_holds(s, to, tokens, n);
    weir__memory_cut(&s->memory, to, 0);
    weir__cache_check(s->cache);
}

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

/* Device, then host, then gone: what was used longest ago first. */
static void test_the_least_recently_used_goes_first(void **state)
{
    (void)state;
    for (size_t l = 0; l < N_ELEMENTS(layouts); l++) {
        shelf s;
        /* a state of the fake's has 4 bytes, and 8 for each token */
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
    shelf_fini(&s);
}

/* Who comes while the prefix is being computed: what is there already, and whom to wait for. */
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
    weir__cache_look(s.cache, &open_key, tokens, n, NULL, 7, &hit);
    assert_null(hit.leader);
    weir__cache_look(s.cache, &open_key, tokens, n, &second, UINT64_MAX, &hit);
    assert_null(hit.leader);

    weir__mem_fail_after(0);
    assert_false(weir__cache_begin(s.cache, &open_key, tokens, n, 8, &out));
    weir__cache_advance(s.cache, &out, 1, 0); /* not known: nothing */
    weir__cache_end(s.cache, &out);
    weir__mem_fail_after(-1);
    weir__cache_end(s.cache, &first);
    weir__cache_end(s.cache, &second);
    assert_int_equal(look(&s, &open_key, "one two four").n_matched, 0);
    weir__memory_cut(&s.memory, 3, 0);
    weir__memory_cut(&s.memory, 4, 0);
    shelf_fini(&s);
}

/* A text of n tokens that shares none with another number's; it comes and goes at once. */
static void pass_by(shelf *s, int32_t number, int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++) tokens[i] = number;
    weir__memory_append(&s->memory, 0, n);
    assert_true(weir__cache_keep(s->cache, &open_key, tokens, n, 0));
    assert_int_equal(weir__cache_evict(s->cache, NULL), 0);
}

/* How many of the texts of numbers 0 to most are remembered; those must be the last ones. */
static int32_t remembered(shelf *s, int32_t most, int32_t *tokens, int32_t n)
{
    int32_t count = 0;
    for (int32_t number = 0; number < most; number++) {
        weir__cache_hit hit;
        for (int32_t i = 0; i < n; i++) tokens[i] = number;
        weir__cache_look(s->cache, &open_key, tokens, n, NULL, UINT64_MAX, &hit);
        assert_int_equal(hit.n, 0);
        assert_true(hit.miss == WEIR_MISS_EVICTED || hit.miss == WEIR_MISS_COLD);
        assert_false(count > 0 && hit.miss == WEIR_MISS_COLD);
        count += hit.miss == WEIR_MISS_EVICTED;
    }
    return count;
}

/* What is gone is remembered for the sake of a word in a report: no more than 4,096 texts, nor 16 MiB. */
static void test_what_is_gone_is_not_remembered_for_ever(void **state)
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
        assert_false(weir__cache_keep(s.cache, &open_key, tokens, 3, 0));
        assert_true(weir__cache_save(s.cache, &open_key, tokens, 3, 0));
        assert_false(weir__cache_save(s.cache, &open_key, tokens, 3, 0)); /* it is there */
        feed(&s, 0, " two three");
        assert_true(weir__cache_save(s.cache, &open_key, tokens, n, 0));
        weir__memory_cut(&s.memory, 0, 0);
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
        weir__memory_cut(&s.memory, 6, 0);
        weir__cache_check(s.cache);
        shelf_fini(&s);
    }
}

/* ---- Files ---------------------------------------------------------------------------------------- */

#define ONCE  "once upon a time there was "
#define LATER INT64_C(1000000000000)

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

        /* a sequence comes first, then the file; what is in a file is not evicted */
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

/* It is found out when it is read, and goes. */
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
    weir__cache_look(s.cache, &open_key, tokens, n, NULL, UINT64_MAX, &hit);
    assert_int_equal(hit.n, n - 1);
    assert_int_equal(weir__cache_fetch(s.cache, &hit, -1, 5, NULL), WEIR_NOT_FOUND);
    assert_int_equal(look(&s, &open_key, ONCE "a king!").n, 0);
    assert_int_equal(weir__cache_count(s.cache).n_disk, 0);
    shelf_fini(&s);
    assert_int_equal(damage(path, false), 0);
    temp_remove();
}

/* Under load that never pauses one is written now and then; what leaves host memory is handed over. */
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

/* ---- Random schedules ----------------------------------------------------------------------------- */

#define RUNNERS 4
#define LENGTH  40
#define SEEN    200

typedef struct runner {
    weir__prefix_end end;
    int key; /* -1 = none runs */
    int32_t seq, n, n_past;
    int32_t tokens[LENGTH];
} runner;

/* The naive model: every text that was ever computed, by key. */
typedef struct world {
    dice d;
    shelf s;
    runner runners[RUNNERS];
    struct {
        int key;
        int32_t n, tokens[LENGTH];
    } seen[SEEN];
    int n_seen;
    uint64_t n_claimed, n_tokens_hit;
    bool faulty;
    char path[TEMP_PATH_MAX]; /* "": without files */
    int64_t now;
} world;

static const weir__prefix_key keys[] = {{0}, {"a", 1, 0}, {"b", 1, 0}};

static int32_t common(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b)
{
    int32_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

static bool is_free(const world *w, int32_t seq)
{
    for (int i = 0; i < RUNNERS; i++)
        if (w->runners[i].key >= 0 && w->runners[i].seq == seq) return false;
    return weir__cache_entry_of(w->s.cache, seq) == NULL;
}

static int32_t free_seq(world *w)
{
    int32_t start = dice_in(&w->d, 0, SEQS - 1);
    for (int32_t i = 0; i < SEQS; i++)
        if (is_free(w, (start + i) % SEQS)) return (start + i) % SEQS;
    return weir__cache_evict(w->s.cache, NULL);
}

/* Nothing that anybody did has touched what runs. */
static void check_world(world *w)
{
    weir__cache_check(w->s.cache);
    weir__memory_check(&w->s.memory);
    assert_int_equal(w->s.memory.n_used, atomic_load(&w->s.r.fake->n_cells));
    bool wanted[SEQS], alone[SEQS] = {false};
    for (int32_t seq = 0; seq < SEQS; seq++) wanted[seq] = w->s.memory.n[seq] > 0;
    assert_int_equal(weir__memory_count(&w->s.memory, wanted), w->s.memory.n_used);
    alone[dice_in(&w->d, 0, SEQS - 1)] = true;
    for (int32_t seq = 0; seq < SEQS; seq++)
        if (alone[seq]) assert_int_equal(weir__memory_count(&w->s.memory, alone), w->s.memory.n[seq]);
    for (int i = 0; i < RUNNERS; i++)
        if (w->runners[i].key >= 0)
            assert_holds(&w->s, w->runners[i].seq, w->runners[i].tokens, w->runners[i].n_past);
    for (int32_t seq = 0; seq < SEQS; seq++)
        if (is_free(w, seq)) assert_int_equal(w->s.r.ops->seq_pos_max(w->s.r.context, seq), -1);
}

static void check_hit(world *w, const runner *r, const weir__cache_hit *hit)
{
    int32_t best = 0, there = 0;
    bool other = hit->n_other == 0;
    for (int i = 0; i < w->n_seen; i++) {
        if (w->seen[i].key != r->key) continue;
        int32_t met = common(w->seen[i].tokens, w->seen[i].n, r->tokens, r->n);
        if (met > best) best = met;
        int32_t left = w->seen[i].n - hit->n_matched;
        other |= met >= hit->n_matched && left >= hit->n_other &&
                 memcmp(w->seen[i].tokens + hit->n_matched, hit->other,
                        (size_t)hit->n_other * sizeof(int32_t)) == 0;
    }
    for (int i = 0; i < RUNNERS; i++) {
        const runner *o = &w->runners[i];
        if (o == r || o->key != r->key || o->end.node == NULL) continue;
        int32_t met = common(o->tokens, o->n_past, r->tokens, r->n - 1);
        if (met > there) there = met;
    }
    assert_true(hit->n <= best && hit->n <= hit->n_matched && hit->n < r->n);
    assert_true(hit->n_matched <= best);
    assert_true(other); /* nobody else's tokens */
    assert_true(hit->n_other == 0 || hit->miss == WEIR_MISS_DIVERGED);
    assert_int_equal(hit->miss == WEIR_MISS_NONE, hit->n == r->n - 1);
    assert_true(w->s.params.exact || hit->n >= there);
    assert_true(hit->leader == NULL || hit->n_leader > hit->n);
}

static void start(world *w, runner *r)
{
    weir__cache_hit hit;
    r->n = dice_in(&w->d, 1, LENGTH);
    r->key = dice_in(&w->d, 0, 2);
    int32_t kept = 0;
    if (w->n_seen > 0 && !dice_one_in(&w->d, 4)) {
        int like = dice_in(&w->d, 0, w->n_seen - 1);
        kept = dice_in(&w->d, 1, w->seen[like].n);
        memcpy(r->tokens, w->seen[like].tokens, (size_t)kept * sizeof *r->tokens);
    }
    for (int32_t i = kept; i < r->n; i++) r->tokens[i] = dice_in(&w->d, 0, 2);
    r->end = (weir__prefix_end){0};
    r->seq = free_seq(w);
    assert_true(r->seq >= 0);
    r->n_past = 0;

    weir__cache_look(w->s.cache, &keys[r->key], r->tokens, r->n, NULL, UINT64_MAX, &hit);
    check_hit(w, r, &hit);
    int32_t whole = hit.entry != NULL ? weir__cache_length(hit.entry) : 0;
    if (hit.n > 0 && whole > 0 && weir__cache_sequence(hit.entry) >= 0 && dice_one_in(&w->d, 2)) {
        r->seq = weir__cache_adopt(w->s.cache, hit.entry, hit.n);
        r->n_past = hit.n;
    } else if (hit.n > 0) {
        const runner *from = (const runner *)(const void *)hit.live; /* its first member */
        weir_status status = weir__cache_fetch(w->s.cache, &hit, from != NULL ? from->seq : -1, r->seq, NULL);
        assert_true(status == WEIR_OK || w->faulty || status == WEIR_NO_SPACE);
        if (status == WEIR_OK) r->n_past = hit.n;
    }
    w->n_tokens_hit += (uint64_t)r->n_past;
    if (!weir__cache_begin(w->s.cache, &keys[r->key], r->tokens, r->n, 0, &r->end)) assert_true(w->faulty);
    weir__cache_advance(w->s.cache, &r->end, r->n_past, 0);
    if (w->n_seen < SEEN) { /* a text counts as seen from here on, since it may be computed to its end */
        w->seen[w->n_seen].key = r->key;
        w->seen[w->n_seen].n = r->n;
        memcpy(w->seen[w->n_seen++].tokens, r->tokens, sizeof r->tokens);
    }
}

static void compute(world *w, runner *r)
{
    weir__batch *batch = &w->s.r.batch;
    int32_t most = r->n - r->n_past;
    if (most == 0) return;
    batch->n = 0;
    for (int32_t i = dice_in(&w->d, 1, most); i > 0; i--, r->n_past++)
        weir__batch_add(batch, r->tokens[r->n_past], r->n_past, r->seq, i == 1);
    assert_ok(w->s.r.ops->decode(w->s.r.context, batch, error));
    weir__memory_append(&w->s.memory, r->seq, batch->n);
    weir__cache_advance(w->s.cache, &r->end, r->n_past, 0);
    if (dice_one_in(&w->d, 3)) weir__cache_save(w->s.cache, &keys[r->key], r->tokens, r->n_past, r->seq);
}

static void finish(world *w, runner *r)
{
    bool kept = r->n_past > 0 && dice_one_in(&w->d, 2) &&
                weir__cache_keep(w->s.cache, &keys[r->key], r->tokens, r->n_past, r->seq);
    if (!kept) weir__memory_cut(&w->s.memory, r->seq, 0);
    weir__cache_end(w->s.cache, &r->end);
    r->key = -1;
}

static void spoil_file(world *w)
{
    char file[2 * TEMP_PATH_MAX];
    DIR *dir = opendir(w->path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' || !dice_one_in(&w->d, 3)) continue;
        snprintf(file, sizeof file, "%s/%s", w->path, e->d_name);
        if (dice_one_in(&w->d, 2))
            unlink(file);
        else
            assert_true(truncate(file, dice_in(&w->d, 0, 400)) == 0 || access(file, F_OK) != 0);
    }
    closedir(dir);
}

static void step(world *w)
{
    runner *r = &w->runners[dice_in(&w->d, 0, RUNNERS - 1)];
    weir__fake *fake = w->s.r.fake;
    if (w->faulty) {
        if (dice_one_in(&w->d, 3)) weir__mem_fail_after(dice_in(&w->d, 0, 8));
        atomic_store(&fake->fail_state_save, dice_one_in(&w->d, 6));
        atomic_store(&fake->fail_state_load, dice_one_in(&w->d, 6));
        atomic_store(&fake->fail_share, dice_one_in(&w->d, 6));
    }
    int32_t event = dice_in(&w->d, 0, 9), seq = dice_in(&w->d, 0, SEQS - 1);
    if (event == 0) {
        weir__cache_evict(w->s.cache, weir__cache_entry_of(w->s.cache, seq));
    } else if (event == 1 && weir__cache_entry_of(w->s.cache, seq) != NULL) {
        int32_t to = free_seq(w);
        if (weir__cache_entry_of(w->s.cache, seq) != NULL) weir__cache_move(w->s.cache, seq, to);
    } else if (event == 2) {
        uint64_t n = (uint64_t)dice_in(&w->d, 0, 300);
        weir__cache_unclaim(w->s.cache, w->n_claimed);
        w->n_claimed = weir__cache_claim(w->s.cache, n) ? n : 0;
    } else if (event < 5 && w->path[0] != '\0') {
        weir__cache_archive(w->s.cache, w->now += LATER, dice_one_in(&w->d, 2));
        if (dice_one_in(&w->d, 2)) weir__archive_wait(w->s.params.archive);
        if (w->faulty && dice_one_in(&w->d, 8)) spoil_file(w);
    } else if (r->key < 0) {
        start(w, r);
    } else if (dice_one_in(&w->d, 3)) {
        finish(w, r);
    } else {
        compute(w, r);
    }
    weir__mem_fail_after(-1);
    check_world(w);
}

/* What is in files is what was computed, by whoever has the key. */
static uint64_t check_files(world *w, const char *kind, weir_layout layout)
{
    uint64_t n_tokens = 0;
    shelf_init_with(&w->s, kind, layout, 2, 0, w->path, 1 << 20);
    for (int i = 0; i < w->n_seen; i++) {
        weir__cache_hit hit;
        int32_t most = w->seen[i].n;
        weir__cache_look(w->s.cache, &keys[w->seen[i].key], w->seen[i].tokens, most, NULL, UINT64_MAX, &hit);
        if (hit.n == 0) continue;
        assert_int_equal(hit.entry->rank, WEIR__PREFIX_DISK);
        weir_status status = weir__cache_fetch(w->s.cache, &hit, -1, 3, NULL);
        assert_true(status == WEIR_OK || w->faulty);
        if (status == WEIR_OK) assert_holds(&w->s, 3, w->seen[i].tokens, hit.n);
        n_tokens += status == WEIR_OK ? (uint64_t)hit.n : 0;
        weir__memory_cut(&w->s.memory, 3, 0);
        weir__cache_check(w->s.cache);
    }
    shelf_fini(&w->s);
    return n_tokens;
}

static uint64_t run_world(uint64_t seed, uint64_t *n_kept)
{
    static world w;
    memset(&w, 0, sizeof w);
    w.d.state = seed;
    long live = weir__mem_live();
    const char *kinds[] = {"seed=1", "seed=1,exact=1", "seed=1,recurrent=1"};
    const char *kind = kinds[dice_in(&w.d, 0, 2)];
    weir_layout layout = layouts[dice_in(&w.d, 0, 1)];
    int32_t n_sequences = dice_in(&w.d, 0, 5);
    uint64_t n_bytes = dice_one_in(&w.d, 3) ? 0 : (uint64_t)dice_in(&w.d, 0, 3000);
    if (dice_one_in(&w.d, 3)) temp_path(w.path, "world");
    w.now = weir__clock_now_ns();
    shelf_init_with(&w.s, kind, layout, n_sequences, n_bytes, w.path[0] != '\0' ? w.path : NULL,
                    (uint64_t)dice_in(&w.d, 0, 6000));
    w.faulty = dice_one_in(&w.d, 3);
    for (int i = 0; i < RUNNERS; i++) w.runners[i].key = -1;
    for (int i = 0; i < 300; i++) step(&w);
    atomic_store(&w.s.r.fake->fail_share, false);
    for (int i = 0; i < RUNNERS; i++)
        if (w.runners[i].key >= 0) finish(&w, &w.runners[i]);
    atomic_store(&w.s.r.fake->fail_state_save, false);
    shelf_fini(&w.s);
    if (w.path[0] != '\0') {
        *n_kept += check_files(&w, kind, layout);
        temp_remove();
    }
    assert_int_equal(weir__mem_live(), live);
    return w.n_tokens_hit;
}

static void quiet(weir_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
}

static void test_random_schedules(void **state)
{
    (void)state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", (uint64_t)weir__clock_now_ns() % 1000000000);
    uint64_t n = dice_environment("WEIR_TEST_SCHEDULES", 300), n_hit = 0, n_kept = 0;
    weir_log_set(quiet, NULL);
    print_message("%llu worlds from WEIR_TEST_SEED=%llu\n", (unsigned long long)n, (unsigned long long)seed);
    for (uint64_t i = 0; i < n; i++) n_hit += run_world(seed + i, &n_kept);
    weir_log_set(NULL, NULL);
    print_message("%llu tokens came from the cache, %llu from files\n", (unsigned long long)n_hit,
                  (unsigned long long)n_kept);
    assert_true(n < 100 || (n_hit > 30 * n && n_kept > n));
}

static void test_misses_have_names(void **state)
{
    (void)state;
    assert_string_equal(weir_miss_name(WEIR_MISS_NONE), "none");
    assert_string_equal(weir_miss_name(WEIR_MISS_OFF), "off");
    assert_string_equal(weir_miss_name((weir_miss)WEIR_MISS_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finished_texts_serve_cut_anywhere),
        cmocka_unit_test(test_a_longer_text_stands_for_its_beginning),
        cmocka_unit_test(test_the_least_recently_used_goes_first),
        cmocka_unit_test(test_somebody_elses_bytes_come_first),
        cmocka_unit_test(test_salts_and_adapters_are_apart),
        cmocka_unit_test(test_running_requests_serve_and_lead),
        cmocka_unit_test(test_what_is_gone_is_not_remembered_for_ever),
        cmocka_unit_test(test_memory_that_cannot_be_cut),
        cmocka_unit_test(test_entries_move_and_are_handed_over),
        cmocka_unit_test(test_files_are_another_place),
        cmocka_unit_test(test_a_damaged_file_goes),
        cmocka_unit_test(test_files_without_a_pause),
        cmocka_unit_test(test_random_schedules),
        cmocka_unit_test(test_misses_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

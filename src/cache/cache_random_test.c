/* cache_random_test.c: random schedules of requests, held against every text that was ever computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/cache/cache.h"
#include "support/dice.h"
#include "support/temp.h"

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

/* No step has changed the running requests. */
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

    weir__cache_look(w->s.cache, &keys[r->key], r->tokens, r->n, true, NULL, UINT64_MAX, &hit);
    check_hit(w, r, &hit);
    if (dice_one_in(&w->d, 3) && weir__cache_call(w->s.cache, &hit, WEIR__CLOCK_NEVER) != WEIR__CACHE_HERE) {
        /* starts without the file, which may be gone when it has been read */
        weir__cache_look(w->s.cache, &keys[r->key], r->tokens, r->n, false, NULL, UINT64_MAX, &hit);
        assert_true(hit.entry == NULL || hit.entry->rank != WEIR__PREFIX_DISK);
    }
    int32_t whole = hit.entry != NULL ? weir__cache_length(hit.entry) : 0;
    if (hit.n > 0 && whole > 0 && weir__cache_sequence(hit.entry) >= 0 && dice_one_in(&w->d, 2)) {
        r->seq = weir__cache_take_over(w->s.cache, &hit);
        assert_true(w->s.memory.n[r->seq] == hit.n || (w->faulty && w->s.memory.n[r->seq] == 0));
        r->n_past = w->s.memory.n[r->seq];
    } else if (hit.n > 0) {
        const runner *from = (const runner *)(const void *)hit.live; /* its first member */
        weir_status status = fetch(&w->s, &hit, from != NULL ? from->seq : -1, r->seq);
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
    if (dice_one_in(&w->d, 3))
        weir__cache_save(w->s.cache, &keys[r->key], r->tokens, r->n_past, r->seq, 0, false);
}

static void finish(world *w, runner *r)
{
    bool kept = r->n_past > 0 && dice_one_in(&w->d, 2) &&
                weir__cache_keep(w->s.cache, &keys[r->key], r->tokens, r->n_past, r->seq, 0);
    if (!kept) weir__memory_cut(&w->s.memory, r->seq, 0, 0);
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
        if (dice_one_in(&w->d, 2)) weir__reader_wait(weir__archive_reader(w->s.params.archive));
        if (weir__cache_has_read(w->s.cache)) weir__cache_put_away(w->s.cache);
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

/* Files hold the computed states, under their keys. */
static uint64_t check_files(world *w, const char *kind, weir_layout layout)
{
    uint64_t n_tokens = 0;
    shelf_init_with(&w->s, kind, layout, 2, 0, w->path, 1 << 20);
    for (int i = 0; i < w->n_seen; i++) {
        weir__cache_hit hit;
        int32_t most = w->seen[i].n;
        weir__cache_look(w->s.cache, &keys[w->seen[i].key], w->seen[i].tokens, most, true, NULL, UINT64_MAX,
                         &hit);
        if (hit.n == 0) continue;
        assert_int_equal(hit.entry->rank, WEIR__PREFIX_DISK);
        weir_status status = fetch(&w->s, &hit, -1, 3);
        assert_true(status == WEIR_OK || w->faulty);
        if (status == WEIR_OK) assert_holds(&w->s, 3, w->seen[i].tokens, hit.n);
        n_tokens += status == WEIR_OK ? (uint64_t)hit.n : 0;
        weir__memory_cut(&w->s.memory, 3, 0, 0);
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
    const char *kinds[] = {"seed=1", "seed=1,exact=1", "seed=1,recurrent=1", "seed=1,hybrid=1",
                           "seed=1,n_swa=3"};
    const char *kind = kinds[dice_in(&w.d, 0, 4)];
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
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    uint64_t n = dice_environment("WEIR_TEST_SCHEDULES", 300), n_hit = 0, n_kept = 0;
    weir_log_set(quiet, NULL);
    print_message("%llu worlds from WEIR_TEST_SEED=%llu\n", (unsigned long long)n, (unsigned long long)seed);
    for (uint64_t i = 0; i < n; i++) n_hit += run_world(seed + i, &n_kept);
    weir_log_set(NULL, NULL);
    print_message("%llu tokens came from the cache, %llu from files\n", (unsigned long long)n_hit,
                  (unsigned long long)n_kept);
    assert_true(n < 100 || (n_hit > 30 * n && n_kept > n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

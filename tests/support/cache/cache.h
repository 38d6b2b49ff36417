/* cache.h: shared by the cache's tests: a cache over a context of the fake.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_CACHE_CACHE_H
#define WEIR_SUPPORT_CACHE_CACHE_H

#include "base/clock.h"
#include "cache/cache.h"
#include "fake/internal.h"
#include "support/fake.h"

#define SEQS 10

/* Later than any pause that the cache waits for. */
#define LATER INT64_C(1000000000000)

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

typedef struct shelf {
    rig r;
    weir__memory memory;
    weir__cache *cache;
    weir__cache_params params;
} shelf;

static inline void wake(void *user)
{
    (void)user;
}

/* path: a folder for files, NULL = none. */
static inline void shelf_init_sized(shelf *s, const char *options, int32_t n_ctx, weir_layout layout,
                                    int32_t n_sequences, uint64_t n_bytes, const char *path,
                                    uint64_t disk_bytes)
{
    rig_init(&s->r, options, n_ctx, SEQS, layout);
    const weir_model_info *info = &s->r.model->info;
    assert_ok(weir__memory_init(&s->memory, s->r.ops, s->r.context, &s->r.info, error));
    s->params = (weir__cache_params){
        .memory = &s->memory,
        .n_sequences = n_sequences,
        .n_bytes = n_bytes,
        .least = 1,
        .exact = info->is_recurrent || info->is_hybrid || info->n_swa > 0,
        .parts = info->is_hybrid || info->n_swa > 0,
    };
    const weir__archive_params kept = {
        .path = path, .n_bytes = disk_bytes, .limits = {1, s->r.info.n_ctx_seq, 320}, .wake = wake};
    if (path != NULL) assert_ok(weir__archive_open(&kept, &s->params.archive, error));
    assert_ok(weir__cache_create(&s->params, &s->cache, error));
}

static inline void shelf_init_with(shelf *s, const char *options, weir_layout layout, int32_t n_sequences,
                                   uint64_t n_bytes, const char *path, uint64_t disk_bytes)
{
    shelf_init_sized(s, options, 256 * SEQS, layout, n_sequences, n_bytes, path, disk_bytes);
}

static inline void shelf_init(shelf *s, const char *options, weir_layout layout, int32_t n_sequences,
                              uint64_t n_bytes)
{
    shelf_init_with(s, options, layout, n_sequences, n_bytes, NULL, 0);
}

static inline void shelf_fini(shelf *s)
{
    weir__cache_destroy(s->cache);
    weir__memory_check(&s->memory);
    assert_int_equal(s->memory.n_used, 0);
    weir__memory_fini(&s->memory);
    assert_int_equal(atomic_load(&s->r.fake->faults), 0);
    rig_fini(&s->r);
}

static inline int32_t ids(const char *text, int32_t *tokens)
{
    int32_t n = 0;
    for (; text[n] != '\0'; n++) tokens[n] = (unsigned char)text[n];
    return n;
}

static inline weir__cache_hit look(shelf *s, const weir__prefix_key *key, const char *text)
{
    int32_t tokens[256], n = ids(text, tokens);
    weir__cache_hit hit;
    weir__cache_look(s->cache, key, tokens, n, true, NULL, UINT64_MAX, &hit);
    return hit;
}

static inline void feed(shelf *s, int32_t seq, const char *text)
{
    assert_int_equal(append(&s->r, seq, text), WEIR_OK);
    weir__memory_append(&s->memory, seq, (int32_t)strlen(text));
}

static inline bool keep(shelf *s, const weir__prefix_key *key, const char *text, int32_t seq)
{
    int32_t tokens[256], n = ids(text, tokens);
    feed(s, seq, text);
    if (weir__cache_keep(s->cache, key, tokens, n, seq, 0)) return true;
    weir__memory_cut(&s->memory, seq, 0, 0);
    return false;
}

static inline void assert_holds(shelf *s, int32_t seq, const int32_t *tokens, int32_t n)
{
    const weir__fake_seq *held = &s->r.context->seqs[seq];
    assert_int_equal(held->n, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(held->token[i], tokens[i]);
        assert_int_equal(held->pos[i], i);
    }
}

/* As weir__cache_fetch, which it calls once a file has been read. */
static inline weir_status fetch(shelf *s, const weir__cache_hit *hit, int32_t from, int32_t to)
{
    weir__cache_place place = weir__cache_call(s->cache, hit, WEIR__CLOCK_NEVER);
    for (int i = 0; i < 2 && place == WEIR__CACHE_COMES; i++) {
        weir__reader_wait(weir__archive_reader(s->params.archive));
        place = weir__cache_call(s->cache, hit, WEIR__CLOCK_NEVER);
        if (place != WEIR__CACHE_COMES) break;
        weir__cache_put_away(s->cache); /* another file, for which nobody waits any more */
        place = weir__cache_call(s->cache, hit, WEIR__CLOCK_NEVER);
    }
    weir_status status = WEIR_NO_MEMORY;
    if (place == WEIR__CACHE_HERE) status = weir__cache_fetch(s->cache, hit, from, to, NULL);
    if (weir__cache_has_read(s->cache)) weir__cache_put_away(s->cache);
    return status;
}

static inline void assert_fetches(shelf *s, const weir__prefix_key *key, const char *text, int32_t n,
                                  weir__prefix_rank rank, int32_t to)
{
    int32_t tokens[256];
    ids(text, tokens);
    weir__cache_hit hit = look(s, key, text);
    assert_int_equal(hit.n, n);
    assert_non_null(hit.entry);
    assert_int_equal(hit.entry->rank, rank);
    assert_int_equal(fetch(s, &hit, -1, to), WEIR_OK);
    assert_holds(s, to, tokens, n);
    weir__memory_cut(&s->memory, to, 0, 0);
    weir__cache_check(s->cache);
}

#endif

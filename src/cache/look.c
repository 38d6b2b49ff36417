/* look.c: looks prompts up.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A look-up asks the tree for the best entry, the running request that has computed the most, and one that
 * will have more, and chooses the source with the most tokens. */
#include <string.h>

#include "base/largest.h"
#include "cache/cache_entry.h"

/* The source of n tokens: an entry, or a running request. */
static void choose_among(const weir__prefix_match *m, bool entry, int32_t n, weir__cache_hit *hit)
{
    hit->entry = entry ? m->entry : NULL;
    hit->live = entry ? NULL : m->live;
    hit->n = n;
}

static bool is_on_device(const weir__prefix_end *end)
{
    return end != NULL && end->rank == WEIR__PREFIX_DEVICE;
}

/* Of memory that cannot be truncated: an entry that ends there; a sequence that is longer, with a part; or
 * one that can be cut (longer). */
static void choose_exact(const weir__prefix_match *m, const weir__prefix_end *longer, weir__cache_hit *hit)
{
    hit->entry = m->exact;
    hit->n = m->n_exact;
    if (m->n_part > hit->n) {
        hit->part = m->part;
        choose_among(m, m->n_live < m->n_part || (is_on_device(m->entry) && m->n_entry >= m->n_part),
                     m->n_part, hit);
    }
    bool entry = is_on_device(m->entry) && m->n_entry >= m->n_live;
    weir__prefix_end *most = entry ? m->entry : m->live;
    int32_t n_most = entry ? m->n_entry : m->n_live;
    if (most == NULL || n_most <= hit->n) return;
    if (most == longer) {
        hit->part = NULL;
        choose_among(m, entry, n_most, hit);
    } else {
        hit->longer = most;
        hit->n_longer = n_most;
    }
}

/* Chooses the source with the most tokens. */
static void choose_source(const weir__cache_params *params, const weir__prefix_match *m,
                          const weir__prefix_end *longer, weir__cache_hit *hit)
{
    if (params->exact)
        choose_exact(m, longer, hit);
    else if (m->n_entry > m->n_live || (m->n_entry == m->n_live && is_on_device(m->entry)))
        choose_among(m, true, m->n_entry, hit);
    else
        choose_among(m, false, m->n_live, hit);
    bool whole = hit->entry != NULL && weir__cache_length(hit->entry) == hit->n;
    if (hit->n < params->least && !whole) {
        hit->n = 0;
        hit->entry = hit->live = hit->part = NULL;
    }
    if (m->n_leader > hit->n && m->n_leader >= params->least) {
        hit->leader = m->leader;
        hit->n_leader = m->n_leader;
    }
}

/* The number of tokens that a request without a salt would find now. */
static int32_t find_open(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n)
{
    const weir__prefix_key open = {.adapter = key->adapter};
    weir__prefix_match m;
    weir__cache_hit hit = {0};
    weir__prefix_tree_match(&cache->tree, &open, tokens, n, n - 1, WEIR__PREFIX_DISK, NULL, 0, &m);
    choose_source(&cache->params, &m, NULL, &hit);
    return hit.n;
}

static weir_miss reason_of(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                           const weir__prefix_match *m, const weir__cache_hit *hit)
{
    int32_t there = (int32_t)weir__max(m->n_entry, m->n_live),
            known = m->n_known < n - 1 ? m->n_known : n - 1;
    if (hit->n >= n - 1) return WEIR_MISS_NONE;
    if (cache->params.exact && there > hit->n) return WEIR_MISS_UNCUTTABLE;
    if (known > weir__max(there, m->n_leader)) return WEIR_MISS_EVICTED;
    if (key->salt_length > 0 && find_open(cache, key, tokens, n) > m->n_known) return WEIR_MISS_SALT;
    return m->n_known > 0 && m->n_known < n && m->n_other > 0 ? WEIR_MISS_DIVERGED : WEIR_MISS_COLD;
}

void weir__cache_look(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                      bool files, const weir__prefix_end *self, uint64_t serial, weir__cache_hit *hit)
{
    weir__cache_look_longer(cache, key, tokens, n, files, self, serial, NULL, hit);
}

void weir__cache_look_longer(weir__cache *cache, const weir__prefix_key *key, const int32_t *tokens,
                             int32_t n, bool files, const weir__prefix_end *self, uint64_t serial,
                             const weir__prefix_end *longer, weir__cache_hit *hit)
{
    weir__prefix_rank worst = files ? WEIR__PREFIX_DISK : WEIR__PREFIX_HOST;
    weir__prefix_match m;
    *hit = (weir__cache_hit){0};
    weir__cache_lock(cache);
    /* the last token is always computed: the answer starts from its row */
    weir__prefix_tree_match(&cache->tree, key, tokens, n, n - 1, worst, self, serial, &m);
    choose_source(&cache->params, &m, longer, hit);
    hit->pos = weir__cell_position(tokens, hit->n);
    hit->miss = reason_of(cache, key, tokens, n, &m, hit);
    hit->n_matched = m.n_known;
    if (hit->miss == WEIR_MISS_DIVERGED) {
        hit->n_other = m.n_other < WEIR__CACHE_AROUND ? m.n_other : WEIR__CACHE_AROUND;
        if (hit->n_other > 0) memcpy(hit->other, m.other, (size_t)hit->n_other * sizeof *hit->other);
    }
    weir__cache_unlock(cache);
}

/* reuse.c: the tokens that a request need not compute, because they are in the prefix cache, in a running
 * request, or in one that is computing them now. A slot starts with the best of these: it takes over or
 * shares cells, loads a state, or waits (JOINED) for a leader or a file. Once its wait is over, it looks
 * again.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "engine/driver.h"
#include "engine/prefix.h"
#include "engine/stream.h"

/* Waiting for another request's prefill is worthwhile from this many tokens on. */
#define JOIN_LEAST 8
/* The wait of a request for a file: as long as computing its tokens takes, within these bounds. Before any
 * tick has been measured, the longest. */
#define PATIENCE_LEAST WEIR__NS_PER_S
#define PATIENCE_MOST  (60 * WEIR__NS_PER_S)

static weir__slot *slot_of(const weir__prefix_end *live)
{
    return (weir__slot *)(void *)((char *)(void *)live - offsetof(weir__slot, live));
}

/* ---- Misses ---- */

/* The request starts to compute: its cached tokens are known. */
static void note_start(weir__driver *driver, const weir__slot *slot)
{
    weir__request *request = slot->request;
    weir_miss_info *info = &request->found;
    if (request->n_cached >= 0) return; /* it ran before and was suspended */
    int32_t most = request->history.n_prompt - 1;
    request->n_cached = slot->n_past < most ? slot->n_past : most;
    if (!weir__prefix_serves(&driver->prefix, request) || request->history.score != NULL)
        info->miss = WEIR_MISS_OFF;
    else if (request->n_cached == most)
        info->miss = WEIR_MISS_NONE;
    else if (request->n_cached < slot->n_promised || info->miss == WEIR_MISS_NONE)
        info->miss = WEIR_MISS_EVICTED;
    if (info->miss != WEIR_MISS_DIVERGED) weir__miss_forget(info);
    driver->account.counts.n_misses[info->miss]++;
    request->miss = *info;
    if (request->history.salt_length == 0) weir__miss_withhold(&request->miss, request->n_cached);
    if (request->stream != NULL) weir__stream_set_miss(request->stream, &request->miss);
}

/* ---- Beginning ---- */

/* The slot of a fork's source while it runs; NULL: it does not run. */
static weir__slot *source_of(const weir__driver *driver, const weir__request *request)
{
    if (request->source == NULL) return NULL;
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state != WEIR_SLOT_IDLE && slot->lane >= 0 && slot->request->stream == request->source)
            return slot;
    }
    return NULL;
}

/* True if a copy of the sequence can have its first n tokens alone. One state of all tokens is copied
 * whole. */
static bool can_end(const weir__driver *driver, int32_t seq, const weir__history *history, int32_t n)
{
    if (!driver->prefix.exact || n >= driver->memory.n[seq]) return true;
    return !weir__prefix_is_whole(driver->model) &&
           weir__memory_can_end(&driver->memory, seq, weir__history_position(history, n));
}

static int32_t sequence_of(const weir__prefix_end *end)
{
    return end->rank == WEIR__PREFIX_LIVE ? slot_of(end)->lane : weir__cache_sequence(end);
}

/* Looks the text up. A longer sequence serves if it can be cut where it leaves the text. */
static void look_up_text(const weir__driver *driver, const weir__slot *slot, const weir__prefix_key *key,
                         int32_t n, weir__cache_hit *hit)
{
    const weir__request *request = slot->request;
    const weir__history *history = &request->history;
    weir__cache_look(driver->prefix.cache, key, history->tokens, n, !slot->wait.over, &slot->live,
                     request->serial + 1, hit);
    if (hit->longer == NULL || sequence_of(hit->longer) < 0) return;
    int32_t there = hit->n_longer;
    if (weir__history_shared(history, there) == there &&
        can_end(driver, sequence_of(hit->longer), history, there))
        weir__cache_look_longer(driver->prefix.cache, key, history->tokens, n, !slot->wait.over, &slot->live,
                                request->serial + 1, hit->longer, hit);
}

static void look_up_prefix(weir__driver *driver, const weir__slot *slot, weir__cache_hit *hit)
{
    const weir__request *request = slot->request;
    weir__prefix_key key = weir__history_key(&request->history);
    int32_t n = request->history.n_tokens;
    /* The row before a token is computed to score it. */
    if (request->history.score != NULL && request->history.score->n_scored < request->history.score->n)
        n = request->history.score->n_scored;
    *hit = (weir__cache_hit){.miss = WEIR_MISS_OFF};
    if (request->saved.state != NULL) return; /* its own cells have more tokens than any prefix */
    if (weir__prefix_serves(&driver->prefix, request)) look_up_text(driver, slot, &key, n, hit);
    weir__prefix_cut(&driver->prefix, &request->history, hit);
    weir__slot *source = source_of(driver, request);
    if (source == NULL) return;
    /* The tree knows prompts of running requests, not their answers. */
    int32_t there = weir__history_shared(&request->history, source->n_past < n - 1 ? source->n_past : n - 1);
    if (there <= hit->n || there < driver->prefix.least ||
        memcmp(source->request->history.tokens, request->history.tokens,
               (size_t)there * sizeof *request->history.tokens) != 0 ||
        !can_end(driver, source->lane, &request->history, there))
        return;
    hit->n = there;
    hit->pos = weir__history_position(&request->history, there);
    hit->entry = hit->part = NULL;
    hit->live = &source->live;
}

/* Makes the slot wait for the leader if that is better. */
static bool join_leader(weir__driver *driver, weir__slot *slot, const weir__cache_hit *hit)
{
    if (hit->leader == NULL) return false;
    const weir__slot *leader = slot_of(hit->leader);
    int32_t n = driver->prefix.exact ? weir__prefix_last_checkpoint(&driver->prefix, leader, hit->n_leader)
                                     : hit->n_leader;
    if (n - hit->n < JOIN_LEAST || n <= leader->n_past) return false;
    driver->account.counts.n_joined += slot->state != WEIR_SLOT_JOINED;
    slot->state = WEIR_SLOT_JOINED;
    slot->leader = leader->index;
    slot->leader_serial = leader->request->serial;
    slot->n_promised = n;
    return true;
}

static int64_t patience_ns(const weir__cost *learned, int32_t n)
{
    weir_cost cost = weir__cost_get(learned);
    double ns = n * cost.prefill_ns + weir__cost_context_k(0, n) * cost.context_ns;
    if (cost.n_ticks == 0 || ns > (double)PATIENCE_MOST) return PATIENCE_MOST;
    return ns > (double)PATIENCE_LEAST ? (int64_t)ns : PATIENCE_LEAST;
}

/* The place of the hit's tokens, for one that may wait for a file. AWAY: the wait is over: look up again. */
static weir__cache_place locate_hit(weir__driver *driver, const weir__cache_hit *hit, weir__cache_wait *wait)
{
    int64_t now = weir__clock_now_ns(), due = wait->due_ns;
    if (due == 0)
        due = weir__cache_wait_begin(driver->prefix.cache, now) + patience_ns(&driver->cost, hit->n);
    weir__cache_place place = weir__cache_call(driver->prefix.cache, hit, due);
    if (place == WEIR__CACHE_HERE) return place;
    wait->due_ns = due;
    wait->over = place == WEIR__CACHE_AWAY;
    return place;
}

/* Makes the slot wait for a file that has the hit's tokens. If that does not come in time, looks up those
 * that are in memory. */
static bool join_file(weir__driver *driver, weir__slot *slot, weir__cache_hit *hit)
{
    weir__cache_place place = locate_hit(driver, hit, &slot->wait);
    if (place == WEIR__CACHE_AWAY) look_up_prefix(driver, slot, hit);
    if (place != WEIR__CACHE_COMES) return false;
    slot->state = WEIR_SLOT_JOINED;
    slot->leader = -1;
    slot->n_promised = hit->n;
    return true;
}

/* True if the slot takes the entry's sequence over, with its first n tokens, instead of copying them. A new
 * answer to the same prompt takes the place of the old one, rather than of an entry that the next request may
 * need; but a fork leaves its source as it is. full: no other lane is free. */
static bool takes_over(weir_layout layout, const weir__slot *slot, const weir__prefix_end *device, int32_t n,
                       bool full)
{
    const weir__request *request = slot->request;
    bool same_prompt = n >= request->history.n_prompt - 1 && request->source == NULL;
    bool copies = layout == WEIR_LAYOUT_PER_SLOT; /* cells of a pool are shared */
    if (n == weir__cache_length(device)) return true;
    if (same_prompt) return full || (copies && weir__cache_is_spare(device, n));
    return full && weir__cache_is_spare(device, 0);
}

/* Gives the slot a lane with the tokens of the hit. After an eviction the hit is stale: looks up again.
 * False: the slot waits for a file. */
static bool obtain_lane(weir__driver *driver, weir__slot *slot, weir__cache_hit hit)
{
    int32_t lane = weir__lanes_free(&driver->lanes);
    for (;;) {
        weir__prefix_end *device =
            hit.entry != NULL && weir__cache_sequence(hit.entry) >= 0 ? hit.entry : NULL;
        bool taken = device != NULL && takes_over(driver->info.layout, slot, device, hit.n, lane < 0);
        int32_t evicted = lane < 0 && !taken ? weir__cache_evict(driver->prefix.cache, device) : -1;
        if (taken || (lane < 0 && evicted < 0)) { /* little or nothing is lost, or no other lane is left */
            lane = weir__cache_take_over(driver->prefix.cache, &hit);
            if (driver->memory.n[lane] != hit.n) weir__memory_cut(&driver->memory, lane, 0, 0);
            break;
        }
        if (lane < 0) {
            lane = evicted;
        } else {
            int32_t from = hit.live != NULL ? slot_of(hit.live)->lane : -1;
            weir_status status =
                hit.n > 0 ? weir__cache_fetch(driver->prefix.cache, &hit, from, lane, NULL) : WEIR_OK;
            bool gone = status == WEIR_NOT_FOUND; /* look for the next best */
            if (!gone && (status != WEIR_NO_SPACE || weir__cache_evict(driver->prefix.cache, device) < 0))
                break;
        }
        look_up_prefix(driver, slot, &hit);
        if (join_file(driver, slot, &hit)) return false;
    }
    weir__lanes_enter(&driver->lanes, slot, lane);
    slot->n_past = driver->memory.n[lane];
    int32_t most =
        slot->request->history.n_prompt - 1; /* less than n_past after a suspension without a saved state */
    driver->account.counts.n_cached_tokens += (uint64_t)(slot->n_past < most ? slot->n_past : most);
    return true;
}

static void begin_text(const weir__prefix *prefix, weir__slot *slot)
{
    const weir__request *request = slot->request;
    weir__prefix_key key = weir__history_key(&request->history);
    if (slot->live.node == NULL)
        weir__cache_begin(prefix->cache, &key, request->history.tokens, request->history.n_tokens, 0,
                          &slot->live);
    weir__cache_advance(prefix->cache, &slot->live, slot->n_past,
                        slot->state == WEIR_SLOT_JOINED ? request->serial + 1 : 0);
}

void weir__reuse_start(weir__driver *driver, weir__slot *slot)
{
    const weir__request *request = slot->request;
    weir__cache_hit hit;
    slot->spacing = weir__prefix_spacing(&driver->prefix, request->history.n_prompt);
    look_up_prefix(driver, slot, &hit);
    if (slot->state != WEIR_SLOT_JOINED) {
        slot->n_promised = hit.n;
        if (request->n_cached < 0)
            weir__miss_note(driver->model, &request->history, &hit, &slot->request->found);
    }
    bool waits = join_leader(driver, slot, &hit) || join_file(driver, slot, &hit);
    if (!waits && slot->wait.over) waits = join_leader(driver, slot, &hit);
    if (!waits && obtain_lane(driver, slot, hit)) {
        weir__cells_restore(&driver->memory, driver->prefix.cache, slot);
        bool fed = request->n_generated > 0 && slot->n_past == request->history.n_tokens - 1;
        slot->state = fed ? WEIR_SLOT_GENERATING : WEIR_SLOT_PREFILLING;
        note_start(driver, slot);
    }
    if (weir__prefix_serves(&driver->prefix, request)) begin_text(&driver->prefix, slot);
}

void weir__reuse_drop(weir__driver *driver, weir__slot *slot)
{
    weir__cache_end(driver->prefix.cache, &slot->live);
    weir__memory_cut(&driver->memory, slot->lane, 0, 0);
    slot->n_past = 0;
}

void weir__reuse_restart(weir__driver *driver, weir__slot *slot)
{
    weir__cache_end(driver->prefix.cache, &slot->live);
    weir__lanes_leave(&driver->lanes, slot);
    slot->n_past = 0;
    slot->wait = (weir__cache_wait){0};
    weir__reuse_start(driver, slot);
}

/* True if the tokens that the slot waits for may still come. */
static bool may_come(const weir__driver *driver, const weir__slot *slot)
{
    if (weir__slot_awaits_file(slot))
        return weir__cache_reads(driver->prefix.cache) && weir__clock_now_ns() < slot->wait.due_ns;
    const weir__slot *leader = &driver->slots.first[slot->leader];
    return leader->state != WEIR_SLOT_IDLE && leader->request->serial == slot->leader_serial &&
           leader->n_past < slot->n_promised;
}

static bool rejoin_slots(weir__driver *driver)
{
    bool changed = false;
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state != WEIR_SLOT_JOINED || may_come(driver, slot)) continue;
        weir__reuse_start(driver, slot);
        changed = true;
    }
    return changed;
}

void weir__reuse_rejoin(weir__driver *driver)
{
    bool changed = rejoin_slots(driver);
    if (driver->file_came) { /* then those that wait for another one */
        driver->file_came = false;
        weir__cache_put_away(driver->prefix.cache);
        changed = rejoin_slots(driver) || changed;
        weir__waker_wake(driver->waker); /* a transfer may wait for one, too */
    }
    if (changed) weir__account_publish(&driver->account);
}

/* ---- Other engines ---- */

/* Gives a transfer the state of its tokens' longest cached prefix. Part of a cached text is copied to a free
 * sequence first, as a request's would be. TIMEOUT: not yet, a file is being read. */
static weir_status give_state(weir__driver *driver, weir__kv_transfer *transfer)
{
    weir__cache *cache = driver->prefix.cache;
    weir__cache_hit hit;
    int32_t lane = weir__lanes_free(&driver->lanes);
    for (;;) {
        weir__cache_look(cache, &transfer->key, transfer->tokens, transfer->n + 1, !transfer->wait.over, NULL,
                         0, &hit);
        if (hit.n == 0 || hit.n <= transfer->more_than)
            return weir__error_set(&transfer->error, WEIR_NOT_FOUND, "", "no more of the prompt is cached");
        weir__cache_place place = locate_hit(driver, &hit, &transfer->wait);
        if (place == WEIR__CACHE_COMES) return WEIR_TIMEOUT;
        if (place == WEIR__CACHE_AWAY) continue;
        if (lane >= 0 || weir__cache_is_whole(&hit)) break;
        lane = weir__cache_evict(cache, hit.entry);
        if (lane < 0 && driver->params->cache_bytes > 0) /* its own lane is the only one */
            lane = weir__cache_evict(cache, NULL);
        if (lane < 0)
            return weir__error_set(&transfer->error, WEIR_BUSY, "",
                                   "requests use all sequences of the engine");
    }
    int32_t from = hit.live != NULL ? slot_of(hit.live)->lane : -1;
    transfer->n = hit.n;
    return weir__cache_copy(cache, &hit, from, lane, transfer->most, &transfer->state, &transfer->n_bytes,
                            &transfer->error);
}

void weir__reuse_transfer(weir__driver *driver)
{
    weir__kv_transfers *transfers = &driver->shared->transfers;
    weir__kv_transfer *transfer = weir__kv_transfers_take(transfers);
    driver->transfer_due_ns = 0;
    if (transfer == NULL) return;
    weir_status status = WEIR_OK;
    if (transfer->brings && driver->prefix.caching)
        status = weir__cache_put(driver->prefix.cache, &transfer->key, transfer->tokens, transfer->n,
                                 &transfer->state, transfer->n_bytes, &transfer->error);
    else if (driver->prefix.caching)
        status = give_state(driver, transfer);
    else
        status =
            weir__error_set(&transfer->error, WEIR_UNSUPPORTED, "engine", "this engine caches no prefixes");
    if (status == WEIR_TIMEOUT) {
        driver->transfer_due_ns = transfer->wait.due_ns;
        weir__kv_transfers_put_back(transfers, transfer);
        return;
    }
    weir__account_publish(&driver->account);
    weir__kv_transfers_finish(transfers, transfer, status);
    weir__waker_wake(driver->waker); /* there may be more of them */
}

/* cells.c: the KV cells of slots: which sequence holds a slot's cells, whether another request fits, and the
 * saved cells of suspended requests.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/cells.h"

#include <string.h>

#include "base/mem.h"
#include "engine/queue.h"

/* ---- Lanes ---- */

bool weir__lanes_init(weir__lanes *lanes, weir__memory *memory, weir__cache *cache)
{
    *lanes = (weir__lanes){.n = memory->n_seqs, .pooled = memory->pooled, .memory = memory, .cache = cache};
    lanes->slot = weir__mem_calloc((size_t)lanes->n, sizeof *lanes->slot);
    return lanes->slot != NULL;
}

void weir__lanes_fini(weir__lanes *lanes)
{
    weir__mem_free(lanes->slot);
    lanes->slot = NULL;
}

/* Holds neither a slot's cells nor a cached prefix. */
static bool lane_is_free(const weir__lanes *lanes, int32_t lane)
{
    return lanes->slot[lane] == NULL && weir__cache_entry_of(lanes->cache, lane) == NULL;
}

int32_t weir__lanes_free(const weir__lanes *lanes)
{
    for (int32_t lane = 0; lane < lanes->n; lane++)
        if (lane_is_free(lanes, lane)) return lane;
    return -1;
}

void weir__lanes_enter(weir__lanes *lanes, weir__slot *slot, int32_t lane)
{
    slot->lane = lane;
    lanes->slot[lane] = slot;
}

void weir__lanes_leave(weir__lanes *lanes, weir__slot *slot)
{
    if (slot->lane < 0) return;
    weir__memory_cut(lanes->memory, slot->lane, 0, 0);
    weir__lanes_hand_over(lanes, slot);
}

void weir__lanes_hand_over(weir__lanes *lanes, weir__slot *slot)
{
    lanes->slot[slot->lane] = NULL;
    slot->lane = -1;
}

/* Moves the cached prefix of a lane to the highest free lane. False: there is none. */
static bool vacate_lane(weir__lanes *lanes, int32_t lane)
{
    int32_t to = lanes->n - 1;
    while (to >= 0 && !lane_is_free(lanes, to)) to--;
    return to >= 0 && weir__cache_move(lanes->cache, lane, to);
}

/* Moves a slot's n tokens. A cached prefix that is there goes to the lane that the slot leaves. */
static bool move_cells(weir__lanes *lanes, int32_t from, int32_t to, int32_t n, int32_t pos)
{
    if (weir__cache_entry_of(lanes->cache, to) != NULL)
        return weir__cache_exchange(lanes->cache, to, from, n, pos);
    if (n == 0) return true;
    if (weir__memory_share(lanes->memory, from, to, n, pos, NULL) != WEIR_OK) return false;
    weir__memory_cut(lanes->memory, from, 0, 0);
    return true;
}

/* Lanes are computed in one pass only if their numbers are consecutive. So the last lane of a slot moves into
 * the first gap. A cached prefix there moves away first, and none is lost. One move per tick; a copy costs
 * far less than an extra pass in each tick. */
void weir__lanes_compact(weir__lanes *lanes)
{
    if (lanes->pooled) return;
    int32_t gap = 0, last = lanes->n - 1;
    while (gap < last && lanes->slot[gap] == NULL) gap++;
    while (gap < last && lanes->slot[gap] != NULL) gap++;
    while (last > gap && lanes->slot[last] == NULL) last--;
    if (last <= gap) return;
    if (!lane_is_free(lanes, gap) && vacate_lane(lanes, gap)) return;
    weir__slot *slot = lanes->slot[last];
    const weir__history *history = &slot->request->history;
    int32_t n = slot->n_past;
    if (weir__history_cut(history, n) < n) return; /* the image is soon complete */
    if (!move_cells(lanes, last, gap, n, weir__history_position(history, n))) return;
    lanes->slot[gap] = slot;
    lanes->slot[last] = NULL;
    slot->lane = gap;
}

/* ---- Room ---- */

/* A request gets a slot only if it can grow by LEAST_GROWTH tokens plus an eighth of its tokens before cells
 * run out, because the cost of a suspension grows with the tokens that are saved or computed again. */
#define LEAST_GROWTH 16
#define GROWTH_PART  8

bool weir__cells_init(weir__cells *cells, weir__memory *memory, weir__cache *cache, weir__slots slots)
{
    *cells = (weir__cells){.memory = memory, .cache = cache, .slots = slots};
    weir__cells_reset(cells);
    cells->counted = weir__mem_calloc((size_t)memory->n_seqs, sizeof *cells->counted);
    return cells->counted != NULL;
}

void weir__cells_fini(weir__cells *cells)
{
    weir__mem_free(cells->counted);
    cells->counted = NULL;
}

int64_t weir__cells_wanted(const weir__request *request)
{
    int32_t most = weir__request_cells(request), n_tokens = request->history.n_tokens;
    int32_t growth = LEAST_GROWTH + n_tokens / GROWTH_PART;
    return most - n_tokens < growth ? (most > n_tokens ? most : n_tokens) : n_tokens + growth;
}

static int64_t slot_wanted(const weir__slot *slot)
{
    return weir__cells_wanted(slot->request) - weir__slot_n_there(slot);
}

int64_t weir__cells_reserved(const weir__cells *cells)
{
    int64_t n = cells->memory->n_used;
    for (const weir__slot *slot = cells->slots.first; slot < cells->slots.end; slot++)
        if (slot->state != WEIR_SLOT_IDLE) n += slot_wanted(slot);
    return n;
}

static void count_none(const weir__cells *cells)
{
    memset(cells->counted, 0, (size_t)cells->memory->n_seqs * sizeof *cells->counted);
}

int32_t weir__cells_held(const weir__cells *cells)
{
    count_none(cells);
    for (const weir__slot *slot = cells->slots.first; slot < cells->slots.end; slot++)
        if (slot->lane >= 0) cells->counted[slot->lane] = true;
    return weir__memory_count(cells->memory, cells->counted);
}

int64_t weir__cells_left(const weir__cells *cells)
{
    int64_t n = cells->n - cells->memory->n_used;
    for (const weir__slot *slot = cells->slots.first; slot < cells->slots.end; slot++) {
        if (slot->state != WEIR_SLOT_IDLE) n -= slot->request->history.n_tokens - weir__slot_n_there(slot);
    }
    return n;
}

bool weir__cells_fits(const weir__cells *cells, const weir__request *request, bool preempts, int64_t now)
{
    int64_t wanted = 0;
    int32_t n = 0;
    count_none(cells);
    for (const weir__slot *slot = cells->slots.first; slot < cells->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE) continue;
        if (preempts && weir__queue_outranks(request, slot->request, now)) continue;
        if (slot->lane >= 0) cells->counted[slot->lane] = true;
        wanted += slot_wanted(slot);
        n++;
    }
    if (cells->slots.first + n == cells->slots.end) return false;
    wanted += weir__memory_count(cells->memory, cells->counted);
    return n == 0 || wanted + weir__cells_wanted(request) <= cells->n;
}

/* ---- Too few ---- */

bool weir__cells_evict(weir__cells *cells)
{
    return weir__cache_evict(cells->cache, NULL) >= 0;
}

bool weir__cells_shrink(weir__cells *cells)
{
    int64_t n = cells->n - weir__cells_left(cells);
    if (weir__cells_evict(cells)) return true;
    if (weir__slot_count_active(&cells->slots) < 2) return false;
    cells->n = n - 1;
    return true;
}

void weir__cells_reset(weir__cells *cells)
{
    cells->n = cells->memory->pooled ? cells->memory->n_cells : INT64_MAX;
}

/* ---- Cells of suspended requests ---- */

void weir__cells_forget(weir__cache *cache, weir__request *request)
{
    weir__cache_unclaim(cache, request->saved.claimed);
    weir__mem_free(request->saved.state);
    request->saved = (weir__saved){0};
}

void weir__cells_save(weir__memory *memory, weir__cache *cache, const weir__slot *slot)
{
    if (slot->lane < 0) return;
    size_t length = weir__memory_state_size(memory, slot->lane);
    if (length == 0 || !weir__cache_claim(cache, length)) return;
    weir__saved *saved = &slot->request->saved;
    *saved = (weir__saved){.state = weir__mem_alloc(length), .claimed = length, .n_past = slot->n_past};
    if (saved->state != NULL) saved->n_bytes = weir__memory_save(memory, slot->lane, saved->state, length);
    if (saved->n_bytes == 0) weir__cells_forget(cache, slot->request);
}

void weir__cells_restore(weir__memory *memory, weir__cache *cache, weir__slot *slot)
{
    const weir__saved *saved = &slot->request->saved;
    if (saved->state != NULL &&
        weir__memory_load(memory, slot->lane, saved->state, saved->n_bytes, saved->n_past, NULL) == WEIR_OK)
        slot->n_past = saved->n_past;
    weir__cells_forget(cache, slot->request);
}

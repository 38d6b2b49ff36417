/* lanes.c: which sequence holds a slot's cells.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/lanes.h"

#include "base/mem.h"

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

/* lanes.c: which sequence holds a slot's cells.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/lanes.h"
#include "engine/driver.h"

/* Holds neither a slot's cells nor a cached prefix. */
static bool lane_is_free(const weir__driver *driver, int32_t lane)
{
    return driver->lanes[lane] == NULL && weir__cache_entry_of(driver->cache, lane) == NULL;
}

int32_t weir__lanes_free(const weir__driver *driver)
{
    for (int32_t lane = 0; lane < driver->info.n_seq_max; lane++)
        if (lane_is_free(driver, lane)) return lane;
    return -1;
}

void weir__lanes_enter(weir__driver *driver, weir__slot *slot, int32_t lane)
{
    slot->lane = lane;
    driver->lanes[lane] = slot;
}

void weir__lanes_leave(weir__driver *driver, weir__slot *slot)
{
    if (slot->lane < 0) return;
    weir__memory_cut(&driver->memory, slot->lane, 0);
    driver->lanes[slot->lane] = NULL;
    slot->lane = -1;
}

/* Empties a lane of the prefix that lies in it: into a free lane, the highest, or into the one whose
 * prefix was used longest ago. False: it could not. */
static bool vacate_lane(weir__driver *driver, int32_t lane)
{
    int32_t to = driver->info.n_seq_max - 1;
    while (to >= 0 && !lane_is_free(driver, to)) to--;
    if (to < 0) to = weir__cache_evict(driver->cache, NULL);
    return to == lane || weir__cache_move(driver->cache, lane, to);
}

/* With lanes of their own, sequences are computed in one pass only when their lanes have consecutive
 * numbers: closes a gap by moving the last lane into it, where a cached prefix lies in it after that has
 * moved. One move a tick; a copy costs far less than an extra pass each tick. */
void weir__lanes_compact(weir__driver *driver)
{
    if (driver->info.layout != WEIR_LAYOUT_PER_SLOT) return;
    int32_t gap = 0, last = driver->info.n_seq_max - 1;
    while (gap < last && driver->lanes[gap] != NULL) gap++;
    while (last > gap && driver->lanes[last] == NULL) last--;
    if (last <= gap) return;
    if (!lane_is_free(driver, gap)) {
        vacate_lane(driver, gap);
        return;
    }
    weir__slot *slot = driver->lanes[last];
    if (slot->n_past > 0) {
        if (weir__memory_share(&driver->memory, last, gap, slot->n_past, NULL) != WEIR_OK) return;
        weir__memory_cut(&driver->memory, last, 0);
    }
    driver->lanes[gap] = slot;
    driver->lanes[last] = NULL;
    slot->lane = gap;
}

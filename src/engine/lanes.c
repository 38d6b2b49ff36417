/* lanes.c: which sequence holds a slot's cells.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

static int32_t free_lane(const weir_engine *engine)
{
    int32_t lane = 0;
    while (lane < engine->params.n_slots && engine->lanes[lane] != NULL) lane++;
    return lane;
}

void weir__lanes_enter(weir_engine *engine, weir__slot *slot)
{
    slot->lane = free_lane(engine);
    engine->lanes[slot->lane] = slot;
}

void weir__lanes_leave(weir_engine *engine, weir__slot *slot)
{
    engine->model->ops->seq_remove(engine->context, slot->lane, 0, -1);
    engine->lanes[slot->lane] = NULL;
}

/* With lanes of their own, sequences are computed in one pass only when their lanes have consecutive numbers:
 * closes a gap by moving the last lane into it. One move a tick; a copy costs far less than an extra pass
 * each tick. */
void weir__lanes_compact(weir_engine *engine)
{
    if (engine->info.layout != WEIR_LAYOUT_PER_SLOT) return;
    int32_t gap = free_lane(engine);
    int32_t last = engine->params.n_slots - 1;
    while (last > gap && engine->lanes[last] == NULL) last--;
    if (last <= gap) return;
    weir__slot *slot = engine->lanes[last];
    if (slot->n_past > 0) {
        const weir__backend *ops = engine->model->ops;
        if (ops->share(engine->context, last, gap, slot->n_past, NULL) != WEIR_OK) return;
        ops->seq_remove(engine->context, last, 0, -1);
    }
    engine->lanes[gap] = slot;
    engine->lanes[last] = NULL;
    slot->lane = gap;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/room.h"

#include <string.h>

#include "base/mem.h"
#include "engine/queue.h"

/* A request gets a slot only if it can grow by LEAST_GROWTH tokens plus an eighth of its tokens before cells
 * run out, because the cost of a suspension grows with the tokens that are saved or computed again. */
#define LEAST_GROWTH 16
#define GROWTH_PART  8

bool weir__room_init(weir__room *room, weir__memory *memory, weir__cache *cache, const weir__slot *slots,
                     int32_t n_slots)
{
    *room = (weir__room){.memory = memory, .cache = cache, .slots = slots, .n_slots = n_slots};
    weir__room_reset(room);
    room->counted = weir__mem_calloc((size_t)memory->n_seqs, sizeof *room->counted);
    return room->counted != NULL;
}

void weir__room_fini(weir__room *room)
{
    weir__mem_free(room->counted);
    room->counted = NULL;
}

/* ---- Cells ---- */

int64_t weir__room_wanted(const weir__request *request)
{
    int32_t most = weir__request_cells(request), n_tokens = request->history.n_tokens;
    int32_t growth = LEAST_GROWTH + n_tokens / GROWTH_PART;
    return most - n_tokens < growth ? (most > n_tokens ? most : n_tokens) : n_tokens + growth;
}

static int64_t slot_wanted(const weir__slot *slot)
{
    return weir__room_wanted(slot->request) - weir__slot_n_there(slot);
}

int64_t weir__room_reserved(const weir__room *room)
{
    int64_t n = room->memory->n_used;
    for (int32_t i = 0; i < room->n_slots; i++)
        if (room->slots[i].state != WEIR_SLOT_IDLE) n += slot_wanted(&room->slots[i]);
    return n;
}

static void count_none(const weir__room *room)
{
    memset(room->counted, 0, (size_t)room->memory->n_seqs * sizeof *room->counted);
}

int32_t weir__room_held(const weir__room *room)
{
    count_none(room);
    for (int32_t i = 0; i < room->n_slots; i++)
        if (room->slots[i].lane >= 0) room->counted[room->slots[i].lane] = true;
    return weir__memory_count(room->memory, room->counted);
}

int64_t weir__room_left(const weir__room *room)
{
    int64_t n = room->n - room->memory->n_used;
    for (int32_t i = 0; i < room->n_slots; i++) {
        const weir__slot *slot = &room->slots[i];
        if (slot->state != WEIR_SLOT_IDLE) n -= slot->request->history.n_tokens - weir__slot_n_there(slot);
    }
    return n;
}

bool weir__room_fits(const weir__room *room, const weir__request *request, bool turns, int64_t ageing_ns,
                     int64_t now)
{
    int64_t cells = 0;
    int32_t n = 0;
    count_none(room);
    for (int32_t i = 0; i < room->n_slots; i++) {
        const weir__slot *slot = &room->slots[i];
        if (slot->state == WEIR_SLOT_IDLE) continue;
        if (turns && weir__queue_outranks(request, slot->request, ageing_ns, now)) continue;
        if (slot->lane >= 0) room->counted[slot->lane] = true;
        cells += slot_wanted(slot);
        n++;
    }
    if (n == room->n_slots) return false;
    cells += weir__memory_count(room->memory, room->counted);
    return n == 0 || cells + weir__room_wanted(request) <= room->n;
}

/* ---- Too few ---- */

bool weir__room_evict(weir__room *room)
{
    return weir__cache_evict(room->cache, NULL) >= 0;
}

bool weir__room_shrink(weir__room *room)
{
    int64_t n = room->n - weir__room_left(room);
    if (weir__room_evict(room)) return true;
    if (weir__slot_count_active(room->slots, room->n_slots) < 2) return false;
    room->n = n - 1;
    return true;
}

void weir__room_reset(weir__room *room)
{
    room->n = room->memory->pooled ? room->memory->n_cells : INT64_MAX;
}

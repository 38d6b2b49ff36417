/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cells.h"

#include <string.h>

#include "base/mem.h"
#include "engine/queue.h"

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

/* ---- Cells ---- */

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

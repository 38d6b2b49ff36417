/* entry.c: makes and frees entries, and answers questions about their states.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/entry.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

weir__entry *weir__entry_create(weir__spec *spec)
{
    weir__entry *entry = weir__mem_calloc(1, sizeof *entry);
    if (entry == NULL) return NULL;
    entry->spec = weir__spec_hold(spec);
    atomic_init(&entry->progress, 0.0f);
    atomic_init(&entry->cancelled, false);
    return entry;
}

void weir__entry_destroy(weir__entry *entry)
{
    if (entry == NULL) return;
    weir__resident_free(entry->resident);
    weir__spec_release(entry->spec);
    weir__mem_free(entry);
}

bool weir__entry_is_out(const weir__entry *entry)
{
    return entry->state == WEIR_POOL_UNLOADED || entry->state == WEIR_POOL_SLEEPING ||
           entry->state == WEIR_POOL_FAILED;
}

bool weir__entry_is_open(const weir__entry *entry)
{
    return entry->state == WEIR_POOL_LOADED && entry->listed && !entry->leave && !entry->closed;
}

uint64_t weir__entry_needs(const weir__entry *entry)
{
    uint64_t base = entry->demand.base, cache = entry->demand.cache;
    uint64_t needs = base < UINT64_MAX - cache ? base + cache : UINT64_MAX;
    return needs > entry->measured ? needs : entry->measured;
}

void weir__entry_info(const weir__entry *entry, weir_pool_info *info)
{
    snprintf(info->name, sizeof info->name, "%s", entry->spec->given.name);
    weir_error_text(&entry->error, NULL, NULL, info->message, sizeof info->message);
    info->state = entry->state == WEIR_POOL_LOADED && entry->leave ? WEIR_POOL_LEAVING : entry->state;
    info->kind = entry->demand.kind;
    if (entry->state == WEIR_POOL_LOADED || entry->state == WEIR_POOL_LEAVING)
        info->progress = 1.0f;
    else if (entry->state == WEIR_POOL_LOADING)
        info->progress = atomic_load(&entry->progress);
    info->n_bytes = entry->n_bytes > 0 ? entry->n_bytes : weir__entry_needs(entry);
    info->n_leases = entry->n_leases;
    info->n_waiting = entry->n_waiting;
    info->n_loads = entry->n_loads;
    info->n_failures = entry->n_failures;
    info->load_ms = entry->load_ms;
    info->n_ctx = entry->n_ctx > 0 ? entry->n_ctx : entry->demand.n_ctx;
    info->pinned = entry->spec->given.pinned;
    info->status = entry->status;
}

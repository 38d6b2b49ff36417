/* room.c: adds up the budget, and chooses loads and victims. It decides only; the keeper acts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/room.h"

#include "base/clock.h"
#include "pool/lease.h"

#define AGAIN_NS WEIR__NS_PER_S          /* how often the machine's memory is read */
#define FRESH_NS (100 * WEIR__NS_PER_MS) /* how old it may be when it decides on a load */

uint64_t weir__room_used(const weir_pool *pool)
{
    uint64_t used = 0;
    for (const weir__entry *e = pool->entries; e != NULL; e = e->next)
        used = weir__bytes_add(used, e->n_bytes);
    return used;
}

/* Nine tenths; the rest is for the program and for memory that estimates leave out. */
static uint64_t most_of(uint64_t bytes)
{
    return bytes - bytes / 10;
}

void weir__room_set_limit(weir_pool *pool, weir__cpu_memory memory, int64_t now)
{
    if (pool->params.memory_bytes != WEIR_AUTO) return;
    uint64_t present = weir__bytes_add(weir__room_used(pool), most_of(memory.available));
    if (pool->limit_ns == 0) /* at create, or newly set */
        pool->limit = pool->most = memory.available == 0 ? WEIR__POOL_NO_LIMIT : present;
    else if (memory.available != 0)
        pool->limit = present < pool->most ? present : pool->most;
    if (memory.limit != 0 && most_of(memory.limit) < pool->limit) pool->limit = most_of(memory.limit);
    pool->limit_ns = now;
}

int64_t weir__room_read_ns(const weir_pool *pool)
{
    bool reads = pool->n_waiting > 0 || weir__room_used(pool) > 0;
    if (!reads || pool->params.memory_bytes != WEIR_AUTO) return WEIR__CLOCK_NEVER;
    return pool->limit_ns + AGAIN_NS;
}

uint64_t weir__room_cache(const weir_pool *pool, uint64_t base, weir__cpu_memory memory)
{
    if (pool->n_list != 1) return base / 4;
    uint64_t left = pool->limit > base ? pool->limit - base : 0;
    return (left < memory.available || memory.available == 0 ? left : memory.available) / 4;
}

/* ---- Eviction ---- */

static bool is_kept(const weir__entry *e)
{
    return e->spec->given.pinned && e->listed && !e->leave;
}

static int64_t idle_ns(const weir__entry *e)
{
    if (e->state != WEIR_POOL_LOADED || e->n_leases > 0 || e->n_waiting > 0 || is_kept(e) ||
        e->spec->given.idle_ms == 0)
        return WEIR__CLOCK_NEVER;
    return e->used_ns + e->spec->given.idle_ms * WEIR__NS_PER_MS;
}

int64_t weir__room_wake_ns(const weir_pool *pool)
{
    if (pool->job.kind != WEIR__JOB_NONE || pool->stopping) return WEIR__CLOCK_NEVER;
    int64_t first = weir__room_read_ns(pool);
    for (const weir__entry *e = pool->entries; e != NULL; e = e->next)
        if (idle_ns(e) < first) first = idle_ns(e);
    return first;
}

static bool must_go(const weir__entry *e, int64_t now)
{
    if (e->state != WEIR_POOL_LOADED || e->n_leases > 0) return false;
    return !e->listed || e->leave || now >= idle_ns(e);
}

/* True if a goes before b: those without leases first, then those that were chosen before, so that the end of
 * a lease does not change the choice, then the least recently used. */
static bool goes_before(const weir__entry *a, const weir__entry *b)
{
    if ((a->n_leases == 0) != (b->n_leases == 0)) return a->n_leases == 0;
    if (a->was_closed != b->was_closed) return a->was_closed;
    return a->used_ns < b->used_ns;
}

static weir__entry *next_victim(const weir_pool *pool, bool idle_only)
{
    weir__entry *victim = NULL;
    for (weir__entry *e = pool->entries; e != NULL; e = e->next) {
        if (e->state != WEIR_POOL_LOADED || e->closed || is_kept(e) || (idle_only && e->n_leases > 0))
            continue;
        if (victim == NULL || goes_before(e, victim)) victim = e;
    }
    return victim;
}

/* A model without a lease that must sleep because the budget has shrunk, or for memory beside another. */
static weir__entry *next_surplus(weir_pool *pool)
{
    uint64_t used = weir__bytes_add(weir__room_used(pool), pool->wanted);
    weir__entry *surplus = NULL;
    if (used <= pool->limit) {
        pool->wanted = 0;
        return NULL;
    }
    for (weir__entry *e = pool->entries; e != NULL; e = e->next)
        if (e->state == WEIR_POOL_LOADED && e->n_leases == 0 && !is_kept(e) &&
            (surplus == NULL || goes_before(e, surplus)))
            surplus = e;
    if (surplus == NULL) pool->wanted = 0;
    return surplus;
}

static void open_all(weir_pool *pool)
{
    for (weir__entry *e = pool->entries; e != NULL; e = e->next) {
        e->was_closed = e->closed;
        e->closed = false;
    }
}

/* The load, or the first step to it. for_lease: models with leases are closed for it, so that their leases
 * end without new ones; the first goes when none of those that have to go has a lease. */
static weir__room make_room(weir_pool *pool, weir__entry *entry, bool for_lease)
{
    uint64_t needs = weir__entry_needs(entry), used = weir__room_used(pool);
    weir__entry *first = NULL;
    bool ready = true;
    open_all(pool);
    while (weir__bytes_add(used, needs) > pool->limit) {
        weir__entry *victim = next_victim(pool, !for_lease);
        if (victim == NULL) {
            if (!for_lease) open_all(pool);
            return (weir__room){0};
        }
        victim->closed = true;
        used -= victim->n_bytes;
        if (first == NULL) first = victim;
        ready = ready && victim->n_leases == 0;
    }
    if (first == NULL) return (weir__room){.job = WEIR__JOB_LOAD, .entry = entry, .needs = needs};
    return ready ? (weir__room){.job = WEIR__JOB_UNLOAD, .entry = first} : (weir__room){0};
}

/* ---- The next job ---- */

static weir__room estimate_job(weir__entry *e)
{
    return (weir__room){.job = WEIR__JOB_ESTIMATE, .entry = e};
}

static bool is_wanted(const weir__entry *e)
{
    return e->listed && (e->wanted || e->n_waiting > 0) && weir__entry_is_out(e);
}

/* Pinned bytes beside the entry; those stay. */
static uint64_t pinned_beside(const weir_pool *pool, const weir__entry *entry)
{
    uint64_t pinned = 0;
    for (const weir__entry *e = pool->entries; e != NULL; e = e->next)
        if (e != entry && is_kept(e)) pinned = weir__bytes_add(pinned, e->n_bytes);
    return pinned;
}

weir_status weir__room_reserve(weir_pool *pool, weir__entry *entry, uint64_t n_bytes, uint64_t *pinned)
{
    uint64_t own = entry->n_bytes - entry->reserved, others = weir__room_used(pool) - entry->n_bytes;
    *pinned = pinned_beside(pool, entry);
    if (n_bytes > entry->reserved && weir__bytes_add(weir__bytes_add(own, n_bytes), *pinned) > pool->limit)
        return WEIR_TOO_LONG;
    if (n_bytes > entry->reserved && weir__bytes_add(weir__bytes_add(own, n_bytes), others) > pool->limit) {
        pool->wanted = n_bytes - entry->reserved;
        return WEIR_BUSY;
    }
    entry->n_bytes = own + n_bytes;
    entry->reserved = n_bytes;
    return WEIR_OK;
}

static weir__entry *oldest_wanted(const weir_pool *pool, bool *for_lease)
{
    *for_lease = true;
    for (const weir_lease *lease = pool->first; lease != NULL; lease = lease->next)
        if (weir__entry_is_out(lease->entry)) return lease->entry;
    *for_lease = false;
    for (size_t i = 0; i < pool->n_list; i++)
        if (is_wanted(pool->list[i])) return pool->list[i];
    return NULL;
}

/* The job for the lease or the load that waits longest, if none of those that wait is too large. */
static weir__room next_load(weir_pool *pool)
{
    bool for_lease;
    weir__entry *entry = oldest_wanted(pool, &for_lease);
    if (entry == NULL) {
        open_all(pool);
        return (weir__room){0};
    }
    for (size_t i = 0; i < pool->n_list; i++) {
        weir__entry *e = pool->list[i];
        if (!is_wanted(e)) continue;
        uint64_t pinned = pinned_beside(pool, e), needs = weir__entry_needs(e);
        if (weir__bytes_add(needs, pinned) > pool->limit)
            return (weir__room){.entry = e, .needs = needs, .limit = pool->limit, .pinned = pinned};
    }
    return make_room(pool, entry, for_lease);
}

weir__room weir__room_next(weir_pool *pool, int64_t now)
{
    const weir__room read = {.job = WEIR__JOB_READ};
    for (weir__entry *e = pool->entries; e != NULL; e = e->next)
        if (must_go(e, now)) return (weir__room){.job = WEIR__JOB_UNLOAD, .entry = e};
    if (now >= weir__room_read_ns(pool)) return read;
    weir__entry *surplus = next_surplus(pool);
    if (surplus != NULL) return (weir__room){.job = WEIR__JOB_UNLOAD, .entry = surplus};
    for (size_t i = 0; i < pool->n_list; i++)
        if (is_wanted(pool->list[i]) && !pool->list[i]->known) return estimate_job(pool->list[i]);
    weir__room room = next_load(pool);
    if (room.entry != NULL && pool->params.memory_bytes == WEIR_AUTO && now - pool->limit_ns >= FRESH_NS)
        return read;
    for (size_t i = 0; i < pool->n_list && room.entry == NULL; i++)
        if (!pool->list[i]->looked && weir__entry_is_out(pool->list[i])) room = estimate_job(pool->list[i]);
    return room;
}

/* threads.c: the two threads of a pool.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The keeper is one loop under the pool's mutex: it ends the loader's job, fails late leases, grants those
 * whose model is there, and begins the next job, which room.c chooses. Then it calls ready functions without
 * the mutex, destroys entries that have left, and sleeps until something happens or is due. The loader does
 * one job at a time, without the mutex and on a copy of it: it reads the machine's memory, estimates, loads
 * or unloads. It writes the progress of a load; all else that a job has changed, the keeper writes to the
 * entry when the job has ended. */
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "pool/lease.h"
#include "pool/room.h"
#include "pool/shared.h"

/* ---- The loader ---- */

static bool take_progress(float progress, void *user)
{
    weir__entry *entry = user;
    atomic_store(&entry->progress, progress);
    return !atomic_load(&entry->cancelled);
}

static void do_job(const weir_pool *pool, weir__job *job)
{
    const weir__resident_params params = {
        .cache_dir = job->cache_dir,
        .cache_disk_bytes = pool->params.cache_disk_bytes,
        .progress = take_progress,
        .user = job->entry,
        .leaving = pool->params.leaving,
        .leaving_user = pool->params.leaving_user,
    };
    int64_t began = weir__clock_now_ns();
    switch (job->kind) {
    case WEIR__JOB_READ: job->memory = job->read(); break;
    case WEIR__JOB_ESTIMATE:
        job->memory = job->read();
        job->status = weir__resident_estimate(job->spec, job->memory.available, &job->demand, &job->error);
        break;
    case WEIR__JOB_LOAD:
        job->status = weir__resident_load(job->spec, &job->demand, &params, &job->resident, &job->error);
        break;
    case WEIR__JOB_UNLOAD:
        weir__resident_free(job->resident);
        job->resident = NULL;
        break;
    case WEIR__JOB_NONE: break;
    }
    job->ns = weir__clock_now_ns() - began;
}

void *weir__loader_run(void *user)
{
    weir_pool *pool = user;
    weir__thread_name("weir-loader");
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        if (pool->job.kind == WEIR__JOB_NONE || pool->job.done) {
            if (pool->over) break;
            pthread_cond_wait(&pool->work, &pool->mutex);
            continue;
        }
        weir__job job = pool->job;
        pthread_mutex_unlock(&pool->mutex);
        do_job(pool, &job);
        pthread_mutex_lock(&pool->mutex);
        job.done = true;
        pool->job = job;
        pthread_cond_signal(&pool->wake);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* A size for a message. */
typedef struct size_text {
    char text[24];
} size_text;

static size_text size_of(uint64_t bytes)
{
    size_text size;
    bool large = bytes >= (uint64_t)1 << 30;
    snprintf(size.text, sizeof size.text, large ? "%.1f GiB" : "%.1f MiB",
             (double)bytes / (large ? 1 << 30 : 1 << 20));
    return size;
}

/* ---- Leases ---- */

static void fail_entry(weir_pool *pool, weir__entry *entry, const weir_error *error)
{
    entry->wanted = false;
    entry->state = WEIR_POOL_FAILED;
    entry->status = error->code;
    entry->error = *error;
    entry->n_failures++;
    pool->n_failures++;
    weir__log(WEIR_LOG_WARN, "the model \"%s\" was not loaded: %s", entry->spec->given.name,
              weir__error_words(error).text);
    for (weir_lease *lease = pool->first, *next; lease != NULL; lease = next) {
        next = lease->next;
        if (lease->entry == entry) weir__lease_fail(lease, error);
    }
}

static void refuse_size(weir_pool *pool, const weir__room *room)
{
    weir_error error;
    char pinned[80] = "";
    if (room->pinned > 0)
        snprintf(pinned, sizeof pinned, ", of which pinned models take %s", size_of(room->pinned).text);
    weir__error_set(&error, WEIR_TOO_LONG, "memory_bytes",
                    "\"%.100s\" takes %s and the memory of all models is %s%s: give them more memory, or "
                    "this one fewer `n_slots`, a smaller `n_ctx` or less `cache_bytes`",
                    room->entry->spec->given.name, size_of(room->needs).text, size_of(room->limit).text,
                    pinned);
    room->entry->known = false;
    fail_entry(pool, room->entry, &error);
}

/* Explains why a lease was not granted in time: the loader's job where that took most of the time, or else
 * the memory. */
static void explain_late(const weir_pool *pool, const weir_lease *lease, int64_t now, char *why, size_t size)
{
    static const char *const doing[] = {
        [WEIR__JOB_NONE] = "",        [WEIR__JOB_ESTIMATE] = "estimating its memory",
        [WEIR__JOB_LOAD] = "loading", [WEIR__JOB_UNLOAD] = "unloading",
        [WEIR__JOB_READ] = "",
    };
    int64_t busy_ms = (now - pool->job.began_ns) / WEIR__NS_PER_MS;
    if (pool->job.entry != NULL && busy_ms > lease->timeout_ms / 2) {
        const char *name = pool->job.entry->spec->given.name;
        if (busy_ms < 1000)
            snprintf(why, size, "the model \"%.100s\" has been %s for %lld ms", name, doing[pool->job.kind],
                     (long long)busy_ms);
        else
            snprintf(why, size, "the model \"%.100s\" has been %s for %lld s", name, doing[pool->job.kind],
                     (long long)busy_ms / 1000);
        return;
    }
    char limit[32] = "";
    if (pool->limit != WEIR__POOL_NO_LIMIT)
        snprintf(limit, sizeof limit, " of %s", size_of(pool->limit).text);
    snprintf(why, size, "%d request%s for models, and models take %s%s", pool->n_waiting,
             pool->n_waiting == 1 ? " waits" : "s wait", size_of(weir__room_used(pool)).text, limit);
}

static void end_late(weir_pool *pool, int64_t now)
{
    char why[192];
    for (weir_lease *lease = pool->first, *next; lease != NULL; lease = next) {
        weir_error error;
        next = lease->next;
        if (lease->deadline_ns > now) continue;
        explain_late(pool, lease, now, why, sizeof why);
        weir__error_set(&error, WEIR_BUSY, "timeout_ms",
                        "\"%.100s\" was not loaded within %d ms: %s; try again later", lease->name,
                        lease->timeout_ms, why);
        weir__lease_fail(lease, &error);
    }
}

static void grant_all(weir_pool *pool)
{
    for (weir_lease *lease = pool->first, *next; lease != NULL; lease = next) {
        next = lease->next;
        if (weir__entry_is_open(lease->entry)) weir__lease_grant(lease);
    }
}

/* ---- Jobs ---- */

static const char *folder_of(const weir_pool *pool, const weir__entry *entry)
{
    return pool->has_private_folder && entry->spec->given.pinned ? NULL : pool->folder;
}

static void begin_read(weir_pool *pool)
{
    pool->job = (weir__job){.kind = WEIR__JOB_READ, .read = pool->read};
    pthread_cond_signal(&pool->work);
}

static void begin_job(weir_pool *pool, const weir__room *room)
{
    weir__entry *entry = room->entry;
    pool->job = (weir__job){
        .kind = room->job,
        .began_ns = weir__clock_now_ns(),
        .entry = entry,
        .spec = weir__spec_hold(entry->spec),
        .cache_dir = folder_of(pool, entry),
        .read = pool->read,
        .demand = entry->demand,
        .resident = entry->resident,
    };
    if (room->job == WEIR__JOB_LOAD) {
        entry->before = entry->state;
        entry->state = WEIR_POOL_LOADING;
        entry->n_bytes = room->needs;
        atomic_store(&entry->progress, 0.0f);
        atomic_store(&entry->cancelled, false);
    } else if (room->job == WEIR__JOB_UNLOAD) {
        entry->state = WEIR_POOL_LEAVING;
        entry->resident = NULL; /* the job's: the loader frees it without the mutex */
    }
    pthread_cond_signal(&pool->work);
}

static void end_estimate(weir_pool *pool, weir__entry *entry, const weir__job *job)
{
    entry->looked = true;
    if (job->status == WEIR_OK) {
        entry->known = true;
        if (job->demand.base != entry->demand.base) entry->measured = 0; /* of another file */
        entry->demand = job->demand;
        if (entry->spec->engine.cache_bytes == WEIR_AUTO)
            entry->demand.cache = weir__room_cache(pool, job->demand.base, job->memory);
    } else if (entry->n_waiting > 0 || entry->wanted) {
        fail_entry(pool, entry, &job->error);
    }
}

static void end_load(weir_pool *pool, weir__entry *entry, const weir__job *job)
{
    entry->known = false; /* the file may change until the next load */
    entry->load_ms = job->ns / WEIR__NS_PER_MS;
    if (job->status == WEIR_OK) {
        uint64_t promised = entry->n_bytes;
        entry->state = WEIR_POOL_LOADED;
        entry->closed = false;
        entry->resident = job->resident;
        entry->n_bytes = entry->measured = job->resident->n_bytes;
        entry->reserved = 0;
        entry->n_ctx = job->resident->n_ctx;
        entry->used_ns = weir__clock_now_ns();
        entry->n_loads++;
        pool->n_loads++;
        entry->status = WEIR_OK;
        entry->error = (weir_error){0};
        /* Larger than its estimate: it goes, and is loaded again with this size. */
        entry->leave = entry->n_bytes > promised && weir__room_used(pool) > pool->limit;
        entry->wanted = entry->wanted && entry->leave;
        return;
    }
    entry->n_bytes = 0;
    entry->state = entry->before;
    if (job->status != WEIR_ABORTED) fail_entry(pool, entry, &job->error);
}

static void end_unload(weir_pool *pool, weir__entry *entry)
{
    entry->n_bytes = 0;
    entry->known = false;
    entry->state = entry->leave ? WEIR_POOL_UNLOADED : WEIR_POOL_SLEEPING;
    pool->n_sleeps += !entry->leave && entry->listed;
    entry->leave = false;
}

static void end_job(weir_pool *pool)
{
    weir__job job = pool->job;
    pool->job = (weir__job){0};
    if (job.kind == WEIR__JOB_ESTIMATE || job.kind == WEIR__JOB_READ)
        weir__room_set_limit(pool, job.memory, weir__clock_now_ns());
    if (job.kind == WEIR__JOB_ESTIMATE) end_estimate(pool, job.entry, &job);
    if (job.kind == WEIR__JOB_LOAD) end_load(pool, job.entry, &job);
    if (job.kind == WEIR__JOB_UNLOAD) end_unload(pool, job.entry);
    weir__spec_release(job.spec);
}

/* Destroys entries that weir_pool_set has removed and that are no longer in use. */
static void sweep_entries(weir_pool *pool)
{
    weir__entry **at = &pool->entries;
    while (*at != NULL) {
        weir__entry *entry = *at;
        if (entry->listed || !weir__entry_is_out(entry) || entry->n_leases > 0 || entry->n_waiting > 0 ||
            pool->job.entry == entry) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        weir__entry_destroy(entry);
    }
}

/* ---- The keeper ---- */

static int64_t next_ns(const weir_pool *pool)
{
    int64_t next = weir__room_wake_ns(pool);
    for (const weir_lease *lease = pool->first; lease != NULL; lease = lease->next)
        if (lease->deadline_ns < next) next = lease->deadline_ns;
    return next;
}

/* Gives the loader a job, or says that a model is too large. False: neither. */
static bool decide_job(weir_pool *pool, int64_t now)
{
    weir__room room = weir__room_next(pool, now);
    if (room.job == WEIR__JOB_READ)
        begin_read(pool);
    else if (room.entry == NULL)
        return false;
    else if (room.job == WEIR__JOB_NONE)
        refuse_size(pool, &room);
    else
        begin_job(pool, &room);
    return true;
}

static void end_all(weir_pool *pool)
{
    weir_error error;
    weir__error_set(&error, WEIR_STOPPED, "pool", "the pool is being destroyed");
    while (pool->first != NULL) weir__lease_fail(pool->first, &error);
    for (weir__entry *e = pool->entries; e != NULL; e = e->next) atomic_store(&e->cancelled, true);
}

static bool is_over(const weir_pool *pool)
{
    return pool->over && pool->job.kind == WEIR__JOB_NONE;
}

void *weir__keeper_run(void *user)
{
    weir_pool *pool = user;
    weir__thread_name("weir-keeper");
    pthread_mutex_lock(&pool->mutex);
    while (!is_over(pool)) {
        int64_t now = weir__clock_now_ns();
        if (pool->job.done) end_job(pool);
        if (pool->stopping) end_all(pool);
        end_late(pool, now);
        grant_all(pool); /* before the next choice: a model that was loaded for a lease must not go again */
        if (pool->job.kind == WEIR__JOB_NONE && !pool->stopping && decide_job(pool, now)) continue;
        grant_all(pool);
        if (weir__lease_ring(pool)) continue;
        sweep_entries(pool);
        if (!pool->job.done && !is_over(pool))
            weir__clock_cond_wait(&pool->wake, &pool->mutex, next_ns(pool));
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

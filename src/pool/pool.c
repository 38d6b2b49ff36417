/* pool.c: creates and ends a pool, and changes and describes its list of models.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A new list is checked as a whole before the mutex is taken. Entries whose description loads the same model
 * are kept, the others leave when nothing uses them, and leases that wait move to the entry of their name.
 * The keeper and the loader do the rest (shared.h). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkdtemp */
#endif
#include "pool/shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/words.h"
#include "params/members.h"
#include "pool/lease.h"
#include "pool/room.h"

#define MODELS_MAX 1024

void weir_pool_params_init(weir_pool_params *params, size_t size)
{
    weir__members_init(&weir__pool_members, params, size);
}

const char *weir_pool_state_name(weir_pool_state state)
{
    bool known = state >= WEIR_POOL_UNLOADED && state <= WEIR_POOL_FAILED;
    return known ? weir__pool_state_names[state] : "unknown state";
}

const char *weir_pool_kind_name(weir_pool_kind kind)
{
    bool known = kind >= WEIR_POOL_KIND_UNKNOWN && kind <= WEIR_POOL_KIND_RANKING;
    return known ? weir__pool_kind_names[kind] : "unknown kind";
}

/* ---- The folder ---- */

/* Makes the folder for prefixes of models that sleep. Without one the pool works, but such prefixes are
 * lost. */
static void make_folder(weir_pool *pool)
{
    const char *temp = getenv("TMPDIR");
    char *folder = weir__text_format("%s/weir-pool-XXXXXX", temp != NULL && *temp != '\0' ? temp : "/tmp");
    if (folder != NULL && mkdtemp(folder) != NULL) {
        pool->folder = folder;
        pool->has_private_folder = true;
        return;
    }
    weir__log(WEIR_LOG_WARN, "no folder for cached prompts of models that sleep: %s",
              folder == NULL ? "out of memory" : strerror(errno));
    weir__mem_free(folder);
}

static void remove_folder(const weir_pool *pool)
{
    DIR *folder = pool->has_private_folder ? opendir(pool->folder) : NULL;
    if (folder == NULL) return;
    for (struct dirent *file; (file = readdir(folder)) != NULL;)
        (void)unlinkat(dirfd(folder), file->d_name, 0); /* fails for "." and ".." */
    closedir(folder);
    (void)rmdir(pool->folder);
}

static weir_status take_folder(weir_pool *pool, weir_error *error)
{
    const char *given = pool->params.cache_dir;
    pool->params.cache_dir = NULL; /* belongs to the caller */
    if (given == NULL)
        make_folder(pool);
    else if (*given != '\0' && (pool->folder = weir__mem_strdup(given)) == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a pool");
    return WEIR_OK;
}

/* ---- Life ---- */

static void free_pool(weir_pool *pool)
{
    for (weir__entry *e = pool->entries, *next; e != NULL; e = next) {
        next = e->next;
        weir__entry_destroy(e);
    }
    remove_folder(pool);
    weir__mem_free(pool->list);
    weir__mem_free(pool->folder);
    weir__mem_free(pool);
}

static void fini_sync(weir_pool *pool)
{
    pthread_cond_destroy(&pool->empty);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
}

static bool init_sync(weir_pool *pool)
{
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) return false;
    if (weir__clock_cond_init(&pool->wake) != 0) goto no_wake;
    if (pthread_cond_init(&pool->work, NULL) != 0) goto no_work;
    if (pthread_cond_init(&pool->empty, NULL) == 0) return true;
    pthread_cond_destroy(&pool->work);
no_work:
    pthread_cond_destroy(&pool->wake);
no_wake:
    pthread_mutex_destroy(&pool->mutex);
    return false;
}

/* Ends the loader, once it has no job. */
static void end_threads(weir_pool *pool, bool keeper)
{
    pthread_mutex_lock(&pool->mutex);
    pool->over = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    if (keeper) pthread_join(pool->keeper, NULL);
    pthread_join(pool->loader, NULL);
}

weir_status weir_pool_create(const weir_pool_params *given, weir_pool **out, weir_error *error)
{
    weir_pool_params params = weir_pool_params_default();
    if (out == NULL) return weir__error_null(error, "pool");
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = weir__members_check(&weir__pool_members, &params, "", error);
    if (status != WEIR_OK) return status;
    weir_pool *pool = weir__mem_calloc(1, sizeof *pool);
    if (pool == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a pool");
    pool->params = params;
    pool->read = weir__cpu_memory_read;
    pool->limit = params.memory_bytes == 0 ? WEIR__POOL_NO_LIMIT : params.memory_bytes;
    if (params.memory_bytes == WEIR_AUTO) weir__room_set_limit(pool, pool->read(), weir__clock_now_ns());
    if ((status = take_folder(pool, error)) != WEIR_OK) goto no_folder;
    if (!init_sync(pool)) goto no_sync;
    if (weir__thread_start(&pool->loader, NULL, weir__loader_run, pool) != 0) goto no_loader;
    if (weir__thread_start(&pool->keeper, NULL, weir__keeper_run, pool) != 0) goto no_keeper;
    *out = pool;
    return WEIR_OK;

no_keeper:
    end_threads(pool, false);
no_loader:
    fini_sync(pool);
no_sync:
    status = weir__error_set(error, WEIR_NO_MEMORY, "",
                             "no threads for the pool: the process has reached a limit");
no_folder:
    free_pool(pool);
    return status;
}

weir_status weir_pool_destroy(weir_pool *pool)
{
    if (pool == NULL) return WEIR_OK;
    if (weir__lease_rings_here(pool)) return WEIR_STATE;
    pthread_mutex_lock(&pool->mutex);
    pool->stopping = true;
    pthread_cond_signal(&pool->wake);
    while (pool->n_objects > 0) pthread_cond_wait(&pool->empty, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    end_threads(pool, true);
    fini_sync(pool);
    free_pool(pool);
    return WEIR_OK;
}

/* ---- The list ---- */

/* A new list before it is the pool's. */
typedef struct draft {
    weir__spec **specs;    /* [n] */
    weir__entry **entries; /* [n]; those that the pool may need, new */
    size_t n;
} draft;

static void fini_draft(draft *d)
{
    for (size_t i = 0; i < d->n; i++) {
        if (d->specs != NULL) weir__spec_release(d->specs[i]);
        if (d->entries != NULL) weir__entry_destroy(d->entries[i]);
    }
    weir__mem_free(d->specs);
    weir__mem_free(d->entries);
}

/* Names and aliases of all models, each once. */
static weir_status check_names(const draft *d, weir_error *error)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < d->n; i++) n += 1 + d->specs[i]->given.n_aliases;
    const char **names = weir__mem_calloc(n, sizeof *names);
    if (names == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for names");
    for (size_t i = 0; i < d->n; i++) {
        const weir_pool_model *given = &d->specs[i]->given;
        names[at++] = given->name;
        for (size_t k = 0; k < given->n_aliases; k++) names[at++] = given->aliases[k];
    }
    qsort(names, n, sizeof *names, weir__words_compare);
    weir_status status = WEIR_OK;
    for (size_t i = 1; i < n && status == WEIR_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = weir__invalid(error, WEIR_ERROR_DUPLICATE, "models",
                                   "\"%.255s\" names two models, or one twice: names and aliases must differ",
                                   names[i]);
    weir__mem_free(names);
    return status;
}

static weir_status make_draft(const weir_pool_model *models, size_t n, draft *d, weir_error *error)
{
    d->specs = weir__mem_calloc(n, sizeof *d->specs);
    d->entries = weir__mem_calloc(n, sizeof(weir__entry *));
    if (d->specs == NULL || d->entries == NULL) goto no_memory;
    for (; d->n < n; d->n++) {
        char prefix[32];
        const char *given = (const char *)models + d->n * models->size;
        snprintf(prefix, sizeof prefix, "models[%zu].", d->n);
        weir_status status =
            weir__spec_create((const weir_pool_model *)given, prefix, &d->specs[d->n], error);
        if (status != WEIR_OK) return status;
        if ((d->entries[d->n] = weir__entry_create(d->specs[d->n])) == NULL) {
            weir__spec_release(d->specs[d->n]);
            goto no_memory;
        }
    }
    return check_names(d, error);
no_memory:
    return weir__error_set(error, WEIR_NO_MEMORY, "models", "out of memory for a list of %zu models", n);
}

/* The entry of the present list that stays for this description. */
static weir__entry *find_same(const weir_pool *pool, const weir__spec *spec)
{
    for (size_t i = 0; i < pool->n_list; i++) {
        const weir__spec *present = pool->list[i]->spec;
        if (strcmp(present->given.name, spec->given.name) == 0)
            return weir__spec_equal(present, spec) ? pool->list[i] : NULL;
    }
    return NULL;
}

/* d->entries becomes the list, and the former list d->entries, without the entries: those are the pool's. */
static void swap_lists(weir_pool *pool, draft *d)
{
    for (size_t i = 0; i < d->n; i++) {
        weir__entry *same = find_same(pool, d->specs[i]), *made = d->entries[i];
        if (same != NULL) {
            weir__spec *former = same->spec;
            same->spec = weir__spec_hold(d->specs[i]);
            weir__spec_release(former);
            weir__entry_destroy(made);
            d->entries[i] = same;
        } else {
            made->next = pool->entries;
            pool->entries = made;
        }
    }
    for (size_t i = 0; i < pool->n_list; i++) pool->list[i]->listed = false;
    for (size_t i = 0; i < d->n; i++) {
        weir__entry *entry = d->entries[i];
        entry->listed = true;
        if (entry->spec->given.pinned && weir__entry_is_out(entry)) entry->wanted = true;
    }
    weir__entry **former = pool->list;
    pool->list = d->entries;
    pool->n_list = d->n;
    d->entries = NULL;
    weir__mem_free(former);
}

static void move_leases(weir_pool *pool)
{
    for (weir_lease *lease = pool->first, *next; lease != NULL; lease = next) {
        weir_error error;
        next = lease->next;
        if (lease->entry->listed) continue;
        weir__entry *entry = weir__lease_find_entry(pool, lease->name);
        if (entry != NULL) {
            weir__lease_move(lease, entry);
            continue;
        }
        weir__error_set(&error, WEIR_NOT_FOUND, "name", "no model has the name \"%.255s\" any more",
                        lease->name);
        weir__lease_fail(lease, &error);
    }
    for (weir__entry *e = pool->entries; e != NULL; e = e->next)
        if (!e->listed) {
            e->wanted = false;
            atomic_store(&e->cancelled, true);
        }
}

weir_status weir_pool_set(weir_pool *pool, const weir_pool_model *models, size_t n, weir_error *error)
{
    draft d = {0};
    if (pool == NULL || (models == NULL && n > 0))
        return weir__invalid(error, WEIR_ERROR_MISSING, pool == NULL ? "pool" : "models",
                             "a pointer is NULL");
    if (n > MODELS_MAX)
        return weir__error_range(error, WEIR_INVALID, "n", (double)n, 0, MODELS_MAX, "`n` is %zu", n);
    weir_status status = make_draft(models, n, &d, error);
    if (status == WEIR_OK) {
        pthread_mutex_lock(&pool->mutex);
        swap_lists(pool, &d);
        move_leases(pool);
        pthread_cond_signal(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
    fini_draft(&d);
    return status;
}

weir_status weir_pool_set_memory(weir_pool *pool, uint64_t memory_bytes, weir_error *error)
{
    if (pool == NULL) return weir__error_null(error, "pool");
    weir__cpu_memory memory = {0};
    if (memory_bytes == WEIR_AUTO) memory = pool->read();
    pthread_mutex_lock(&pool->mutex);
    if (memory_bytes != pool->params.memory_bytes) {
        pool->params.memory_bytes = memory_bytes;
        pool->limit = memory_bytes == 0 ? WEIR__POOL_NO_LIMIT : memory_bytes;
        pool->limit_ns = 0;
        weir__room_set_limit(pool, memory, weir__clock_now_ns());
        pthread_cond_signal(&pool->wake);
    }
    pthread_mutex_unlock(&pool->mutex);
    return WEIR_OK;
}

/* ---- By name ---- */

/* Locks the mutex. NULL: the mutex is not locked; *status and *error have the reason. */
static weir__entry *lock_entry(weir_pool *pool, const char *name, weir_status *status, weir_error *error)
{
    *status = WEIR_OK;
    if (pool == NULL || name == NULL) {
        *status =
            weir__invalid(error, WEIR_ERROR_MISSING, pool == NULL ? "pool" : "name", "a pointer is NULL");
        return NULL;
    }
    pthread_mutex_lock(&pool->mutex);
    weir__entry *entry = weir__lease_find_entry(pool, name);
    if (entry != NULL) return entry;
    pthread_mutex_unlock(&pool->mutex);
    *status = weir__error_set(error, WEIR_NOT_FOUND, "name", "no model has the name \"%.255s\"", name);
    return NULL;
}

weir_status weir_pool_load(weir_pool *pool, const char *name, weir_error *error)
{
    weir_status status;
    weir__entry *entry = lock_entry(pool, name, &status, error);
    if (entry == NULL) return status;
    if (entry->state == WEIR_POOL_LOADED)
        entry->leave = false;
    else
        entry->wanted = true;
    if (entry->state == WEIR_POOL_LOADING) atomic_store(&entry->cancelled, false);
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    return WEIR_OK;
}

static weir__entry *find_loaded(const weir_pool *pool, const weir_model *model)
{
    weir__entry *entry = pool->entries;
    while (entry != NULL && (entry->resident == NULL || entry->resident->model != model)) entry = entry->next;
    return entry;
}

#define MIB(n) ((double)(n) / (1 << 20))

weir_status weir_pool_reserve(weir_pool *pool, const weir_model *model, uint64_t n_bytes, weir_error *error)
{
    if (pool == NULL || model == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, pool == NULL ? "pool" : "model", "a pointer is NULL");
    uint64_t limit, used, pinned = 0;
    weir_status status = WEIR_STATE;
    pthread_mutex_lock(&pool->mutex);
    weir__entry *entry = find_loaded(pool, model);
    if (entry != NULL) status = weir__room_reserve(pool, entry, n_bytes, &pinned);
    limit = pool->limit;
    used = weir__room_used(pool);
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    switch (status) {
    case WEIR_STATE: return weir__error_set(error, status, "model", "the pool has not loaded this model");
    case WEIR_BUSY:
        return weir__error_set(error, status, NULL,
                               "%.1f MiB more are needed, and models take %.1f MiB of %.1f MiB; try again "
                               "later",
                               MIB(n_bytes), MIB(used), MIB(limit));
    case WEIR_TOO_LONG:
        return weir__error_set(error, status, NULL,
                               "%.1f MiB more are needed beside the model and %.1f MiB of pinned ones, and "
                               "the budget is %.1f MiB",
                               MIB(n_bytes), MIB(pinned), MIB(limit));
    default: return status;
    }
}

weir_status weir_pool_unload(weir_pool *pool, const char *name, weir_error *error)
{
    weir_status status;
    weir__entry *entry = lock_entry(pool, name, &status, error);
    if (entry == NULL) return status;
    entry->wanted = false;
    if (entry->state == WEIR_POOL_LOADED || entry->state == WEIR_POOL_LEAVING)
        entry->leave = true;
    else if (entry->state == WEIR_POOL_LOADING && entry->n_waiting == 0)
        atomic_store(&entry->cancelled, true);
    else if (weir__entry_is_out(entry))
        entry->state = WEIR_POOL_UNLOADED;
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    return WEIR_OK;
}

/* ---- Information ---- */

static weir_status give_info(const weir__entry *entry, weir_pool_info *info)
{
    weir_pool_info full = {.size = sizeof full};
    if (entry == NULL) return WEIR_NOT_FOUND;
    weir__entry_info(entry, &full);
    return weir__sized_give(info, &full, sizeof full, "info", NULL);
}

weir_status weir_pool_get(weir_pool *pool, size_t i, weir_pool_info *info)
{
    if (pool == NULL || info == NULL) return WEIR_INVALID;
    pthread_mutex_lock(&pool->mutex);
    weir_status status = i < pool->n_list ? give_info(pool->list[i], info) : WEIR_END;
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

weir_status weir_pool_find(weir_pool *pool, const char *name, weir_pool_info *info)
{
    if (pool == NULL || name == NULL || info == NULL) return WEIR_INVALID;
    pthread_mutex_lock(&pool->mutex);
    weir_status status = give_info(weir__lease_find_entry(pool, name), info);
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

weir_status weir_pool_get_stats(weir_pool *pool, weir_pool_stats *stats)
{
    weir_pool_stats full = {.size = sizeof full};
    if (pool == NULL || stats == NULL) return WEIR_INVALID;
    pthread_mutex_lock(&pool->mutex);
    full.memory_bytes = pool->limit;
    full.used_bytes = weir__room_used(pool);
    full.n_models = (int32_t)pool->n_list;
    full.n_waiting = pool->n_waiting;
    full.n_loads = pool->n_loads;
    full.n_failures = pool->n_failures;
    full.n_sleeps = pool->n_sleeps;
    for (const weir__entry *e = pool->entries; e != NULL; e = e->next) {
        full.n_leases += e->n_leases;
        full.n_loaded += e->state == WEIR_POOL_LOADED;
    }
    pthread_mutex_unlock(&pool->mutex);
    return weir__sized_give(stats, &full, sizeof full, "stats", NULL);
}

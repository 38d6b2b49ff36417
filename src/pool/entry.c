/* entry.c: estimates the memory of a model, loads it, and frees it; answers questions about the states of
 * entries.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An estimate is made from the headers of the files, and remembered with a hash of what these are, so that it
 * is not made again while the files stay. Both the estimate and the load read files on a thread of low
 * priority; the engine is made on the loader's own thread. After a load the estimate gets the number of cells
 * and the sizes of adapters as they turned out. */
#include "pool/entry.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "model/model.h"

/* Runs fn on a thread of its own, at low priority beside passes, and waits for its end. False: there is no
 * thread. */
static bool run_aside(void *(*fn)(void *user), void *user, weir_error *error)
{
    pthread_t thread;
    if (weir__thread_start(&thread, NULL, fn, user) == 0) return pthread_join(thread, NULL) == 0;
    weir__error_set(error, WEIR_NO_MEMORY, "", "no thread: the process has reached a limit");
    return false;
}

static void step_aside(void)
{
    weir__thread_name("weir-load");
    weir__thread_yield();
}

/* ---- Estimate ---- */

/* The size of an adapter's file; 0 if there is no such file, which the load reports. */
static uint64_t file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && info.st_size > 0 ? (uint64_t)info.st_size : 0;
}

/* An engine keeps texts for drafts only if it drafts from them. */
static uint64_t lookup_bytes(const weir_engine_params *engine)
{
    return engine->prompt_lookup && engine->n_draft_max > 0 ? engine->lookup_bytes : 0;
}

static weir_pool_kind kind_of(const weir_model_info *info)
{
    return info->ranks         ? WEIR_POOL_KIND_RANKING
           : info->has_decoder ? WEIR_POOL_KIND_TEXT
                               : WEIR_POOL_KIND_EMBEDDING;
}

/* A model that cannot generate has no engine, but weights. */
static weir_status estimate_model(const weir__spec *spec, const weir_engine_params *engine,
                                  weir__demand *demand, weir_engine_memory *memory, weir_error *error)
{
    weir_model *model;
    weir_status status = weir__model_outline(spec->given.path, &spec->model, &model, error);
    if (status != WEIR_OK) return status;
    const weir_model_info *info = &model->info;
    demand->kind = kind_of(info);
    if (info->has_decoder || info->is_draft_head || spec->given.draft_path != NULL) {
        status = weir__engine_estimate(model, engine, memory, error);
    } else {
        memory->model_bytes = info->n_bytes;
        memory->n_ctx = info->n_ctx_train;
    }
    weir_model_release(model);
    return status;
}

/* Adds the file to *files, which is 0 from then on if it is no file of its own: the other files of a split
 * model are not looked at. */
static void add_file(uint64_t *files, const char *path)
{
    struct stat info;
    if (path == NULL || *path == '\0' || *files == 0) return;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || strstr(path, "-of-") != NULL) {
        *files = 0;
        return;
    }
#ifdef __APPLE__
    const struct timespec written = info.st_mtimespec, changed = info.st_ctimespec;
#else
    const struct timespec written = info.st_mtim, changed = info.st_ctim;
#endif
    const int64_t facts[] = {(int64_t)info.st_dev,    (int64_t)info.st_ino,     (int64_t)info.st_size,
                             (int64_t)written.tv_sec, (int64_t)written.tv_nsec, (int64_t)changed.tv_sec,
                             (int64_t)changed.tv_nsec};
    *files = weir__hash(*files, facts, sizeof facts);
}

/* The files whose headers the estimate is of. */
static uint64_t identify_files(const weir__spec *spec)
{
    const weir_pool_model *given = &spec->given;
    uint64_t files = 1;
    add_file(&files, given->path);
    add_file(&files, spec->model.projector);
    add_file(&files, given->draft_path);
    for (size_t i = 0; i < given->n_adapters; i++) add_file(&files, given->adapters[i]);
    return files;
}

/* True if the number of cells may depend on free memory. */
static bool is_tight(const weir__demand *demand, uint64_t available)
{
    return available > 0 && demand->kv > available / 4;
}

static weir_status estimate_memory(const weir__spec *spec, weir__demand *demand, weir_error *error)
{
    const weir_pool_model *given = &spec->given;
    weir_engine_params engine = spec->engine;
    weir_engine_memory memory = {.size = sizeof memory};
    weir__demand made = {0};
    weir_status status = WEIR_OK;
    if (given->draft_path != NULL)
        status = weir__model_outline(given->draft_path, NULL, &engine.draft_model, error);
    if (status == WEIR_OK) status = estimate_model(spec, &engine, &made, &memory, error);
    weir_model_release(engine.draft_model);
    if (status != WEIR_OK) return status;

    made.kv = memory.kv_bytes;
    made.n_kv = memory.n_kv;
    made.n_ctx = memory.n_ctx;
    *demand = made;
    for (size_t i = 0; i < given->n_adapters; i++)
        demand->adapters = weir__bytes_add(demand->adapters, file_bytes(given->adapters[i]));
    demand->base = weir__bytes_add(weir__bytes_add(memory.model_bytes, memory.kv_bytes),
                                   weir__bytes_add(memory.compute_bytes, demand->adapters));
    if (memory.n_kv > 0) demand->base = weir__bytes_add(demand->base, lookup_bytes(&engine));
    if (engine.cache_bytes != WEIR_AUTO) demand->cache = engine.cache_bytes;
    return WEIR_OK;
}

typedef struct question {
    const weir__spec *spec;
    weir__demand *demand;
    weir_error *error;
    weir_status status;
} question;

/* Reading a vocabulary takes as long as the rest of a load from an optimized file. */
static void *answer_question(void *user)
{
    question *q = user;
    step_aside();
    q->status = estimate_memory(q->spec, q->demand, q->error);
    return NULL;
}

weir_status weir__resident_estimate(const weir__spec *spec, uint64_t available, weir__demand *demand,
                                    weir_error *error)
{
    question q = {spec, demand, error, WEIR_NO_MEMORY};
    uint64_t files =
        identify_files(spec); /* before they are read: a file that changes meanwhile is another one */
    if (files != 0 && files == demand->files && !is_tight(demand, available)) return WEIR_OK;
    if (run_aside(answer_question, &q, error) && q.status == WEIR_OK && !is_tight(demand, available))
        demand->files = files;
    return q.status;
}

/* ---- Load ---- */

typedef struct load {
    const weir__spec *spec;
    const weir__resident_params *params;
    weir__resident *made;
    weir_error *error;
    weir_status status;
    float from, share; /* of the progress: the part that is loaded now */
} load;

static bool relay_progress(float progress, void *user)
{
    const load *l = user;
    return l->params->progress(l->from + progress * l->share, l->params->user);
}

static weir_status load_model(load *l, const char *path, const weir_model_params *given, weir_model **model)
{
    weir_model_params params = *given;
    params.progress = relay_progress;
    params.progress_user = l;
    return weir_model_load(path, &params, model, l->error);
}

static weir_status load_adapters(load *l)
{
    const weir_pool_model *given = &l->spec->given;
    weir__resident *made = l->made;
    weir_status status = WEIR_OK;
    if (given->n_adapters == 0) return WEIR_OK;
    made->adapters = weir__mem_calloc(given->n_adapters, sizeof *made->adapters);
    if (made->adapters == NULL)
        return weir__error_set(l->error, WEIR_NO_MEMORY, "adapters", "out of memory for adapters");
    while (status == WEIR_OK && made->n_adapters < given->n_adapters) {
        if (!relay_progress(0, l))
            return weir__error_set(l->error, WEIR_ABORTED, "", "the load was cancelled");
        status = weir_adapter_load(made->model, given->adapters[made->n_adapters],
                                   &made->adapters[made->n_adapters], l->error);
        made->n_adapters += status == WEIR_OK;
    }
    return status;
}

/* Checks the template of a model that generates: one that cannot be parsed would refuse every chat. */
static weir_status check_template(const load *l)
{
    const char *source = l->spec->given.template_source;
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(l->made->model, &info);
    if (source == NULL || !info.has_decoder) return WEIR_OK;
    weir_error why = {0};
    weir_status status = weir_chat_check(l->made->model, *source != '\0' ? source : NULL, &why);
    if (status == WEIR_OK || *source == '\0')
        return status == WEIR_OK ? status : weir__error_copy(l->error, &why);
    return weir__error_wrap(l->error, &why, status, "template_source", "the template given for this model: ");
}

/* Reads files and packs weights. */
static void *load_weights(void *user)
{
    load *l = user;
    const weir_pool_model *given = &l->spec->given;
    const weir_model_params plain = weir_model_params_default();
    step_aside();
    l->share = given->draft_path != NULL ? 0.6f : 0.9f;
    l->status = load_model(l, given->path, &l->spec->model, &l->made->model);
    if (l->status == WEIR_OK) l->status = check_template(l);
    l->from = l->share;
    l->share = 0.9f - l->from;
    if (l->status == WEIR_OK && given->draft_path != NULL)
        l->status = load_model(l, given->draft_path, &plain, &l->made->draft);
    l->from = 0.9f;
    l->share = 0.1f;
    if (l->status == WEIR_OK) l->status = load_adapters(l);
    return NULL;
}

/* Makes the engine, on this thread, whose priority the engine's threads inherit. */
static weir_status make_engine(load *l, const weir__demand *demand)
{
    weir_engine_params params = l->spec->engine;
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(l->made->model, &info);
    if (!info.has_decoder && !info.is_draft_head) return WEIR_OK;
    params.cache_bytes = demand->cache;
    params.draft_model = l->made->draft;
    params.cache_dir = l->params->cache_dir;
    params.cache_disk_bytes = l->params->cache_disk_bytes;
    return weir_engine_create(l->made->model, &params, &l->made->engine, l->error);
}

/* The estimate, with the number of cells and the adapters' sizes as they are. */
static void measure_memory(weir__resident *made, const weir__demand *demand)
{
    weir_engine_stats stats = {.size = sizeof stats};
    uint64_t kv = demand->kv, adapters = 0;
    made->n_ctx = demand->n_ctx;
    if (made->engine != NULL && weir_engine_get_stats(made->engine, &stats) == WEIR_OK && demand->n_kv > 0) {
        kv = (uint64_t)((double)kv * stats.n_kv / demand->n_kv);
        made->n_ctx = stats.n_ctx;
    }
    for (size_t i = 0; i < made->n_adapters; i++) {
        weir_adapter_info info = {.size = sizeof info};
        if (weir_adapter_describe(made->adapters[i], &info) == WEIR_OK) adapters += info.n_bytes;
    }
    made->n_bytes =
        weir__bytes_add(demand->base - demand->kv - demand->adapters, weir__bytes_add(kv, adapters));
    made->n_bytes = weir__bytes_add(made->n_bytes, demand->cache);
}

weir_status weir__resident_load(const weir__spec *spec, const weir__demand *demand,
                                const weir__resident_params *params, weir__resident **made, weir_error *error)
{
    load l = {.spec = spec, .params = params, .error = error, .status = WEIR_OK};
    l.made = weir__mem_calloc(1, sizeof *l.made);
    if (l.made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a model");
    if (!run_aside(load_weights, &l, error)) l.status = WEIR_NO_MEMORY;
    if (l.status == WEIR_OK) l.status = make_engine(&l, demand);
    if (l.status == WEIR_OK) {
        measure_memory(l.made, demand);
        l.made->leaving = params->leaving;
        l.made->leaving_user = params->leaving_user;
        *made = l.made;
    } else {
        weir__resident_free(l.made);
    }
    return l.status;
}

bool weir__resident_is_lost(const weir__resident *resident)
{
    return weir_model_check(resident->model, NULL) != WEIR_OK ||
           (resident->draft != NULL && weir_model_check(resident->draft, NULL) != WEIR_OK);
}

void weir__resident_free(weir__resident *resident)
{
    if (resident == NULL) return;
    if (resident->leaving != NULL) resident->leaving(resident->model, resident->leaving_user);
    weir_engine_destroy(resident->engine);
    for (size_t i = 0; i < resident->n_adapters; i++) weir_adapter_release(resident->adapters[i]);
    weir__mem_free(resident->adapters);
    weir_model_release(resident->draft);
    weir_model_release(resident->model);
    weir__mem_free(resident);
}

/* ---- Entries ---- */

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
    uint64_t needs = weir__bytes_add(entry->demand.base, entry->demand.cache);
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

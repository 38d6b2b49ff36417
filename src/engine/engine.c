/* engine.c: the life of an engine. Create checks the parameters, decides layout, sequences and cells of the
 * context (decide_layout), fits the parameters to the context that it got, and starts the thread that ticks
 * until the engine stops; it sleeps while a tick had nothing to do. A manual engine is ticked by its callers,
 * one at a time. Submit makes the requests on the caller's thread, attaches their streams, and queues all of
 * them or none; an error undoes the steps before it. A list of the engines that exist refuses calls with a
 * pointer to another one, and with an engine of the parent in a child of fork().
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/thread.h"
#include "engine/driver.h"
#include "engine/stream.h"
#include "model/context.h"
#include "params/bounds.h"
#include "params/members.h"

#define MOST_AT_ONCE ((size_t)INT32_MAX / 2) /* requests of one submit */

#define UNDRIVEN_S 10 /* as weir.h says; a longer tick counts as driving */

#define LANE_CELLS 256 /* llama.cpp rounds the length of a lane up to a multiple of this */

_Static_assert(WEIR__SEQ_MAX <= WEIR__SCHEDULE_SLOTS, "strategies plan all slots");

/* ---- The engines of the process ---- */

/* The engines that exist, so that a call with another pointer is refused before it reads freed memory. An
 * engine at the address of an earlier one passes for that one. The mutex protects both lists; it is held for
 * one search of a list, and no other lock is taken under it. */
static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static weir_engine *engines_here, *engines_of_parents;
static pthread_once_t list_once = PTHREAD_ONCE_INIT;

static void lock_list(void)
{
    pthread_mutex_lock(&list_mutex);
}

static void unlock_list(void)
{
    pthread_mutex_unlock(&list_mutex);
}

/* Moves all engines to those of the parents, in a child of fork(): it knows no others. */
static void inherit_list(void)
{
    weir_engine **end = &engines_of_parents;
    while (*end != NULL) end = &(*end)->next;
    *end = engines_here;
    engines_here = NULL;
    unlock_list();
}

static void watch_forks(void)
{
    pthread_atfork(lock_list, unlock_list, inherit_list);
}

static void list_engine(weir_engine *engine)
{
    pthread_once(&list_once, watch_forks);
    pthread_mutex_lock(&list_mutex);
    engine->next = engines_here;
    engines_here = engine;
    pthread_mutex_unlock(&list_mutex);
}

static void unlist_engine(const weir_engine *engine)
{
    pthread_mutex_lock(&list_mutex);
    weir_engine **at = &engines_here;
    while (*at != NULL && *at != engine) at = &(*at)->next;
    if (*at != NULL) *at = engine->next;
    pthread_mutex_unlock(&list_mutex);
}

static bool list_has(const weir_engine *list, const weir_engine *engine)
{
    while (list != NULL && list != engine) list = list->next;
    return list != NULL;
}

/* The place where an engine lives. */
typedef enum engine_place {
    ENGINE_NOWHERE, /* it was destroyed, or never was an engine */
    ENGINE_HERE,
    ENGINE_OF_PARENT, /* this process is a child of fork() */
} engine_place;

/* Compares addresses and reads no engine but those of the list. */
static engine_place find_engine(const weir_engine *engine)
{
    pthread_mutex_lock(&list_mutex);
    engine_place place = list_has(engines_here, engine)         ? ENGINE_HERE
                         : list_has(engines_of_parents, engine) ? ENGINE_OF_PARENT
                                                                : ENGINE_NOWHERE;
    pthread_mutex_unlock(&list_mutex);
    return place;
}

static weir_status refuse_destroyed(weir_error *error)
{
    return weir__error_set(error, WEIR_STATE, "engine",
                           "the engine was destroyed: make no more calls with it");
}

weir_status weir__engine_check_exists(const weir_engine *engine, weir_error *error)
{
    bool exists = engine == NULL || find_engine(engine) != ENGINE_NOWHERE;
    return exists ? WEIR_OK : refuse_destroyed(error);
}

/* The error of calls in a child of fork() that have no special one, and with an engine that was destroyed. */
static weir_status check_process(const weir_engine *engine, weir_error *error)
{
    if (engine == NULL) return WEIR_OK;
    switch (find_engine(engine)) {
    case ENGINE_HERE: return WEIR_OK;
    case ENGINE_NOWHERE: return refuse_destroyed(error);
    case ENGINE_OF_PARENT: break;
    }
    return weir__error_set(
        error, WEIR_STATE, "engine",
        "this process is a child of the one that created the engine, and fork() does not copy "
        "threads: use the engine in the parent, or create another one here");
}

/* ---- Parameters ---- */

/* The part of the default n_ubatch for a prompt: one chunk of the default size. Each slot adds a token. */
#define UBATCH_PROMPT 512

void weir_engine_params_init(weir_engine_params *params, size_t size)
{
    weir__members_init(&weir__engine_members, params, size);
}

static weir_status check_engine_params(const weir_engine_params *params, weir_error *error)
{
    weir_status status = weir__members_check(&weir__engine_members, params, "", error);
    if (status != WEIR_OK) return status;
    weir_member beside = *weir_member_find("engine", "cache_sequences");
    beside.max -= params->n_slots;
    status = weir__member_check(&beside, params, "", error);
    if (status != WEIR_OK) return status;
    if (params->n_batch < params->n_slots)
        return weir__error_range(error, WEIR_INVALID, "n_batch", (double)params->n_batch,
                                 (double)params->n_slots, INFINITY,
                                 "`n_batch` is %d and `n_slots` is %d: each slot needs a token in a tick",
                                 params->n_batch, params->n_slots);
    if (params->strategy != NULL && params->strategy->plan == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, "strategy", "`strategy.plan` is NULL");
    return WEIR_OK;
}

/* The cache's sequences besides the slots'. A lane takes its memory whether used or not, as does a recurrent
 * state; another sequence in a pool costs llama.cpp one row of logits. */
static int32_t sequences_beside(const weir_model *model, const weir_engine_params *params, weir_layout layout)
{
    if (model->info.is_recurrent || params->cache_sequences == 0) return 0;
    if (params->cache_sequences > 0) return params->cache_sequences;
    if (weir__prefix_is_whole(model)) return 0;
    return layout == WEIR_LAYOUT_UNIFIED ? WEIR__SEQ_MAX - params->n_slots : 0;
}

/* The cells that fit into half of the free memory. */
static int64_t cells_at_most(const weir_model *model, const weir_engine_params *params)
{
    uint64_t cell = model->ops->cell_bytes(model->model, params->type_k, params->type_v);
    uint64_t memory = weir__cpu_memory_available();
    if (cell == 0 || memory == 0 || memory / 2 / cell > INT32_MAX) return INT32_MAX;
    int64_t n = (int64_t)(memory / 2 / cell);
    return n > LANE_CELLS ? n : LANE_CELLS;
}

/* Layout, sequences and cells. AUTO means lanes, which are faster (ADR 0008), if each lane has room for the
 * longest request. Otherwise a pool: there short requests leave room for long ones. */
static void decide_layout(const weir_model *model, const weir_engine_params *params,
                          weir_context_params *context)
{
    int64_t most = params->n_kv > 0 ? params->n_kv : cells_at_most(model, params);
    int64_t n_lanes = params->n_slots + sequences_beside(model, params, WEIR_LAYOUT_PER_SLOT);
    context->layout = params->layout;
    if (params->layout == WEIR_LAYOUT_AUTO)
        context->layout = most < params->n_ctx * n_lanes ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
    context->n_seq_max = params->n_slots + sequences_beside(model, params, context->layout);

    int64_t lane = ((int64_t)params->n_ctx + LANE_CELLS - 1) / LANE_CELLS * LANE_CELLS;
    int64_t wanted =
        context->layout == WEIR_LAYOUT_PER_SLOT ? lane * n_lanes : (int64_t)params->n_ctx * params->n_slots;
    if (params->n_kv > 0) {
        wanted = params->n_kv;
    } else if (wanted > most) {
        weir__log(WEIR_LOG_WARN,
                  "%d slot%s of %d tokens do not fit into half of the free memory: %lld KV cells instead",
                  params->n_slots, params->n_slots == 1 ? "" : "s", params->n_ctx, (long long)most);
        wanted = most;
    }
    context->n_ctx = (int32_t)wanted;
}

/* Completes *params and fills *context for an engine's context. */
static weir_status plan_context(const weir_model *model, weir_engine_params *params,
                                weir_context_params *context, weir_error *error)
{
    if (!model->info.has_decoder)
        return weir__error_set(
            error, WEIR_UNSUPPORTED, "model",
            model->info.is_draft_head
                ? "this model only drafts for another model and cannot generate: pass it as "
                  "`draft_model` to an engine of that model"
                : "this model cannot generate: use weir_embed");
    if (params->n_ctx == 0) params->n_ctx = model->info.n_ctx_train;
    if (params->n_threads == 0) params->n_threads = weir__cpu_count();
    if (params->n_threads_batch == 0) params->n_threads_batch = params->n_threads;
    if (params->n_ubatch == 0) params->n_ubatch = UBATCH_PROMPT + params->n_slots;
    if (params->n_ubatch > params->n_batch) params->n_ubatch = params->n_batch;
    *context = weir_context_params_default();
    decide_layout(model, params, context);
    context->n_batch = params->n_batch;
    context->n_ubatch = params->n_ubatch;
    context->n_threads = params->n_threads;
    context->n_threads_batch = params->n_threads_batch;
    context->type_k = params->type_k;
    context->type_v = params->type_v;
    return WEIR_OK;
}

/* Limits requests and passes if the context turned out smaller than requested. */
static void fit_context(weir_engine_params *params, const weir_context_info *info)
{
    int32_t longest = info->n_ctx_seq < info->n_ctx ? info->n_ctx_seq : info->n_ctx;
    if (params->n_ctx > longest) params->n_ctx = longest;
    if (params->n_batch > info->n_batch) params->n_batch = info->n_batch;
}

static weir_status create_driver(weir_engine *engine, weir_error *error)
{
    weir_engine_params *params = &engine->params;
    weir_model *model = engine->model;
    weir__driver *driver = &engine->driver;
    weir_context_params context;
    *driver = (weir__driver){
        .model = model,
        .params = params,
        .strategy = params->strategy ? *params->strategy : *weir_strategy_decode_maximal(),
        .waker = engine->waker,
        .shared = &engine->shared,
    };
    weir_status status = plan_context(model, params, &context, error);
    if (status == WEIR_OK)
        status = model->ops->context_create(model->model, &context, &driver->context, &driver->info, error);
    if (status != WEIR_OK) {
        bool cells = error != NULL && params->n_kv > 0 && strcmp(error->field, "n_ctx") == 0;
        if (cells) snprintf(error->field, sizeof error->field, "n_kv"); /* a context's n_ctx */
        return status;
    }
    fit_context(params, &driver->info);
    if (params->cache_bytes == WEIR_AUTO) params->cache_bytes = weir__cpu_memory_available() / 4;
    status = weir__driver_open(driver, error);
    if (status == WEIR_OK) weir__pace_watch(driver);
    params->cache_dir = NULL; /* belongs to the caller */
    return status;
}

weir_status weir__engine_estimate(weir_model *outline, const weir_engine_params *given,
                                  weir_engine_memory *memory, weir_error *error)
{
    weir_engine_params params = *given;
    weir_context_params context;
    weir_context_info info = {.size = sizeof info};
    weir_status status = check_engine_params(&params, error);
    if (status == WEIR_OK) status = plan_context(outline, &params, &context, error);
    if (status != WEIR_OK) return status;
    status =
        weir__context_estimate(outline, &context, &info, &memory->kv_bytes, &memory->compute_bytes, error);
    if (status != WEIR_OK) return status;
    fit_context(&params, &info);
    memory->model_bytes = outline->info.n_bytes + outline->projector_info.n_bytes;
    status = weir__speculate_estimate(outline, &params, &context, &info, memory, error);
    if (status != WEIR_OK) return status;
    memory->available_bytes = weir__cpu_memory_available();
    memory->n_slots = params.n_slots;
    memory->n_ctx = params.n_ctx;
    memory->n_kv = info.n_ctx;
    memory->layout = info.layout;
    return WEIR_OK;
}

weir_status weir_engine_estimate(const char *path, const weir_model_params *model_params,
                                 const weir_engine_params *given, weir_engine_memory *memory,
                                 weir_error *error)
{
    weir_engine_params params = weir_engine_params_default();
    weir_engine_memory full = {.size = sizeof full};
    weir_model *model = NULL;
    if (memory == NULL) return weir__error_null(error, "memory");
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = check_engine_params(&params, error); /* before a file is read */
    if (status == WEIR_OK) status = weir__model_outline(path, model_params, &model, error);
    if (status == WEIR_OK) status = weir__engine_estimate(model, &params, &full, error);
    if (status == WEIR_OK) status = weir__sized_give(memory, &full, sizeof full, "memory", error);
    weir_model_release(model);
    return status;
}

/* ---- Life ---- */

static weir__flights *create_flights(void)
{
    weir__flights *flights = weir__mem_calloc(1, sizeof *flights);
    if (flights == NULL) return NULL;
    flights->refs = 1;
    if (pthread_mutex_init(&flights->mutex, NULL) == 0) return flights;
    weir__mem_free(flights);
    return NULL;
}

void weir__flights_release(weir__flights *flights)
{
    if (flights == NULL) return;
    pthread_mutex_lock(&flights->mutex);
    bool last = --flights->refs == 0;
    pthread_mutex_unlock(&flights->mutex);
    if (!last) return;
    pthread_mutex_destroy(&flights->mutex);
    weir__mem_free(flights);
}

static void *run_engine(void *argument)
{
    weir_engine *engine = argument;
    weir__driver *driver = &engine->driver;
    weir__thread_name("weir-engine");
    weir__driving_begin(&engine->driving, engine->waker);
    weir__peers_join(&driver->peer, engine->waker);
    for (;;) {
        weir_report report;
        if (atomic_load(&engine->shared.stopping)) break;
        weir__step_tick(driver, NULL, 0, &report);
        int64_t ends = report.n_active > 0 ? weir__slot_deadline(&driver->slots) : WEIR__CLOCK_NEVER;
        int64_t rests = weir__pace_rest_ns(driver);
        if (rests < WEIR__CLOCK_NEVER && (ends == 0 || rests < ends)) ends = rests;
        if (report.idle && ends > 0) {
            int64_t deadline = weir__shared_next_deadline(&engine->shared),
                    due = weir__cache_archive_due(driver->prefix.cache);
            if (ends < deadline) deadline = ends;
            if (driver->transfer_due_ns != 0 && driver->transfer_due_ns < deadline)
                deadline = driver->transfer_due_ns;
            weir__waker_wait(engine->waker, due < deadline ? due : deadline);
        }
    }
    weir__finish_all(driver);
    weir__peers_leave(&driver->peer);
    weir__driving_end(&engine->driving);
    return NULL;
}

static void free_engine(weir_engine *engine)
{
    weir__driver_close(&engine->driver);
    weir__shared_fini(&engine->shared);
    weir__flights_release(engine->flights);
    weir__waker_release(engine->waker);
    weir_model_release(engine->model);
    weir__mem_free(engine);
}

weir_status weir_engine_create(weir_model *model, const weir_engine_params *given, weir_engine **out,
                               weir_error *error)
{
    weir_engine_params params = weir_engine_params_default();
    if (model == NULL || out == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, model ? "engine" : "model", "a pointer is NULL");
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = check_engine_params(&params, error);
    if (status != WEIR_OK) return status;

    weir_engine *engine = weir__mem_calloc(1, sizeof *engine);
    if (engine == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for the engine");
    engine->model = weir_model_hold(model);
    engine->params = params;
    if ((status = weir__shared_init(&engine->shared, params.n_slots, error)) != WEIR_OK) goto no_shared;
    engine->flights = create_flights();
    if (engine->flights == NULL || weir__waker_create(&engine->waker) != WEIR_OK) {
        status = weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for the engine");
        goto no_driver;
    }
    if (params.manual) weir__waker_be_manual(engine->waker, UNDRIVEN_S * WEIR__NS_PER_S);
    if ((status = create_driver(engine, error)) != WEIR_OK) goto no_driver;

    status = WEIR_NO_MEMORY;
    if (pthread_mutex_init(&engine->stop_mutex, NULL) != 0) goto no_stop_mutex;
    if (!params.manual) {
        if (weir__thread_start(&engine->thread, NULL, run_engine, engine) != 0) goto no_thread;
        engine->has_thread = true;
    }
    list_engine(engine);
    *out = engine;
    return WEIR_OK;

no_thread:
    pthread_mutex_destroy(&engine->stop_mutex);
no_stop_mutex:
    weir__error_set(error, status, "", "no thread for the engine: the process has reached a limit");
no_driver:
    free_engine(engine);
    return status;
no_shared:
    weir_model_release(model);
    weir__mem_free(engine);
    return status;
}

weir_status weir__engine_check_caller(const weir_engine *engine, weir_error *error)
{
    weir_status status = check_process(engine, error);
    if (status != WEIR_OK || engine == NULL || !weir__driving_here(engine->waker)) return status;
    return weir__error_set(error, WEIR_STATE, "engine",
                           "this thread runs a callback of the engine or of one of its streams, and the call "
                           "would wait for it to return: make it from another thread, or after the callback");
}

static weir_status begin_driving(weir_engine *engine, weir_error *error)
{
    if (engine == NULL) return weir__error_null(error, "engine");
    if (check_process(engine, error) != WEIR_OK) return WEIR_STATE;
    if (!engine->params.manual)
        return weir__error_set(error, WEIR_STATE, "engine",
                               "the engine has a thread of its own; set params.manual to drive it");
    if (atomic_exchange(&engine->driven, true))
        return weir__error_set(error, WEIR_STATE, "engine",
                               weir__driving_here(engine->waker)
                                   ? "this callback runs within a tick of the engine"
                                   : "another thread drives the engine at this moment");
    weir__waker_note_drive(engine->waker);
    weir__driving_begin(&engine->driving, engine->waker);
    return WEIR_OK;
}

/* Ends what begin_driving began, and completes a stop that was called within the tick. */
static void end_driving(weir_engine *engine)
{
    if (atomic_load(&engine->shared.stopping)) weir__finish_all(&engine->driver);
    weir__driving_end(&engine->driving);
    weir__waker_note_drive(engine->waker);
    atomic_store(&engine->driven, false);
}

void weir_engine_stop(weir_engine *engine)
{
    weir_error error;
    if (engine == NULL) return;
    if (weir__engine_check_exists(engine, &error) != WEIR_OK)
        weir__log(WEIR_LOG_ERROR, "weir_engine_stop did nothing: %s", weir__error_words(&error).text);
    if (check_process(engine, NULL) != WEIR_OK) return;
    weir__shared_stop(&engine->shared);
    weir__waker_wake(engine->waker);
    if (weir__driving_here(
            engine->waker)) { /* from a callback: the end of the tick, if there is one, ends the requests */
        if (engine->params.manual && begin_driving(engine, NULL) == WEIR_OK) end_driving(engine);
        return;
    }
    pthread_mutex_lock(&engine->stop_mutex);
    if (engine->has_thread) {
        pthread_join(engine->thread, NULL);
        engine->has_thread = false;
    } else if (engine->params.manual) {
        while (begin_driving(engine, NULL) != WEIR_OK)                   /* another thread's tick ends soon */
            weir__waker_wait(engine->waker, weir__clock_deadline_ns(1)); /* no event announces that */
        end_driving(engine);                                             /* ends everything */
    }
    pthread_mutex_unlock(&engine->stop_mutex);
}

weir_status weir_engine_destroy(weir_engine *engine)
{
    weir_error error;
    if (engine == NULL) return WEIR_OK;
    if (weir__engine_check_caller(engine, &error) != WEIR_OK) {
        weir__log(WEIR_LOG_ERROR, "weir_engine_destroy did nothing: %s", weir__error_words(&error).text);
        return WEIR_STATE;
    }
    weir_engine_stop(engine);
    unlist_engine(engine);
    pthread_mutex_destroy(&engine->stop_mutex);
    free_engine(engine);
    return WEIR_OK;
}

weir_status weir_engine_drain(weir_engine *engine, int timeout_ms)
{
    if (engine == NULL) return WEIR_INVALID;
    if (check_process(engine, NULL) != WEIR_OK) return WEIR_STATE;
    bool may_wait = !engine->params.manual && !weir__driving_here(engine->waker);
    return weir__shared_drain(&engine->shared, may_wait, weir__clock_deadline_ns(timeout_ms));
}

/* ---- Submit ---- */

static void detach_all(weir__request *const *made, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (made[i]->stream != NULL) weir__stream_detach(made[i]->stream);
}

static weir_status attach_all(weir_engine *engine, weir__request **made, size_t n,
                              weir_stream *const *streams, weir_error *error)
{
    for (size_t i = 0; i < n; i++) {
        if (streams == NULL || streams[i] == NULL) continue;
        weir_status status = weir__stream_attach(streams[i], (int32_t)i, made[i]->interval,
                                                 made[i]->history.n_prompt, engine->waker);
        if (status == WEIR_OK) {
            made[i]->stream = streams[i];
            if (made[i]->reasoning.end != NULL) weir__stream_set_reasoning(streams[i]);
            if (weir__stream_remember(streams[i], &made[i]->history)) continue;
            status = WEIR_NO_MEMORY;
        }
        detach_all(made, n);
        return status == WEIR_NO_MEMORY
                   ? weir__error_set(error, status, "streams", "out of memory for streams[%zu]", i)
                   : weir__error_set(error, status, "streams",
                                     "a stream serves one request, once: streams[%zu] is in use, was "
                                     "cancelled, has ended or appears twice in this submit; use a new one",
                                     i);
    }
    return WEIR_OK;
}

weir_status weir__engine_check_count(const weir_engine *engine, uint64_t tenant, const char *field, size_t n,
                                     weir_error *error)
{
    const weir_engine_params *params = &engine->params;
    size_t most = params->queue_limit > 0
                      ? (size_t)weir__shared_most(params, tenant) + (size_t)params->n_slots
                      : MOST_AT_ONCE;
    if (most > MOST_AT_ONCE) most = MOST_AT_ONCE;
    if (n >= 1 && n <= most) return WEIR_OK;
    return weir__error_numbers(
        error, WEIR_INVALID, field, (double)n, 1, (double)most,
        "`%s` is %zu; allowed: 1 to %zu, the requests that slots and queue (`queue_limit`) hold", field, n,
        most);
}

weir_status weir__engine_submit(weir_engine *engine, const weir_request *requests, size_t n, bool choices,
                                weir_stream *const *streams, weir_result *results, weir__ticket *ticket,
                                weir_error *error)
{
    weir_status status = WEIR_OK;
    size_t n_made = 0;
    if (engine == NULL || requests == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, engine ? "requests" : "engine", "a pointer is NULL");
    if ((status = check_process(engine, error)) != WEIR_OK) return status;
    if ((status = weir_model_check(engine->model, error)) != WEIR_OK) return status;
    if (n == 0) return weir__engine_check_count(engine, 0, "n", n, error);
    weir__request *first = NULL, **made = NULL;
    status =
        weir__request_create(engine->model, &engine->params, requests, 0, engine->waker, NULL, &first, error);
    if (status != WEIR_OK) return status;
    status = weir__engine_check_count(engine, first->tenant_hash, "n", n, error);
    if (status == WEIR_OK && (made = weir__mem_calloc(n, sizeof *made)) == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for %zu requests", n);
    if (made == NULL) {
        weir__request_destroy(first);
        return status;
    }
    made[n_made++] = first;
    for (; n_made < n; n_made++) {
        const weir_request *request =
            (const weir_request *)((const char *)requests + (choices ? 0 : n_made) * requests->size);
        status = weir__request_create(engine->model, &engine->params, request, n_made, engine->waker,
                                      choices ? first : NULL, &made[n_made], error);
        if (status != WEIR_OK) goto fail;
    }
    for (size_t i = 0; i < n; i++) {
        made[i]->ticket = ticket;
        if (results != NULL) made[i]->result = &results[i];
    }
    if ((status = attach_all(engine, made, n, streams, error)) != WEIR_OK) goto fail;
    if ((status = weir__shared_submit(&engine->shared, &engine->params, made, n, error)) != WEIR_OK)
        goto detach;
    weir__mem_free(made);
    weir__waker_wake(engine->waker);
    return WEIR_OK;

detach:
    detach_all(made, n);
fail:
    while (n_made-- > 0) weir__request_destroy(made[n_made]);
    weir__mem_free(made);
    return status;
}

weir_status weir_engine_submit(weir_engine *engine, const weir_request *requests, size_t n,
                               weir_stream *const *streams, weir_error *error)
{
    return weir__engine_submit(engine, requests, n, false, streams, NULL, NULL, error);
}

weir_status weir_engine_submit_n(weir_engine *engine, const weir_request *request, size_t n,
                                 weir_stream *const *streams, weir_error *error)
{
    return weir__engine_submit(engine, request, n, true, streams, NULL, NULL, error);
}

weir_status weir_engine_fork(weir_engine *engine, weir_stream *source, int32_t source_at,
                             const weir_request *request, weir_stream *stream, weir_error *error)
{
    weir_request full = weir_request_default();
    weir_status status = weir__sized_take(&full, sizeof full, request, "request", error);
    if (status != WEIR_OK) return status;
    if (source == NULL) return weir__error_null(error, "source");
    full.source = source;
    full.source_at = source_at;
    return weir__engine_submit(engine, &full, 1, false, &stream, NULL, NULL, error);
}

weir_status weir_engine_get_stats(const weir_engine *engine, weir_engine_stats *stats)
{
    if (engine == NULL || stats == NULL) return WEIR_INVALID;
    if (weir__engine_check_exists(engine, NULL) != WEIR_OK) return WEIR_STATE;
    const weir_engine_stats copy = weir__shared_stats((weir__shared *)&engine->shared);
    return weir__sized_give(stats, &copy, sizeof copy, "stats", NULL);
}

#define READ(engine, ring, from, items, capacity, n)                                                         \
    ((engine) == NULL || (n) == NULL || ((items) == NULL && (capacity) > 0) ? WEIR_INVALID                   \
     : weir__engine_check_exists(engine, NULL) != WEIR_OK                                                    \
         ? WEIR_STATE                                                                                        \
         : weir__shared_read(&(engine)->shared, &(engine)->shared.ring, from, items, capacity, n))

weir_status weir_engine_ticks(const weir_engine *engine, uint64_t from, weir_tick *ticks, size_t capacity,
                              size_t *n)
{
    return READ(engine, ticks, from, ticks, capacity, n);
}

weir_status weir_engine_tick_slots(const weir_engine *engine, uint64_t from, weir_tick_slot *slots,
                                   size_t capacity, size_t *n)
{
    return READ(engine, parts, from, slots, capacity, n);
}

weir_status weir_engine_arrivals(const weir_engine *engine, uint64_t from, weir_arrival *arrivals,
                                 size_t capacity, size_t *n)
{
    return READ(engine, arrivals, from, arrivals, capacity, n);
}

weir_status weir_engine_cache_changes(weir_engine *engine, bool all, weir_cache_change *changes,
                                      int32_t *tokens, size_t capacity, size_t *n)
{
    if (n != NULL) *n = 0;
    if (engine == NULL || changes == NULL || tokens == NULL || n == NULL) return WEIR_INVALID;
    if (weir__engine_check_exists(engine, NULL) != WEIR_OK || engine->params.cache_block == 0)
        return WEIR_STATE;
    *n = weir__cache_changes(engine->driver.prefix.cache, all, changes, tokens, capacity);
    return *n > 0 ? WEIR_OK : WEIR_END;
}

weir_status weir_engine_block_tokens(const weir_engine *engine, uint64_t id, int32_t *tokens, size_t capacity,
                                     size_t *n)
{
    if (n != NULL) *n = 0;
    if (engine == NULL || n == NULL || (tokens == NULL && capacity > 0)) return WEIR_INVALID;
    if (weir__engine_check_exists(engine, NULL) != WEIR_OK || engine->params.cache_block == 0)
        return WEIR_STATE;
    *n = weir__cache_block(engine->driver.prefix.cache, id, tokens, capacity);
    return *n == 0 ? WEIR_NOT_FOUND : *n > capacity ? WEIR_TOO_LONG : WEIR_OK;
}

/* ---- Driving by hand ---- */

weir_status weir_engine_view(weir_engine *engine, const weir_view **view, weir_error *error)
{
    if (view == NULL) return weir__error_null(error, "view");
    weir_status status = begin_driving(engine, error);
    if (status != WEIR_OK) return status;
    int64_t now = weir__clock_now_ns();
    weir__driver *driver = &engine->driver;
    weir__step_prepare(driver, true, now);
    weir__speculate_draft(&driver->speculate);
    weir__step_view(driver, now);
    weir__batch_show(driver);
    *view = &driver->view;
    end_driving(engine);
    return WEIR_OK;
}

weir_status weir_engine_step(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan,
                             weir_report *report, weir_error *error)
{
    weir_report full = {.size = sizeof full};
    weir_status status = begin_driving(engine, error);
    if (status != WEIR_OK) return status;
    if (report != NULL) status = weir__sized_give(report, &full, sizeof full, "report", error);
    if (status == WEIR_OK) weir__step_tick(&engine->driver, plan, n_plan, &full);
    end_driving(engine);
    if (report != NULL && status == WEIR_OK)
        status = weir__sized_give(report, &full, sizeof full, "report", error);
    return status;
}

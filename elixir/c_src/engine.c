/* engine.c: engines, driven by their own thread or step by step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

static const char *const layouts[] = {"auto", "unified", "per_slot", NULL};
static const char *const kv_types[] = {"f16", "f32", "bf16", "q8_0", "q4_0", NULL};
static const char *const slot_states[] = {"idle", "prefilling", "generating", "joined"};

static void put_int(ErlNifEnv *env, ERL_NIF_TERM *map, const char *name, int64_t value)
{
    nif_put(env, map, name, enif_make_int64(env, value));
}
static void put_uint(ErlNifEnv *env, ERL_NIF_TERM *map, const char *name, uint64_t value)
{
    nif_put(env, map, name, enif_make_uint64(env, value));
}
static void put_bool(ErlNifEnv *env, ERL_NIF_TERM *map, const char *name, bool value)
{
    nif_put(env, map, name, nif_atom(env, value ? "true" : "false"));
}

/* engine_create(model, options) */
ERL_NIF_TERM nif_engine_create(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_engine_params params = weir_engine_params_default();
    weir_error error = {0};
    weir_engine *handle = NULL;
    char *strategy = NULL;
    nif_map map = {.env = env, .term = argv[1]};
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !enif_is_map(env, argv[1])) return enif_make_badarg(env);
    nif_map_i32(&map, "n_slots", &params.n_slots);
    nif_map_i32(&map, "n_ctx", &params.n_ctx);
    nif_map_i32(&map, "n_kv", &params.n_kv);
    nif_map_i32(&map, "max_tokens", &params.max_tokens);
    nif_map_i32(&map, "n_batch", &params.n_batch);
    nif_map_i32(&map, "n_ubatch", &params.n_ubatch);
    nif_map_i32(&map, "chunk_size", &params.chunk_size);
    nif_map_i32(&map, "n_threads", &params.n_threads);
    nif_map_i32(&map, "n_threads_batch", &params.n_threads_batch);
    nif_map_i32(&map, "queue_limit", &params.queue_limit);
    nif_map_i32(&map, "cache_sequences", &params.cache_sequences);
    nif_map_i32(&map, "ageing_ms", &params.ageing_ms);
    nif_map_i32(&map, "itl_target_ms", &params.itl_target_ms);
    nif_map_i32(&map, "n_draft_max", &params.n_draft_max);
    nif_map_bool(&map, "manual", &params.manual);
    params.layout = (weir_layout)nif_map_choice(&map, "layout", layouts, params.layout);
    params.type_k = (weir_kv_type)nif_map_choice(&map, "type_k", kv_types, params.type_k);
    params.type_v = (weir_kv_type)nif_map_choice(&map, "type_v", kv_types, params.type_v);
    nif_map_string(&map, "strategy", &strategy);
    if (strategy != NULL) params.strategy = weir_strategy_find(strategy);
    bool unknown = strategy != NULL && params.strategy == NULL;
    nif_free(strategy);
    if (map.wrong != NULL) return enif_make_badarg(env);
    if (unknown) return nif_failed(env, "strategy: there is none of this name");

    nif_engine *engine = nif_resource_new(NIF_ENGINE);
    if (engine == NULL) return nif_no_memory(env);
    weir_status status = weir_engine_create(nif_model_handle(model), &params, &handle, &error);
    if (status != WEIR_OK) {
        nif_resource_drop(engine);
        return nif_refused(env, status, &error);
    }
    engine->object.handle = handle;
    return nif_ok(env, nif_resource_term(env, engine));
}

static ERL_NIF_TERM slot_map(ErlNifEnv *env, const weir_slot_view *slot)
{
    ERL_NIF_TERM map = enif_make_new_map(env);
    put_int(env, &map, "slot", slot->slot);
    nif_put(env, &map, "state", nif_atom(env, slot_states[slot->state]));
    put_int(env, &map, "n_prompt_left", slot->n_prompt_left);
    put_int(env, &map, "n_prompt", slot->n_prompt);
    put_int(env, &map, "n_generated", slot->n_generated);
    put_int(env, &map, "n_past", slot->n_past);
    put_int(env, &map, "waited_ns", slot->waited_ns);
    put_int(env, &map, "idle_ns", slot->idle_ns);
    put_int(env, &map, "priority", slot->priority);
    nif_put(env, &map, "deadline_ns",
            slot->deadline_ns == INT64_MAX ? nif_atom(env, "infinity")
                                           : enif_make_int64(env, slot->deadline_ns));
    return map;
}

/* engine_view(engine): what a plan may hold, of a manual engine */
ERL_NIF_TERM nif_engine_view(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    const weir_view *view;
    ERL_NIF_TERM result;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL) return enif_make_badarg(env);
    enif_mutex_lock(engine->object.lock);
    weir_status status = weir_engine_view(engine->object.handle, &view, &error);
    if (status == WEIR_OK) {
        ERL_NIF_TERM map = enif_make_new_map(env), slots = enif_make_list(env, 0);
        for (size_t i = view->n_slots; i-- > 0;)
            slots = enif_make_list_cell(env, slot_map(env, &view->slots[i]), slots);
        nif_put(env, &map, "slots", slots);
        put_int(env, &map, "budget", view->budget);
        put_int(env, &map, "chunk_size", view->chunk_size);
        put_int(env, &map, "queue_depth", view->queue_depth);
        put_int(env, &map, "n_ubatch", view->n_ubatch);
        put_int(env, &map, "itl_target_ns", view->itl_target_ns);
        result = nif_ok(env, map);
    } else {
        result = nif_refused(env, status, &error);
    }
    enif_mutex_unlock(engine->object.lock);
    return result;
}

/* A list of {slot, n_tokens}; NULL: it is none, or there is no memory. */
static weir_plan_entry *get_plan(ErlNifEnv *env, ERL_NIF_TERM list, size_t *n)
{
    unsigned length;
    int arity;
    ERL_NIF_TERM head;
    const ERL_NIF_TERM *at;
    if (!enif_get_list_length(env, list, &length)) return NULL;
    weir_plan_entry *plan = enif_alloc(length > 0 ? length * sizeof *plan : 1);
    if (plan == NULL) return NULL;
    for (*n = 0; enif_get_list_cell(env, list, &head, &list); (*n)++) {
        if (!enif_get_tuple(env, head, &arity, &at) || arity != 2 ||
            !nif_get_i32(env, at[0], &plan[*n].slot) || !nif_get_i32(env, at[1], &plan[*n].n_tokens)) {
            nif_free(plan);
            return NULL;
        }
    }
    return plan;
}

/* engine_step(engine, plan or nil): one tick of a manual engine */
ERL_NIF_TERM nif_engine_step(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    weir_report report = {.size = sizeof report};
    weir_plan_entry *plan = NULL;
    size_t n = 0;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL) return enif_make_badarg(env);
    if (!enif_is_identical(argv[1], nif_atom(env, "nil"))) {
        plan = get_plan(env, argv[1], &n);
        if (plan == NULL) return enif_make_badarg(env);
    }
    enif_mutex_lock(engine->object.lock);
    weir_status status = weir_engine_step(engine->object.handle, plan, n, &report, &error);
    enif_mutex_unlock(engine->object.lock);
    nif_free(plan);
    if (status != WEIR_OK) return nif_refused(env, status, &error);
    ERL_NIF_TERM map = enif_make_new_map(env);
    put_int(env, &map, "n_prefill", report.n_prefill);
    put_int(env, &map, "n_decode", report.n_decode);
    put_int(env, &map, "n_active", report.n_active);
    put_int(env, &map, "queue_depth", report.queue_depth);
    put_int(env, &map, "decode_ns", report.decode_ns);
    put_int(env, &map, "tick_ns", report.tick_ns);
    put_bool(env, &map, "bad_plan", report.bad_plan);
    put_bool(env, &map, "idle", report.idle);
    return nif_ok(env, map);
}

/* engine_stats(engine): a map; never waits for a pass */
ERL_NIF_TERM nif_engine_stats(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_engine_stats stats = {.size = sizeof stats};
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL) return enif_make_badarg(env);
    weir_status status = weir_engine_get_stats(engine->object.handle, &stats);
    if (status != WEIR_OK) return nif_refused(env, status, NULL);
    ERL_NIF_TERM map = enif_make_new_map(env), finished = enif_make_new_map(env);
    for (int i = WEIR_REASON_END; i <= WEIR_REASON_DEADLINE; i++)
        put_uint(env, &finished, weir_reason_name((weir_reason)i), stats.n_finished[i]);
    nif_put(env, &map, "n_finished", finished);
    nif_put(env, &map, "layout", nif_atom(env, layouts[stats.layout]));
    put_int(env, &map, "n_slots", stats.n_slots);
    put_int(env, &map, "n_slots_prefilling", stats.n_slots_prefilling);
    put_int(env, &map, "n_slots_generating", stats.n_slots_generating);
    put_int(env, &map, "queue_depth", stats.queue_depth);
    put_int(env, &map, "n_ctx", stats.n_ctx);
    put_int(env, &map, "n_kv", stats.n_kv);
    put_int(env, &map, "n_kv_used", stats.n_kv_used);
    put_int(env, &map, "n_kv_cached", stats.n_kv_cached);
    put_int(env, &map, "n_kv_reserved", stats.n_kv_reserved);
    put_int(env, &map, "n_cache_entries", stats.n_cache_entries);
    put_uint(env, &map, "n_cached_tokens", stats.n_cached_tokens);
    put_uint(env, &map, "n_evicted", stats.n_evicted);
    put_uint(env, &map, "n_joined", stats.n_joined);
    put_int(env, &map, "n_batch", stats.n_batch);
    put_int(env, &map, "n_suspended", stats.n_suspended);
    put_uint(env, &map, "n_submitted", stats.n_submitted);
    put_uint(env, &map, "n_refused", stats.n_refused);
    put_uint(env, &map, "n_prompt_tokens", stats.n_prompt_tokens);
    put_uint(env, &map, "n_generated_tokens", stats.n_generated_tokens);
    put_uint(env, &map, "n_ticks", stats.n_ticks);
    put_uint(env, &map, "n_bad_plans", stats.n_bad_plans);
    put_uint(env, &map, "n_failed_ticks", stats.n_failed_ticks);
    put_uint(env, &map, "n_suspensions", stats.n_suspensions);
    put_uint(env, &map, "n_resumes", stats.n_resumes);
    put_uint(env, &map, "kv_bytes", stats.kv_bytes);
    put_uint(env, &map, "cache_bytes", stats.cache_bytes);
    put_int(env, &map, "tick_ns", stats.tick_ns);
    put_int(env, &map, "decode_ns", stats.decode_ns);
    put_int(env, &map, "busy_ns", stats.busy_ns);
    put_int(env, &map, "retry_ns", stats.retry_ns);
    return map;
}

/* engine_drain(engine, timeout_ms): refuses new requests, waits for the present ones; {:error, :timeout} */
ERL_NIF_TERM nif_engine_drain(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    int32_t timeout;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL || !nif_get_i32(env, argv[1], &timeout)) return enif_make_badarg(env);
    weir_status status = weir_engine_drain(engine->object.handle, timeout);
    if (status == WEIR_TIMEOUT)
        return enif_make_tuple2(env, nif_atom(env, "error"), nif_atom(env, "timeout"));
    return nif_status(env, status, NULL);
}

/* engine_stop(engine): every stream ends now, within a tick */
ERL_NIF_TERM nif_engine_stop(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL) return enif_make_badarg(env);
    weir_engine_stop(engine->object.handle);
    return nif_atom(env, "ok");
}

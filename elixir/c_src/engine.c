/* engine.c: engines, driven by their own thread or step by step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

#define SLICE_MS 50 /* of a long wait; after each it is checked that the caller is alive */

weir_status nif_engine_options(nif_call *call, ERL_NIF_TERM map, weir_engine_params *params)
{
    ERL_NIF_TERM value;
    nif_options(call, map, "engine", NULL, params);
    if (!nif_key(call, map, "strategy", &value)) return WEIR_OK;
    const char *strategy = nif_text(call, value);
    if (call->end != NIF_RESULT) return WEIR_OK;
    params->strategy = weir_strategy_find(strategy);
    if (params->strategy != NULL) return WEIR_OK;
    call->error = (weir_error){.message = "there is none of this name",
                               .code = WEIR_INVALID,
                               .kind = WEIR_ERROR_UNKNOWN,
                               .field = "strategy"};
    return WEIR_INVALID;
}

/* engine_create(model, options) */
ERL_NIF_TERM nif_engine_create(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_engine *engine = NULL;
    ERL_NIF_TERM value;
    weir_engine_params params = weir_engine_params_default();
    weir_model *model = nif_model(call, argv[0]);
    weir_status status = nif_engine_options(call, argv[1], &params);
    if (nif_key(call, argv[1], "draft_model", &value)) params.draft_model = nif_model(call, value);
    if (call->end == NIF_RESULT && status != WEIR_OK) return nif_status(call, status);
    nif_object *object = nif_resource_new(call, NIF_ENGINE);
    if (object == NULL) return 0;
    status = weir_engine_create(model, &params, &engine, &call->error);
    return nif_made(call, status, object, engine);
}

/* ---- Ticks of a manual engine ---- */

static ERL_NIF_TERM slot_map(ErlNifEnv *env, const weir_slot_view *slot)
{
    ERL_NIF_TERM map = nif_map_of(env, "slot_view", slot);
    if (slot->deadline_ns == INT64_MAX) nif_put(env, &map, "deadline_ns", nif_atom(env, "infinity"));
    return map;
}

static ERL_NIF_TERM view_map(ErlNifEnv *env, const weir_view *view)
{
    ERL_NIF_TERM map = nif_map_of(env, "view", view), slots = enif_make_list(env, 0);
    for (size_t i = view->n_slots; i-- > 0;)
        slots = enif_make_list_cell(env, slot_map(env, &view->slots[i]), slots);
    nif_put(env, &map, "cost", nif_map_of(env, "cost", &view->cost));
    nif_put(env, &map, "slots", slots);
    return map;
}

/* engine_view(engine): {:ok, view} for a plan */
ERL_NIF_TERM nif_engine_view(nif_call *call, const ERL_NIF_TERM argv[])
{
    const weir_view *view;
    nif_object *engine = nif_own_engine(call, argv[0]);
    nif_uninterrupted();
    if (engine == NULL || !nif_lock(call, engine)) return 0;
    weir_status status = weir_engine_view(engine->handle, &view, &call->error);
    return status == WEIR_OK ? nif_ok(call->env, view_map(call->env, view)) : nif_status(call, status);
}

/* A list of {slot, n_tokens} */
static weir_plan_entry *get_plan(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    const ERL_NIF_TERM *at;
    weir_plan_entry *plan = nif_list(call, list, sizeof *plan, n);
    for (size_t i = 0; nif_next_tuple(call, &list, 2, &at); i++)
        plan[i] = (weir_plan_entry){nif_i32(call, at[0]), nif_i32(call, at[1])};
    return plan;
}

/* Runs one tick; with `turn` also the view for the next plan. */
static ERL_NIF_TERM step_engine(nif_call *call, const ERL_NIF_TERM argv[], bool turn)
{
    ErlNifEnv *env = call->env;
    size_t n = 0;
    const weir_view *view;
    const weir_plan_entry *plan = NULL;
    weir_report report = {.size = sizeof report};
    nif_object *engine = nif_own_engine(call, argv[0]);
    if (!nif_is(env, argv[1], "nil")) plan = get_plan(call, argv[1], &n);
    nif_uninterrupted();
    if (engine == NULL || !nif_lock(call, engine)) return 0;
    weir_status status = weir_engine_step(engine->handle, plan, n, &report, &call->error);
    if (status == WEIR_OK && turn) status = weir_engine_view(engine->handle, &view, &call->error);
    if (status != WEIR_OK) return nif_status(call, status);
    ERL_NIF_TERM map = nif_map_of(env, "report", &report);
    return turn ? enif_make_tuple3(env, nif_atom(env, "ok"), map, view_map(env, view)) : nif_ok(env, map);
}

/* engine_step(engine, plan or nil): {:ok, report} of one tick */
ERL_NIF_TERM nif_engine_step(nif_call *call, const ERL_NIF_TERM argv[])
{
    return step_engine(call, argv, false);
}

/* engine_turn(engine, plan or nil): {:ok, report, view}; engine_step and engine_view in one visit */
ERL_NIF_TERM nif_engine_turn(nif_call *call, const ERL_NIF_TERM argv[])
{
    return step_engine(call, argv, true);
}

/* ---- Statistics and the end ---- */

/* engine_stats(engine): a map; never waits for a pass */
ERL_NIF_TERM nif_engine_stats(nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifEnv *env = call->env;
    weir_engine_stats stats = {.size = sizeof stats};
    nif_object *keeper;
    weir_engine *engine = nif_engine(call, argv[0], &keeper);
    if (call->end != NIF_RESULT) return 0;
    weir_status status = weir_engine_get_stats(engine, &stats);
    if (status != WEIR_OK) return nif_status(call, status);
    ERL_NIF_TERM map = nif_map_of(env, "engine_stats", &stats);
    ERL_NIF_TERM finished = enif_make_new_map(env), misses = enif_make_new_map(env);
    for (int i = WEIR_REASON_END; i <= WEIR_REASON_DEADLINE; i++)
        nif_put(env, &finished, weir_reason_name((weir_reason)i), enif_make_uint64(env, stats.n_finished[i]));
    nif_put(env, &map, "n_finished", finished);
    for (int i = 0; i < WEIR_MISS_COUNT; i++)
        nif_put(env, &misses, weir_miss_name((weir_miss)i), enif_make_uint64(env, stats.n_misses[i]));
    nif_put(env, &map, "n_misses", misses);
    nif_put(env, &map, "drafters", nif_binary(env, stats.drafters, WEIR_NUL));
    return map;
}

/* engine_drain(engine, timeout_ms): refuses new requests and waits for the running ones; {:error,
 * :timeout}. The wait ends if the caller was killed, because it holds a scheduler. */
ERL_NIF_TERM nif_engine_drain(nif_call *call, const ERL_NIF_TERM argv[])
{
    int32_t slice;
    weir_status status;
    nif_object *engine = nif_own_engine(call, argv[0]);
    int32_t timeout = nif_i32(call, argv[1]);
    if (call->end != NIF_RESULT) return 0;
    do {
        slice = timeout < 0 || timeout > SLICE_MS ? SLICE_MS : timeout;
        status = weir_engine_drain(engine->handle, slice);
        if (timeout > 0) timeout -= slice;
    } while (status == WEIR_TIMEOUT && timeout != 0 && enif_is_current_process_alive(call->env));
    return status == WEIR_TIMEOUT ? nif_error_atom(call->env, "timeout") : nif_status(call, status);
}

/* engine_stop(engine): every stream ends within a tick */
ERL_NIF_TERM nif_engine_stop(nif_call *call, const ERL_NIF_TERM argv[])
{
    const nif_object *engine = nif_own_engine(call, argv[0]);
    if (engine == NULL) return 0;
    weir_engine_stop(engine->handle);
    return nif_atom(call->env, "ok");
}

/* engine_destroy(engine): stops it, waits for other calls to end, and frees it, although terms refer to it.
 * When it returns, cached prefixes are in the folder. Later calls return {:error, :stopping}. */
ERL_NIF_TERM nif_engine_destroy(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_object *engine = nif_resource(call, argv[0], NIF_ENGINE);
    if (engine == NULL) return 0;
    nif_uninterrupted();
    enif_rwlock_rlock(engine->calls);
    weir_engine_stop(engine->handle); /* ends calls that wait for streams; NULL: it was destroyed */
    enif_rwlock_runlock(engine->calls);
    enif_rwlock_rwlock(engine->calls);
    if (engine->handle != NULL) nif_handle_free(engine);
    enif_rwlock_rwunlock(engine->calls);
    return nif_atom(call->env, "ok");
}

/* engine.c: engines, driven by their own thread or step by step, and their record of ticks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

weir_status nif_engine_options(nif_call *call, ERL_NIF_TERM map, weir_engine_params *params)
{
    ERL_NIF_TERM value;
    nif_options(call, map, "engine", NULL, params);
    if (!nif_key(call, map, "strategy", &value)) return WEIR_OK;
    const char *strategy = nif_text(call, value);
    if (call->end != NIF_RESULT) return WEIR_OK;
    params->strategy = weir_strategy_find(strategy);
    if (params->strategy != NULL) return WEIR_OK;
    (void)nif_error(call, WEIR_INVALID, "strategy", "there is no `strategy` of this name");
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

/* engine_turn(engine, plan or nil): {:ok, report, view}: runs one tick; the view is for the next plan */
ERL_NIF_TERM nif_engine_turn(nif_call *call, const ERL_NIF_TERM argv[])
{
    size_t n = 0;
    const weir_view *view;
    const weir_plan_entry *plan = NULL;
    weir_report report = {.size = sizeof report};
    nif_object *engine = nif_own_engine(call, argv[0]);
    if (!nif_is(call->env, argv[1], "nil")) plan = get_plan(call, argv[1], &n);
    nif_uninterrupted();
    if (engine == NULL || !nif_lock(call, engine)) return 0;
    weir_status status = weir_engine_step(engine->handle, plan, n, &report, &call->error);
    if (status == WEIR_OK) status = weir_engine_view(engine->handle, &view, &call->error);
    if (status != WEIR_OK) return nif_status(call, status);
    return enif_make_tuple3(call->env, nif_atom(call->env, "ok"), nif_map_of(call->env, "report", &report),
                            view_map(call->env, view));
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

/* engine_stop(engine): every stream ends within a tick */
ERL_NIF_TERM nif_engine_stop(nif_call *call, const ERL_NIF_TERM argv[])
{
    const nif_object *engine = nif_own_engine(call, argv[0]);
    if (engine == NULL) return 0;
    weir_engine_stop(engine->handle);
    return nif_atom(call->env, "ok");
}

/* engine_destroy(engine): stops it, waits for other calls to end, and frees it, although terms refer to it.
 * When it returns, cached prefixes are in the folder. Later calls fail with :stopping. */
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

/* ---- The record of ticks ---- */

#define TICKS_MAX 16
#define PARTS_MAX 256

/* The parts of a tick, one for each slot that did something. Events before the tick, which the record has
 * among them, are left out. Returns their number. */
static size_t parts_of(const weir_engine *engine, const weir_tick *tick, weir_tick_slot parts[PARTS_MAX])
{
    size_t n = 0, kept = 0, most = tick->n_slots < PARTS_MAX ? (size_t)tick->n_slots : PARTS_MAX;
    if (weir_engine_tick_slots(engine, tick->first_slot, parts, most, &n) != WEIR_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        const weir_tick_slot *part = &parts[i];
        if (part->tick == tick->serial && part->slot >= 0 && !part->suspended && !part->resumed)
            parts[kept++] = *part;
    }
    return kept;
}

static int32_t n_active(const weir_engine *engine, const weir_tick *tick)
{
    weir_tick_slot parts[PARTS_MAX];
    int32_t active = 0;
    for (size_t i = parts_of(engine, tick, parts); i-- > 0;)
        active += parts[i].n_tokens > 0 || parts[i].end_ns == 0;
    return active;
}

/* engine_ticks(engine, from): {next, ticks}, some at a time */
ERL_NIF_TERM nif_engine_ticks(nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifEnv *env = call->env;
    ErlNifUInt64 from = 0;
    weir_tick ticks[TICKS_MAX];
    size_t n = 0;
    const nif_object *object = nif_own_engine(call, argv[0]);
    if (!enif_get_uint64(env, argv[1], &from)) nif_stop(call, NIF_WRONG);
    if (call->end != NIF_RESULT) return 0;
    const weir_engine *engine = object->handle;
    if (weir_engine_ticks(engine, from, ticks, TICKS_MAX, &n) != WEIR_OK) n = 0;
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (size_t i = n; i-- > 0;) {
        ERL_NIF_TERM map = nif_map_of(env, "tick", &ticks[i]);
        nif_put(env, &map, "n_active", enif_make_int(env, n_active(engine, &ticks[i])));
        list = enif_make_list_cell(env, map, list);
    }
    ERL_NIF_TERM next = enif_make_uint64(env, n > 0 ? ticks[n - 1].serial + 1 : from);
    return enif_make_tuple2(env, next, list);
}

/* engine_slots(engine): the parts of the last tick that have not ended */
ERL_NIF_TERM nif_engine_slots(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_engine_stats stats = {.size = sizeof stats};
    weir_tick tick;
    weir_tick_slot parts[PARTS_MAX];
    size_t n = 0;
    ERL_NIF_TERM list = enif_make_list(call->env, 0);
    const nif_object *object = nif_own_engine(call, argv[0]);
    if (object == NULL) return 0;
    const weir_engine *engine = object->handle;
    if (weir_engine_get_stats(engine, &stats) != WEIR_OK || stats.n_ticks == 0 ||
        weir_engine_ticks(engine, stats.n_ticks - 1, &tick, 1, &n) != WEIR_OK)
        return list;
    for (size_t i = parts_of(engine, &tick, parts); i-- > 0;)
        if (parts[i].end_ns == 0)
            list = enif_make_list_cell(call->env, nif_map_of(call->env, "tick_slot", &parts[i]), list);
    return list;
}

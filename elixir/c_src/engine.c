/* engine.c: engines, driven by their own thread or step by step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

#define SLICE_MS 50 /* of a long wait; between them it is seen whether the caller still lives */

static ERL_NIF_TERM create(ErlNifEnv *env, const nif_model *model, const weir_engine_params *params)
{
    weir_error error = {0};
    weir_engine *handle = NULL;
    nif_engine *engine = nif_resource_new(NIF_ENGINE);
    if (engine == NULL) return nif_no_memory(env);
    weir_status status = weir_engine_create(nif_model_handle(model), params, &handle, &error);
    if (status != WEIR_OK) {
        nif_resource_drop(engine);
        return nif_refused(env, status, &error);
    }
    engine->object.handle = handle;
    return nif_ok(env, nif_resource_term(env, engine));
}

/* What is no number, choice or text of the parameters. False: it is of the wrong type. */
static bool get_handles(nif_map *map, weir_engine_params *params, bool *unknown)
{
    ERL_NIF_TERM value;
    char *name;
    *unknown = false;
    if (nif_map_given(map, "strategy", &value)) {
        if (!nif_get_string(map->env, value, false, &name)) return false;
        params->strategy = weir_strategy_find(name);
        *unknown = params->strategy == NULL;
        nif_free(name);
    }
    if (nif_map_given(map, "draft_model", &value)) {
        const nif_model *draft = nif_resource_get(map->env, value, NIF_MODEL);
        if (draft == NULL) return false;
        params->draft_model = nif_model_handle(draft);
    }
    return true;
}

/* engine_create(model, options) */
ERL_NIF_TERM nif_engine_create(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_engine_params params = weir_engine_params_default();
    nif_map map = {.env = env, .term = argv[1]};
    bool unknown;
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !enif_is_map(env, argv[1])) return enif_make_badarg(env);
    nif_map_members(&map, "engine", &params);
    bool right = get_handles(&map, &params, &unknown) && map.wrong == NULL;
    ERL_NIF_TERM result = !right    ? enif_make_badarg(env)
                          : unknown ? nif_failed(env, "strategy: there is none of this name")
                                    : create(env, model, &params);
    nif_map_fini(&map);
    return result;
}

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

/* engine_view(engine): what a plan may hold, of a manual engine */
ERL_NIF_TERM nif_engine_view(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    const weir_view *view;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL) return enif_make_badarg(env);
    nif_uninterrupted();
    enif_mutex_lock(engine->object.lock);
    weir_status status = weir_engine_view(engine->object.handle, &view, &error);
    ERL_NIF_TERM result =
        status == WEIR_OK ? nif_ok(env, view_map(env, view)) : nif_refused(env, status, &error);
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

/* One tick, and with `turn` what the next plan may hold. */
static ERL_NIF_TERM step(ErlNifEnv *env, const ERL_NIF_TERM argv[], bool turn)
{
    weir_error error = {0};
    weir_report report = {.size = sizeof report};
    weir_plan_entry *plan = NULL;
    const weir_view *view;
    ERL_NIF_TERM next = 0;
    size_t n = 0;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL) return enif_make_badarg(env);
    if (!enif_is_identical(argv[1], nif_atom(env, "nil"))) {
        plan = get_plan(env, argv[1], &n);
        if (plan == NULL) return enif_make_badarg(env);
    }
    nif_uninterrupted();
    enif_mutex_lock(engine->object.lock);
    weir_status status = weir_engine_step(engine->object.handle, plan, n, &report, &error);
    if (status == WEIR_OK && turn) status = weir_engine_view(engine->object.handle, &view, &error);
    if (status == WEIR_OK && turn) next = view_map(env, view);
    enif_mutex_unlock(engine->object.lock);
    nif_free(plan);
    if (status != WEIR_OK) return nif_refused(env, status, &error);
    ERL_NIF_TERM told = nif_map_of(env, "report", &report);
    return turn ? enif_make_tuple3(env, nif_atom(env, "ok"), told, next) : nif_ok(env, told);
}

/* engine_step(engine, plan or nil): one tick of a manual engine */
ERL_NIF_TERM nif_engine_step(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    return step(env, argv, false);
}

/* engine_turn(engine, plan or nil): engine_step and engine_view in one visit: {:ok, report, view} */
ERL_NIF_TERM nif_engine_turn(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    return step(env, argv, true);
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

/* engine_drain(engine, timeout_ms): refuses new requests, waits for the present ones; {:error, :timeout}. A
 * caller that was killed waits for nothing: its scheduler is another's. */
ERL_NIF_TERM nif_engine_drain(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    int32_t timeout, slice;
    weir_status status;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL || !nif_get_i32(env, argv[1], &timeout)) return enif_make_badarg(env);
    do {
        slice = timeout < 0 || timeout > SLICE_MS ? SLICE_MS : timeout;
        status = weir_engine_drain(engine->object.handle, slice);
        if (timeout > 0) timeout -= slice;
    } while (status == WEIR_TIMEOUT && timeout != 0 && enif_is_current_process_alive(env));
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

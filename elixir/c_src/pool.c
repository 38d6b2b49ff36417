/* pool.c: several models under one budget of memory, and leases of them. A lease's process gets {ref, :ready}
 * or {ref, {:error, reason}} once. The lease ends with that process, is released, or is collected. Its handle
 * is a claim, which calls and streams keep, too, so that the model stays until they have ended. The message
 * is sent under the claim's lock; a lease that has ended sends none.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

/* pool_create(options): {:ok, pool} */
ERL_NIF_TERM nif_pool_create(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_pool *pool = NULL;
    weir_pool_params params = weir_pool_params_default();
    nif_options(call, argv[0], "pool", NULL, &params);
    nif_object *object = nif_resource_new(call, NIF_POOL);
    if (object == NULL) return 0;
    weir_status status = weir_pool_create(&params, &pool, &call->error);
    return nif_made(call, status, object, pool);
}

/* ---- The list ---- */

/* The data of a description's pointers. */
typedef struct parts {
    weir_model_params model;
    weir_engine_params engine;
} parts;

static weir_status read_model(nif_call *call, ERL_NIF_TERM map, parts *p, weir_pool_model *model)
{
    ERL_NIF_TERM value, shares;
    weir_status status = WEIR_OK;
    *model = weir_pool_model_default();
    p->model = weir_model_params_default();
    p->engine = weir_engine_params_default();
    model->model = &p->model;
    model->engine = &p->engine;
    nif_options(call, map, "pool_model", NULL, model);
    if (nif_key(call, map, "engine", &value)) status = nif_engine_options(call, value, &p->engine);
    if (!nif_key(call, map, "model", &value)) return status;
    nif_options(call, value, "model", NULL, &p->model);
    if (nif_key(call, value, "tensor_split", &shares))
        p->model.tensor_split = nif_shares(call, shares, &p->model.n_tensor_split);
    return status;
}

/* pool_set(pool, models): a new list of maps of weir_pool_model, with the maps `model` and `engine` */
ERL_NIF_TERM nif_pool_set(nif_call *call, const ERL_NIF_TERM argv[])
{
    size_t n;
    ERL_NIF_TERM head, list = argv[1];
    weir_status status = WEIR_OK;
    weir_pool *pool = nif_handle(call, argv[0], NIF_POOL);
    weir_pool_model *models = nif_list(call, list, sizeof *models, &n);
    parts *all = nif_alloc(call, n * sizeof *all);
    for (size_t i = 0; status == WEIR_OK && nif_next(call, &list, &head); i++)
        status = read_model(call, head, &all[i], &models[i]);
    if (call->end != NIF_RESULT) return 0;
    if (status == WEIR_OK) status = weir_pool_set(pool, models, n, &call->error);
    return nif_status(call, status);
}

/* ---- Models by name ---- */

static ERL_NIF_TERM info_map(ErlNifEnv *env, const weir_pool_info *info)
{
    ERL_NIF_TERM map = nif_map_of(env, "pool_info", info);
    nif_put(env, &map, "name", nif_binary(env, info->name, WEIR_NUL));
    nif_put(env, &map, "message", nif_text_or_nil(env, info->message));
    return map;
}

/* pool_get(pool, i): {:ok, map}, or nil past the last one */
ERL_NIF_TERM nif_pool_get(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_pool_info info = {.size = sizeof info};
    weir_pool *pool = nif_handle(call, argv[0], NIF_POOL);
    int32_t i = nif_i32_in(call, argv[1], 0, INT32_MAX);
    if (call->end != NIF_RESULT) return 0;
    weir_status status = weir_pool_get(pool, (size_t)i, &info);
    return status == WEIR_OK ? nif_ok(call->env, info_map(call->env, &info)) : nif_atom(call->env, "nil");
}

/* pool_find(pool, name): {:ok, map} */
ERL_NIF_TERM nif_pool_find(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_pool_info info = {.size = sizeof info};
    weir_pool *pool = nif_handle(call, argv[0], NIF_POOL);
    const char *name = nif_text(call, argv[1]);
    if (call->end != NIF_RESULT) return 0;
    weir_status status = weir_pool_find(pool, name, &info);
    return status == WEIR_OK ? nif_ok(call->env, info_map(call->env, &info))
                             : nif_error(call, status, "name", "no model has this `name`");
}

/* pool_stats(pool): a map */
ERL_NIF_TERM nif_pool_stats(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_pool_stats stats = {.size = sizeof stats};
    weir_pool *pool = nif_handle(call, argv[0], NIF_POOL);
    if (pool == NULL) return 0;
    weir_status status = weir_pool_get_stats(pool, &stats);
    return status == WEIR_OK ? nif_map_of(call->env, "pool_stats", &stats) : nif_status(call, status);
}

/* pool_set_memory(pool, options): of the pool's options, memory_bytes */
ERL_NIF_TERM nif_pool_set_memory(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_pool_params params = weir_pool_params_default();
    weir_pool *pool = nif_handle(call, argv[0], NIF_POOL);
    nif_options(call, argv[1], "pool", NULL, &params);
    if (call->end != NIF_RESULT) return 0;
    return nif_status(call, weir_pool_set_memory(pool, params.memory_bytes, &call->error));
}

static ERL_NIF_TERM by_name(nif_call *call, const ERL_NIF_TERM argv[],
                            weir_status (*fn)(weir_pool *pool, const char *name, weir_error *error))
{
    weir_pool *pool = nif_handle(call, argv[0], NIF_POOL);
    const char *name = nif_text(call, argv[1]);
    if (call->end != NIF_RESULT) return 0;
    weir_status status = fn(pool, name, &call->error);
    return nif_status(call, status);
}

/* pool_load(pool, name): begins, when there is memory for it */
ERL_NIF_TERM nif_pool_load(nif_call *call, const ERL_NIF_TERM argv[])
{
    return by_name(call, argv, weir_pool_load);
}

/* pool_unload(pool, name): when its leases have ended */
ERL_NIF_TERM nif_pool_unload(nif_call *call, const ERL_NIF_TERM argv[])
{
    return by_name(call, argv, weir_pool_unload);
}

/* ---- Leases ---- */

/* Runs once per lease, on a thread of the pool or within nif_lease_create. */
static void lease_ready(weir_lease *lease, void *user)
{
    weir_error error = {0};
    nif_claim *claim = user;
    ErlNifEnv *env = claim->messages;
    weir_status status = weir_lease_wait(lease, 0, &error);
    ERL_NIF_TERM what = status == WEIR_OK ? nif_atom(env, "ready") : nif_refused_load(env, status, &error);
    ERL_NIF_TERM message = enif_make_tuple2(env, claim->ref, what);
    enif_mutex_lock(claim->lock);
    if (!claim->deaf) enif_send(NULL, &claim->to, env, message);
    enif_mutex_unlock(claim->lock);
}

/* Ends a lease; no message follows. */
static void lease_end(nif_object *lease)
{
    enif_mutex_lock(lease->lock);
    nif_object *object = lease->handle;
    lease->handle = NULL;
    enif_mutex_unlock(lease->lock);
    if (object == NULL) return;
    nif_claim *claim = object->handle;
    enif_mutex_lock(claim->lock);
    claim->deaf = true;
    enif_mutex_unlock(claim->lock);
    enif_release_resource(object);
}

void nif_lease_down(ErlNifEnv *env, void *resource, ErlNifPid *pid, ErlNifMonitor *monitor)
{
    (void)env, (void)pid, (void)monitor;
    lease_end(resource);
}

/* A claim without a lease; NULL: the call ends with NO_MEMORY. */
static nif_claim *claim_new(nif_call *call, nif_object *object, ErlNifPid to, ERL_NIF_TERM ref)
{
    nif_claim *claim = enif_alloc(sizeof *claim);
    ErlNifEnv *messages = enif_alloc_env();
    ErlNifMutex *lock = enif_mutex_create("weir");
    if (claim == NULL || messages == NULL || lock == NULL) {
        if (claim != NULL) enif_free(claim);
        if (messages != NULL) enif_free_env(messages);
        if (lock != NULL) enif_mutex_destroy(lock);
        nif_stop(call, NIF_NO_MEMORY);
        return NULL;
    }
    *claim = (nif_claim){.messages = messages, .ref = enif_make_copy(messages, ref), .to = to, .lock = lock};
    object->handle = claim;
    return claim;
}

/* Begins a lease; both objects are new. */
static ERL_NIF_TERM lease_begin(nif_call *call, nif_object *pool, const char *name, int32_t timeout,
                                nif_object *lease, nif_claim *claim)
{
    ErlNifMonitor monitor;
    ErlNifPid to = claim->to;
    weir_status status = weir_lease_create(pool->handle, name, timeout, &claim->lease, &call->error);
    if (status != WEIR_OK) {
        enif_release_resource(lease);
        return nif_refused_load(call->env, status, &call->error);
    }
    claim->pool = pool;
    enif_keep_resource(pool);
    weir_lease_set_ready(claim->lease, lease_ready, claim);
    if (enif_monitor_process(call->env, lease, &to, &monitor) != 0) lease_end(lease); /* it has ended */
    return nif_ok(call->env, nif_resource_term(call, lease));
}

/* lease_create(pool, name, timeout or -1, pid, ref): {:ok, lease}, and later a message */
ERL_NIF_TERM nif_lease_create(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_object *pool = nif_resource(call, argv[0], NIF_POOL);
    const char *name = nif_text(call, argv[1]);
    int32_t timeout = nif_i32_in(call, argv[2], -1, INT32_MAX);
    ErlNifPid to = nif_pid(call, argv[3]);
    if (!enif_is_ref(call->env, argv[4])) nif_stop(call, NIF_WRONG);
    nif_object *lease = nif_resource_new(call, NIF_LEASE);
    if (lease == NULL) return 0;
    nif_object *object = nif_resource_new(call, NIF_CLAIM);
    nif_claim *claim = object != NULL ? claim_new(call, object, to, argv[4]) : NULL;
    lease->handle = object;
    if (claim != NULL) return lease_begin(call, pool, name, timeout, lease, claim);
    enif_release_resource(lease);
    return 0;
}

/* {:ok, lease} on a claim, of which it takes the reference, until a process ends. */
static ERL_NIF_TERM lease_of(nif_call *call, nif_object *lease, nif_object *claim, const ErlNifPid *to)
{
    ErlNifMonitor monitor;
    lease->handle = claim;
    if (enif_monitor_process(call->env, lease, to, &monitor) != 0) lease_end(lease); /* it has ended */
    return nif_ok(call->env, nif_resource_term(call, lease));
}

/* lease_share(lease, pid): {:ok, lease} on the same claim for another process, after the message that it is
 * ready */
ERL_NIF_TERM nif_lease_share(nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifPid to = nif_pid(call, argv[1]);
    nif_object *given = nif_resource(call, argv[0], NIF_LEASE);
    nif_object *object = given != NULL ? nif_claim_of(call, given) : NULL;
    if (object == NULL || nif_claim_model(object) == NULL)
        return nif_stop(call, NIF_WRONG); /* not loaded yet, or failed */
    nif_object *lease = nif_resource_new(call, NIF_LEASE);
    if (lease == NULL) return 0;
    enif_keep_resource(object);
    return lease_of(call, lease, object, &to);
}

/* model_share(model, pid): {:ok, lease} on a model, which stands for it until that process ends */
ERL_NIF_TERM nif_model_share(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_model *model = nif_model(call, argv[0]);
    ErlNifPid to = nif_pid(call, argv[1]);
    nif_object *lease = nif_resource_new(call, NIF_LEASE);
    if (lease == NULL) return 0;
    nif_object *object = nif_resource_new(call, NIF_CLAIM);
    nif_claim *claim = object != NULL ? claim_new(call, object, to, nif_atom(call->env, "nil")) : NULL;
    if (claim != NULL) {
        claim->model = weir_model_hold(model);
        return lease_of(call, lease, object, &to);
    }
    if (object != NULL) enif_release_resource(object);
    enif_release_resource(lease);
    return 0;
}

/* lease_adapters(lease): those that were loaded with the model, in order */
ERL_NIF_TERM nif_lease_adapters(nif_call *call, const ERL_NIF_TERM argv[])
{
    ERL_NIF_TERM list = enif_make_list(call->env, 0), in_order;
    nif_object *lease = nif_resource(call, argv[0], NIF_LEASE);
    nif_object *object = lease != NULL ? nif_claim_of(call, lease) : NULL;
    if (object == NULL) return 0;
    const nif_claim *claim = object->handle;
    weir_adapter *adapter;
    for (size_t i = 0; (adapter = weir_lease_adapter(claim->lease, i)) != NULL; i++) {
        nif_object *made = nif_resource_new(call, NIF_ADAPTER);
        if (made == NULL) return 0;
        made->handle = weir_adapter_hold(adapter);
        list = enif_make_list_cell(call->env, nif_resource_term(call, made), list);
    }
    enif_make_reverse_list(call->env, list, &in_order);
    return in_order;
}

/* lease_release(lease): in any state; the model stays until the streams that were submitted have ended */
ERL_NIF_TERM nif_lease_release(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_object *lease = nif_resource(call, argv[0], NIF_LEASE);
    if (lease == NULL) return 0;
    lease_end(lease);
    return nif_atom(call->env, "ok");
}

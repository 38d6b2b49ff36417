/* resource.c: handles as terms, and the thread that frees them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The VM runs a destructor on the scheduler that drops the last reference, and freeing a context or a model
 * takes long. So destructors pass handles to a thread, the reaper. The library stays mapped once loaded
 * (-z nodelete), so that the reaper survives a purge of the module. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "nif.h"

struct nif_corpse {
    nif_corpse *next;
    nif_kind kind;
    void *handle;
};

static struct {
    pthread_mutex_t lock; /* the list */
    pthread_cond_t some;
    nif_corpse *first;
    bool running;
} reaper = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};

static ErlNifResourceType *resource_types[NIF_KINDS];
static atomic_int n_live[NIF_KINDS]; /* created and not yet freed */

static void claim_destroy(nif_claim *claim)
{
    weir_lease_release(claim->lease); /* waits for the message */
    weir_model_release(claim->model);
    enif_free_env(claim->messages);
    if (claim->pool != NULL) enif_release_resource(claim->pool);
    enif_mutex_destroy(claim->lock);
    enif_free(claim);
}

static void bury_corpse(nif_corpse *corpse)
{
    switch (corpse->kind) {
    case NIF_MODEL: weir_model_release(corpse->handle); break;
    case NIF_CONTEXT: weir_context_destroy(corpse->handle); break;
    case NIF_SAMPLER: weir_sampler_destroy(corpse->handle); break;
    case NIF_ENGINE: weir_engine_destroy(corpse->handle); break;
    case NIF_STREAM: weir_stream_release(corpse->handle); break;
    case NIF_CHAT: weir_chat_release(corpse->handle); break;
    case NIF_PARSER: weir_chat_parser_destroy(corpse->handle); break;
    case NIF_ADAPTER: weir_adapter_release(corpse->handle); break;
    case NIF_MEDIA: weir_media_release(corpse->handle); break;
    case NIF_POOL: weir_pool_destroy(corpse->handle); break;
    case NIF_LEASE:
        if (corpse->handle != NULL) enif_release_resource(corpse->handle);
        break;
    case NIF_CLAIM:
        if (corpse->handle != NULL) claim_destroy(corpse->handle);
        break;
    case NIF_KINDS: break;
    }
    atomic_fetch_sub(&n_live[corpse->kind], 1);
    enif_free(corpse);
}

static void *reap_corpses(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&reaper.lock);
    for (;;) {
        while (reaper.first == NULL) pthread_cond_wait(&reaper.some, &reaper.lock);
        nif_corpse *corpse = reaper.first;
        reaper.first = corpse->next;
        pthread_mutex_unlock(&reaper.lock);
        bury_corpse(corpse);
        pthread_mutex_lock(&reaper.lock);
    }
    return NULL;
}

static bool reaper_start(void)
{
    pthread_t thread;
    pthread_mutex_lock(&reaper.lock);
    if (!reaper.running && pthread_create(&thread, NULL, reap_corpses, NULL) == 0) {
        pthread_detach(thread);
        reaper.running = true;
    }
    bool running = reaper.running;
    pthread_mutex_unlock(&reaper.lock);
    return running;
}

static void destroy_resource(ErlNifEnv *env, void *resource)
{
    (void)env;
    nif_object *object = resource;
    nif_corpse *corpse = object->corpse;
    if (object->lock != NULL) enif_mutex_destroy(object->lock);
    if (object->calls != NULL) enif_rwlock_destroy(object->calls);
    if (corpse == NULL) return;
    corpse->handle = object->handle;
    if (corpse->kind == NIF_STREAM && corpse->handle == NULL) corpse->handle = ((nif_stream *)resource)->kept;
    if (corpse->handle == NULL) {
        bury_corpse(corpse);
        return;
    }
    pthread_mutex_lock(&reaper.lock);
    corpse->next = reaper.first;
    reaper.first = corpse;
    pthread_cond_signal(&reaper.some);
    pthread_mutex_unlock(&reaper.lock);
}

static const struct {
    const char *name;
    size_t size;
} kinds[NIF_KINDS] = {
    [NIF_MODEL] = {"weir_model", sizeof(nif_object)},
    [NIF_CONTEXT] = {"weir_context", sizeof(nif_object)},
    [NIF_SAMPLER] = {"weir_sampler", sizeof(nif_sampler)},
    [NIF_ENGINE] = {"weir_engine", sizeof(nif_object)},
    [NIF_STREAM] = {"weir_stream", sizeof(nif_stream)},
    [NIF_CHAT] = {"weir_chat", sizeof(nif_object)},
    [NIF_PARSER] = {"weir_chat_parser", sizeof(nif_object)},
    [NIF_ADAPTER] = {"weir_adapter", sizeof(nif_object)},
    [NIF_MEDIA] = {"weir_media", sizeof(nif_object)},
    [NIF_POOL] = {"weir_pool", sizeof(nif_object)},
    [NIF_LEASE] = {"weir_lease", sizeof(nif_object)},
    [NIF_CLAIM] = {"weir_claim", sizeof(nif_object)},
};

/* A handle belongs to the copy of the library that created it: another build may lay out its memory in
 * another way. So the type's name contains an address of this copy. A module that is loaded again takes
 * over its handles; the module of another file does not. */
bool nif_resources_open(ErlNifEnv *env, nif_down *stream_down, nif_down *lease_down)
{
    nif_down *const downs[NIF_KINDS] = {[NIF_STREAM] = stream_down, [NIF_LEASE] = lease_down};
    const ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
    if (!reaper_start()) return false;
    for (int i = 0; i < NIF_KINDS; i++) {
        ErlNifResourceTypeInit init = {.dtor = destroy_resource, .down = downs[i]};
        char name[64];
        snprintf(name, sizeof name, "%s %p", kinds[i].name, (void *)resource_types);
        resource_types[i] = enif_open_resource_type_x(env, name, &init, flags, NULL);
        if (resource_types[i] == NULL) return false;
    }
    return true;
}

/* NULL: no memory. */
static nif_object *object_new(nif_kind kind)
{
    nif_object *object = enif_alloc_resource(resource_types[kind], kinds[kind].size);
    if (object == NULL) return NULL;
    memset(object, 0, kinds[kind].size);
    object->lock = enif_mutex_create("weir");
    object->corpse = enif_alloc(sizeof *object->corpse);
    if (kind == NIF_ENGINE) object->calls = enif_rwlock_create("weir");
    if (object->lock == NULL || object->corpse == NULL || (kind == NIF_ENGINE && object->calls == NULL)) {
        if (object->corpse != NULL) enif_free(object->corpse);
        object->corpse = NULL;
        enif_release_resource(object);
        return NULL;
    }
    object->corpse->kind = kind;
    atomic_fetch_add(&n_live[kind], 1);
    return object;
}

void *nif_resource_new(nif_call *call, nif_kind kind)
{
    if (call->end != NIF_RESULT) return NULL;
    nif_object *object = object_new(kind);
    if (object == NULL) nif_stop(call, NIF_NO_MEMORY);
    return object;
}

ERL_NIF_TERM nif_resource_term(nif_call *call, void *resource)
{
    ERL_NIF_TERM term = enif_make_resource(call->env, resource);
    enif_release_resource(resource);
    return term;
}

void nif_handle_free(nif_object *object)
{
    nif_corpse *corpse = object->corpse;
    corpse->handle = object->handle;
    object->corpse = NULL;
    object->handle = NULL;
    bury_corpse(corpse);
}

ERL_NIF_TERM nif_made(nif_call *call, weir_status status, nif_object *object, void *handle)
{
    if (status != WEIR_OK) {
        enif_release_resource(object);
        return nif_status(call, status);
    }
    object->handle = handle;
    return nif_ok(call->env, nif_resource_term(call, object));
}

void *nif_resource_find(ErlNifEnv *env, ERL_NIF_TERM term, nif_kind kind)
{
    void *resource;
    return enif_get_resource(env, term, resource_types[kind], &resource) ? resource : NULL;
}

void *nif_resource(nif_call *call, ERL_NIF_TERM term, nif_kind kind)
{
    void *resource = nif_resource_find(call->env, term, kind);
    if (resource == NULL) nif_stop(call, NIF_WRONG);
    return resource;
}

void *nif_handle(nif_call *call, ERL_NIF_TERM term, nif_kind kind)
{
    nif_object *object = nif_resource(call, term, kind);
    return object != NULL ? object->handle : NULL;
}

/* ---- Leases, in the place of models and engines ---- */

nif_object *nif_claim_of(nif_call *call, nif_object *lease)
{
    enif_mutex_lock(lease->lock); /* held for a few instructions */
    nif_object *claim = lease->handle;
    if (claim != NULL) enif_keep_resource(claim);
    enif_mutex_unlock(lease->lock);
    if (claim == NULL)
        nif_stop(call, NIF_WRONG);
    else if (!nif_keep(call, claim))
        claim = NULL;
    return claim;
}

weir_model *nif_claim_model(const nif_object *claim)
{
    const nif_claim *c = claim->handle;
    return c->model != NULL ? c->model : weir_lease_model(c->lease);
}

/* The claim of a term that is a lease, if its model can be used. */
static nif_object *find_claim(nif_call *call, ERL_NIF_TERM term)
{
    nif_object *lease = nif_resource(call, term, NIF_LEASE);
    nif_object *claim = lease != NULL ? nif_claim_of(call, lease) : NULL;
    if (claim == NULL || nif_claim_model(claim) != NULL) return claim;
    nif_stop(call, NIF_WRONG); /* not loaded yet, or failed */
    return NULL;
}

weir_model *nif_model(nif_call *call, ERL_NIF_TERM term)
{
    const nif_object *object = nif_resource_find(call->env, term, NIF_MODEL);
    if (object != NULL) return object->handle;
    const nif_object *claim = find_claim(call, term);
    return claim != NULL ? nif_claim_model(claim) : NULL;
}

nif_object *nif_own_engine(nif_call *call, ERL_NIF_TERM term)
{
    nif_object *engine = nif_resource(call, term, NIF_ENGINE);
    return engine != NULL && nif_use(call, engine) ? engine : NULL;
}

weir_engine *nif_engine(nif_call *call, ERL_NIF_TERM term, nif_object **keeper)
{
    *keeper = nif_resource_find(call->env, term, NIF_ENGINE);
    if (*keeper != NULL) return nif_use(call, *keeper) ? (*keeper)->handle : NULL;
    *keeper = find_claim(call, term);
    return *keeper != NULL ? weir_lease_engine(((nif_claim *)(*keeper)->handle)->lease) : NULL;
}

/* live_handles(): how many of each kind are not freed yet */
ERL_NIF_TERM nif_live_handles(nif_call *call, const ERL_NIF_TERM argv[])
{
    (void)argv;
    ERL_NIF_TERM map = enif_make_new_map(call->env);
    for (int i = 0; i < NIF_KINDS; i++)
        nif_put(call->env, &map, kinds[i].name, enif_make_int(call->env, atomic_load(&n_live[i])));
    return map;
}

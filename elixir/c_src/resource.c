/* resource.c: handles as terms of the VM, and the thread that frees them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The VM calls a destructor on whatever scheduler drops the last reference, and freeing a context or a model
 * takes long. So a destructor only hands the handle over to the reaper. The library stays mapped once it was
 * loaded (-z nodelete), so that the reaper outlives a purge of the module. */
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

static ErlNifResourceType *types[NIF_KINDS];
static atomic_int live[NIF_KINDS]; /* made and not yet freed */

static void bury(nif_corpse *corpse)
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
    case NIF_HALT:
    case NIF_KINDS: break;
    }
    atomic_fetch_sub(&live[corpse->kind], 1);
    nif_free(corpse);
}

static void *reap(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&reaper.lock);
    for (;;) {
        while (reaper.first == NULL) pthread_cond_wait(&reaper.some, &reaper.lock);
        nif_corpse *corpse = reaper.first;
        reaper.first = corpse->next;
        pthread_mutex_unlock(&reaper.lock);
        bury(corpse);
        pthread_mutex_lock(&reaper.lock);
    }
    return NULL;
}

static bool reaper_start(void)
{
    pthread_t thread;
    pthread_mutex_lock(&reaper.lock);
    if (!reaper.running && pthread_create(&thread, NULL, reap, NULL) == 0) {
        pthread_detach(thread);
        reaper.running = true;
    }
    bool running = reaper.running;
    pthread_mutex_unlock(&reaper.lock);
    return running;
}

static void destroy(ErlNifEnv *env, void *resource)
{
    (void)env;
    nif_object *object = resource;
    if (object->lock != NULL) enif_mutex_destroy(object->lock);
    nif_corpse *corpse = object->corpse;
    if (corpse == NULL) return;
    if (corpse->kind == NIF_STREAM && object->handle == NULL) object->handle = ((nif_stream *)resource)->kept;
    if (object->handle == NULL) {
        atomic_fetch_sub(&live[corpse->kind], 1);
        nif_free(corpse);
        return;
    }
    corpse->handle = object->handle;
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
    [NIF_MODEL] = {"weir_model", sizeof(nif_model)},
    [NIF_CONTEXT] = {"weir_context", sizeof(nif_context)},
    [NIF_SAMPLER] = {"weir_sampler", sizeof(nif_sampler)},
    [NIF_HALT] = {"weir_halt", sizeof(nif_halt)},
    [NIF_ENGINE] = {"weir_engine", sizeof(nif_engine)},
    [NIF_STREAM] = {"weir_stream", sizeof(nif_stream)},
    [NIF_CHAT] = {"weir_chat", sizeof(nif_chat)},
    [NIF_PARSER] = {"weir_chat_parser", sizeof(nif_parser)},
    [NIF_ADAPTER] = {"weir_adapter", sizeof(nif_adapter)},
};

/* A handle belongs to the copy of the library that made it: another build may lay out its memory differently.
 * So the name tells the copy, by an address in it: a module that is loaded anew takes over its handles, the
 * module of another file does not. */
bool nif_resources_open(ErlNifEnv *env)
{
    const ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
    if (!reaper_start()) return false;
    for (int i = 0; i < NIF_KINDS; i++) {
        ErlNifResourceTypeInit init = {.dtor = destroy, .down = i == NIF_STREAM ? nif_stream_down : NULL};
        char name[64];
        snprintf(name, sizeof name, "%s %p", kinds[i].name, (void *)types);
        types[i] = enif_open_resource_type_x(env, name, &init, flags, NULL);
        if (types[i] == NULL) return false;
    }
    return true;
}

void *nif_resource_new(nif_kind kind)
{
    nif_object *object = enif_alloc_resource(types[kind], kinds[kind].size);
    if (object == NULL) return NULL;
    memset(object, 0, kinds[kind].size);
    object->lock = enif_mutex_create("weir");
    nif_corpse *corpse = enif_alloc(sizeof *corpse);
    if (object->lock == NULL || corpse == NULL) {
        nif_free(corpse);
        enif_release_resource(object);
        return NULL;
    }
    corpse->kind = kind;
    object->corpse = corpse;
    atomic_fetch_add(&live[kind], 1);
    return object;
}

ERL_NIF_TERM nif_resource_term(ErlNifEnv *env, void *resource)
{
    ERL_NIF_TERM term = enif_make_resource(env, resource);
    enif_release_resource(resource);
    return term;
}

void nif_resource_drop(void *resource)
{
    enif_release_resource(resource);
}

void *nif_resource_get(ErlNifEnv *env, ERL_NIF_TERM term, nif_kind kind)
{
    void *resource;
    return enif_get_resource(env, term, types[kind], &resource) ? resource : NULL;
}

static bool take(nif_object *object)
{
    if (nif_on_normal_scheduler()) return enif_mutex_trylock(object->lock) == 0;
    enif_mutex_lock(object->lock);
    return true;
}

bool nif_lock(nif_context *context, nif_sampler *sampler)
{
    if (context != NULL && !take(&context->object)) return false;
    if (sampler != NULL && !take(&sampler->object)) {
        if (context != NULL) enif_mutex_unlock(context->object.lock);
        return false;
    }
    return true;
}

void nif_unlock(nif_context *context, nif_sampler *sampler)
{
    if (sampler != NULL) enif_mutex_unlock(sampler->object.lock);
    if (context != NULL) enif_mutex_unlock(context->object.lock);
}

/* live_handles(): how many of each kind are not freed yet */
ERL_NIF_TERM nif_live_handles(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc, (void)argv;
    ERL_NIF_TERM map = enif_make_new_map(env);
    for (int i = 0; i < NIF_KINDS; i++)
        nif_put(env, &map, kinds[i].name, enif_make_int(env, atomic_load(&live[i])));
    return map;
}

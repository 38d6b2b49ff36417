/* call.c: one call of a native function: how it ends, its memory and its locks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

struct nif_block {
    _Alignas(max_align_t) nif_block *next;
};

ERL_NIF_TERM nif_stop(nif_call *call, nif_end end)
{
    if (call->end == NIF_RESULT) call->end = end;
    return 0;
}

struct nif_kept {
    void *resource;
    nif_kept *next;
};

bool nif_move(nif_call *call)
{
    if (call->normal) nif_stop(call, NIF_DIRTY);
    return call->normal;
}

void *nif_alloc(nif_call *call, size_t size)
{
    nif_block *block = enif_alloc(sizeof *block + size);
    if (block == NULL) {
        nif_stop(call, NIF_NO_MEMORY);
        return NULL;
    }
    block->next = call->blocks;
    call->blocks = block;
    return block + 1;
}

bool nif_keep(nif_call *call, void *resource)
{
    nif_kept *kept = nif_alloc(call, sizeof *kept);
    if (kept == NULL) {
        enif_release_resource(resource);
        return false;
    }
    *kept = (nif_kept){resource, call->kept};
    call->kept = kept;
    return true;
}

bool nif_lock(nif_call *call, nif_object *object)
{
    if (call->end != NIF_RESULT) return false;
    if (!call->normal) {
        enif_mutex_lock(object->lock);
    } else if (enif_mutex_trylock(object->lock) != 0) {
        nif_stop(call, NIF_DIRTY);
        return false;
    }
    object->next_locked = call->locked;
    call->locked = object;
    return true;
}

bool nif_use(nif_call *call, nif_object *engine)
{
    if (call->end != NIF_RESULT) return false;
    if (!call->normal) {
        enif_rwlock_rlock(engine->calls);
    } else if (enif_rwlock_tryrlock(engine->calls) != 0) {
        nif_stop(call, NIF_DIRTY);
        return false;
    }
    call->engine = engine;
    if (engine->handle == NULL) nif_stop(call, NIF_STOPPED);
    return call->end == NIF_RESULT;
}

void nif_call_fini(nif_call *call)
{
    while (call->locked != NULL) {
        nif_object *object = call->locked;
        call->locked = object->next_locked;
        enif_mutex_unlock(object->lock);
    }
    if (call->engine != NULL) enif_rwlock_runlock(call->engine->calls);
    for (; call->kept != NULL; call->kept = call->kept->next) enif_release_resource(call->kept->resource);
    while (call->blocks != NULL) {
        nif_block *block = call->blocks;
        call->blocks = block->next;
        enif_free(block);
    }
}

void nif_uninterrupted(void)
{
    weir_interrupt_set(NULL, NULL);
}

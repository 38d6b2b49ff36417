/* loaded.h: a model in memory, and all that the server has of it. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODELS_LOADED_H
#define WEIR_SERVER_MODELS_LOADED_H

#include <pthread.h>
#include <stdatomic.h>

#include "adapters.h"
#include "server/request/serve.h"

typedef struct serve_kept serve_kept;

/* The context that computes embeddings, for one request at a time. It is created for the first request, or at
 * the start, and goes when it has been idle (embedder.c). */
typedef struct serve_embedder {
    pthread_mutex_t mutex; /* held while it is created, computes or goes; protects context, stays, used_ns */
    weir_context *context; /* NULL: there is none now */
    weir_pool *pool;       /* that counts its memory; NULL = none; constant */
    bool stays;            /* the operator has asked for it, or the model can do nothing else */
    int64_t used_ns;       /* when it was used last */
    _Atomic uint64_t n_bytes; /* of the context, by estimate; 0 = there is none */
    _Atomic bool reaps;       /* the reaper runs */
    bool has_reaper;          /* these three: of the service thread, or whoever comes after it */
    pthread_t reaper;
    int64_t rest_ns; /* the time for which the reaper was started; constant while it runs */
} serve_embedder;

typedef struct serve_loaded {
    struct serve_loaded *next; /* the catalog's */
    uint64_t serial;           /* no two have the same in the life of the process */
    char *name;                /* the model's; NULL: there is but one */
    weir_model *model;         /* borrowed, as is the engine */
    weir_engine *engine;
    serve_embedder embedder;
    serve_kept *kept;
    serve_adapters *adapters;
    uint64_t watched_ticks; /* n_ticks when it last changed; these two are the sweep's */
    int64_t watched_ns;
} serve_loaded;

/* name: copied; may be NULL. NULL: out of memory. */
serve_loaded *serve_loaded_create(const char *name, weir_model *model, weir_engine *engine);

/* The longest request in tokens. */
int32_t serve_loaded_context(const serve_loaded *loaded);

/* True if the vocabulary has the tokens for infills. */
bool serve_loaded_infills(const weir_model_info *info);

/* Appends what the model can do as an array of names, those of Ollama's API or those of weir's own lists. */
void serve_loaded_add_abilities(const serve_loaded *loaded, bool ollama, weir__text *text);

/* Waits for a thread that works on it for nobody. Before its pool goes. */
void serve_loaded_wait(serve_loaded *loaded);

/* Destroys it, before its engine goes. No call may have it. NULL is ignored. */
void serve_loaded_destroy(serve_loaded *loaded);

#endif

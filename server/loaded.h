/* loaded.h: a model in memory, and all that the server has of it. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_LOADED_H
#define WEIR_SERVER_LOADED_H

#include <pthread.h>

#include "adapters.h"

typedef struct serve_kept serve_kept;

/* The context that computes embeddings, for one request at a time. */
typedef struct serve_embedder {
    pthread_mutex_t mutex; /* held while it computes */
    weir_context *context; /* NULL: not created yet */
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

/* No call may have it. Before its engine goes. NULL is ignored. */
void serve_loaded_destroy(serve_loaded *loaded);

#endif

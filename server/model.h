/* model.h: a model that requests may name: its names, what they do not set, and its engine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODEL_H
#define WEIR_SERVER_MODEL_H

#include <pthread.h>

#include "adapters.h"
#include "server.h"

typedef struct serve_kept serve_kept;

/* The context that computes embeddings, for one request at a time. */
typedef struct serve_embedder {
    pthread_mutex_t mutex; /* held while it computes */
    weir_context *context; /* NULL: not created yet */
} serve_embedder;

/* A model in memory, and all that the server has of it. */
typedef struct serve_loaded {
    weir_model *model;   /* borrowed, as is the engine */
    weir_engine *engine; /* NULL: the model generates no text */
    serve_embedder embedder;
    serve_kept *kept;
    serve_adapters *adapters;
} serve_loaded;

typedef struct serve_model {
    const serve_model_params *params;
    const char *name;    /* as answers call the model */
    char file_name[768]; /* U+FFFD replaces invalid UTF-8; "" until it is known */
    serve_loaded loaded;
} serve_model;

/* False: out of memory; freed with fini always. The parameters must live as long. */
bool serve_model_init(serve_model *model, const serve_model_params *params);
void serve_model_fini(serve_model *model);

/* Before anything asks for its name: what the file is called. */
void serve_model_call(serve_model *model, const char *file_name);

/* named: whether `name` is one of the model's own names; accepts: whether requests may use it for the model,
 * including "" and, with the alias "*", any name. */
bool serve_model_named(const serve_model *model, const char *name);
bool serve_model_accepts(const serve_model *model, const char *name);

#endif

/* model.h: a model that requests may name: its names and the defaults of their parameters.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODELS_MODEL_H
#define WEIR_SERVER_MODELS_MODEL_H

#include <stdatomic.h>

#include "server/request/serve.h"
#include "server/settings/params.h"

/* A model of the catalog. Nothing changes once requests can name it: a reload brings another one. */
typedef struct serve_model {
    _Atomic int32_t n_holders;
    serve_model_params params; /* copies */
    struct serve_block *blocks;
    const char *name;    /* as answers call the model */
    uint64_t file_bytes; /* of an entry's files, when it was created; 0 = not known */
    char file_name[768]; /* U+FFFD replaces invalid UTF-8; "" until it is known */
} serve_model;

/* Copies the parameters. NULL: out of memory. */
serve_model *serve_model_create(const serve_model_params *params);

/* Reference counts. Any thread. NULL is ignored. */
serve_model *serve_model_hold(serve_model *model);
void serve_model_release(serve_model *model);

/* Sets the file's name; before anything asks for the model's name. */
void serve_model_call(serve_model *model, const char *file_name);

/* named: true if `name` is one of the model's own names; has_adapter: that of an adapter which is loaded with
 * it. */
bool serve_model_named(const serve_model *model, const char *name);
bool serve_model_has_adapter(const serve_model *model, const char *name);

#endif

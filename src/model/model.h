/* model.h: a loaded model: a backend's model and its properties.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_MODEL_H
#define WEIR_MODEL_MODEL_H

#include <pthread.h>

#include "backend/backend.h"
#include "base/text.h"
#include "model/chat_template.h"
#include "model/control.h"

struct weir_model {
    const weir__backend *ops;
    weir__bmodel *model;
    weir_model_info info; /* complete */
    char *path;
    uint64_t attention; /* a hash of the parameters of flash attention and RoPE; 0 = their defaults */
    weir__bprojector *projector;         /* NULL = none */
    weir__projector_info projector_info; /* its own, or zeroes */
    pthread_mutex_t encoding;            /* held while the projector encodes */
    _Atomic int refs;
    weir__chat_templates templates;
    weir__controls *_Atomic controls; /* NULL until first use */
};

/* INVALID: a value is out of range; the field is its name. */
weir_status weir__model_params_check(const weir_model_params *params, weir_error *error);

/* UNSUPPORTED (rpc): the build has no RPC. */
weir_status weir__rpc_check(weir_error *error);

/* Loads a model without weights, for describe, estimates and cell_bytes; the parameters are those of
 * weir_model_load. */
weir_status weir__model_outline(const char *path, const weir_model_params *params, weir_model **model,
                                weir_error *error);

/* The control texts of its vocabulary, found on first use. Errors: NO_MEMORY. */
weir_status weir__model_controls(weir_model *model, const weir__controls **controls, weir_error *error);

/* Appends a token's bytes; token -1 has none. False: no memory. */
bool weir__model_add_piece(const weir_model *model, int32_t token, bool special, weir__text *out);

/* The backend that loads this path. UNSUPPORTED: this build has none. */
weir_status weir__model_backend(const char *path, const weir__backend **ops, weir_error *error);

#endif

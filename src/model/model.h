/* model.h: a loaded model: a backend's model, its properties, and the chat templates that were used last.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_MODEL_H
#define WEIR_MODEL_MODEL_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/chat.h"
#include "base/text.h"
#include "model/control.h"

/* ---- Parsed chat templates ---- */

/* Limits on a template's source; llama/limits.h limits its work when it runs. */
#define WEIR__CHAT_TEMPLATE_BYTES_MAX    262144
#define WEIR__CHAT_TEMPLATE_BRACKETS_MAX 16384

/* llama.cpp's Jinja recurses over nesting and over long expressions. Values nested 100 deep in a recursive
 * macro, or a template at the limits above, need more stack than some callers' threads have. */
#define WEIR__CHAT_STACK       ((size_t)16 << 20)
#define WEIR__CHAT_STACK_GIVEN ((size_t)256 << 20) /* for templates of callers */

#define WEIR__CHAT_TEMPLATES 8 /* the model's two, and some of callers */

typedef struct weir__chat_template {
    char *source;
    weir__llama_template *parsed;
    _Atomic int refs;
    _Atomic unsigned
        refused[2];      /* [with tools] the shapes that it refuses, once they are known (chat/reshape) */
    _Atomic bool warned; /* that the form of its calls is not enforced in full */
} weir__chat_template;

/* The templates that were used last, the latest first. */
typedef struct weir__chat_templates {
    pthread_mutex_t lock;                          /* protects the rest; held for a few instructions */
    weir__chat_template *at[WEIR__CHAT_TEMPLATES]; /* [n], each held */
    size_t n;
} weir__chat_templates;

/* The template of this source, held. NULL: it is not among them. */
weir__chat_template *weir__chat_templates_find(weir__chat_templates *templates, const char *source);

/* Adds a template, which remains held by the caller, too. */
void weir__chat_templates_add(weir__chat_templates *templates, weir__chat_template *t);

void weir__chat_template_release(weir__chat_template *t);

/* ---- Models ---- */

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

#endif

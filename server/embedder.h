/* embedder.h: embeddings and scores of texts, computed by a context of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_EMBEDDER_H
#define WEIR_SERVER_EMBEDDER_H

#include "serve.h"

/* Texts, and what errors call the i-th one: a name that fits into an error's field. */
typedef struct serve_texts {
    const weir_tokens *tokens; /* [n] */
    size_t n;
    const char *(*name)(const struct serve_texts *texts, size_t i, char *name, size_t capacity);
    bool many; /* for `name`: the request has an array of them */
    const serve_adapter_set *adapters;
} serve_texts;

/* Whether this server computes them; otherwise the call has its answer. */
bool serve_embedder_allowed(serve_call *call);

/* Whether it scores pairs of texts, by its file. Such a model has no embeddings. */
bool serve_embedder_ranks(const weir_model *model, const char *architecture);

/* Token ids of a text, or as they are given, into *tokens; tokens->ids is freed with weir__mem_free in any
 * case. name: where the request has it. False: the call has its answer. */
bool serve_embedder_read(serve_call *call, const char *name, const json_t *value, weir_tokens *tokens);

/* Describes the context, which the first call creates. */
weir_status serve_embedder_describe(serve_call *call, weir_context_info *info, weir_error *error);

/* Tokens of the longest text. */
static inline size_t serve_embedder_longest(const weir_context_info *info)
{
    return (size_t)(info->n_batch < info->n_ctx_seq ? info->n_batch : info->n_ctx_seq);
}

/* *vectors is [texts->n][*width], freed with weir__mem_free in any case. Requests take turns. TOO_LONG,
 * INVALID (a text's name), ABORTED: the client has left. Worker. */
weir_status serve_embedder_compute(serve_call *call, const serve_texts *texts, float **vectors, size_t *width,
                                   weir_error *error);

#endif

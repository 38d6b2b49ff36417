/* embedder.h: embeddings and scores of texts, computed by a context of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_EMBEDDER_H
#define WEIR_SERVER_API_COMMON_EMBEDDER_H

#include "server/models/adapters.h"
#include "server/request/serve.h"

#define SERVE_TEXTS_MAX 2048

/* A request's texts. The struct of each request begins with it; the worker owns it. */
typedef struct serve_texts {
    json_t *json;                        /* the request, owned */
    weir_tokens tokens[SERVE_TEXTS_MAX]; /* [n], owned */
    size_t n, n_tokens;                  /* of all of them */
    bool many;                           /* the request has an array of them: "input[3]" in errors */
    const char *adapter;                 /* the model that was asked for; borrowed, NULL = not given */
    serve_adapter_set adapters;
} serve_texts;

typedef struct serve_texts_form {
    size_t size;       /* of the request's struct */
    const char *field; /* with the texts */
    /* Fills a struct of zeroes. False: the call has its answer. */
    bool (*read)(serve_call *call, serve_texts *texts);
    /* vectors: [n][width] */
    void (*answer)(serve_call *call, const serve_texts *texts, const float *vectors, size_t width);
    /* NULL, or refuses the request before its texts are computed. */
    weir_status (*check)(const serve_texts *texts, size_t width, weir_error *error);
} serve_texts_form;

/* Reads a request, computes its texts and answers. Requests take turns. Worker. */
void serve_embedder_answer(serve_call *call, const serve_texts_form *form);

/* Token ids of a text, or as they are given, into *tokens; tokens->ids is freed with weir__mem_free in any
 * case. name: where the request has it. False: the call has its answer. */
bool serve_embedder_read(serve_call *call, const char *name, const json_t *value, weir_tokens *tokens);

/* Tokenizes a text alone, likewise; *ids is freed with weir__mem_free in any case. */
bool serve_embedder_tokens(serve_call *call, const char *name, const json_t *text, bool special, bool parse,
                           int32_t **ids, size_t *n);

/* Cuts a text that has more tokens than the context holds, whatever they are, to as many bytes as may fit.
 * Freed with json_decref; NULL: out of memory. */
json_t *serve_embedder_cut(const serve_call *call, const json_t *text);

/* Appends a vector as an array, each number times `scale`. */
void serve_embedder_add_vector(weir__text *text, const float *vector, size_t n, double scale);

/* Describes the context, which it creates if there is none. False: the call has its answer. */
bool serve_embedder_describe(serve_call *call, weir_context_info *info);

/* ---- Life of the context, of loaded.h ---- */

#define SERVE_EMBEDDER_IDLE_S 300 /* as long as other servers of this kind keep an idle model */

/* Contexts that were created so far, by all servers of the process. */
uint64_t serve_embedder_created(void);

/* Creates the context, to stay. Blocks. Errors: BUSY (no memory), those of weir_context_create. */
weir_status serve_embedder_open(serve_loaded *loaded, weir_error *error);

/* Lets a thread destroy the context if it has been idle for that long and is not to stay. Never waits for one
 * that computes. The service thread, with the catalog locked. */
void serve_embedder_rest(serve_loaded *loaded, int64_t now_ns);

/* The cells of the context, which hold its longest text, before it is created. */
size_t serve_embedder_cells(const weir_model *model);

/* Tokens of the longest text. */
static inline size_t serve_embedder_longest(const weir_context_info *info)
{
    return (size_t)(info->n_batch < info->n_ctx_seq ? info->n_batch : info->n_ctx_seq);
}

#endif

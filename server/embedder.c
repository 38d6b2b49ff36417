/* The context is created when it is first needed. SPDX-License-Identifier: Apache-2.0 */
#include "embedder.h"

#include <stdio.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "catalog.h"
#include "field.h"
#include "loaded.h"
#include "model.h"

#define CELLS_MAX 8192 /* the longest text, where the model was trained on more */
#define TURN      64   /* texts that are computed before another request gets its turn */

/* Whether this server computes them; otherwise the call has its answer. */
static bool is_allowed(serve_call *call)
{
    if (call->model->params.embeddings || call->loaded->engine == NULL) return true;
    if (serve_catalog_pool(call->server->catalog) == NULL)
        return serve_call_refuse(call, 501, NULL, "not_supported",
                                 "this server computes no embeddings: start it with --embeddings");
    return serve_call_refuse(call, 501, "model", "not_supported",
                             "the model \"%.100s\" computes no embeddings and ranks nothing: ask for another "
                             "one, or write \"embeddings = on\" in its section of --models",
                             call->model->name);
}

/* The cells of the context, which hold its longest text. */
static size_t cells_of(const weir_model *model)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    return info.n_ctx_train > 0 && info.n_ctx_train < CELLS_MAX ? (size_t)info.n_ctx_train : CELLS_MAX;
}

bool serve_embedder_tokens(serve_call *call, const char *name, const json_t *text, bool special, bool parse,
                           int32_t **ids, size_t *n)
{
    const weir_model *model = call->loaded->model;
    weir_error error = {0};
    size_t most = cells_of(model), length = json_string_length(text),
           least = serve_tokens_least(model, length);
    if (least > most)
        return serve_call_refuse(call, 400, name, "context_length_exceeded",
                                 "%s has %zu bytes, which are at least %zu tokens; allowed: up to %zu", name,
                                 length, least, most);
    weir_status status = serve_tokens_of_text(model, text, special, parse, ids, n, &error);
    if (status != WEIR_NO_MEMORY) snprintf(error.field, sizeof error.field, "%s", name);
    return serve_call_passes(call, status, &error);
}

json_t *serve_embedder_cut(const serve_call *call, const json_t *text)
{
    const weir_model *model = call->loaded->model;
    weir_model_info info = {.size = sizeof info};
    size_t most = cells_of(model), length = json_string_length(text);
    if (serve_tokens_least(model, length) <= most) return json_incref((json_t *)text);
    weir_model_describe(model, &info);
    const char *bytes = json_string_value(text);
    return json_stringn(bytes, weir__utf8_cut(bytes, (most + 1) * (size_t)info.longest_piece - 1));
}

bool serve_embedder_read(serve_call *call, const char *name, const json_t *value, weir_tokens *tokens)
{
    int32_t *ids = NULL;
    if (json_is_string(value) && json_string_length(value) == 0)
        return serve_field_refuse(call, name, "a text or token ids, not empty");
    bool ok = json_is_array(value) ? serve_call_read_ids(call, name, value, &ids, &tokens->n)
                                   : serve_embedder_tokens(call, name, value, true, false, &ids, &tokens->n);
    tokens->ids = ids;
    return ok;
}

void serve_embedder_add_vector(weir__text *text, const float *vector, size_t n, double scale)
{
    weir__text_add_string(text, "[");
    for (size_t i = 0; i < n; i++)
        weir__text_printf(text, i > 0 ? ",%.9g" : "%.9g", (double)vector[i] * scale);
    weir__text_add_string(text, "]");
}

/* With a pooled vector for each text, also where the model names no pooling. Under the mutex. */
static weir_status open_context(serve_call *call, weir_error *error)
{
    serve_embedder *embedder = &call->loaded->embedder;
    weir_context_params params = weir_context_params_default();
    weir_context_info info = {.size = sizeof info};
    if (embedder->context != NULL) return WEIR_OK;
    params.embeddings = true;
    params.pooling = WEIR_POOLING_UNSPECIFIED;
    params.n_ctx = (int32_t)cells_of(call->loaded->model);
    params.n_batch = params.n_ubatch = params.n_ctx;
    params.n_seq_max = 16;
    weir_status status = weir_context_create(call->loaded->model, &params, &embedder->context, error);
    if (status == WEIR_OK && weir_context_describe(embedder->context, &info) == WEIR_OK &&
        info.pooling == WEIR_POOLING_NONE) {
        weir_context_destroy(embedder->context);
        embedder->context = NULL;
        params.pooling = WEIR_POOLING_MEAN;
        status = weir_context_create(call->loaded->model, &params, &embedder->context, error);
    }
    if (status != WEIR_OK) error->field[0] = '\0'; /* of the context, not of the request */
    return status;
}

weir_status serve_embedder_describe(serve_call *call, weir_context_info *info, weir_error *error)
{
    serve_embedder *embedder = &call->loaded->embedder;
    pthread_mutex_lock(&embedder->mutex);
    weir_status status = open_context(call, error);
    if (status == WEIR_OK) status = weir_context_describe(embedder->context, info);
    pthread_mutex_unlock(&embedder->mutex);
    return status;
}

/* Errors are found before anything is computed. */
static weir_status check_texts(const weir_context *context, const serve_texts_form *form,
                               const serve_texts *texts, weir_error *error)
{
    weir_context_info info = {.size = sizeof info};
    weir_status status =
        form->check != NULL ? form->check(texts, weir_embedding_width(context), error) : WEIR_OK;
    if (status != WEIR_OK) return status;
    weir_context_describe(context, &info);
    size_t most = serve_embedder_longest(&info);
    for (size_t i = 0; i < texts->n; i++) {
        size_t n = texts->tokens[i].n;
        if (n >= 1 && n <= most) continue;
        serve_place place = serve_place_at(form->field, i);
        const char *field = texts->many ? place.text : form->field;
        return weir__error_set(error, n == 0 ? WEIR_INVALID : WEIR_TOO_LONG, field,
                               "%s has %zu tokens; a text to embed may have 1 to %zu", field, n, most);
    }
    return WEIR_OK;
}

/* *vectors is [texts->n][*width], freed with weir__mem_free in any case. TOO_LONG, INVALID (a text's name),
 * ABORTED: the client has left. */
static weir_status compute(serve_call *call, const serve_texts_form *form, const serve_texts *texts,
                           float **vectors, size_t *width, weir_error *error)
{
    serve_embedder *embedder = &call->loaded->embedder;
    weir_status status = WEIR_OK;
    for (size_t done = 0; status == WEIR_OK && done < texts->n; done += TURN) {
        size_t n = texts->n - done < TURN ? texts->n - done : TURN, n_floats;
        if (atomic_load_explicit(&call->gone, memory_order_acquire)) return WEIR_ABORTED;
        pthread_mutex_lock(&embedder->mutex);
        status = open_context(call, error);
        if (status == WEIR_OK && done == 0) status = check_texts(embedder->context, form, texts, error);
        if (status == WEIR_OK && *vectors == NULL) {
            *width = weir_embedding_width(embedder->context);
            *vectors = weir__mem_calloc(texts->n * *width, sizeof **vectors);
            if (*vectors == NULL) status = WEIR_NO_MEMORY;
        }
        if (status == WEIR_OK)
            status =
                weir_context_set_adapters(embedder->context, texts->adapters.uses, texts->adapters.n, error);
        if (status == WEIR_OK)
            status = weir_embed(embedder->context, texts->tokens + done, n, WEIR_NORMALIZE_L2,
                                *vectors + done * *width, n * *width, &n_floats, error);
        pthread_mutex_unlock(&embedder->mutex);
    }
    return status;
}

void serve_embedder_answer(serve_call *call, const serve_texts_form *form)
{
    float *vectors = NULL;
    size_t width = 0;
    weir_error error = {0};
    serve_texts *texts;
    if (!is_allowed(call)) return;
    if ((texts = weir__mem_calloc(1, form->size)) == NULL) {
        serve_call_no_memory(call);
        return;
    }
    if (form->read(call, texts) &&
        serve_call_passes(call, compute(call, form, texts, &vectors, &width, &error), &error))
        form->answer(call, texts, vectors, width);
    for (size_t i = 0; i < texts->n; i++) weir__mem_free((void *)texts->tokens[i].ids);
    weir__mem_free(vectors);
    serve_adapter_set_fini(&texts->adapters);
    json_decref(texts->json);
    weir__mem_free(texts);
}

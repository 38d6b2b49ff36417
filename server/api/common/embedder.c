/* embedder.c: embeddings and scores of texts, by a context that is there while it is used. The first request
 * creates the context on a thread of its own, counted in the pool's budget; after some idle time another
 * thread destroys it. Texts are computed in turns of a few under the mutex, so that requests with many texts
 * alternate with others, and the first turn checks all texts before anything is computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "embedder.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "error.h"
#include "field.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/models/tokens.h"
#include "server/request/call.h"

#define CELLS_MAX   8192 /* the longest text, where the model was trained on more */
#define CELLS_LEAST 512  /* a shorter longest text is of no use */
#define TURN        64   /* texts that are computed before another request gets its turn */

size_t serve_embedder_cells(const weir_model *model)
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
    size_t most = serve_embedder_cells(model), length = json_string_length(text),
           least = serve_tokens_least(model, length);
    if (least > most)
        return serve_call_too_long(call, name,
                                   "%s has %zu bytes, which are at least %zu tokens; allowed: up to %zu",
                                   name, length, least, most);
    weir_status status = serve_tokens_of_text(model, text, special, parse, ids, n, &error);
    if (status != WEIR_NO_MEMORY) snprintf(error.field, sizeof error.field, "%s", name);
    return serve_call_passes(call, status, &error);
}

json_t *serve_embedder_cut(const serve_call *call, const json_t *text)
{
    const weir_model *model = call->loaded->model;
    weir_model_info info = {.size = sizeof info};
    size_t most = serve_embedder_cells(model), length = json_string_length(text);
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

/* ---- The context ---- */

static _Atomic uint64_t n_created;

uint64_t serve_embedder_created(void)
{
    return atomic_load(&n_created);
}

static weir_context_params context_params(size_t n_cells)
{
    weir_context_params params = weir_context_params_default();
    params.embeddings = true;
    params.pooling = WEIR_POOLING_UNSPECIFIED;
    params.n_ctx = (int32_t)n_cells;
    params.n_batch = params.n_ubatch = params.n_ctx;
    params.n_seq_max = 16;
    return params;
}

/* Creates a context with a pooled vector for each text, also where the model names no pooling. */
static weir_status create_context(weir_model *model, size_t n_cells, weir_context **context,
                                  weir_error *error)
{
    weir_context_params params = context_params(n_cells);
    weir_context_info info = {.size = sizeof info};
    weir_status status = weir_context_create(model, &params, context, error);
    if (status == WEIR_OK && weir_context_describe(*context, &info) == WEIR_OK &&
        info.pooling == WEIR_POOLING_NONE) {
        weir_context_destroy(*context);
        *context = NULL;
        params.pooling = WEIR_POOLING_MEAN;
        status = weir_context_create(model, &params, context, error);
    }
    return status;
}

/* The pool's budget counts its memory first. For a single model the library looks at what the machine has
 * left. */
static weir_status reserve_context(serve_embedder *embedder, weir_model *model, size_t n_cells,
                                   uint64_t *n_bytes, weir_error *error)
{
    weir_context_params params = context_params(n_cells);
    weir_status status = weir_context_estimate(model, &params, n_bytes, error);
    if (status == WEIR_OK && embedder->pool != NULL)
        status = weir_pool_reserve(embedder->pool, model, *n_bytes, error);
    if (status != WEIR_OK) return status;
    status = create_context(model, n_cells, &embedder->context, error);
    if (status != WEIR_OK && embedder->pool != NULL) (void)weir_pool_reserve(embedder->pool, model, 0, NULL);
    return status;
}

/* A context to make, by a thread of its own, like the pool's loader: passes go before it. */
typedef struct making {
    serve_embedder *embedder;
    weir_model *model;
    weir_error *error;
    weir_status status;
} making;

static void *make_context(void *user)
{
    making *m = user;
    serve_embedder *embedder = m->embedder;
    uint64_t n_bytes = 0;
    size_t n_cells = serve_embedder_cells(m->model);
    weir__thread_name("weir-load");
    weir__thread_yield();
    for (;; n_cells /= 2) { /* of shorter texts, where the memory is too small for ever */
        m->status = reserve_context(embedder, m->model, n_cells, &n_bytes, m->error);
        bool small = m->status == WEIR_TOO_LONG || m->status == WEIR_NO_MEMORY;
        if (!small || n_cells / 2 < CELLS_LEAST) break;
    }
    if (m->status != WEIR_OK) return NULL;
    atomic_store(&embedder->n_bytes, n_bytes > 0 ? n_bytes : 1);
    atomic_fetch_add(&n_created, 1);
    return NULL;
}

/* Opens the context. Under the mutex. After a failure the next request tries again. */
static weir_status open_context(serve_embedder *embedder, weir_model *model, weir_error *error)
{
    making m = {embedder, model, error, WEIR_NO_MEMORY};
    pthread_t thread;
    if (embedder->context == NULL) {
        if (weir__thread_start(&thread, NULL, make_context, &m) != 0)
            return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no thread: the process has reached a limit");
        pthread_join(thread, NULL);
        if (m.status != WEIR_OK) return m.status;
    }
    embedder->used_ns = weir__clock_now_ns();
    return WEIR_OK;
}

/* Refuses in words that name no parameter of a context. */
static bool refuse_context(serve_call *call, weir_status status, weir_error *error)
{
    switch (status) {
    case WEIR_BUSY:
    case WEIR_NO_MEMORY:
    case WEIR_TOO_LONG:
        return serve_call_refuse(
            call, 503, NULL, status == WEIR_TOO_LONG ? "embeddings_too_large" : "embeddings_busy",
            "there is no memory for embeddings beside the model: %s", weir__error_words(error).text);
    case WEIR_UNSUPPORTED:
    case WEIR_INVALID:
        return serve_call_refuse(call, 400, "model", "unsupported_value",
                                 "this model computes no embeddings: %s", weir__error_words(error).text);
    default:
        weir__error_wrap(error, error, status, NULL,
                         "embeddings could not be prepared, the next request tries again: ");
        return serve_call_passes(call, status, error);
    }
}

/* Opens the context for a call. False: it has its answer. */
static bool open_for_call(serve_call *call)
{
    serve_embedder *embedder = &call->loaded->embedder;
    weir_error error = {0};
    embedder->stays = call->model->params.embeddings || call->loaded->engine == NULL;
    weir_status status = open_context(embedder, call->loaded->model, &error);
    return status == WEIR_OK || refuse_context(call, status, &error);
}

weir_status serve_embedder_open(serve_loaded *loaded, weir_error *error)
{
    serve_embedder *embedder = &loaded->embedder;
    pthread_mutex_lock(&embedder->mutex);
    embedder->stays = true;
    weir_status status = open_context(embedder, loaded->model, error);
    pthread_mutex_unlock(&embedder->mutex);
    return status;
}

/* ---- When it is idle ---- */

static bool is_idle(const serve_embedder *embedder, int64_t now_ns)
{
    return embedder->context != NULL && !embedder->stays &&
           now_ns - embedder->used_ns >= SERVE_EMBEDDER_IDLE_S * WEIR__NS_PER_S;
}

static void *reap_context(void *user)
{
    serve_loaded *loaded = user;
    serve_embedder *embedder = &loaded->embedder;
    weir__thread_name("weir-load");
    weir__thread_yield();
    pthread_mutex_lock(&embedder->mutex);
    if (is_idle(embedder, embedder->rest_ns)) { /* not used since */
        weir_context_destroy(embedder->context);
        embedder->context = NULL;
        atomic_store(&embedder->n_bytes, 0);
        if (embedder->pool != NULL) (void)weir_pool_reserve(embedder->pool, loaded->model, 0, NULL);
    }
    pthread_mutex_unlock(&embedder->mutex);
    atomic_store(&embedder->reaps, false);
    return NULL;
}

void serve_embedder_rest(serve_loaded *loaded, int64_t now_ns)
{
    serve_embedder *embedder = &loaded->embedder;
    if (atomic_load(&embedder->reaps)) return; /* on a busy machine that takes a while */
    if (atomic_load(&embedder->n_bytes) == 0 || pthread_mutex_trylock(&embedder->mutex) != 0) return;
    bool idle = is_idle(embedder, now_ns);
    pthread_mutex_unlock(&embedder->mutex);
    if (!idle) return;
    serve_loaded_wait(loaded); /* the one before, which has ended */
    embedder->rest_ns = now_ns;
    atomic_store(&embedder->reaps, true);
    embedder->has_reaper = weir__thread_start(&embedder->reaper, NULL, reap_context, loaded) == 0;
    if (!embedder->has_reaper) atomic_store(&embedder->reaps, false);
}

/* ---- Requests ---- */

bool serve_embedder_describe(serve_call *call, weir_context_info *info)
{
    serve_embedder *embedder = &call->loaded->embedder;
    pthread_mutex_lock(&embedder->mutex);
    bool ok = open_for_call(call);
    if (ok) (void)weir_context_describe(embedder->context, info);
    pthread_mutex_unlock(&embedder->mutex);
    return ok;
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

/* The next texts, n from `from` on; the first turn checks all. Under the mutex. */
static weir_status compute_turn(weir_context *context, const serve_texts_form *form, const serve_texts *texts,
                                size_t from, size_t n, float **vectors, size_t *width, weir_error *error)
{
    size_t n_floats;
    weir_status status = from == 0 ? check_texts(context, form, texts, error) : WEIR_OK;
    if (status == WEIR_OK && *vectors == NULL) {
        *width = weir_embedding_width(context);
        *vectors = weir__mem_calloc(texts->n * *width, sizeof **vectors);
        if (*vectors == NULL) status = WEIR_NO_MEMORY;
    }
    if (status == WEIR_OK)
        status = weir_context_set_adapters(context, texts->adapters.uses, texts->adapters.n, error);
    if (status == WEIR_OK)
        status = weir_embed(context, texts->tokens + from, n, WEIR_NORMALIZE_L2, *vectors + from * *width,
                            n * *width, &n_floats, error);
    return status;
}

/* *vectors is [texts->n][*width], freed with weir__mem_free in any case. False: the call has its answer, or
 * the client has left. */
static bool compute_vectors(serve_call *call, const serve_texts_form *form, const serve_texts *texts,
                            float **vectors, size_t *width)
{
    serve_embedder *embedder = &call->loaded->embedder;
    bool ok = true;
    for (size_t done = 0; ok && done < texts->n; done += TURN) {
        size_t n = texts->n - done < TURN ? texts->n - done : TURN;
        weir_error error = {0};
        if (atomic_load_explicit(&call->gone, memory_order_acquire)) return serve_call_interrupted(call);
        pthread_mutex_lock(&embedder->mutex);
        ok = open_for_call(call);
        if (ok) {
            weir_status status =
                compute_turn(embedder->context, form, texts, done, n, vectors, width, &error);
            embedder->used_ns = weir__clock_now_ns();
            ok = serve_call_passes(call, status, &error);
        }
        pthread_mutex_unlock(&embedder->mutex);
    }
    return ok;
}

void serve_embedder_answer(serve_call *call, const serve_texts_form *form)
{
    float *vectors = NULL;
    size_t width = 0;
    serve_texts *texts;
    if ((texts = weir__mem_calloc(1, form->size)) == NULL) {
        serve_call_no_memory(call);
        return;
    }
    if (form->read(call, texts) && compute_vectors(call, form, texts, &vectors, &width))
        form->answer(call, texts, vectors, width);
    for (size_t i = 0; i < texts->n; i++) weir__mem_free((void *)texts->tokens[i].ids);
    weir__mem_free(vectors);
    serve_adapter_set_fini(&texts->adapters);
    json_decref(texts->json);
    weir__mem_free(texts);
}

/* openai_embeddings.c: POST /v1/embeddings. A context of its own, made when it is first asked for; requests
 * take turns with it, on the workers. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "field.h"

#define INPUTS_MAX 2048 /* as OpenAI's API */
#define CELLS_MAX  8192 /* the longest input, where the model was trained on more */
#define TURN       64   /* inputs that are embedded before another request gets its turn */

/* ---- Reading ---- */

/* What a request says; owned. */
typedef struct inputs {
    json_t *json;
    weir_tokens tokens[INPUTS_MAX]; /* [n] */
    size_t n, n_tokens;             /* of all of them */
    bool many;                      /* `input` is an array of them */
    bool base64;
    int64_t dimensions; /* 0 = as many as the model has */
    /* Borrowed, NULL = not given: */
    const json_t *input, *lora;
    const char *user, *adapter; /* no effect; the model that was asked for, where it is one */
    serve_adapter_set adapters;
} inputs;

/* What the request's i-th input is called in it: "input", or "input[3]". Fits into an error's field. */
static const char *name_input(const inputs *in, size_t i, char *name, size_t capacity)
{
    snprintf(name, capacity, in->many ? "input[%zu]" : "input", i);
    return name;
}

static bool add_input(serve_call *call, void *to, const char *name, const json_t *value)
{
    inputs *in = to;
    weir_error error = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    bool ok;
    if (json_is_string(value) && json_string_length(value) == 0)
        return serve_field_refuse(call, name, "a text or token ids, not empty");
    if (json_is_array(value)) {
        ok = serve_call_read_ids(call, name, value, &ids, &n);
    } else {
        weir_status status = serve_tokens_of(call->loaded->model, value, true, false, &ids, &n, &error);
        if (status != WEIR_NO_MEMORY) snprintf(error.field, sizeof error.field, "%s", name);
        ok = serve_call_passes(call, status, &error);
    }
    in->tokens[in->n++] = (weir_tokens){.ids = ids, .n = n};
    in->n_tokens += n;
    in->many = in->many || strchr(name, '[') != NULL;
    return ok;
}

static bool read_format(serve_call *call, void *to, const char *name, const json_t *value)
{
    inputs *in = to;
    const char *word = json_string_value(value);
    in->base64 = word != NULL && strcmp(word, "base64") == 0;
    return in->base64 || (word != NULL && strcmp(word, "float") == 0) ||
           serve_field_refuse(call, name, "\"float\" or \"base64\"");
}

static bool read_dimensions(serve_call *call, void *to, const char *name, const json_t *value)
{
    inputs *in = to;
    in->dimensions = json_integer_value(value);
    return (json_is_integer(value) && in->dimensions > 0) ||
           serve_field_refuse(call, name, "a whole number above 0: as many as the model has, or left out");
}

static bool read_model(serve_call *call, void *to, const char *name, const json_t *value)
{
    inputs *in = to;
    (void)name;
    return serve_call_read_model(call, value, &in->adapter);
}

static bool read(serve_call *call, inputs *in)
{
    static const serve_field fields[] = {
        SERVE_FIELD("input", 1, VALUE, inputs, input),    SERVE_FIELD_BY("model", 1, read_model),
        SERVE_FIELD("lora", 1, VALUE, inputs, lora),      SERVE_FIELD_BY("encoding_format", 1, read_format),
        SERVE_FIELD_BY("dimensions", 1, read_dimensions), SERVE_FIELD("user", 1, STRING, inputs, user),
    };
    return serve_call_read_json(call, &in->json) &&
           serve_fields_read(call, fields, sizeof fields / sizeof *fields, 1, in->json, in, NULL) &&
           serve_lora_choose(call, in->adapter, in->lora, &in->adapters) &&
           serve_field_texts(call, "input", in->input, INPUTS_MAX, add_input, in);
}

/* ---- Computing ---- */

/* With a pooled vector for each input, also where the model names no pooling. Under the mutex. */
static weir_status open_context(serve_call *call, weir_error *error)
{
    serve_embedder *embedder = &call->loaded->embedder;
    weir_context_params params = weir_context_params_default();
    weir_context_info info = {.size = sizeof info};
    weir_model_info model = {.size = sizeof model};
    if (embedder->context != NULL) return WEIR_OK;
    weir_model_describe(call->loaded->model, &model);
    params.embeddings = true;
    params.pooling = WEIR_POOLING_UNSPECIFIED;
    params.n_ctx = model.n_ctx_train > 0 && model.n_ctx_train < CELLS_MAX ? model.n_ctx_train : CELLS_MAX;
    params.n_batch = params.n_ubatch = params.n_ctx;
    params.n_seq_max = 16;
    weir_status status = weir_context_create(call->loaded->model, &params, &embedder->context, error);
    if (status != WEIR_OK || weir_context_describe(embedder->context, &info) != WEIR_OK ||
        info.pooling != WEIR_POOLING_NONE)
        return status;
    weir_context_destroy(embedder->context);
    embedder->context = NULL;
    params.pooling = WEIR_POOLING_MEAN;
    return weir_context_create(call->loaded->model, &params, &embedder->context, error);
}

/* All lengths are known before anything is computed. */
static weir_status check_lengths(const weir_context *context, const inputs *in, weir_error *error)
{
    weir_context_info info = {.size = sizeof info};
    char name[32];
    weir_context_describe(context, &info);
    int32_t most = info.n_batch < info.n_ctx_seq ? info.n_batch : info.n_ctx_seq;
    for (size_t i = 0; i < in->n; i++) {
        size_t n = in->tokens[i].n;
        if (n >= 1 && n <= (size_t)most) continue;
        return weir__error_set(error, n == 0 ? WEIR_INVALID : WEIR_TOO_LONG,
                               name_input(in, i, name, sizeof name),
                               "%s has %zu tokens; a text to embed may have 1 to %d", name, n, most);
    }
    return WEIR_OK;
}

/* *vectors is [in->n][*width]. */
static weir_status compute(serve_call *call, const inputs *in, float **vectors, size_t *width,
                           weir_error *error)
{
    serve_embedder *embedder = &call->loaded->embedder;
    weir_status status = WEIR_OK;
    for (size_t done = 0; status == WEIR_OK && done < in->n; done += TURN) {
        size_t n = in->n - done < TURN ? in->n - done : TURN, n_floats;
        if (atomic_load_explicit(&call->gone, memory_order_acquire)) return WEIR_ABORTED;
        pthread_mutex_lock(&embedder->mutex);
        status = open_context(call, error);
        if (status != WEIR_OK) error->field[0] = '\0'; /* of the context, not of the request */
        if (status == WEIR_OK && done == 0) status = check_lengths(embedder->context, in, error);
        if (status == WEIR_OK && *vectors == NULL) {
            *width = weir_embedding_width(embedder->context);
            *vectors = weir__mem_calloc(in->n * *width, sizeof **vectors);
            if (*vectors == NULL) status = WEIR_NO_MEMORY;
        }
        if (status == WEIR_OK)
            status = weir_context_set_adapters(embedder->context, in->adapters.uses, in->adapters.n, error);
        if (status == WEIR_OK)
            status = weir_embed(embedder->context, in->tokens + done, n, WEIR_NORMALIZE_L2,
                                *vectors + done * *width, n * *width, &n_floats, error);
        pthread_mutex_unlock(&embedder->mutex);
    }
    return status;
}

/* ---- Writing ---- */

/* 32-bit little-endian floats, as OpenAI's clients ask for them. */
static void add_base64(weir__text *text, const float *vector, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = n * 4;
    weir__text_add_string(text, "\"");
    for (size_t i = 0; i < n_bytes; i += 3) {
        uint32_t three = 0;
        char four[4];
        for (size_t k = 0; k < 3; k++) {
            uint32_t bits = 0;
            if (i + k < n_bytes) memcpy(&bits, &vector[(i + k) / 4], sizeof bits);
            three = three << 8 | (bits >> (i + k) % 4 * 8 & 0xFF);
        }
        for (int k = 0; k < 4; k++)
            four[k] = i + (size_t)k > n_bytes ? '=' : digits[three >> (18 - 6 * k) & 63];
        weir__text_add(text, four, 4);
    }
    weir__text_add_string(text, "\"");
}

static void add_floats(weir__text *text, const float *vector, size_t n)
{
    weir__text_add_string(text, "[");
    for (size_t i = 0; i < n; i++) weir__text_printf(text, i > 0 ? ",%.9g" : "%.9g", (double)vector[i]);
    weir__text_add_string(text, "]");
}

static void answer(serve_call *call, const inputs *in, const float *vectors, size_t width)
{
    weir__text text = {.quota = &call->server->answers};
    weir__text_add_string(&text, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < in->n && !text.failed; i++) {
        weir__text_printf(&text, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i > 0 ? "," : "",
                          i);
        if (in->base64)
            add_base64(&text, vectors + i * width, width);
        else
            add_floats(&text, vectors + i * width, width);
        weir__text_add_string(&text, "}");
    }
    weir__text_add_string(&text, "]");
    weir__json_string(&text, "model", in->adapter != NULL ? in->adapter : call->model->name);
    weir__text_printf(&text, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}\n", in->n_tokens,
                      in->n_tokens);
    serve_call_answer_text(call, 200, "application/json", &text);
}

void serve_embeddings(serve_call *call)
{
    inputs *in;
    float *vectors = NULL;
    size_t width = 0;
    weir_error error = {0};
    if (!call->model->params->embeddings) {
        serve_call_refuse(call, 501, NULL, "not_supported",
                          "this server computes no embeddings: start it with --embeddings");
        return;
    }
    if ((in = weir__mem_calloc(1, sizeof *in)) == NULL) {
        serve_call_no_memory(call);
        return;
    }
    if (read(call, in) && serve_call_passes(call, compute(call, in, &vectors, &width, &error), &error)) {
        if (in->dimensions != 0 && (size_t)in->dimensions != width)
            serve_call_refuse(call, 400, "dimensions", "unsupported_value",
                              "dimensions must be %zu with this model", width);
        else
            answer(call, in, vectors, width);
    }
    for (size_t i = 0; i < in->n; i++) weir__mem_free((void *)in->tokens[i].ids);
    weir__mem_free(vectors);
    serve_adapter_set_fini(&in->adapters);
    json_decref(in->json);
    weir__mem_free(in);
}

/* openai_embeddings.c: POST /v1/embeddings. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "embedder.h"
#include "field.h"
#include "model.h"

#define INPUTS_MAX 2048 /* as OpenAI's API */

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

/* "input", or "input[3]". */
static const char *name_input(const serve_texts *texts, size_t i, char *name, size_t capacity)
{
    snprintf(name, capacity, texts->many ? "input[%zu]" : "input", i);
    return name;
}

static bool add_input(serve_call *call, void *to, const char *name, const json_t *value)
{
    inputs *in = to;
    weir_tokens *one = &in->tokens[in->n++];
    bool ok = serve_embedder_read(call, name, value, one);
    in->n_tokens += one->n;
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

static bool read(serve_call *call, inputs *in)
{
    static const serve_field fields[] = {
        SERVE_FIELD("input", 1, VALUE, inputs, input),    SERVE_FIELD("model", 1, MODEL, inputs, adapter),
        SERVE_FIELD("lora", 1, VALUE, inputs, lora),      SERVE_FIELD_BY("encoding_format", 1, read_format),
        SERVE_FIELD_BY("dimensions", 1, read_dimensions), SERVE_FIELD("user", 1, STRING, inputs, user),
    };
    return serve_call_read_json(call, &in->json) &&
           serve_fields_read(call, fields, sizeof fields / sizeof *fields, 1, in->json, in, NULL) &&
           serve_lora_choose(call, in->adapter, in->lora, &in->adapters) &&
           serve_field_texts(call, "input", in->input, INPUTS_MAX, add_input, in);
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
    if (!serve_embedder_allowed(call)) return;
    if ((in = weir__mem_calloc(1, sizeof *in)) == NULL) {
        serve_call_no_memory(call);
        return;
    }
    bool ok = read(call, in);
    const serve_texts texts = {in->tokens, in->n, name_input, in->many, &in->adapters};
    if (ok &&
        serve_call_passes(call, serve_embedder_compute(call, &texts, &vectors, &width, &error), &error)) {
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

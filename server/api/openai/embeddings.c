/* embeddings.c: POST /v1/embeddings. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "openai.h"
#include "server/api/common/embedder.h"
#include "server/api/common/field.h"
#include "server/api/common/lease.h"
#include "server/models/model.h"
#include "server/request/body.h"
#include "server/request/call.h"

/* ---- Reading ---- */

/* A request's fields. */
typedef struct inputs {
    serve_texts texts; /* first */
    bool base64;
    int32_t dimensions; /* 0 = as many as the model has */
    /* Borrowed, NULL = not given: */
    const json_t *input, *lora;
    const char *user; /* no effect */
} inputs;

static bool add_input(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_texts *texts = to;
    weir_tokens *one = &texts->tokens[texts->n++];
    bool ok = serve_embedder_read(call, name, value, one);
    texts->n_tokens += one->n;
    texts->many = texts->many || strchr(name, '[') != NULL;
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

static const serve_field fields[] = {
    SERVE_FIELD("input", 1, VALUE, inputs, input),
    SERVE_FIELD("model", 1, MODEL, inputs, texts.adapter),
    SERVE_FIELD("lora", 1, VALUE, inputs, lora),
    SERVE_FIELD_BY("encoding_format", 1, read_format),
    SERVE_FIELD_COUNTED("dimensions", inputs, dimensions,
                        "a whole number above 0: as many as the model has, or left out"),
    SERVE_FIELD("user", 1, STRING, inputs, user),
};

const serve_field_table serve_embeddings_table = SERVE_FIELD_TABLE(fields);

static bool read_inputs(serve_call *call, serve_texts *texts)
{
    inputs *in = (inputs *)texts;
    return serve_call_read_json(call, &texts->json) &&
           serve_fields_read(call, &serve_embeddings_table, 1, texts->json, in) &&
           serve_lora_choose(call, texts->adapter, in->lora, &texts->adapters) &&
           serve_field_texts(call, "input", in->input, SERVE_TEXTS_MAX, add_input, texts);
}

static weir_status check_dimensions(const serve_texts *texts, size_t width, weir_error *error)
{
    const inputs *in = (const inputs *)texts;
    if (in->dimensions == 0 || in->dimensions == (int64_t)width) return WEIR_OK;
    return weir__error_set(error, WEIR_UNSUPPORTED, "dimensions", "dimensions must be %zu with this model",
                           width);
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

static void answer_vectors(serve_call *call, const serve_texts *texts, const float *vectors, size_t width)
{
    const inputs *in = (const inputs *)texts;
    weir__text text = {.quota = &call->answers};
    weir__text_add_string(&text, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < texts->n && !text.failed; i++) {
        weir__text_printf(&text, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i > 0 ? "," : "",
                          i);
        if (in->base64)
            add_base64(&text, vectors + i * width, width);
        else
            serve_embedder_add_vector(&text, vectors + i * width, width, 1);
        weir__text_add_string(&text, "}");
    }
    weir__text_add_string(&text, "]");
    weir__json_string(&text, "model", texts->adapter != NULL ? texts->adapter : call->model->name);
    weir__text_printf(&text, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", texts->n_tokens,
                      texts->n_tokens);
    serve_call_answer_json(call, &text);
}

void serve_embeddings(serve_call *call)
{
    static const serve_texts_form form = {sizeof(inputs), "input", read_inputs, answer_vectors,
                                          check_dimensions};
    serve_embedder_answer(call, &form);
}

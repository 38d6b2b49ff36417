/* ollama_embed.c: POST /api/embed and /api/embeddings, as Ollama has them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "embedder.h"
#include "field.h"
#include "loaded.h"
#include "model.h"
#include "ollama.h"

#define INPUTS_MAX 2048
#define EMBED      1u
#define EMBEDDINGS 2u /* the older one: one text, one vector */

/* What a request says; owned. */
typedef struct inputs {
    unsigned where;
    json_t *json;
    weir_tokens tokens[INPUTS_MAX]; /* [n] */
    size_t n, n_tokens;             /* of all of them */
    bool truncate;
    int32_t dimensions; /* 0 = as many as the model has */
    /* Borrowed, NULL = not given: */
    const json_t *input, *keep_alive;
    const char *adapter;
    serve_adapter_set adapters;
} inputs;

static const char *name_input(const serve_texts *texts, size_t i, char *name, size_t capacity)
{
    snprintf(name, capacity, texts->many ? "input[%zu]" : "prompt", i);
    return name;
}

/* The server's own options decide how the model is set up. */
static bool read_options(serve_call *call, void *to, const char *name, const json_t *value)
{
    (void)to;
    return json_is_object(value) || serve_field_refuse(call, name, "an object");
}

static bool read_dimensions(serve_call *call, void *to, const char *name, const json_t *value)
{
    inputs *in = to;
    json_int_t n = json_integer_value(value);
    in->dimensions = n < INT32_MAX ? (int32_t)n : INT32_MAX;
    return (json_is_integer(value) && n > 0) || serve_field_refuse(call, name, "a whole number above 0");
}

static bool add_input(serve_call *call, void *to, const char *name, const json_t *value)
{
    inputs *in = to;
    if (!json_is_string(value)) return serve_field_refuse(call, name, "a text");
    return serve_embedder_read(call, name, value, &in->tokens[in->n++]);
}

static bool read(serve_call *call, inputs *in)
{
    static const serve_field fields[] = {
        SERVE_FIELD("model", EMBED | EMBEDDINGS, MODEL, inputs, adapter),
        SERVE_FIELD("input", EMBED, VALUE, inputs, input),
        SERVE_FIELD("prompt", EMBEDDINGS, VALUE, inputs, input),
        SERVE_FIELD("truncate", EMBED, BOOL, inputs, truncate),
        SERVE_FIELD_BY("dimensions", EMBED, read_dimensions),
        SERVE_FIELD_BY("options", EMBED | EMBEDDINGS, read_options),
        SERVE_FIELD("keep_alive", EMBED | EMBEDDINGS, VALUE, inputs, keep_alive),
    };
    const char *name = in->where == EMBED ? "input" : "prompt";
    bool unmet = false;
    in->truncate = true;
    if (!serve_call_read_json(call, &in->json) ||
        !serve_fields_read(call, fields, sizeof fields / sizeof *fields, in->where, in->json, in, NULL) ||
        !serve_ollama_keep_alive(call, in->keep_alive, &unmet) ||
        !serve_lora_choose(call, in->adapter, NULL, &in->adapters))
        return false;
    if (unmet) serve_call_relaxed(call, "keep_alive");
    if (in->where == EMBEDDINGS || json_is_string(in->input)) return add_input(call, in, name, in->input);
    return serve_field_texts(call, name, in->input, INPUTS_MAX, add_input, in);
}

/* A text that is too long loses its end, but not the token that the vocabulary puts there. */
static bool truncate(serve_call *call, inputs *in)
{
    weir_context_info context = {.size = sizeof context};
    weir_model_info info = {.size = sizeof info};
    weir_error error = {0};
    if (!serve_call_passes(call, serve_embedder_describe(call, &context, &error), &error)) return false;
    weir_model_describe(call->loaded->model, &info);
    size_t most = serve_embedder_longest(&context);
    for (size_t i = 0; i < in->n; i++) {
        weir_tokens *one = &in->tokens[i];
        if (in->truncate && one->n > most && most > 0) {
            int32_t *ids = (int32_t *)one->ids, last = ids[one->n - 1];
            if (last >= 0 && (last == info.token_eos || last == info.token_sep)) ids[most - 1] = last;
            one->n = most;
        }
        in->n_tokens += one->n;
    }
    return true;
}

/* The first n of a vector, of length 1 again. */
static void add_vector(const float *vector, size_t n, bool cut, weir__text *text)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)vector[i] * (double)vector[i];
    double scale = cut && sum > 0 ? 1 / sqrt(sum) : 1;
    weir__text_add_string(text, "[");
    for (size_t i = 0; i < n; i++)
        weir__text_printf(text, i > 0 ? ",%.9g" : "%.9g", (double)vector[i] * scale);
    weir__text_add_string(text, "]");
}

static void answer(serve_call *call, const inputs *in, const float *vectors, size_t width)
{
    weir__text text = {.quota = &call->server->answers};
    size_t n = in->dimensions > 0 && (size_t)in->dimensions < width ? (size_t)in->dimensions : width;
    weir__text_add_string(&text, "{");
    if (in->where == EMBEDDINGS) {
        weir__json_key(&text, "embedding");
        add_vector(vectors, width, false, &text);
    } else {
        weir__json_string(&text, "model", in->adapter != NULL ? in->adapter : call->model->name);
        weir__text_add_string(&text, ",\"embeddings\":[");
        for (size_t i = 0; i < in->n && !text.failed; i++) {
            if (i > 0) weir__text_add_string(&text, ",");
            add_vector(vectors + i * width, n, n < width, &text);
        }
        weir__text_printf(&text, "],\"total_duration\":%lld,\"load_duration\":%lld,\"prompt_eval_count\":%zu",
                          (long long)(weir__clock_now_ns() - call->began_ns), (long long)call->load_ns,
                          in->n_tokens);
    }
    weir__text_add_string(&text, "}\n");
    serve_call_answer_text(call, 200, "application/json", &text);
}

static void embed(serve_call *call, unsigned where)
{
    float *vectors = NULL;
    size_t width = 0;
    weir_error error = {0};
    inputs *in;
    if (!serve_embedder_allowed(call)) return;
    if ((in = weir__mem_calloc(1, sizeof *in)) == NULL) {
        serve_call_no_memory(call);
        return;
    }
    in->where = where;
    if (read(call, in) && truncate(call, in)) {
        const serve_texts texts = {in->tokens, in->n, name_input, where == EMBED, &in->adapters};
        if (serve_call_passes(call, serve_embedder_compute(call, &texts, &vectors, &width, &error), &error))
            answer(call, in, vectors, width);
    }
    for (size_t i = 0; i < in->n; i++) weir__mem_free((void *)in->tokens[i].ids);
    weir__mem_free(vectors);
    serve_adapter_set_fini(&in->adapters);
    json_decref(in->json);
    weir__mem_free(in);
}

void serve_ollama_embed(serve_call *call)
{
    embed(call, EMBED);
}

void serve_ollama_embeddings(serve_call *call)
{
    embed(call, EMBEDDINGS);
}

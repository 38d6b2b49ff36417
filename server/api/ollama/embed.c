/* embed.c: POST /api/embed and /api/embeddings, as Ollama has them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ollama.h"
#include "server/api/common/ask.h"
#include "server/api/common/embedder.h"
#include "server/api/common/field.h"
#include "server/api/common/hint.h"
#include "server/api/common/lease.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/request/body.h"
#include "server/request/call.h"

#define EMBED      1u
#define EMBEDDINGS 2u /* the older one: one text, one vector */

/* A request's fields. */
typedef struct inputs {
    serve_texts texts; /* first */
    bool truncate;
    int32_t dimensions;               /* 0 = as many as the model has */
    const json_t *input, *keep_alive; /* borrowed, NULL = not given */
} inputs;

/* Options are about generated text, or about how a model is loaded, which the server's own options decide. */
static bool read_options(serve_call *call, void *to, const char *name, const json_t *value)
{
    (void)to;
    const char *key;
    json_t *option;
    if (!json_is_object(value)) return serve_field_refuse(call, name, "an object");
    json_object_foreach((json_t *)value, key, option)
    {
        char field[80];
        if (!serve_call_goes_on(call)) return false;
        snprintf(field, sizeof field, "%s.%.64s", name, key);
        bool ok = !serve_ask_has_option(field)
                      ? serve_fields_judge(call, &serve_ask_option_table, SERVE_ASK_OPTIONS, key, option)
                      : json_is_null(option) || serve_hint_name(call, field);
        if (!ok) return false;
    }
    return true;
}

static bool add_input(serve_call *call, void *to, const char *name, const json_t *value)
{
    inputs *in = to;
    if (!json_is_string(value)) return serve_field_refuse(call, name, "a text");
    json_t *text = in->truncate ? serve_embedder_cut(call, value) : json_incref((json_t *)value);
    bool ok = text != NULL ? serve_embedder_read(call, name, text, &in->texts.tokens[in->texts.n++])
                           : serve_call_no_memory(call);
    json_decref(text);
    return ok;
}

static const serve_field fields[] = {
    SERVE_FIELD("model", EMBED | EMBEDDINGS, MODEL, inputs, texts.adapter),
    SERVE_FIELD("input", EMBED, VALUE, inputs, input),
    SERVE_FIELD("prompt", EMBEDDINGS, VALUE, inputs, input),
    SERVE_FIELD("truncate", EMBED, BOOL, inputs, truncate),
    SERVE_FIELD("dimensions", EMBED, COUNT, inputs, dimensions),
    SERVE_FIELD_BY("options", EMBED | EMBEDDINGS, read_options),
    SERVE_FIELD("keep_alive", EMBED | EMBEDDINGS, VALUE, inputs, keep_alive),
};

const serve_field_table serve_ollama_embed_table = SERVE_FIELD_TABLE(fields);

static bool read_inputs(serve_call *call, inputs *in, unsigned where)
{
    const char *name = where == EMBED ? "input" : "prompt";
    bool unmet = false;
    in->truncate = true;
    bool ok = serve_call_read_json(call, &in->texts.json) &&
              serve_fields_read(call, &serve_ollama_embed_table, where, in->texts.json, in) &&
              serve_ollama_keep_alive(call, in->keep_alive, &unmet) &&
              serve_lora_choose(call, in->texts.adapter, NULL, &in->texts.adapters);
    if (!ok || (unmet && !serve_hint_name(call, "keep_alive"))) return false;
    if (where == EMBEDDINGS || json_is_string(in->input)) return add_input(call, in, name, in->input);
    return serve_field_texts(call, name, in->input, SERVE_TEXTS_MAX, add_input, in);
}

/* A text that is too long loses its end, but not the token that the vocabulary puts there. */
static bool truncate_inputs(serve_call *call, inputs *in)
{
    weir_context_info context = {.size = sizeof context};
    weir_model_info info = {.size = sizeof info};
    if (!serve_embedder_describe(call, &context)) return false;
    weir_model_describe(call->loaded->model, &info);
    size_t most = serve_embedder_longest(&context);
    for (size_t i = 0; i < in->texts.n; i++) {
        weir_tokens *one = &in->texts.tokens[i];
        if (in->truncate && one->n > most && most > 0) {
            int32_t *ids = (int32_t *)one->ids, last = ids[one->n - 1];
            if (last >= 0 && (last == info.token_eos || last == info.token_sep)) ids[most - 1] = last;
            one->n = most;
        }
        in->texts.n_tokens += one->n;
    }
    return true;
}

/* The factor that makes the first n of a vector a vector of length 1. */
static double scale_of(const float *vector, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)vector[i] * (double)vector[i];
    return sum > 0 ? 1 / sqrt(sum) : 1;
}

static void answer_embed(serve_call *call, const serve_texts *texts, const float *vectors, size_t width)
{
    const inputs *in = (const inputs *)texts;
    weir__text text = {.quota = &call->answers};
    size_t n = in->dimensions > 0 && (size_t)in->dimensions < width ? (size_t)in->dimensions : width;
    weir__text_add_string(&text, "{");
    weir__json_string(&text, "model", texts->adapter != NULL ? texts->adapter : call->model->name);
    weir__text_add_string(&text, ",\"embeddings\":[");
    for (size_t i = 0; i < texts->n && !text.failed; i++) {
        if (i > 0) weir__text_add_string(&text, ",");
        const float *vector = vectors + i * width;
        serve_embedder_add_vector(&text, vector, n, n < width ? scale_of(vector, n) : 1);
    }
    weir__text_printf(&text, "],\"total_duration\":%lld,\"load_duration\":%lld,\"prompt_eval_count\":%zu}",
                      (long long)(weir__clock_now_ns() - call->began_ns), (long long)call->load_ns,
                      texts->n_tokens);
    serve_call_answer_json(call, &text);
}

static void answer_embedding(serve_call *call, const serve_texts *texts, const float *vector, size_t width)
{
    weir__text text = {.quota = &call->answers};
    (void)texts;
    weir__text_add_string(&text, "{\"embedding\":");
    serve_embedder_add_vector(&text, vector, width, 1);
    weir__text_add_string(&text, "}");
    serve_call_answer_json(call, &text);
}

static bool read_embed(serve_call *call, serve_texts *texts)
{
    inputs *in = (inputs *)texts;
    texts->many = true;
    return read_inputs(call, in, EMBED) && truncate_inputs(call, in);
}

static bool read_embedding(serve_call *call, serve_texts *texts)
{
    inputs *in = (inputs *)texts;
    return read_inputs(call, in, EMBEDDINGS) && truncate_inputs(call, in);
}

void serve_ollama_embed(serve_call *call)
{
    static const serve_texts_form form = {sizeof(inputs), "input", read_embed, answer_embed, NULL};
    serve_embedder_answer(call, &form);
}

void serve_ollama_embeddings(serve_call *call)
{
    static const serve_texts_form form = {sizeof(inputs), "prompt", read_embedding, answer_embedding, NULL};
    serve_embedder_answer(call, &form);
}

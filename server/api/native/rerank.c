/* rerank.c: POST /v1/rerank: how well documents answer a query, as Jina's, Cohere's and llama-server's APIs
 * have it. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "native.h"
#include "server/api/common/embedder.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/api/common/lease.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/request/body.h"
#include "server/request/call.h"

#define TEMPLATE_MAX 65536 /* bytes of the model's own prompt */

/* ---- Reading ---- */

/* A request's fields. */
typedef struct asked {
    serve_texts pairs; /* first; the query with each document */
    int32_t top_n;
    bool return_documents;
    /* Borrowed, NULL = not given: */
    const json_t *query, *documents, *lora;
    const char *user; /* no effect */
} asked;

/* A document is a text, or an object with one. */
static const json_t *document_of(const asked *a, size_t i)
{
    const json_t *document = json_array_get(a->documents, i);
    return json_is_object(document) ? json_object_get(document, "text") : document;
}

static const serve_field fields[] = {
    SERVE_FIELD("model", 1, MODEL, asked, pairs.adapter),
    SERVE_FIELD("query", 1, VALUE, asked, query),
    SERVE_FIELD("documents", 1, VALUE, asked, documents),
    SERVE_FIELD_COUNTED("top_n", asked, top_n,
                        "a whole number above 0: the documents to return, the best first"),
    SERVE_FIELD("return_documents", 1, BOOL, asked, return_documents),
    SERVE_FIELD("lora", 1, VALUE, asked, lora),
    SERVE_FIELD("user", 1, STRING, asked, user),
};

const serve_field_table serve_rerank_table = SERVE_FIELD_TABLE(fields);

static bool read_asked(serve_call *call, asked *a)
{
    a->top_n = SERVE_TEXTS_MAX;
    a->pairs.many = true;
    if (!serve_call_read_json(call, &a->pairs.json) ||
        !serve_fields_read(call, &serve_rerank_table, 1, a->pairs.json, a))
        return false;
    size_t n = json_array_size(a->documents);
    if (json_string_length(a->query) == 0)
        return serve_field_refuse(call, "query", "a text that is not empty");
    if (n == 0 || n > SERVE_TEXTS_MAX)
        return serve_field_refuse(call, "documents", "an array of 1 to 2048 texts");
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(document_of(a, i)))
            return serve_field_refuse(call, serve_place_at("documents", i).text,
                                      "a text, or an object with a \"text\"");
    return serve_lora_choose(call, a->pairs.adapter, a->lora, &a->pairs.adapters);
}

/* ---- Pairs ---- */

/* The shape that the model wants a query and a document in. */
typedef struct shape {
    weir_model_info info;
    char *prompt; /* its own prompt for this, owned; NULL: it has none */
    int32_t *query;
    size_t n_query;
    size_t most; /* tokens of a pair */
} shape;

static bool learn_shape(serve_call *call, const asked *a, const weir_context_info *context, shape *s)
{
    static const char key[] = "tokenizer.chat_template.rerank";
    size_t n = 0;
    s->info = (weir_model_info){.size = sizeof s->info};
    weir_model_describe(call->loaded->model, &s->info);
    s->most = serve_embedder_longest(context);
    if (weir_model_meta(call->loaded->model, key, NULL, 0, &n) == WEIR_OK && n > 0 && n < TEMPLATE_MAX) {
        s->prompt = weir__mem_calloc(n + 1, 1);
        if (s->prompt == NULL) return serve_call_no_memory(call);
        (void)weir_model_meta(call->loaded->model, key, s->prompt, n + 1, &n);
    }
    /* The query is repeated with each document, so its length is checked first. */
    if (!serve_embedder_tokens(call, "query", a->query, false, false, &s->query, &s->n_query)) return false;
    return s->n_query < s->most ||
           serve_call_too_long(call, "query", "query has %zu tokens; with a document it may have up to %zu",
                               s->n_query, s->most);
}

/* The prompt with both texts in their places. */
static json_t *fill_prompt(const char *prompt, const json_t *query, const json_t *document)
{
    static const char *const names[] = {"{query}", "{document}"};
    const json_t *const values[] = {query, document};
    weir__text text = {0};
    while (*prompt != '\0') {
        size_t i = strncmp(prompt, names[0], strlen(names[0])) == 0   ? 0
                   : strncmp(prompt, names[1], strlen(names[1])) == 0 ? 1
                                                                      : 2;
        if (i < 2) {
            weir__text_add(&text, json_string_value(values[i]), json_string_length(values[i]));
            prompt += strlen(names[i]);
        } else {
            weir__text_add(&text, prompt++, 1);
        }
    }
    json_t *filled = text.failed ? NULL : json_stringn(text.bytes, text.n);
    weir__text_fini(&text);
    return filled;
}

static void put_token(int32_t *ids, size_t *n, int32_t token)
{
    if (token >= 0) ids[(*n)++] = token;
}

/* [BOS] query [EOS] [SEP] document [EOS], as in llama-server, of which the vocabulary adds some. */
static bool join_texts(serve_call *call, const shape *s, const char *field, const json_t *document,
                       weir_tokens *pair)
{
    const weir_model_info *info = &s->info;
    int32_t end = info->token_eos >= 0 ? info->token_eos : info->token_sep;
    int32_t *ids = NULL, *all;
    size_t n_ids = 0, n = 0;
    bool ok = serve_embedder_tokens(call, field, document, false, false, &ids, &n_ids);
    if (ok && (all = weir__mem_calloc(s->n_query + n_ids + 4, sizeof *all)) != NULL) {
        if (info->add_bos) put_token(all, &n, info->token_bos);
        memcpy(all + n, s->query, s->n_query * sizeof *all);
        n += s->n_query;
        if (info->add_eos) put_token(all, &n, end);
        if (info->add_sep) put_token(all, &n, info->token_sep);
        if (n_ids > 0) memcpy(all + n, ids, n_ids * sizeof *all);
        n += n_ids;
        if (info->add_eos) put_token(all, &n, end);
        *pair = (weir_tokens){.ids = all, .n = n};
    } else if (ok) {
        ok = serve_call_no_memory(call);
    }
    weir__mem_free(ids);
    return ok;
}

static bool add_pair(serve_call *call, asked *a, const shape *s, size_t i)
{
    serve_place place = serve_place_at("documents", i);
    const char *field = place.text;
    weir_tokens *pair = &a->pairs.tokens[a->pairs.n++];
    if (s->prompt == NULL) {
        if (!join_texts(call, s, field, document_of(a, i), pair)) return false;
    } else {
        json_t *filled = fill_prompt(s->prompt, a->query, document_of(a, i));
        int32_t *ids = NULL;
        bool ok = filled != NULL ? serve_embedder_tokens(call, field, filled, false, true, &ids, &pair->n)
                                 : serve_call_no_memory(call);
        pair->ids = ids;
        json_decref(filled);
        if (!ok) return false;
    }
    a->pairs.n_tokens += pair->n;
    return pair->n <= s->most ||
           serve_call_too_long(call, field, "%s has %zu tokens with the query; allowed: up to %zu", field,
                               pair->n, s->most);
}

static bool make_pairs(serve_call *call, asked *a)
{
    weir_context_info context = {.size = sizeof context};
    shape s = {0};
    if (!serve_embedder_describe(call, &context)) return false;
    if (context.pooling != WEIR_POOLING_RANK)
        return serve_call_refuse(call, 400, "model", "unsupported_value",
                                 "this model ranks no documents: that takes a reranking model, such as "
                                 "bge-reranker or Qwen3-Reranker");
    bool ok = learn_shape(call, a, &context, &s);
    for (size_t i = 0; i < json_array_size(a->documents) && ok; i++) ok = add_pair(call, a, &s, i);
    weir__mem_free(s.query);
    weir__mem_free(s.prompt);
    return ok;
}

/* ---- Writing ---- */

typedef struct rank {
    float score;
    size_t index;
} rank;

/* The best first; of equals, the one that came first. */
static int compare_ranks(const void *left, const void *right)
{
    const rank *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void answer_ranks(serve_call *call, const asked *a, const rank *ranks)
{
    weir__text text = {.quota = &call->answers};
    size_t n = a->pairs.n < (size_t)a->top_n ? a->pairs.n : (size_t)a->top_n;
    weir__text_add_string(&text, "{\"object\":\"list\"");
    weir__json_string(&text, "model", a->pairs.adapter != NULL ? a->pairs.adapter : call->model->name);
    weir__text_printf(&text, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu},\"results\":[",
                      a->pairs.n_tokens, a->pairs.n_tokens);
    for (size_t i = 0; i < n && !text.failed; i++) {
        const json_t *document = document_of(a, ranks[i].index);
        weir__text_printf(&text, "%s{\"index\":%zu,\"relevance_score\":%.9g", i > 0 ? "," : "",
                          ranks[i].index, (double)ranks[i].score);
        if (a->return_documents) {
            weir__text_add_string(&text, ",\"document\":{");
            weir__json_bytes(&text, "text", json_string_value(document), json_string_length(document));
            weir__text_add_string(&text, "}");
        }
        weir__text_add_string(&text, "}");
    }
    weir__text_add_string(&text, "]}");
    serve_call_answer_json(call, &text);
}

/* A model with several labels has the score first. */
static void answer_in_order(serve_call *call, const serve_texts *pairs, const float *scores, size_t width)
{
    rank *ranks = weir__mem_calloc(pairs->n, sizeof *ranks);
    if (ranks == NULL) {
        serve_call_no_memory(call);
        return;
    }
    for (size_t i = 0; i < pairs->n; i++) ranks[i] = (rank){.score = scores[i * width], .index = i};
    qsort(ranks, pairs->n, sizeof *ranks, compare_ranks);
    answer_ranks(call, (const asked *)pairs, ranks);
    weir__mem_free(ranks);
}

static bool read_pairs(serve_call *call, serve_texts *pairs)
{
    asked *a = (asked *)pairs;
    return read_asked(call, a) && make_pairs(call, a);
}

void serve_rerank(serve_call *call)
{
    static const serve_texts_form form = {sizeof(asked), "documents", read_pairs, answer_in_order, NULL};
    serve_embedder_answer(call, &form);
}

/* tokenize.c: POST /tokenize, /detokenize and /apply-template, as llama-server has them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "native.h"
#include "server/api/common/ask.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/models/loaded.h"
#include "server/models/tokens.h"
#include "server/request/body.h"
#include "server/request/call.h"

#define PIECE_MAX 512 /* bytes of a token's text */

/* The fields of the first two. */
typedef struct words {
    const json_t *content, *tokens;
    bool special, parse, pieces;
    const char *adapter; /* has the model's vocabulary */
} words;

#define TOKENIZE   1u
#define DETOKENIZE 2u

static const serve_field fields[] = {
    SERVE_FIELD("content", TOKENIZE, VALUE, words, content),
    SERVE_FIELD("add_special", TOKENIZE, BOOL, words, special),
    SERVE_FIELD("parse_special", TOKENIZE, BOOL, words, parse),
    SERVE_FIELD("with_pieces", TOKENIZE, BOOL, words, pieces),
    SERVE_FIELD("tokens", DETOKENIZE, VALUE, words, tokens),
    SERVE_FIELD("model", TOKENIZE | DETOKENIZE, MODEL, words, adapter),
};

const serve_field_table serve_tokenize_table = SERVE_FIELD_TABLE(fields);

static bool read_words(serve_call *call, unsigned where, json_t **json, words *w)
{
    *w = (words){.parse = true};
    return serve_call_read_json(call, json) &&
           serve_fields_read(call, &serve_tokenize_table, where, *json, w);
}

static void add_piece(const serve_call *call, int32_t token, weir__text *text)
{
    char bytes[PIECE_MAX];
    size_t n = 0;
    weir__text_printf(text, "{\"id\":%d,\"piece\":", token);
    if (weir_piece(call->loaded->model, token, true, bytes, sizeof bytes, &n, NULL) != WEIR_OK) n = 0;
    if (weir__utf8_valid(bytes, n)) {
        weir__json_quote(text, bytes, n);
    } else { /* a part of a code point */
        for (size_t i = 0; i < n; i++)
            weir__text_printf(text, "%c%u", i == 0 ? '[' : ',', (unsigned char)bytes[i]);
        weir__text_add_string(text, "]");
    }
    weir__text_add_string(text, "}");
}

static void add_tokens(const serve_call *call, const int32_t *tokens, size_t n, bool pieces, weir__text *text)
{
    weir__json_key(text, "tokens");
    weir__text_add_string(text, "[");
    for (size_t i = 0; i < n && !text->failed; i++) {
        weir__json_next(text);
        if (pieces)
            add_piece(call, tokens[i], text);
        else
            weir__text_printf(text, "%d", tokens[i]);
    }
    weir__text_add_string(text, "]");
}

void serve_tokenize(serve_call *call)
{
    words w;
    weir_error error = {0};
    weir__text text = {.quota = &call->answers};
    int32_t *tokens = NULL;
    json_t *json = NULL;
    size_t n = 0;
    if (!read_words(call, TOKENIZE, &json, &w)) goto out;
    if (!json_is_string(w.content)) {
        serve_field_refuse(call, "content", "a string");
        goto out;
    }
    weir_status status = serve_tokens_of(call->loaded, w.content, w.special, w.parse, &tokens, &n, &error);
    if (status == WEIR_TOO_LONG) snprintf(error.field, sizeof error.field, "content");
    if (!serve_call_passes(call, status, &error)) goto out;
    weir__text_add_string(&text, "{");
    add_tokens(call, tokens, n, w.pieces, &text);
    weir__text_add_string(&text, "}");
    serve_call_answer_json(call, &text);
out:
    weir__mem_free(tokens);
    json_decref(json);
}

void serve_detokenize(serve_call *call)
{
    words w;
    weir_error error = {0};
    weir__text text = {.quota = &call->answers};
    int32_t *tokens = NULL;
    char *content = NULL;
    size_t n = 0, length = 0, capacity = 0;
    json_t *json = NULL;
    if (!read_words(call, DETOKENIZE, &json, &w)) goto out;
    if (!json_is_array(w.tokens)) {
        serve_field_refuse(call, "tokens", "an array of token ids");
        goto out;
    }
    if (!serve_call_read_ids(call, "tokens", w.tokens, &tokens, &n)) goto out;
    weir_status status = WEIR_TOO_LONG;
    for (size_t need = n * 8 + 16; status == WEIR_TOO_LONG && need > capacity; need = length + 1)
        status =
            weir__mem_grow(&content, &capacity, need, 1)
                ? weir_detokenize(call->loaded->model, tokens, n, true, content, capacity, &length, &error)
                : WEIR_NO_MEMORY;
    if (!serve_call_passes(call, status, &error)) goto out;
    weir__text_add_string(&text, "{");
    weir__json_bytes(&text, "content", content, length);
    weir__text_add_string(&text, "}");
    serve_call_answer_json(call, &text);
out:
    weir__mem_free(content);
    weir__mem_free(tokens);
    json_decref(json);
}

/* The ids are those that a request for chat would have. */
static void tell_chat(const serve_ask *ask)
{
    serve_call *call = ask->call;
    weir_chat *chat = ask->rendered;
    weir_error error = {0};
    weir__text text = {.quota = &call->answers};
    int32_t *tokens = NULL;
    size_t length, n = 0;
    const char *prompt = weir_chat_prompt(chat, &length);
    const weir_request request = {.chat = chat};
    weir_status status = WEIR_OK;
    if (ask->returns_ids) status = serve_tokens_of_prompt(call->loaded, &request, &tokens, &n, &error);
    if (serve_call_passes(call, status, &error)) {
        weir__text_add_string(&text, "{");
        weir__json_bytes(&text, "prompt", prompt, length);
        serve_call_add_reshaped(call, ask->reshaped.bytes, &text);
        if (ask->returns_ids) add_tokens(call, tokens, n, false, &text);
        weir__text_add_string(&text, "}");
        serve_call_answer_json(call, &text);
    }
    weir__mem_free(tokens);
}

void serve_apply_template(serve_call *call)
{
    serve_ask ask;
    weir_request request;
    if (serve_ask_read(&ask, call, SERVE_ASK_CHAT) && serve_ask_render(&ask, &request)) tell_chat(&ask);
    serve_ask_fini(&ask);
}

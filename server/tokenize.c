/* tokenize.c: POST /tokenize, /detokenize and /apply-template, as llama-server has them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ask.h"
#include "base/mem.h"
#include "base/utf8.h"

#define PIECE_MAX 512 /* bytes of a token's text */

static bool read_flag(serve_call *call, const json_t *json, const char *name, bool *flag)
{
    const json_t *value = json_object_get(json, name);
    if (value == NULL || json_is_null(value)) return true;
    if (!json_is_boolean(value)) {
        serve_call_refuse(call, 400, name, "invalid_value", "%s must be true or false", name);
        return false;
    }
    *flag = json_is_true(value);
    return true;
}

/* Whether there are only fields of `known`, which ends with NULL, and the model is this one. */
static bool check_known(serve_call *call, const json_t *json, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json, key, value)
    {
        bool found = false;
        for (size_t i = 0; known[i] != NULL; i++) found = found || strcmp(known[i], key) == 0;
        if (found) continue;
        serve_call_refuse(call, 400, strlen(key) < 64 ? key : NULL, "unknown_parameter",
                          "there is no field \"%.64s\" in this request", key);
        return false;
    }
    const char *adapter; /* has the model's vocabulary */
    return serve_call_read_model(call, json_object_get(json, "model"), &adapter);
}

static void add_piece(const serve_call *call, int32_t token, weir__text *text)
{
    char bytes[PIECE_MAX];
    size_t n = 0;
    weir__text_printf(text, "{\"id\":%d,\"piece\":", token);
    if (weir_piece(call->server->model, token, true, bytes, sizeof bytes, &n, NULL) != WEIR_OK) n = 0;
    if (weir__utf8_valid(bytes, n)) {
        weir__json_quote(text, bytes, n);
    } else { /* a part of a code point */
        for (size_t i = 0; i < n; i++)
            weir__text_printf(text, "%c%u", i == 0 ? '[' : ',', (unsigned char)bytes[i]);
        weir__text_add_string(text, "]");
    }
    weir__text_add_string(text, "}");
}

static weir_status tokenize(serve_call *call, const json_t *content, bool special, bool parse,
                            int32_t **tokens, size_t *n, weir_error *error)
{
    size_t capacity = 0, length = json_string_length(content), guess = length / 2 + 16;
    for (;;) {
        if (!weir__mem_grow(tokens, &capacity, guess, sizeof **tokens)) return error->code = WEIR_NO_MEMORY;
        weir_status status = weir_tokenize(call->server->model, json_string_value(content), length, special,
                                           parse, *tokens, capacity, n, error);
        if (status != WEIR_TOO_LONG || *n <= capacity) return status;
        guess = *n;
    }
}

void serve_tokenize(serve_call *call)
{
    static const char *const known[] = {"content",     "add_special", "parse_special",
                                        "with_pieces", "model",       NULL};
    bool special = false, parse = true, pieces = false;
    weir_error error = {0};
    weir__text text = {.quota = &call->server->answers};
    int32_t *tokens = NULL;
    json_t *json;
    size_t n = 0;
    if (!serve_call_read_json(call, &json)) return;
    const json_t *content = json_object_get(json, "content");
    if (!check_known(call, json, known) || !read_flag(call, json, "add_special", &special) ||
        !read_flag(call, json, "parse_special", &parse) || !read_flag(call, json, "with_pieces", &pieces))
        goto out;
    if (!json_is_string(content)) {
        serve_call_refuse(call, 400, "content", "invalid_value", "content must be a string");
        goto out;
    }
    weir_status status = tokenize(call, content, special, parse, &tokens, &n, &error);
    if (status != WEIR_OK) {
        error.code = status;
        serve_call_refuse_error(call, &error);
        goto out;
    }
    weir__text_add_string(&text, "{\"tokens\":[");
    for (size_t i = 0; i < n && !text.failed; i++) {
        if (i > 0) weir__text_add_string(&text, ",");
        if (pieces)
            add_piece(call, tokens[i], &text);
        else
            weir__text_printf(&text, "%d", tokens[i]);
    }
    weir__text_add_string(&text, "]}\n");
    serve_call_answer_text(call, 200, "application/json", &text);
out:
    weir__mem_free(tokens);
    json_decref(json);
}

void serve_detokenize(serve_call *call)
{
    static const char *const known[] = {"tokens", "model", NULL};
    weir_error error = {0};
    weir__text text = {.quota = &call->server->answers};
    int32_t *tokens = NULL;
    char *content = NULL;
    size_t n = 0, length = 0, capacity = 0;
    json_t *json;
    if (!serve_call_read_json(call, &json)) return;
    const json_t *list = json_object_get(json, "tokens");
    if (!check_known(call, json, known)) goto out;
    if (!json_is_array(list)) {
        serve_call_refuse(call, 400, "tokens", "invalid_value", "tokens must be an array of token ids");
        goto out;
    }
    if (!serve_call_read_ids(call, "tokens", list, &tokens, &n)) goto out;
    weir_status status = WEIR_TOO_LONG;
    for (size_t need = n * 8 + 16; status == WEIR_TOO_LONG; need = length + 1) {
        status =
            weir__mem_grow(&content, &capacity, need, 1)
                ? weir_detokenize(call->server->model, tokens, n, true, content, capacity, &length, &error)
                : WEIR_NO_MEMORY;
        if (status == WEIR_TOO_LONG && length + 1 <= capacity) break;
    }
    if (status != WEIR_OK) {
        error.code = status;
        serve_call_refuse_error(call, &error);
        goto out;
    }
    weir__text_add_string(&text, "{");
    weir__json_bytes(&text, "content", content, length);
    weir__text_add_string(&text, "}\n");
    serve_call_answer_text(call, 200, "application/json", &text);
out:
    weir__mem_free(content);
    weir__mem_free(tokens);
    json_decref(json);
}

/* The ids that a request for chat would have. */
static weir_status chat_ids(const weir_chat *chat, int32_t **tokens, size_t *n, weir_error *error)
{
    size_t capacity = 0, length;
    (void)weir_chat_prompt(chat, &length);
    for (size_t guess = length / 2 + 16;; guess = *n) {
        if (!weir__mem_grow(tokens, &capacity, guess, sizeof **tokens)) return WEIR_NO_MEMORY;
        weir_status status = weir_chat_tokenize(chat, *tokens, capacity, n, error);
        if (status != WEIR_TOO_LONG || *n <= capacity) return status;
    }
}

static void tell_chat(serve_call *call, const weir_chat *chat)
{
    weir_error error = {0};
    weir__text text = {.quota = &call->server->answers};
    int32_t *tokens = NULL;
    size_t length, n = 0;
    const char *prompt = weir_chat_prompt(chat, &length);
    error.code = chat_ids(chat, &tokens, &n, &error);
    if (error.code != WEIR_OK) {
        serve_call_refuse_error(call, &error);
        goto out;
    }
    weir__text_add_string(&text, "{");
    weir__json_bytes(&text, "prompt", prompt, length);
    weir__text_add_string(&text, ",\"tokens\":[");
    for (size_t i = 0; i < n; i++) weir__text_printf(&text, i > 0 ? ",%d" : "%d", tokens[i]);
    weir__text_add_string(&text, "]}\n");
    serve_call_answer_text(call, 200, "application/json", &text);
out:
    weir__mem_free(tokens);
}

void serve_apply_template(serve_call *call)
{
    serve_ask ask;
    weir_chat *chat = NULL;
    if (serve_ask_read(&ask, call, SERVE_ASK_CHAT) && (chat = serve_ask_render(&ask, call)) != NULL)
        tell_chat(call, chat);
    weir_chat_release(chat);
    serve_ask_fini(&ask);
}

/* recorded.c: what a recording has of a request and of its answer.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A worker notes the request while it reads it, and records it once it is submitted: metadata, and the body
 * as the client gave it, or written anew without the members that hold secrets, if it has such.
 * While chunks are read, each choice collects its tokens; the answer's end records them. */
#include "recorded.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/access/keys.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/recording/recorder.h"
#include "server/request/call.h"
#include "server/system/secret.h"

/* ---- Secrets ---- */

/* Members of a body that are no part of the conversation: of the body itself, of Ollama's options, and of
 * Anthropic's MCP servers. */
static const struct {
    const char *list, *member; /* list: NULL = the body itself; an object, or a list of objects */
} secrets[] = {
    {NULL, "cache_salt"},
    {"options", "cache_salt"},
    {"mcp_servers", "authorization_token"},
    {"mcp_servers", "url"},
};

/* Removes a member, or looks whether it is there. */
static bool take_secret(json_t *object, const char *member, bool remove)
{
    bool has = json_object_get(object, member) != NULL;
    if (has && remove) json_object_del(object, member);
    return has;
}

static bool is_type(const json_t *object, const char *type)
{
    const char *own = json_string_value(json_object_get(object, "type"));
    return own != NULL && strcmp(own, type) == 0;
}

/* Takes all members of a tool that runs elsewhere, but those that name it. */
static bool take_members(json_t *tool, bool remove)
{
    static const char *const kept[] = {"type", "name", "server_label"};
    const char *name;
    json_t *value;
    void *next;
    bool has = false;
    json_object_foreach_safe(tool, next, name, value)
    {
        bool keeps = false;
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) keeps = keeps || strcmp(name, kept[i]) == 0;
        if (!keeps) has = take_secret(tool, name, remove) || has;
    }
    return has;
}

/* Takes the members of all tools that run elsewhere, also of those in namespaces. */
static bool take_tools(json_t *tools, bool remove)
{
    bool has = false;
    for (size_t i = 0; json_is_array(tools) && i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i);
        if (is_type(tool, "namespace"))
            has = take_tools(json_object_get(tool, "tools"), remove) || has;
        else if (json_is_string(json_object_get(tool, "type")) && !is_type(tool, "function") &&
                 !is_type(tool, "custom"))
            has = take_members(tool, remove) || has;
    }
    return has;
}

/* True if the body has such members, which are removed if asked for. */
static bool take_secrets(json_t *body, bool remove)
{
    const json_t *input = json_object_get(body, "input");
    bool has = take_tools(json_object_get(body, "tools"), remove);
    for (size_t i = 0; json_is_array(input) && i < json_array_size(input); i++)
        has = take_tools(json_object_get(json_array_get(input, i), "tools"), remove) || has;
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        json_t *at = secrets[i].list != NULL ? json_object_get(body, secrets[i].list) : body;
        has = (json_is_object(at) && take_secret(at, secrets[i].member, remove)) || has;
        for (size_t k = 0; json_is_array(at) && k < json_array_size(at); k++)
            has = take_secret(json_array_get(at, k), secrets[i].member, remove) || has;
    }
    return has;
}

bool serve_recorded_has_secrets(const json_t *body)
{
    return take_secrets((json_t *)body, false);
}

/* Adds the body without its secrets. */
static void add_clean(const weir__text *body, weir__text *clean)
{
    json_t *value = NULL;
    weir_status status = weir__json_parse_texts(body->bytes, body->n, "body", WEIR_INVALID, &value, NULL);
    if (status == WEIR_OK) take_secrets(value, true);
    char *text = status == WEIR_OK ? weir__json_dump(value) : NULL;
    if (text == NULL || !weir__text_add_string(clean, text)) clean->failed = true;
    weir__mem_free(text);
    json_decref(value);
}

/* ---- The request ---- */

bool serve_recorded_draw(const serve_call *call, uint32_t *seed)
{
    char hex[8 + 1];
    unsigned drawn;
    if (call->server->recorder == NULL) return false;
    if (call->seed >= 0)
        drawn = (unsigned)call->seed;
    else if (!serve_secret_make(hex, 8) || sscanf(hex, "%8x", &drawn) != 1)
        return false;
    *seed = (uint32_t)(drawn % WEIR_SEED_RANDOM);
    return true;
}

static void add_hex(weir__text *text, const char *name, uint64_t value)
{
    weir__json_key(text, name);
    weir__text_printf(text, "\"%016llx\"", (unsigned long long)value);
}

static void add_model(const serve_call *call, weir__text *text)
{
    weir_model_info info = {.size = sizeof info};
    weir_engine_stats stats = {.size = sizeof stats};
    const serve_model_params *params = &call->model->params;
    if (weir_model_describe(call->loaded->model, &info) != WEIR_OK) return;
    const char *template = params->template_source != NULL ? params->template_source : info.chat_template;
    add_hex(text, "fingerprint", info.fingerprint);
    add_hex(text, "template", template != NULL ? weir__hash(0, template, strlen(template)) : 0);
    weir__json_string(text, "kernels", info.kernels);
    bool invariant = weir_engine_get_stats(call->loaded->engine, &stats) == WEIR_OK && stats.batch_invariant;
    weir__json_key(text, "batch_invariant");
    weir__text_add_string(text, invariant ? "true" : "false");
    if (params->settings != NULL) {
        weir__json_key(text, "settings");
        weir__text_add_string(text, params->settings);
    }
}

void serve_recorded_begin(const serve_call *call, serve_recorded_answer *recorded, const char *model,
                          int32_t n)
{
    weir__text meta = {0}, body = {0};
    if (!recorded->wanted) return;
    weir__text_add_string(&meta, "{");
    weir__json_string(&meta, "path", call->path);
    weir__json_string(&meta, "request_id", serve_call_request_id(call));
    weir__json_string(&meta, "model", model);
    add_model(call, &meta);
    weir__json_string(&meta, "weir", weir_version());
    weir__json_string(&meta, "backend", weir_backend_version());
    weir__json_key(&meta, "choices");
    weir__text_printf(&meta, "%d", n);
    if (recorded->seed != WEIR_SEED_RANDOM) {
        weir__json_key(&meta, "seed");
        weir__text_printf(&meta, "%u", (unsigned)recorded->seed);
    }
    if (recorded->drawn) weir__text_add_string(&meta, ",\"drawn\":true");
    if (recorded->fetched) weir__text_add_string(&meta, ",\"fetched\":true");
    if (recorded->continues != NULL) weir__json_string(&meta, "continues", recorded->continues);
    weir__text_add_string(&meta, "}");
    if (recorded->has_secrets)
        add_clean(&call->body, &body);
    else
        weir__text_add(&body, call->body.bytes, call->body.n);
    meta.failed = meta.failed || body.failed;
    recorded->on = serve_recorder_push(
        call->server->recorder, &(serve_recorded){.kind = SERVE_FRAME_REQUEST,
                                                  .id = call->id,
                                                  .key = serve_keys_salt(call->server->keys, call->key),
                                                  .meta = &meta,
                                                  .body = &body});
}

/* ---- The answer ---- */

bool serve_recorded_add(serve_recorded_choice *recorded, const weir_chunk *chunk)
{
    size_t n = chunk->n_tokens;
    return n == 0 ||
           (weir__text_add(&recorded->tokens, (const char *)chunk->tokens, n * sizeof *chunk->tokens) &&
            (chunk->logprobs == NULL || weir__text_add(&recorded->logprobs, (const char *)chunk->logprobs,
                                                       n * sizeof *chunk->logprobs)));
}

void serve_recorded_prompt(serve_recorded_choice *recorded, const weir_stream *stream)
{
    size_t n = 0;
    if (stream == NULL || recorded->n_prompt > 0) return;
    weir_status status = weir_stream_prompt(stream, NULL, 0, &n);
    int32_t *tokens = status == WEIR_TOO_LONG ? weir__mem_alloc(n * sizeof *tokens) : NULL;
    if (tokens == NULL || weir_stream_prompt(stream, tokens, n, &n) != WEIR_OK) {
        weir__mem_free(tokens);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0) tokens[i] = -1; /* ids of images and sounds are those of this process */
    recorded->n_prompt = n;
    recorded->prompt = weir__hash(0, tokens, n * sizeof *tokens);
    weir__mem_free(tokens);
}

void serve_recorded_fini(serve_recorded_choice *recorded)
{
    weir__text_fini(&recorded->tokens);
    weir__text_fini(&recorded->logprobs);
}

void serve_recorded_add_choice(const serve_recorded_choice *recorded, const char *reason, weir__text *list)
{
    size_t n = recorded->tokens.n / sizeof(int32_t), n_logprobs = recorded->logprobs.n / sizeof(float);
    weir__text_add_string(list, list->n == 0 ? "{" : ",{");
    weir__json_string(list, "reason", reason);
    weir__json_key(list, "n_prompt");
    weir__text_printf(list, "%zu", recorded->n_prompt);
    add_hex(list, "prompt", recorded->prompt);
    weir__json_key(list, "tokens");
    for (size_t i = 0; i < n; i++) {
        int32_t token;
        memcpy(&token, recorded->tokens.bytes + i * sizeof token, sizeof token);
        weir__text_printf(list, i == 0 ? "[%d" : ",%d", token);
    }
    weir__text_add_string(list, n == 0 ? "[]" : "]");
    for (size_t i = 0; i < n_logprobs; i++) {
        float logprob;
        memcpy(&logprob, recorded->logprobs.bytes + i * sizeof logprob, sizeof logprob);
        if (i == 0) weir__json_key(list, "logprobs");
        weir__text_printf(list, i == 0 ? "[%.9g" : ",%.9g", (double)(logprob < -1e30f ? -1e30f : logprob));
    }
    weir__text_add_string(list, n_logprobs > 0 ? "]}" : "}");
}

void serve_recorded_end(const serve_call *call, serve_recorded_answer *recorded, weir__text *list)
{
    static const char before[] = "{\"choices\":[";
    recorded->on = false;
    weir__text_add_string(list, "]}");
    weir__text_close(list, before, sizeof before - 1);
    serve_recorder_push(call->server->recorder,
                        &(serve_recorded){.kind = SERVE_FRAME_ANSWER,
                                          .id = call->id,
                                          .key = serve_keys_salt(call->server->keys, call->key),
                                          .meta = list});
}

/* native.c: POST /completion, POST /v1/chat/completions/control (ends the reasoning of a running answer) and
 * GET /props, as llama-server's own clients know them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/member.h"
#include "server/api/common/answer.h"
#include "server/api/common/ask.h"
#include "server/api/common/field.h"
#include "server/api/openai/openai.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/request/body.h"
#include "server/request/call.h"
#include "server/system/secret.h"

#define PIECE_MAX 512 /* bytes of a token's text */

/* ---- POST /completion ---- */

static const char *stop_type(weir_reason reason)
{
    switch (reason) {
    case WEIR_REASON_END: return "eos";
    case WEIR_REASON_STOP_WORDS: return "word";
    case WEIR_REASON_LENGTH:
    case WEIR_REASON_DEADLINE: return "limit";
    default: return "none";
    }
}

static void begin_object(const serve_choice *choice, const char *content, size_t n, bool last,
                         const weir_usage *usage, weir__text *text)
{
    weir__text_printf(text, "{\"index\":%d", choice->index);
    weir__json_bytes(text, "content", content != NULL ? content : "", n);
    weir__text_printf(text,
                      ",\"tokens\":[],\"stop\":%s,\"id_slot\":-1,\"tokens_predicted\":%d,"
                      "\"tokens_evaluated\":%d",
                      last ? "true" : "false", usage->n_generated, usage->n_prompt);
}

/* The members behind the content of the last object. */
static void end_object(const serve_choice *choice, weir__text *text)
{
    const weir_usage *usage = &choice->usage;
    weir__json_string(text, "model", choice->answer->model);
    weir__text_printf(text,
                      ",\"truncated\":false,\"stop_type\":\"%s\",\"stop_detail\":\"%s\",\"tokens_cached\":%d",
                      stop_type(choice->reason), weir_reason_name(choice->reason), usage->n_cached);
    serve_openai_add_timings(usage, text);
    weir__text_add_string(text, "}");
}

static void add_delta(serve_choice *choice, const weir_delta *given, weir__text *text)
{
    weir_usage usage = serve_choice_usage(choice);
    begin_object(choice, given->text, given->length, false, &usage, text);
    if (choice->answer->timings) serve_openai_add_timings(&usage, text);
    weir__text_add_string(text, "}");
}

static void add_silence(const serve_choice *choice, weir__text *text)
{
    weir_usage usage = serve_choice_usage(choice);
    begin_object(choice, "", 0, false, &usage, text);
    if (choice->answer->timings) serve_openai_add_timings(&usage, text);
}

static void end_text(serve_choice *choice, weir__text *text)
{
    begin_object(choice, "", 0, true, &choice->usage, text);
    end_object(choice, text);
}

static void whole_text(serve_choice *choice, weir__text *text)
{
    weir__text content = {0};
    serve_choice_add_text(choice, WEIR_DELTA_CONTENT, &content);
    begin_object(choice, content.bytes, content.n, true, &choice->usage, text);
    end_object(choice, text);
    text->failed = text->failed || content.failed;
    weir__text_fini(&content);
}

const serve_openai serve_openai_native = {
    .object = "",
    .chunk = "",
    .bare = true,
    .delta = add_delta,
    .silent = add_silence,
    .end = end_text,
    .whole = whole_text,
};

void serve_native(serve_call *call)
{
    serve_complete(call, SERVE_ASK_COMPLETIONS | SERVE_ASK_NATIVE, &serve_native_form);
}

void serve_infill(serve_call *call)
{
    serve_complete(call, SERVE_ASK_COMPLETIONS | SERVE_ASK_NATIVE | SERVE_ASK_INFILL, &serve_native_form);
}

/* ---- GET /props ---- */

static void add_setting(const weir_member *member, const weir_sampler_params *sampler, weir__text *text)
{
    const char *name = serve_fields_name("sampler", member->name, strlen(member->name), 0);
    double value = weir__member_number(member, sampler);
    if (name == NULL) name = member->name;
    if (member->type == WEIR_MEMBER_BOOL)
        weir__text_printf(text, ",\"%s\":%s", name, value != 0 ? "true" : "false");
    else if (member->type == WEIR_MEMBER_FLOAT)
        weir__json_float(text, name, (float)value);
    else
        weir__json_number(text, name, value, 0);
}

/* The numbers and flags of the sampler, as requests call them. */
static void add_settings(const serve_model_params *params, weir__text *text)
{
    size_t n;
    const weir_member *member = weir_members("sampler", &n);
    weir_sampler_params standard = weir_sampler_params_default();
    const weir_sampler_params *s = params->sampler != NULL ? params->sampler : &standard;
    weir__text_printf(text, "{\"n_predict\":%d,\"max_tokens\":%d", params->max_tokens, params->max_tokens);
    for (size_t i = 0; i < n; i++)
        if (member[i].type < WEIR_MEMBER_CHOICE) add_setting(&member[i], s, text);
    weir__text_add_string(text, "}");
}

static void add_token(const weir_model *model, const char *name, int32_t token, weir__text *text)
{
    char bytes[PIECE_MAX];
    size_t n = 0;
    if (token < 0 || weir_piece(model, token, true, bytes, sizeof bytes, &n, NULL) != WEIR_OK) n = 0;
    weir__json_bytes(text, name, bytes, n);
}

/* Properties have no path of the file: where a model lies is the operator's. */
void serve_props(serve_call *call)
{
    const serve_model *model = call->model;
    const serve_loaded *loaded = call->loaded;
    weir_model_info info = {.size = sizeof info};
    weir_engine_stats stats = {.size = sizeof stats};
    const char *source = model->params.template_source;
    weir__text text = {0};
    weir_model_describe(loaded->model, &info);
    weir_engine_get_stats(loaded->engine, &stats);
    if (source == NULL) source = info.chat_template != NULL ? info.chat_template : "";
    weir__text_printf(&text, "{\"default_generation_settings\":{\"n_ctx\":%d,\"params\":", stats.n_ctx);
    add_settings(&model->params, &text);
    weir__text_printf(&text, "},\"total_slots\":%d", stats.n_slots);
    weir__json_string(&text, "model_alias", model->name);
    weir__json_string(&text, "model_path", model->file_name);
    weir__json_string(&text, "chat_template", source);
    add_token(loaded->model, "bos_token", info.token_bos, &text);
    add_token(loaded->model, "eos_token", info.token_eos, &text);
    weir__text_printf(&text,
                      ",\"modalities\":{\"vision\":%s,\"audio\":%s},\"build_info\":\"%s\","
                      "\"is_sleeping\":false}",
                      info.reads_images ? "true" : "false", info.reads_sounds ? "true" : "false",
                      call->server->fingerprint);
    serve_call_answer_json(call, &text);
}

/* ---- POST /v1/chat/completions/control ---- */

#define BODY_MAX 4096 /* bytes: it is read on the service thread */

/* The running answer with this id that the call's key has asked for; NULL: there is none. Compares all ids as
 * a whole: the time reveals nothing about them. */
static serve_answer *find_running(const serve_call *call, const char *id)
{
    char given[SERVE_ID_MAX] = {0};
    serve_answer *found = NULL;
    if (strlen(id) < sizeof given) memcpy(given, id, strlen(id) + 1);
    for (const serve_call *other = call->server->calls; other != NULL; other = other->after)
        if (other->state == SERVE_ANSWERING && other->answer != NULL && other->key == call->key &&
            serve_secret_is(other->answer->id, given, sizeof given))
            found = other->answer;
    return found;
}

/* False: no choice has reasoning that can be ended; *why says what the first one has instead. */
static bool end_reasoning(const serve_answer *answer, weir_error *why)
{
    bool ended = false;
    for (int32_t i = 0; i < answer->n; i++) {
        weir_stream *stream = answer->choices[i].stream;
        if (stream != NULL && weir_stream_end_reasoning(stream, i == 0 ? why : NULL) == WEIR_OK) ended = true;
    }
    return ended;
}

static void answer_control(serve_call *call, const char *id)
{
    weir_error why = {.message = "there is no running answer of this id"};
    weir__text text = {0};
    const serve_answer *answer = find_running(call, id);
    bool ended = answer != NULL && end_reasoning(answer, &why);
    weir__text_printf(&text, "{\"success\":%s", ended ? "true" : "false");
    if (!ended) weir__json_string(&text, "message", weir__error_words(&why).text);
    weir__text_add_string(&text, "}");
    serve_call_answer_json(call, &text);
    weir__text_fini(&text);
}

void serve_control(serve_call *call)
{
    json_t *json = NULL;
    if (call->body.n > BODY_MAX) {
        serve_call_refuse(call, 400, NULL, "invalid_value", "the body must have at most %d bytes", BODY_MAX);
        return;
    }
    if (!serve_call_read_json(call, &json)) return;
    const char *id = json_string_value(json_object_get(json, "id"));
    const char *action = json_string_value(json_object_get(json, "action"));
    if (id == NULL)
        serve_field_refuse(call, "id", "the id of an answer");
    else if (action == NULL || strcmp(action, "reasoning_end") != 0)
        serve_field_refuse(call, "action", "\"reasoning_end\"");
    else if (serve_field_only(call, "", json, SERVE_OBJECT_CONTROL))
        answer_control(call, id);
    json_decref(json);
}

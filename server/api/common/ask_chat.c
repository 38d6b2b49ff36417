/* ask_chat.c: the messages of a request and its tools, rendered. Messages lose their dropped lines, and are
 * counted and measured before anything is rendered, because a conversation that has no room must cost little.
 * Then media are decoded and tools chosen, and weir_chat_create makes the chat that becomes the prompt. What
 * that does not enforce, and what it has put into another form, is reported. A fork takes the chat of its
 * source instead.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "base/ascii.h"
#include "base/mem.h"
#include "base/words.h"
#include "error.h"
#include "field.h"
#include "hint.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/models/tokens.h"
#include "server/request/call.h"
#include "server/settings/effort.h"

/* ---- Messages ---- */

/* Limits of all variables together: they are read, written and copied several times. */
#define ARGS_BYTES  ((size_t)1 << 20)
#define ARGS_VALUES ((size_t)64 << 10)

/* True if the value has at most *left values, itself included, which it takes. */
static bool take_values(const json_t *value, size_t *left)
{
    const char *key;
    json_t *one;
    size_t i;
    if (*left == 0) return false;
    --*left;
    json_object_foreach((json_t *)value, key, one)
    {
        if (!take_values(one, left)) return false;
    }
    json_array_foreach((json_t *)value, i, one)
    {
        if (!take_values(one, left)) return false;
    }
    return true;
}

/* The effort that the template gets: where it does not know the level, the next one that it does. NULL: the
 * call has its answer. */
static const char *effort_of(const serve_ask *ask)
{
    const char *source = ask->chat.template_source, *name;
    weir_model_info info = {.size = sizeof info};
    if (ask->call->strict) return ask->reasoning_effort;
    if (source == NULL) {
        weir_model_describe(ask->call->loaded->model, &info);
        source = info.chat_template;
    }
    const char *level = serve_effort_level(source, ask->reasoning_effort);
    name = (ask->where & SERVE_ASK_RESPONSES) != 0                       ? "reasoning.effort"
           : (ask->where & SERVE_ASK_MESSAGES) != 0                      ? "output_config.effort"
           : (ask->where & (SERVE_ASK_OLLAMA | SERVE_ASK_GENERATE)) != 0 ? "think"
                                                                         : "reasoning_effort";
    return strcmp(level, ask->reasoning_effort) == 0 || serve_hint_name(ask->call, name) ? level : NULL;
}

/* The template's variables, with values that the caller frees. */
static bool collect_args(const serve_ask *ask, weir_template_arg *args, size_t *n)
{
    size_t left = ARGS_BYTES, n_values = ARGS_VALUES;
    const char *key;
    json_t *value;
    if (ask->kwargs != NULL &&
        (!json_is_object(ask->kwargs) || json_object_size(ask->kwargs) > SERVE_ARGS_MAX))
        return serve_field_refuse(ask->call, "chat_template_kwargs", "an object of at most 62 members");
    json_object_foreach((json_t *)ask->kwargs, key, value)
    {
        bool longer = !take_values(value, &n_values);
        char *text = longer ? NULL : weir__json_dump_most(value, left, &longer);
        if (longer)
            return serve_field_refuse(ask->call, "chat_template_kwargs",
                                      "an object of at most 1 MiB and 65,536 values");
        if (text == NULL) return serve_call_no_memory(ask->call);
        left -= strlen(text);
        args[(*n)++] = (weir_template_arg){.key = key, .value = text};
    }
    if (ask->reasoning_effort != NULL && json_object_get(ask->kwargs, "reasoning_effort") == NULL) {
        const char *level = effort_of(ask);
        weir__text effort = {0};
        if (level == NULL) return false;
        weir__json_quote(&effort, level, strlen(level));
        args[(*n)++] = (weir_template_arg){.key = "reasoning_effort", .value = effort.bytes};
        if (effort.failed) return serve_call_no_memory(ask->call);
    }
    return true;
}

/* Templates know these roles, and treat others as they happen to. The library checks the rest. */
static bool check_roles(const serve_ask *ask)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < json_array_size(ask->messages); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(ask->messages, i), "role"));
        if (role == NULL || weir__words_have(roles, sizeof roles / sizeof *roles, role)) continue;
        serve_place place = serve_places_message(&ask->call->terms.messages, i);
        place = serve_place_of(place.text, "role");
        return serve_call_refuse(ask->call, 400, place.text, "invalid_value",
                                 "%s is \"%.40s\"; known: system, developer, user, assistant, tool, function",
                                 place.text, role);
    }
    return true;
}

static bool check_count(const serve_ask *ask)
{
    return json_array_size(ask->messages) > 0 ||
           serve_field_refuse(ask->call, serve_ask_conversation(ask), "an array of at least one message");
}

#define TEXT_FEW ((size_t)1 << 20) /* bytes whose rendering costs little, whether they fit or not */

/* Bytes of a text; of white space at its ends, which templates may strip, one in four. */
static size_t text_bytes(const json_t *text)
{
    const char *bytes = json_string_value(text);
    size_t all = json_string_length(text), n = all;
    while (n > 0 && weir__ascii_is_space(bytes[n - 1])) n--;
    while (n > 0 && weir__ascii_is_space(*bytes)) bytes++, n--;
    return n + (all - n) / 4;
}

/* Bytes that templates do not leave out of a message. They may leave out reasoning, also that within the
 * assistant's texts, and calls: of these, one byte in four counts, so that a
 * conversation may have several times the context's text of them. */
static size_t message_bytes(const json_t *message)
{
    const json_t *content = json_object_get(message, "content"),
                 *calls = json_object_get(message, "tool_calls");
    bool assistant = serve_ask_has_role(message, "assistant");
    size_t n = text_bytes(content),
           n_more = json_string_length(json_object_get(message, "reasoning_content"));
    for (size_t i = 0; i < json_array_size(content); i++)
        n += text_bytes(json_object_get(json_array_get(content, i), "text"));
    for (size_t i = 0; i < json_array_size(calls); i++)
        n_more += json_string_length(
            json_object_get(json_object_get(json_array_get(calls, i), "function"), "arguments"));
    return assistant ? (n + n_more) / 4 : n + n_more / 4;
}

/* A text that has no room is not rendered. */
static bool check_length(const serve_ask *ask)
{
    weir_error error = {0};
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(ask->messages); i++)
        n += message_bytes(json_array_get(ask->messages, i));
    return n <= TEXT_FEW ||
           serve_call_passes(ask->call, serve_tokens_check(ask->call->loaded, "chat", n, &error), &error);
}

/* The most tokens of reasoning: the request's own number, or the operator's for its effort. */
static int32_t reasoning_budget(const serve_ask *ask)
{
    const char *budgets = ask->call->model->params.reasoning_budget;
    if (ask->request.reasoning_budget >= 0) return ask->request.reasoning_budget;
    return serve_effort_budget(budgets, ask->chat.enable_thinking ? ask->reasoning_effort : "none");
}

/* The field with a budget of reasoning that cannot be enforced: the answer could reason for longer. NULL:
 * there is none. */
static const char *loose_budget(const serve_ask *ask)
{
    int32_t budget = ask->request.reasoning_budget, most = ask->request.max_tokens;
    if (budget < 0 || (most >= 0 && budget >= most) || !ask->chat.enable_thinking ||
        weir_chat_reasoning_end(ask->rendered)[0] != '\0')
        return NULL;
    const char *name = serve_ask_given_for(ask, "request", "reasoning_budget");
    return name != NULL ? name : "thinking.budget_tokens";
}

/* Reports which parts of the request are not enforced. */
static void report_relaxed(const serve_ask *ask)
{
    const char *budget = loose_budget(ask);
    const weir_chat *chat = ask->rendered;
    serve_call *call = ask->call;
    if (budget != NULL && !serve_hint_name(call, budget)) return;
    if (weir_chat_special_content(chat) != ask->chat.special_content &&
        !serve_hint_name(call, "special_content"))
        return;
    serve_call_relaxed(call, weir_chat_relaxed(chat));
}

/* The messages, behind the server's system message where they have none. Freed with json_decref. */
static json_t *messages_of(const serve_ask *ask, bool *added)
{
    const char *system = ask->call->model->params.system;
    *added = system != NULL && *system != '\0';
    for (size_t i = 0; i < json_array_size(ask->messages) && *added; i++) {
        const json_t *message = json_array_get(ask->messages, i);
        *added = !serve_ask_has_role(message, "system") && !serve_ask_has_role(message, "developer");
    }
    if (!*added) return json_incref((json_t *)ask->messages);
    json_t *all = json_pack("[{s:s, s:s}]", "role", "system", "content", system);
    if (all != NULL && json_array_extend(all, (json_t *)ask->messages) == 0) return all;
    json_decref(all);
    return NULL;
}

/* Reports the messages that lost lines or were put into another form. added: as messages_of sets it. */
static void report_reshaped(serve_ask *ask, bool added)
{
    const char *lines = weir_chat_reshaped(ask->rendered);
    const bool own = added && strncmp(lines, "messages[0]", 11) == 0; /* the server's message */
    weir__text_clear(&ask->reshaped);
    if (own) lines += strcspn(lines, "\n") + 1;
    if (*lines != '\0' && !weir__text_add_string(&ask->reshaped, lines))
        serve_call_no_memory(ask->call);
    else
        serve_call_reshaped(ask->call, ask->dropped.bytes, ask->reshaped.bytes);
}

bool serve_ask_render(serve_ask *ask, weir_request *request)
{
    serve_call *call = ask->call;
    weir_template_arg args[SERVE_ARGS_MAX + 1] = {{0}};
    weir_chat_params params = ask->chat;
    weir_error error = {0};
    json_t *tools = NULL, *messages = NULL;
    bool added = false;

    if (!serve_ask_drop_lines(ask) || !check_count(ask) || !check_roles(ask) || !check_length(ask) ||
        !serve_ask_media(ask))
        return false;
    if (!serve_ask_choose_tools(ask, &tools) || !collect_args(ask, args, &params.n_args)) goto out;
    messages = messages_of(ask, &added);
    if (messages == NULL) {
        serve_call_no_memory(call);
        goto out;
    }
    if (tools != NULL && weir__json_size(tools) > SERVE_FORM_BYTES) {
        serve_field_refuse(call, "tools", "an array of at most 2 MiB");
        goto out;
    }
    params.messages_value = messages;
    params.tools_value = tools;
    params.media = ask->media;
    params.n_media = ask->n_media;
    if (ask->tool_name != NULL) params.parallel_tool_calls = false;
    params.json_schema = ask->schema;
    params.args = args;
    call->terms.n_added = added;
    weir_status status = weir_chat_create(call->loaded->model, &params, &ask->rendered, &error);
    if (serve_call_passes(call, status, &error)) {
        report_relaxed(ask);
        report_reshaped(ask, added);
    }
    request->chat = ask->rendered;
    request->reasoning_budget = reasoning_budget(ask);
out:
    for (size_t i = 0; i < params.n_args; i++) weir__mem_free((void *)args[i].value);
    json_decref(messages);
    json_decref(tools);
    return ask->rendered != NULL && !call->begun;
}

static bool count_tokens(serve_ask *ask, size_t *n)
{
    weir_request request;
    weir_forecast forecast = {.size = sizeof forecast};
    weir_error error = {0};
    size_t length;
    if (!serve_ask_request(ask, &request) || !serve_ask_render(ask, &request)) return false;
    (void)weir_chat_prompt(ask->rendered, &length);
    weir_status status = serve_tokens_check(ask->call->loaded, "chat", length, &error);
    if (status != WEIR_OK) return serve_call_passes(ask->call, status, &error);
    if (ask->n_media > 0) { /* whose tokens the engine knows */
        status = weir_engine_plan_request(ask->call->loaded->engine, &request, &forecast, &error);
        *n = (size_t)forecast.n_prompt;
    } else {
        status = weir_chat_tokenize(ask->rendered, NULL, 0, n, &error);
        if (status == WEIR_TOO_LONG) status = WEIR_OK; /* there was no room for any */
    }
    return serve_call_passes(ask->call, status, &error);
}

/* ---- Answers ---- */

static bool read_ask(serve_ask *ask, serve_call *call, const serve_dialect *dialect)
{
    return serve_ask_read(ask, call, dialect->where) && (dialect->read == NULL || dialect->read(ask));
}

/* A fork continues its source's chat. */
static bool take_source(serve_ask *ask, weir_request *request)
{
    if (ask->source.chat == NULL)
        return serve_call_refuse(ask->call, 400, "fork", "invalid_value",
                                 "this answer does not belong to a chat: fork it with /v1/completions");
    ask->rendered = weir_chat_hold(ask->source.chat);
    request->reasoning_budget = reasoning_budget(ask);
    return true;
}

void serve_ask_submit(serve_ask *ask, const serve_dialect *dialect)
{
    weir_request request;
    serve_answer *answer;
    if (!serve_ask_request(ask, &request) ||
        !(ask->fork != NULL ? take_source(ask, &request) : serve_ask_render(ask, &request)) ||
        (answer = serve_ask_answer(ask, dialect->form, ask->n)) == NULL)
        return;
    if (dialect->repeat != NULL && !dialect->repeat(ask, answer))
        serve_call_no_memory(ask->call);
    else if (ask->call->fetch == NULL || ask->call->fetch(ask->call, &request))
        serve_answer_submit(answer, &request, 1);
}

void serve_ask_converse(serve_call *call, const serve_dialect *dialect)
{
    serve_ask ask;
    if (read_ask(&ask, call, dialect)) serve_ask_submit(&ask, dialect);
    serve_ask_fini(&ask);
}

void serve_ask_count(serve_call *call, const serve_dialect *dialect)
{
    serve_ask ask;
    weir__text text = {0};
    size_t n = 0;
    if (read_ask(&ask, call, dialect) && count_tokens(&ask, &n)) {
        weir__text_printf(&text, "%s%zu}", dialect->count, n);
        serve_call_answer_json(call, &text);
    }
    serve_ask_fini(&ask);
}

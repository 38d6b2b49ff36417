/* render.c: the chat of a request: its messages, tools and form. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "base/mem.h"

static bool refuse(serve_call *call, const char *name, const char *what)
{
    serve_call_refuse(call, 400, name, "invalid_value", "%s must be %s", name, what);
    return false;
}

static bool no_memory(serve_call *call)
{
    serve_call_no_memory(call);
    return false;
}

static const char *tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static json_t *find_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; name != NULL && i < json_array_size(tools); i++) {
        const char *one = tool_name(json_array_get(tools, i));
        if (one != NULL && strcmp(one, name) == 0) return json_array_get(tools, i);
    }
    return NULL;
}

/* The tools that may be called: with a named one, that alone. Freed with json_decref. */
static bool choose_tools(const serve_ask *ask, serve_call *call, json_t **tools)
{
    *tools = NULL;
    if (ask->tools != NULL && !json_is_array(ask->tools)) return refuse(call, "tools", "an array");
    bool any = json_array_size(ask->tools) > 0;
    if (!any && (ask->tool_choice == SERVE_TOOLS_REQUIRED || ask->tool_choice == SERVE_TOOLS_NAMED))
        return refuse(call, "tool_choice", "left out where there are no tools");
    if (!any) return true;
    if (ask->tool_choice != SERVE_TOOLS_NAMED && ask->tools_allowed == NULL) {
        *tools = json_incref((json_t *)ask->tools);
        return true;
    }
    size_t n = ask->tools_allowed != NULL ? json_array_size(ask->tools_allowed) : 1;
    *tools = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *name =
            ask->tools_allowed != NULL ? tool_name(json_array_get(ask->tools_allowed, i)) : ask->tool_name;
        json_t *one = find_tool(ask->tools, name);
        if (one == NULL) {
            serve_call_refuse(call, 400, "tool_choice", "invalid_value",
                              "tool_choice names \"%.64s\", but there is no such tool in tools",
                              name != NULL ? name : "");
            return false;
        }
        if (json_array_append(*tools, one) != 0) return no_memory(call);
    }
    return true;
}

static bool add_arg(weir_template_arg *args, size_t *n, const char *key, const json_t *value)
{
    char *text = weir__json_dump(value);
    if (text == NULL) return false;
    args[*n].key = key;
    args[(*n)++].value = text;
    return true;
}

static bool collect_args(const serve_ask *ask, serve_call *call, weir_template_arg *args, size_t *n)
{
    const char *key;
    json_t *value;
    if (ask->kwargs != NULL &&
        (!json_is_object(ask->kwargs) || json_object_size(ask->kwargs) > SERVE_ARGS_MAX))
        return refuse(call, "chat_template_kwargs", "an object of at most 62 members");
    if (ask->kwargs != NULL) {
        json_object_foreach((json_t *)ask->kwargs, key, value)
        {
            if (!add_arg(args, n, key, value)) return no_memory(call);
        }
    }
    if (ask->reasoning_effort != NULL && json_object_get(ask->kwargs, "reasoning_effort") == NULL) {
        json_t *effort = json_string(ask->reasoning_effort);
        bool ok = effort != NULL && add_arg(args, n, "reasoning_effort", effort);
        json_decref(effort);
        if (!ok) return no_memory(call);
    }
    return true;
}

/* Templates know these; what they make of another one is a matter of chance. The rest of a message the
 * library checks. */
static bool check_roles(const serve_ask *ask, serve_call *call)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < json_array_size(ask->messages); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(ask->messages, i), "role"));
        bool known = role == NULL;
        for (size_t k = 0; k < sizeof roles / sizeof *roles && !known; k++)
            known = strcmp(role, roles[k]) == 0;
        if (known) continue;
        char field[48];
        snprintf(field, sizeof field, "messages[%zu].role", i);
        serve_call_refuse(call, 400, field, "invalid_value",
                          "%s is \"%.40s\"; known: system, developer, user, assistant, tool, function", field,
                          role);
        return false;
    }
    return true;
}

#define MESSAGES_FEW 1024 /* rendering them costs little, whether they fit or not */

/* A message is at least a token: more messages than the context has tokens need not be rendered. */
static bool check_count(const serve_ask *ask, serve_call *call)
{
    weir_engine_stats stats = {.size = sizeof stats};
    size_t n = json_array_size(ask->messages);
    if (n == 0) return refuse(call, "messages", "an array of at least one message");
    if (n <= MESSAGES_FEW || weir_engine_get_stats(call->server->engine, &stats) != WEIR_OK) return true;
    if (n <= (size_t)stats.n_ctx) return true;
    serve_call_refuse(call, 400, "messages", "context_length_exceeded",
                      "there are %zu messages, and a request has room for %d tokens", n, stats.n_ctx);
    return false;
}

/* What the chat is not held to. */
static void tell_relaxed(serve_call *call, const weir_chat *chat, weir_special_content asked)
{
    static const char line[] = "special_content\n";
    weir__text lines = {0};
    bool held = weir_chat_special_content(chat) == asked;
    if (!held) weir__text_add_string(&lines, line);
    weir__text_add_string(&lines, weir_chat_relaxed(chat));
    serve_call_relaxed(call, !lines.failed ? lines.bytes : held ? weir_chat_relaxed(chat) : line);
    weir__text_fini(&lines);
}

weir_chat *serve_ask_render(serve_ask *ask, serve_call *call)
{
    const serve_params *server = &call->server->params;
    weir_template_arg args[SERVE_ARGS_MAX + 1] = {{0}};
    weir_chat_params params = weir_chat_params_default();
    weir_error error = {0};
    weir_chat *chat = NULL;
    json_t *tools = NULL;
    char *messages_text = NULL, *tools_text = NULL;

    if (!check_count(ask, call) || !check_roles(ask, call)) return NULL;
    if (!choose_tools(ask, call, &tools) || !collect_args(ask, call, args, &params.n_args)) goto out;
    messages_text = weir__json_dump(ask->messages);
    if (tools != NULL) tools_text = weir__json_dump(tools);
    if (messages_text == NULL || (tools != NULL && tools_text == NULL)) {
        no_memory(call);
        goto out;
    }
    params.messages_json = messages_text;
    params.tools_json = tools_text;
    params.tool_choice = ask->tool_choice == SERVE_TOOLS_NONE ? WEIR_TOOLS_NONE
                         : ask->tool_choice == SERVE_TOOLS_REQUIRED || ask->tool_choice == SERVE_TOOLS_NAMED
                             ? WEIR_TOOLS_REQUIRED
                             : WEIR_TOOLS_AUTO;
    params.parallel_tool_calls = ask->parallel_tool_calls && ask->tool_choice != SERVE_TOOLS_NAMED;
    params.json_schema = ask->schema;
    params.strict_schema = ask->strict_schema;
    params.template_source = server->template_source;
    params.special_content = ask->special_content;
    params.args = args;
    params.continue_final = ask->continue_final;
    params.add_generation_prompt = ask->generation_prompt != SERVE_PROMPT_UNWANTED;
    params.enable_thinking = !server->no_thinking;
    if (ask->reasoning_effort != NULL) params.enable_thinking = strcmp(ask->reasoning_effort, "none") != 0;
    weir_status status = weir_chat_create(call->server->model, &params, &chat, &error);
    if (status != WEIR_OK) {
        error.code = status;
        serve_call_refuse_error(call, &error);
    } else {
        tell_relaxed(call, chat, ask->special_content);
    }
out:
    for (size_t i = 0; i < params.n_args; i++) weir__mem_free((void *)args[i].value);
    weir__mem_free(tools_text);
    weir__mem_free(messages_text);
    json_decref(tools);
    return chat;
}

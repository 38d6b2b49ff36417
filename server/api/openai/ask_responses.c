/* ask_responses.c: a request in the format of OpenAI's Responses API. Its conversation, tools and options
 * become those of chat completions. The items of the response before, if one is named, are read first, then
 * those of the request, in which kept items stand for references. Items of the assistant that follow each
 * other become one message. Templates know no namespaces: a tool in one has the name SPACE.NAME there, and
 * answers have both apart again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "openai.h"

#include <string.h>

#include "base/words.h"
#include "server/access/keys.h"
#include "server/api/common/ask.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/api/common/foreign.h"
#include "server/api/common/hint.h"
#include "server/api/common/records.h"
#include "server/api/common/turns.h"
#include "server/request/call.h"

/* ---- Content ---- */

static bool read_text(serve_turns *turns, const char *place, const json_t *part)
{
    return serve_turns_read_text(turns, place, part, SERVE_OBJECT_ITEM_TEXT, "text", "a part with a text",
                                 serve_turns_add_text);
}

static bool read_image(serve_turns *turns, const char *place, const json_t *part)
{
    const json_t *url = json_object_get(part, "image_url");
    serve_call *call = turns->ask->call;
    if (!turns->ask->unkept && json_is_true(json_object_get(turns->ask->json, "store")) &&
        !serve_hint_name(call, "store"))
        return false;
    turns->ask->unkept = true; /* its memory would be kept */
    if (!serve_field_only(call, place, part, SERVE_OBJECT_ITEM_IMAGE)) return false;
    if (!json_is_string(url)) return serve_field_refuse(call, place, "an image with an image_url");
    serve_turns_add_image(turns, place, url);
    json_object_del((json_t *)part,
                    "image_url"); /* the message alone has it, and drops it once it is decoded */
    return true;
}

static bool read_refusal(serve_turns *turns, const char *place, const json_t *part)
{
    return serve_turns_read_text(turns, place, part, SERVE_OBJECT_ITEM_REFUSAL, "refusal",
                                 "a part with a refusal, a string", serve_turns_add_text);
}

static bool read_part(serve_call *call, void *to, const char *place, const json_t *part)
{
    static const char allowed[] = "input_text, output_text, input_image, refusal";
    const char *type = serve_field_type(part);
    bool text = serve_ask_is(type, "input_text") || serve_ask_is(type, "output_text");
    if (text) return read_text(to, place, part);
    if (serve_ask_is(type, "input_image")) return read_image(to, place, part);
    if (serve_ask_is(type, "refusal")) return read_refusal(to, place, part);
    if (serve_ask_is(type, "input_file") || serve_ask_is(type, "input_audio")) /* what is asked about */
        return serve_field_refuse_type(call, place, part, allowed);
    return serve_foreign_add(to, place, part, true, allowed);
}

/* Reads a string, or an array of texts and images, into the last message. */
static bool read_content(serve_turns *turns, const char *place, const json_t *content)
{
    return serve_turns_read_content(turns, place, content, read_part, "a string or an array of parts");
}

/* Joins two strings with `between` between them, or gives the one that is there; freed with json_decref. */
static json_t *join_strings(const json_t *first, const char *between, const json_t *second)
{
    if (!json_is_string(first) || !json_is_string(second))
        return json_incref((json_t *)(json_is_string(first) ? first : second));
    return json_sprintf("%s%s%s", json_string_value(first), between, json_string_value(second));
}

/* ---- Items ---- */

static bool read_message(serve_turns *turns, const char *place, const json_t *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    serve_call *call = turns->ask->call;
    const char *role = json_string_value(json_object_get(item, "role"));
    size_t i = 0;
    if (!serve_field_only(call, place, item, SERVE_OBJECT_ITEM_MESSAGE)) return false;
    while (i < 4 && !serve_ask_is(role, roles[i])) i++;
    if (i == 4)
        return serve_field_refuse(call, serve_place_of(place, "role").text,
                                  "\"user\", \"assistant\", \"system\" or \"developer\"");
    /* Consecutive items of the assistant become one message. So do system and developer messages at the
     * beginning: many templates take only one system message. */
    const char *last = json_string_value(json_object_get(turns->last, "role"));
    bool joins = i == 1 || (i >= 2 && (last == NULL || strcmp(last, "system") == 0));
    if (joins)
        serve_turns_go_on(turns, i == 1 ? role : "system", place);
    else
        serve_turns_begin(turns, role, place);
    return read_content(turns, serve_place_of(place, "content").text, json_object_get(item, "content"));
}

static bool add_reasoning(serve_turns *turns, const char *place, const json_t *list, const char *type)
{
    size_t i;
    json_t *part;
    json_array_foreach((json_t *)list, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (!serve_ask_is(serve_field_type(part), type))
            return serve_field_refuse_type(turns->ask->call, place, part, type);
        if (!json_is_string(text))
            return serve_field_refuse(turns->ask->call, place, "reasoning with a text in each part");
        serve_turns_go_on(turns, "assistant", place);
        serve_turns_add_reasoning(turns, text);
        if (turns->ask->call->begun) return false;
    }
    return true;
}

/* A summary counts where there is nothing else. */
static bool read_reasoning(serve_turns *turns, const char *place, const json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    if (!serve_field_only(turns->ask->call, place, item, SERVE_OBJECT_ITEM_REASONING)) return false;
    return json_array_size(content) > 0
               ? add_reasoning(turns, place, content, "reasoning_text")
               : add_reasoning(turns, place, json_object_get(item, "summary"), "summary_text");
}

static bool add_call(serve_turns *turns, const char *place, const json_t *item, const json_t *arguments)
{
    const json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    if (!json_is_string(id) || !json_is_string(name))
        return serve_field_refuse(turns->ask->call, place, "a call with call_id and name");
    json_t *full = join_strings(json_object_get(item, "namespace"), ".", name);
    serve_turns_go_on(turns, "assistant", place);
    serve_turns_add_call(turns, id, full, arguments);
    json_decref(full);
    return true;
}

static bool read_call(serve_turns *turns, const char *place, const json_t *item)
{
    const json_t *arguments = json_object_get(item, "arguments");
    return serve_field_only(turns->ask->call, place, item, SERVE_OBJECT_ITEM_CALL) &&
           (json_is_string(arguments) ||
            serve_field_refuse(turns->ask->call, place, "a function_call with arguments")) &&
           add_call(turns, place, item, arguments);
}

static bool read_custom_call(serve_turns *turns, const char *place, const json_t *item)
{
    const json_t *input = json_object_get(item, "input");
    if (!serve_field_only(turns->ask->call, place, item, SERVE_OBJECT_ITEM_CUSTOM_CALL)) return false;
    if (!json_is_string(input))
        return serve_field_refuse(turns->ask->call, place, "a custom_tool_call with an input");
    json_t *arguments = json_pack("{s:O}", "input", input);
    bool ok =
        arguments != NULL ? add_call(turns, place, item, arguments) : serve_call_no_memory(turns->ask->call);
    json_decref(arguments);
    return ok;
}

static bool read_output(serve_turns *turns, const char *place, const json_t *item)
{
    serve_call *call = turns->ask->call;
    const json_t *id = json_object_get(item, "call_id");
    if (!serve_field_only(call, place, item, SERVE_OBJECT_ITEM_OUTPUT)) return false;
    if (!json_is_string(id)) return serve_field_refuse(call, place, "an output with a call_id");
    serve_turns_begin(turns, "tool", place);
    serve_turns_set_call(turns, id);
    return read_content(turns, serve_place_of(place, "output").text, json_object_get(item, "output"));
}

/* Tools that join the request's own. */
static bool find_tools(serve_ask *ask, const char *place, const json_t *item)
{
    json_t *tools = json_object_get(item, "tools"), *tool;
    serve_place at = serve_place_of(place, "tools");
    size_t i;
    if (!serve_field_only(ask->call, place, item, SERVE_OBJECT_ITEM_TOOLS)) return false;
    if (!json_is_array(tools) || json_array_size(tools) > SERVE_TOOLS_MAX)
        return serve_field_refuse(ask->call, at.text, "an array of at most " SERVE_TOOLS_TEXT " tools");
    json_array_foreach(tools, i, tool)
    {
        if (!serve_ask_bring_tool(ask, serve_place_at(at.text, i).text, tool)) return false;
    }
    return true;
}

static bool read_item(serve_call *call, void *to, const char *place, const json_t *item)
{
    serve_turns *turns = to;
    const char *type = serve_field_type(item);
    if (!json_is_object(item)) return serve_field_refuse(call, place, "an object");
    if (type == NULL || strcmp(type, "message") == 0) return read_message(turns, place, item);
    if (strcmp(type, "function_call") == 0) return read_call(turns, place, item);
    if (strcmp(type, "custom_tool_call") == 0) return read_custom_call(turns, place, item);
    if (strcmp(type, "function_call_output") == 0 || strcmp(type, "custom_tool_call_output") == 0)
        return read_output(turns, place, item);
    if (strcmp(type, "reasoning") == 0) return read_reasoning(turns, place, item);
    if (strcmp(type, "tool_search_output") == 0 || strcmp(type, "additional_tools") == 0)
        return find_tools(turns->ask, place, item);
    return serve_foreign_add(turns, place, item, false, "");
}

/* The items of the response before, with its own output: an array that the caller frees, or NULL after an
 * answer. */
static json_t *find_items(serve_ask *ask, const char *id)
{
    serve_call *call = ask->call;
    const char *salt = serve_keys_salt(call->server->keys, call->key);
    weir__text before = {0}, input = {0}, response = {0};
    json_t *items = NULL, *answer = NULL;
    weir_error error = {0};
    weir_status status = serve_records_find(call->server->records, id, salt, &before, &input, &response);
    if (status == WEIR_INVALID)
        serve_call_refuse(call, 400, "previous_response_id", "previous_response_not_found",
                          "there is no response \"%.63s\" here that this key may continue: those with "
                          "\"store\": false are not kept, and others for %d s, as far as there is room",
                          id, call->response_s);
    else if (status == WEIR_OK) {
        weir__text all = {0};
        weir__text_printf(&all, "[%s%s%s]", before.bytes, before.n > 0 && input.n > 0 ? "," : "",
                          input.bytes);
        status = all.failed ? WEIR_NO_MEMORY
                            : weir__json_parse_texts(all.bytes, all.n, "previous_response_id", WEIR_INVALID,
                                                     &items, &error);
        if (status == WEIR_OK)
            status = weir__json_parse_texts(response.bytes, response.n, "previous_response_id", WEIR_INVALID,
                                            &answer, &error);
        if (status == WEIR_OK && json_array_extend(items, json_object_get(answer, "output")) != 0)
            status = WEIR_NO_MEMORY;
        weir__text_fini(&all);
    }
    if (status != WEIR_OK && !call->begun) serve_call_passes(call, status, &error);
    json_decref(answer);
    weir__text_fini(&before);
    weir__text_fini(&input);
    weir__text_fini(&response);
    if (call->begun) {
        json_decref(items);
        items = NULL;
    }
    return items;
}

static bool read_previous(serve_turns *turns)
{
    static const char place[] = "previous_response_id";
    serve_ask *ask = turns->ask;
    const json_t *id = serve_ask_given(ask, place);
    size_t i;
    json_t *item;
    if (id == NULL) return true;
    if (!json_is_string(id)) return serve_field_refuse(ask->call, place, "a string: a response's id");
    if ((ask->previous = find_items(ask, json_string_value(id))) == NULL) return false;
    json_array_foreach(ask->previous, i, item)
    {
        if (!serve_call_goes_on(ask->call) || !read_item(ask->call, turns, place, item) || ask->call->begun)
            return false;
    }
    return true;
}

static bool read_input(serve_ask *ask)
{
    serve_turns turns = {.ask = ask};
    const json_t *said = serve_ask_given(ask, "instructions"), *input = serve_ask_given(ask, "input");
    bool ok =
        said == NULL || json_is_string(said) || serve_field_refuse(ask->call, "instructions", "a string");
    if (ok && json_string_length(said) > 0) {
        serve_turns_begin(&turns, "system", "instructions");
        serve_turns_add_text(&turns, said);
    }
    ok = ok && read_previous(&turns) && serve_ask_references(ask);
    if (ok && json_is_string(input)) {
        serve_turns_begin(&turns, "user", "input");
        serve_turns_add_text(&turns, input);
    } else if (ok && json_array_size(input) == 0) {
        ok = serve_field_refuse(ask->call, "input", "a string or an array of at least one item");
    }
    ok = ok && serve_field_each(ask->call, &turns, "input", input, read_item) && serve_turns_end(&turns);
    serve_turns_fini(&turns);
    return ok;
}

/* ---- Tools ---- */

/* A choice may name a tool without its namespace, if no other one has such a tool. */
static bool note_plain(serve_ask *ask, const json_t *own, json_t *full)
{
    const char *key = json_string_value(own);
    if (ask->plain == NULL) ask->plain = json_object();
    const json_t *known = json_object_get(ask->plain, key);
    json_t *value = known == NULL || json_equal(known, full) ? full : json_null();
    return json_object_set(ask->plain, key, value) == 0 || serve_call_no_memory(ask->call);
}

/* space: the tool's namespace, or NULL. Templates have none: they see the tool as SPACE.NAME, and its
 * description begins with the namespace's. */
static bool add_tool(serve_ask *ask, const char *place, const json_t *tool, const json_t *space,
                     const json_t *schema, const json_t *strict, bool custom)
{
    const json_t *own = json_object_get(tool, "name");
    json_t *name = json_is_string(own) ? join_strings(json_object_get(space, "name"), ".", own)
                                       : json_incref((json_t *)own);
    if (serve_ask_is_brought(ask, name)) {
        json_decref(name);
        return true;
    }
    json_t *words =
        join_strings(json_object_get(space, "description"), "\n\n", json_object_get(tool, "description"));
    bool ok = serve_ask_add_tool(ask, place, name, words, schema, strict);
    if (ok && custom) ok = serve_ask_custom_name(ask, name);
    if (ok && space != NULL && json_is_string(own)) ok = note_plain(ask, own, name);
    json_decref(words);
    json_decref(name);
    return ok;
}

static bool read_function(serve_ask *ask, const char *place, const json_t *tool, const json_t *space)
{
    const json_t *schema = json_object_get(tool, "parameters");
    if (!serve_field_only(ask->call, place, tool, SERVE_OBJECT_ITEM_FUNCTION)) return false;
    if (schema != NULL && !json_is_null(schema) && !json_is_object(schema))
        return serve_field_refuse(ask->call, serve_place_of(place, "parameters").text,
                                  "an object: a JSON Schema");
    return add_tool(ask, place, tool, space, schema, json_object_get(tool, "strict"), false);
}

static bool read_custom(serve_ask *ask, const char *place, const json_t *tool, const json_t *space)
{
    if (!serve_field_only(ask->call, place, tool, SERVE_OBJECT_ITEM_CUSTOM)) return false;
    json_t *schema = serve_ask_custom_schema(ask->call, serve_place_of(place, "format").text,
                                             json_object_get(tool, "format"));
    bool ok = schema != NULL && add_tool(ask, place, tool, space, schema, json_true(), true);
    json_decref(schema);
    return ok;
}

static bool read_tool(serve_ask *ask, const char *place, const json_t *tool, const json_t *space)
{
    const char *type = serve_field_type(tool);
    if (serve_ask_is(type, "function")) return read_function(ask, place, tool, space);
    if (serve_ask_is(type, "custom")) return read_custom(ask, place, tool, space);
    return serve_foreign_tool(ask, place, tool,
                              space == NULL ? "function, custom, namespace" : "function, custom");
}

#define DESCRIPTION_MAX ((size_t)64 << 10) /* bytes; each tool of the namespace gets a copy */

/* True if an item brings a namespace once more. */
static bool has_namespace(const serve_ask *ask, const json_t *name)
{
    size_t i = 0, n = ask->again ? json_array_size(ask->namespaces) : 0;
    while (i < n && !json_equal(json_array_get(ask->namespaces, i), name)) i++;
    return i < n;
}

static bool read_namespace(serve_ask *ask, const char *place, const json_t *given)
{
    const json_t *name = json_object_get(given, "name"), *tools = json_object_get(given, "tools"),
                 *description = json_object_get(given, "description");
    size_t i;
    json_t *tool;
    if (!serve_field_only(ask->call, place, given, SERVE_OBJECT_ITEM_NAMESPACE)) return false;
    if (json_string_length(name) == 0 || !json_is_array(tools))
        return serve_field_refuse(ask->call, place, "a namespace with a name and tools");
    if ((description != NULL && !json_is_null(description) && !json_is_string(description)) ||
        json_string_length(description) > DESCRIPTION_MAX)
        return serve_field_refuse(ask->call, serve_place_of(place, "description").text,
                                  "a string of at most 65536 bytes");
    bool known = has_namespace(ask, name);
    if (!known && json_array_size(ask->namespaces) == SERVE_SPACES_MAX)
        return serve_field_refuse(ask->call, "tools", "an array with at most 256 namespaces");
    if (ask->namespaces == NULL) ask->namespaces = json_array();
    if (!known && json_array_append(ask->namespaces, (json_t *)name) != 0)
        return serve_call_no_memory(ask->call);
    serve_place inner = serve_place_of(place, "tools");
    json_array_foreach(tools, i, tool)
    {
        if (!read_tool(ask, serve_place_at(inner.text, i).text, tool, given)) return false;
    }
    return true;
}

static bool read_any_tool(serve_call *call, void *to, const char *place, const json_t *tool)
{
    (void)call;
    return serve_ask_is(serve_field_type(tool), "namespace") ? read_namespace(to, place, tool)
                                                             : read_tool(to, place, tool, NULL);
}

static bool read_tools(serve_ask *ask)
{
    const json_t *tools = serve_ask_given(ask, "tools");
    ask->call->terms.parameters = "parameters";
    if (tools != NULL && !json_is_array(tools)) return serve_field_refuse(ask->call, "tools", "an array");
    return serve_field_each(ask->call, ask, "tools", tools, read_any_tool) &&
           serve_ask_read_brought(ask, read_any_tool);
}

/* Its name as templates see it, in {"type": "function", "name": …}, which may have a namespace.
 * NULL: the call has its answer. */
static json_t *read_chosen(serve_ask *ask, const char *place, const json_t *tool)
{
    const json_t *space = json_object_get(tool, "namespace"), *name = json_object_get(tool, "name");
    if (space != NULL && !json_is_null(space) && !json_is_string(space)) {
        serve_field_refuse(ask->call, serve_place_of(place, "namespace").text, "a string");
        return NULL;
    }
    if (!json_is_string(name)) {
        serve_field_refuse(ask->call, serve_place_of(place, "name").text, "a tool's name");
        return NULL;
    }
    json_t *full = join_strings(space, ".", name);
    if (full == NULL) serve_call_no_memory(ask->call);
    return full;
}

static bool is_own(const json_t *tool)
{
    const char *type = serve_field_type(tool);
    return serve_ask_is(type, "function") || serve_ask_is(type, "custom");
}

static bool read_allowed_tool(serve_call *call, void *to, const char *place, const json_t *tool)
{
    (void)call;
    if (!is_own(tool)) return serve_foreign_skip(to, place, tool, "function, custom");
    json_t *name = read_chosen(to, place, tool);
    return name != NULL && serve_ask_allow_tool(to, name);
}

static bool read_choice(serve_ask *ask)
{
    const json_t *choice = serve_ask_given(ask, "tool_choice");
    if (choice == NULL) return true;
    if (serve_ask_is(serve_field_type(choice), "allowed_tools"))
        return serve_ask_allow_tools(ask, "tool_choice", choice, read_allowed_tool);
    if (json_is_string(choice)) return serve_ask_tool_choice(ask->call, ask, "tool_choice", choice);
    if (!is_own(choice))
        return serve_field_refuse_type(ask->call, "tool_choice", choice, "function, custom, allowed_tools");
    ask->made_name = read_chosen(ask, "tool_choice", choice);
    ask->tool_name = json_string_value(ask->made_name);
    ask->chat.tool_choice = WEIR_TOOLS_REQUIRED;
    return ask->tool_name != NULL;
}

/* ---- Options ---- */

/* The member text: its format. */
static bool read_text_option(serve_ask *ask)
{
    static const char place[] = "text.format";
    serve_call *call = ask->call;
    const json_t *text = serve_ask_given(ask, "text"), *format = json_object_get(text, "format");
    const json_t *schema = json_object_get(format, "schema");
    const char *type = serve_field_type(format);
    if (text == NULL) return true;
    if (!json_is_object(text)) return serve_field_refuse(call, "text", "an object");
    if (!serve_field_only(call, "text", text, SERVE_OBJECT_TEXT_OPTION)) return false;
    if (format == NULL || json_is_null(format) || serve_ask_is(type, "text")) return true;
    if (!serve_field_only(call, place, format, SERVE_OBJECT_TEXT_FORMAT)) return false;
    if (serve_ask_is(type, "json_object")) return serve_ask_set_any_object(ask, place, "text/format");
    if (!serve_ask_is(type, "json_schema"))
        return serve_field_refuse(call, "text.format.type", "\"text\", \"json_object\" or \"json_schema\"");
    if (!json_is_object(schema))
        return serve_field_refuse(call, "text.format.schema", "an object: a JSON Schema");
    ask->chat.strict_schema = json_is_true(json_object_get(format, "strict"));
    return serve_ask_set_schema(ask, place, "text/format/schema", schema);
}

/* Reasoning is shown in full, also for a summary "auto". */
static bool read_reasoning_option(serve_ask *ask)
{
    const json_t *reasoning = serve_ask_given(ask, "reasoning"),
                 *effort = json_object_get(reasoning, "effort");
    if (reasoning == NULL) return true;
    if (!json_is_object(reasoning)) return serve_field_refuse(ask->call, "reasoning", "an object");
    if (!serve_field_only(ask->call, "reasoning", reasoning, SERVE_OBJECT_REASONING_OPTION)) return false;
    return effort == NULL || json_is_null(effort) ||
           serve_ask_reasoning_effort(ask->call, ask, "reasoning.effort", effort);
}

/* Logprobs, and parts that answers have anyway. */
static bool read_include(serve_ask *ask)
{
    static const char logprobs[] = "message.output_text.logprobs";
    const json_t *include = serve_ask_given(ask, "include");
    size_t i;
    json_t *one;
    if (include != NULL && !json_is_array(include))
        return serve_field_refuse(ask->call, "include", "an array");
    json_array_foreach((json_t *)include, i, one)
    {
        const char *what = json_string_value(one);
        if (what == NULL) return serve_field_refuse(ask->call, "include", "an array of strings");
        if (serve_ask_is(what, logprobs))
            ask->request.logprobs = true;
        else if (!serve_ask_is(what, "reasoning.encrypted_content") &&
                 !serve_hint_take(ask->call, "include",
                                  "an array of \"message.output_text.logprobs\" and "
                                  "\"reasoning.encrypted_content\": reasoning is in the answer, and not "
                                  "encrypted"))
            return false;
    }
    return ask->request.n_logprobs == 0 || ask->request.logprobs ||
           serve_field_refuse(ask->call, "top_logprobs",
                              "0 or left out unless include has \"message.output_text.logprobs\"");
}

static bool check_background(const serve_ask *ask)
{
    const serve_params *params = &ask->call->server->params;
    if (!ask->background) return true;
    if (ask->unkept || params->response_bytes == 0)
        return serve_field_refuse(ask->call, "background",
                                  "false or left out where the response is not kept: with store false, with "
                                  "images, or by a server with --response-memory 0");
    return params->grace_s > 0 ||
           serve_field_refuse(ask->call, "background",
                              "false or left out: this server keeps no streams (--resume-grace 0)");
}

bool serve_ask_responses(serve_ask *ask)
{
    return read_input(ask) && check_background(ask) && read_tools(ask) && read_choice(ask) &&
           read_text_option(ask) && read_reasoning_option(ask) && read_include(ask);
}

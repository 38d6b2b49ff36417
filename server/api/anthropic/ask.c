/* ask.c: a request in the format of Anthropic's Messages API. Its conversation, tools and options become
 * those of chat completions. Each message's blocks are read into turns: results of tools become messages of
 * their own, calls join the assistant's message, and blocks that this server does not run are foreign.c's.
 * Tools, the choice and the options follow, each from its own field.
 * SPDX-License-Identifier: Apache-2.0 */
#include "anthropic.h"

#include <string.h>

#include "server/api/common/ask.h"
#include "server/api/common/field.h"
#include "server/api/common/foreign.h"
#include "server/api/common/hint.h"
#include "server/api/common/turns.h"
#include "server/request/body.h"

/* ---- Blocks ---- */

/* The kinds of blocks that are read here; foreign.c has the others. */
typedef enum block_kind {
    BLOCK_TEXT,
    BLOCK_IMAGE,
    BLOCK_DOCUMENT,
    BLOCK_THINKING,
    BLOCK_USE,
    BLOCK_RESULT,
    BLOCK_SYSTEM,
    BLOCK_COMPACTION,
    BLOCK_ADDITION,
    BLOCK_OTHER,
} block_kind;

static block_kind kind_of(const json_t *block)
{
    static const char *const types[] = {
        [BLOCK_TEXT] = "text",
        [BLOCK_IMAGE] = "image",
        [BLOCK_DOCUMENT] = "document",
        [BLOCK_THINKING] = "thinking",
        [BLOCK_USE] = "tool_use",
        [BLOCK_RESULT] = "tool_result",
        [BLOCK_SYSTEM] = "mid_conv_system",
        [BLOCK_COMPACTION] = "compaction",
        [BLOCK_ADDITION] = "tool_addition",
    };
    int kind = 0;
    while (kind < BLOCK_OTHER && !serve_ask_is(serve_field_type(block), types[kind])) kind++;
    return (block_kind)kind;
}

static bool read_text(serve_turns *turns, const char *place, const json_t *block)
{
    return serve_turns_read_text(turns, place, block, SERVE_OBJECT_MESSAGE_TEXT, "text",
                                 "a block with a text", serve_turns_add_text);
}

static bool read_image(serve_turns *turns, const char *place, const json_t *block)
{
    serve_call *call = turns->ask->call;
    const json_t *source = json_object_get(block, "source");
    const char *type = json_string_value(json_object_get(source, "media_type")),
               *data = json_string_value(json_object_get(source, "data"));
    if (!serve_field_only(call, place, block, SERVE_OBJECT_MESSAGE_IMAGE)) return false;
    if (serve_ask_is(serve_field_type(source), "url")) {
        if (!serve_field_only(call, place, source, SERVE_OBJECT_MESSAGE_IMAGE_URL)) return false;
        if (!json_is_string(json_object_get(source, "url")))
            return serve_field_refuse(call, place, "an image whose source has a url");
        serve_turns_add_image(turns, place, json_object_get(source, "url"));
        return true;
    }
    if (!serve_ask_is(serve_field_type(source), "base64"))
        return serve_field_refuse_type(call, place, source, "base64, url");
    if (!serve_field_only(call, place, source, SERVE_OBJECT_MESSAGE_IMAGE_DATA)) return false;
    if (type == NULL || data == NULL)
        return serve_field_refuse(call, place, "an image whose source has media_type and data");
    json_t *url = json_sprintf("data:%s;base64,%s", type, data);
    serve_turns_add_image(turns, place, url);
    json_decref(url);
    json_object_del((json_t *)source, "data"); /* the copy is dropped once it is decoded */
    return true;
}

static serve_reader read_block;

/* Reads a string, or an array of blocks, into the last message. */
static bool read_content(serve_turns *turns, const char *place, const json_t *content)
{
    return serve_turns_read_content(turns, place, content, read_block, "a string or an array of blocks");
}

/* True if a member is a string or left out. False: the call has its answer. */
static bool check_word(serve_call *call, const char *place, const json_t *block, const char *name)
{
    const json_t *word = json_object_get(block, name);
    return word == NULL || json_is_null(word) || json_is_string(word) ||
           serve_field_refuse(call, serve_place_of(place, name).text, "a string");
}

/* A title and a context stand before the document's text. */
static bool read_document(serve_turns *turns, const char *place, const json_t *block)
{
    serve_call *call = turns->ask->call;
    static const char *const head[] = {"title", "context", NULL};
    const json_t *source = json_object_get(block, "source"), *data = json_object_get(source, "data");
    const char *type = serve_field_type(source);
    serve_place at = serve_place_of(place, "source");
    if (!serve_field_only(call, place, block, SERVE_OBJECT_MESSAGE_DOCUMENT) ||
        !check_word(call, place, block, "title") || !check_word(call, place, block, "context"))
        return false;
    if (!serve_ask_is(type, "text") && !serve_ask_is(type, "content"))
        return serve_field_refuse_type(call, at.text, source, "text, content");
    if (!serve_field_only(call, at.text, source, SERVE_OBJECT_MESSAGE_DOCUMENT_SOURCE)) return false;
    if ((json_is_string(json_object_get(block, "title")) ||
         json_is_string(json_object_get(block, "context"))) &&
        !serve_foreign_add_text(turns, block, head))
        return false;
    if (serve_ask_is(type, "content"))
        return read_content(turns, serve_place_of(at.text, "content").text,
                            json_object_get(source, "content"));
    if (!json_is_string(data))
        return serve_field_refuse(call, serve_place_of(at.text, "data").text, "a string");
    serve_turns_add_text(turns, data);
    return true;
}

/* A tool that the block defines joins the request's own. All tools that it only names are there anyway. */
static bool read_addition(serve_turns *turns, const char *place, const json_t *block)
{
    const json_t *tool = json_object_get(block, "tool");
    json_t *definition = json_object_get(tool, "definition");
    serve_place at = serve_place_of(serve_place_of(place, "tool").text, "definition");
    if (!serve_field_only(turns->ask->call, place, block, SERVE_OBJECT_MESSAGE_ADDITION)) return false;
    if (!serve_ask_is(serve_field_type(tool), "tool_definition"))
        return serve_foreign_skip(turns->ask, place, block, "");
    if (!json_is_object(definition))
        return serve_field_refuse(turns->ask->call, at.text, "an object: a tool");
    return serve_ask_bring_tool(turns->ask, at.text, definition);
}

/* Reads a block into the last message. */
static bool read_block(serve_call *call, void *to, const char *place, const json_t *block)
{
    static const char allowed[] = "text, image, document";
    switch (kind_of(block)) {
    case BLOCK_TEXT: return read_text(to, place, block);
    case BLOCK_IMAGE: return read_image(to, place, block);
    case BLOCK_DOCUMENT: return read_document(to, place, block);
    case BLOCK_ADDITION: return read_addition(to, place, block);
    case BLOCK_OTHER: return serve_foreign_add(to, place, block, true, allowed);
    default: return serve_field_refuse_type(call, place, block, allowed);
    }
}

static bool read_thinking(serve_turns *turns, const char *place, const json_t *block)
{
    return serve_turns_read_text(turns, place, block, SERVE_OBJECT_MESSAGE_THINKING, "thinking",
                                 "a block with thinking, a string", serve_turns_add_reasoning);
}

static bool read_tool_use(serve_turns *turns, const char *place, const json_t *block)
{
    serve_call *call = turns->ask->call;
    const json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
                 *input = json_object_get(block, "input");
    if (!serve_field_only(call, place, block, SERVE_OBJECT_MESSAGE_TOOL_USE)) return false;
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return serve_field_refuse(call, place, "a tool_use with id, name and input, which is an object");
    serve_turns_add_call(turns, id, name, input);
    return true;
}

static bool read_tool_result(serve_turns *turns, const char *place, const json_t *block)
{
    serve_call *call = turns->ask->call;
    const json_t *id = json_object_get(block, "tool_use_id"), *content = json_object_get(block, "content");
    if (!serve_field_only(call, place, block, SERVE_OBJECT_MESSAGE_TOOL_RESULT)) return false;
    if (!json_is_string(id)) return serve_field_refuse(call, place, "a tool_result with a tool_use_id");
    serve_turns_begin(turns, "tool", place);
    serve_turns_set_call(turns, id);
    if (json_is_true(json_object_get(block, "is_error"))) { /* templates have no other way */
        json_t *word = json_string("Error:");
        serve_turns_add_text(turns, word);
        json_decref(word);
    }
    return content == NULL || json_is_null(content) ||
           read_content(turns, serve_place_of(place, "content").text, content);
}

/* Content of the system's, which may have no words: then there is no message. */
static bool read_system(serve_turns *turns, const char *place, const json_t *owner)
{
    serve_turns_begin(turns, "system", place);
    if (!read_content(turns, serve_place_of(place, "content").text, json_object_get(owner, "content")))
        return false;
    serve_turns_drop_empty(turns);
    return true;
}

/* Reads what the history before it has become. Without words it stands for a summary that failed. */
static bool read_compaction(serve_turns *turns, const char *place, const json_t *block)
{
    const json_t *words = json_object_get(block, "content");
    if (!serve_field_only(turns->ask->call, place, block, SERVE_OBJECT_MESSAGE_COMPACTION)) return false;
    if (!check_word(turns->ask->call, place, block, "content")) return false;
    if (json_string_length(words) == 0) return serve_foreign_skip(turns->ask, place, block, "");
    serve_turns_cut(turns, turns->n_first);
    turns->n_parts = turns->n_first;
    serve_turns_begin(turns, "user", place);
    serve_turns_add_text(turns, words);
    return true;
}

/* ---- Messages ---- */

static bool read_user_block(serve_call *call, void *to, const char *place, const json_t *block)
{
    static const char allowed[] = "text, image, document, tool_result, mid_conv_system, compaction";
    serve_turns *turns = to;
    switch (kind_of(block)) {
    case BLOCK_TEXT:
    case BLOCK_IMAGE:
    case BLOCK_DOCUMENT:
        serve_turns_go_on(turns, "user", place);
        return read_block(call, turns, place, block);
    case BLOCK_RESULT: return read_tool_result(turns, place, block);
    case BLOCK_SYSTEM:
        return serve_field_only(call, place, block, SERVE_OBJECT_MESSAGE_MID_SYSTEM) &&
               read_system(turns, place, block);
    case BLOCK_ADDITION: return read_addition(turns, place, block);
    case BLOCK_COMPACTION: return read_compaction(turns, place, block);
    case BLOCK_OTHER: return serve_foreign_add(turns, place, block, false, allowed);
    default: return serve_field_refuse_type(call, place, block, allowed);
    }
}

static bool read_assistant_block(serve_call *call, void *to, const char *place, const json_t *block)
{
    static const char allowed[] = "text, thinking, tool_use, compaction";
    serve_turns *turns = to;
    block_kind kind = kind_of(block);
    if (kind == BLOCK_TEXT || kind == BLOCK_THINKING || kind == BLOCK_USE)
        serve_turns_go_on(turns, "assistant", place);
    switch (kind) {
    case BLOCK_TEXT: return read_text(turns, place, block);
    case BLOCK_THINKING: return read_thinking(turns, place, block);
    case BLOCK_USE: return read_tool_use(turns, place, block);
    case BLOCK_COMPACTION: return read_compaction(turns, place, block);
    case BLOCK_OTHER: return serve_foreign_add(turns, place, block, false, allowed);
    default: return serve_field_refuse_type(call, place, block, allowed);
    }
}

static bool read_message(serve_call *call, void *to, const char *place, const json_t *message)
{
    serve_turns *turns = to;
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    bool user = serve_ask_is(role, "user"), assistant = serve_ask_is(role, "assistant");
    serve_place inner = serve_place_of(place, "content");
    if (!json_is_object(message)) return serve_field_refuse(call, place, "an object");
    if (!serve_field_only(call, place, message, SERVE_OBJECT_MESSAGE)) return false;
    if (!user && !assistant && !serve_ask_is(role, "system"))
        return serve_field_refuse(call, serve_place_of(place, "role").text,
                                  "\"user\", \"assistant\" or \"system\"");
    if (!user && !assistant) return read_system(turns, place, message);
    if (!json_is_array(content)) {
        serve_turns_begin(turns, role, place);
        return read_content(turns, inner.text, content);
    }
    if (json_array_size(content) == 0 || assistant) serve_turns_begin(turns, role, place);
    if (user) turns->last = NULL; /* results and texts begin messages of their own */
    if (!serve_field_each(call, turns, inner.text, content, user ? read_user_block : read_assistant_block))
        return false;
    if (json_array_size(content) > 0) serve_turns_drop_empty(turns); /* all of it was skipped */
    return true;
}

static bool read_conversation(serve_ask *ask)
{
    serve_turns turns = {.ask = ask};
    const json_t *system = serve_ask_given(ask, "system"), *messages = serve_ask_given(ask, "messages");
    bool ok = true;
    if (system != NULL && json_array_size(system) == 0 && json_string_length(system) == 0) {
        ok = json_is_string(system) || json_is_array(system) ||
             serve_field_refuse(ask->call, "system", "a string or an array of texts");
    } else if (system != NULL) {
        serve_turns_begin(&turns, "system", "system");
        ok = read_content(&turns, "system", system);
        serve_turns_drop_empty(&turns);
    }
    turns.n_first = json_array_size(turns.messages);
    if (ok && json_array_size(messages) == 0)
        ok = serve_field_refuse(ask->call, "messages", "an array of at least one message");
    ok = ok && serve_field_each(ask->call, &turns, "messages", messages, read_message) &&
         serve_turns_end(&turns);
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (ok && serve_ask_is(json_string_value(json_object_get(last, "role")), "assistant"))
        serve_turns_continue(ask); /* as in Anthropic's API; what follows the turn may have been skipped */
    serve_turns_fini(&turns);
    return ok;
}

/* ---- Tools ---- */

static bool read_tool(serve_call *call, void *to, const char *place, const json_t *tool)
{
    const json_t *schema = json_object_get(tool, "input_schema"), *type = json_object_get(tool, "type");
    if (!json_is_object(tool)) return serve_field_refuse(call, place, "an object");
    if (type != NULL && !json_is_null(type) && !serve_ask_is(json_string_value(type), "custom"))
        return serve_foreign_tool(to, place, tool, "custom");
    if (serve_ask_is_brought(to, json_object_get(tool, "name"))) return true;
    if (!serve_field_only(call, place, tool, SERVE_OBJECT_MESSAGE_TOOL)) return false;
    if (!json_is_object(schema))
        return serve_field_refuse(call, serve_place_of(place, "input_schema").text,
                                  "an object: a JSON Schema");
    return serve_ask_add_tool(to, place, json_object_get(tool, "name"), json_object_get(tool, "description"),
                              schema, json_object_get(tool, "strict"));
}

static bool read_tools(serve_ask *ask)
{
    const json_t *tools = serve_ask_given(ask, "tools");
    ask->call->terms.parameters = "input_schema";
    if (tools != NULL && !json_is_array(tools)) return serve_field_refuse(ask->call, "tools", "an array");
    return serve_field_each(ask->call, ask, "tools", tools, read_tool) &&
           serve_ask_read_brought(ask, read_tool);
}

static bool read_choice(serve_ask *ask)
{
    serve_call *call = ask->call;
    const json_t *choice = serve_ask_given(ask, "tool_choice");
    const json_t *alone = json_object_get(choice, "disable_parallel_tool_use");
    const char *type = serve_field_type(choice);
    if (choice == NULL) return true;
    if (!json_is_object(choice)) return serve_field_refuse(call, "tool_choice", "an object with a type");
    if (!serve_field_only(call, "tool_choice", choice, SERVE_OBJECT_MESSAGE_CHOICE)) return false;
    ask->chat.parallel_tool_calls = !json_is_true(alone);
    ask->chat.tool_choice = serve_ask_is(type, "auto")   ? WEIR_TOOLS_AUTO
                            : serve_ask_is(type, "none") ? WEIR_TOOLS_NONE
                                                         : WEIR_TOOLS_REQUIRED;
    if (serve_ask_is(type, "tool")) {
        ask->tool_name = json_string_value(json_object_get(choice, "name"));
        return ask->tool_name != NULL || serve_field_refuse(call, "tool_choice.name", "a tool's name");
    }
    return ask->chat.tool_choice != WEIR_TOOLS_REQUIRED || serve_ask_is(type, "any") ||
           serve_field_refuse(call, "tool_choice.type", "\"auto\", \"any\", \"tool\" or \"none\"");
}

/* ---- Options ---- */

/* Reads "thinking": without the field an answer has none, as in Anthropic's API. */
static bool read_thinking_option(serve_ask *ask)
{
    serve_call *call = ask->call;
    const json_t *thinking = serve_ask_given(ask, "thinking"),
                 *budget = json_object_get(thinking, "budget_tokens");
    static const char *const types[] = {"enabled", "adaptive", "disabled", NULL};
    const char *type = serve_field_type(thinking);
    ask->chat.enable_thinking = serve_ask_is(type, "enabled") || serve_ask_is(type, "adaptive");
    if (thinking == NULL) return true;
    if (!serve_hint_word(call, "thinking.type", type, types, "\"enabled\", \"adaptive\" or \"disabled\""))
        return false;
    if (!serve_field_only(call, "thinking", thinking, SERVE_OBJECT_THINKING_OPTION)) return false;
    if (budget == NULL) return true;
    json_int_t n;
    if (!serve_json_whole(budget, &n) || n < 1)
        return serve_field_refuse(call, "thinking.budget_tokens", "a whole number above 0");
    if (n < INT32_MAX) ask->request.reasoning_budget = (int32_t)n;
    return true;
}

static bool read_output(serve_ask *ask)
{
    serve_call *call = ask->call;
    const json_t *output = serve_ask_given(ask, "output_config"), *effort = json_object_get(output, "effort"),
                 *format = json_object_get(output, "format"), *schema = json_object_get(format, "schema");
    if (output == NULL) return true;
    if (!json_is_object(output)) return serve_field_refuse(call, "output_config", "an object");
    if (!serve_field_only(call, "output_config", output, SERVE_OBJECT_OUTPUT)) return false;
    static const char levels[] = "\"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"";
    if (serve_ask_is(json_string_value(effort), "none"))
        return serve_field_refuse(call, "output_config.effort", levels);
    if (effort != NULL && !json_is_null(effort) &&
        !serve_ask_effort(ask, "output_config.effort", effort, levels))
        return false;
    if (format == NULL || json_is_null(format)) return true;
    if (!serve_ask_is(serve_field_type(format), "json_schema") || !json_is_object(schema))
        return serve_field_refuse(call, "output_config.format",
                                  "an object with the type \"json_schema\" and a schema");
    if (!serve_field_only(call, "output_config.format", format, SERVE_OBJECT_OUTPUT_FORMAT)) return false;
    ask->chat.strict_schema = true;
    return serve_ask_set_schema(ask, "output_config.format", "output_config/format/schema", schema);
}

/* Edits that keep all thinking change nothing; others make a long conversation shorter, which then may find
 * no room. */
static bool read_context_management(serve_ask *ask)
{
    const json_t *management = serve_ask_given(ask, "context_management");
    const json_t *edits = json_object_get(management, "edits");
    size_t i;
    json_t *edit;
    if (management != NULL && !json_is_object(management))
        return serve_field_refuse(ask->call, "context_management", "an object");
    bool harmless = json_object_size(management) == (edits != NULL ? 1U : 0U);
    json_array_foreach((json_t *)edits, i, edit)
    {
        const char *type = serve_field_type(edit), *keep = json_string_value(json_object_get(edit, "keep"));
        harmless = harmless && type != NULL && strncmp(type, "clear_thinking_", 15) == 0 &&
                   serve_ask_is(keep, "all");
    }
    return harmless || serve_hint_take(ask->call, "context_management",
                                       "left out, or clear_thinking with \"keep\": \"all\": this server "
                                       "changes no conversation");
}

bool serve_ask_messages(serve_ask *ask)
{
    return read_conversation(ask) && read_tools(ask) && read_choice(ask) && read_thinking_option(ask) &&
           read_output(ask) && read_context_management(ask);
}

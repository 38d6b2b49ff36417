/* foreign.c: tools that run on another server, and what they left in a conversation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "foreign.h"

#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/base64.h"
#include "base/mem.h"
#include "field.h"
#include "hint.h"
#include "server/request/call.h"

#define TYPE_MAX    40 /* bytes of a type that are named */
#define MEMBERS_MAX 4

/* ---- The table ---- */

/* A row says what a prompt has of an item or block. asked: members that a model wrote; got: members that came
 * back. A row without any is skipped, as are types without a row. */
typedef struct foreign_row {
    unsigned where; /* bits of SERVE_ASK_* */
    const char *type;
    const char *asked[MEMBERS_MAX], *got[MEMBERS_MAX]; /* each ends with NULL */
} foreign_row;

/* clang-format off */
static const foreign_row rows[] = {
    {SERVE_ASK_RESPONSES, "web_search_call", {NULL}, {"action"}}, /* its sources came back */
    {SERVE_ASK_RESPONSES, "file_search_call", {"queries"}, {"results"}},
    {SERVE_ASK_RESPONSES, "code_interpreter_call", {"code"}, {"outputs"}},
    {SERVE_ASK_RESPONSES, "image_generation_call", {"revised_prompt"}, {NULL}},
    {SERVE_ASK_RESPONSES, "computer_call", {"action", "actions"}, {NULL}},
    {SERVE_ASK_RESPONSES, "local_shell_call", {"action"}, {NULL}},
    {SERVE_ASK_RESPONSES, "local_shell_call_output", {NULL}, {"output"}},
    {SERVE_ASK_RESPONSES, "shell_call", {"action"}, {NULL}},
    {SERVE_ASK_RESPONSES, "shell_call_output", {NULL}, {"output"}},
    {SERVE_ASK_RESPONSES, "apply_patch_call", {"operation"}, {NULL}},
    {SERVE_ASK_RESPONSES, "apply_patch_call_output", {NULL}, {"status", "output"}},
    {SERVE_ASK_RESPONSES, "mcp_call", {"server_label", "name", "arguments"}, {"output", "error"}},
    {SERVE_ASK_RESPONSES, "mcp_approval_request", {"server_label", "name", "arguments"}, {NULL}},
    {SERVE_ASK_RESPONSES, "mcp_approval_response", {NULL}, {"approve", "reason"}},
    {SERVE_ASK_RESPONSES, "tool_search_call", {"arguments"}, {NULL}},
    {SERVE_ASK_RESPONSES, "program", {"code"}, {NULL}},
    {SERVE_ASK_RESPONSES, "program_output", {NULL}, {"result"}},
    {SERVE_ASK_MESSAGES, "server_tool_use", {"name", "input"}, {NULL}},
    {SERVE_ASK_MESSAGES, "mcp_tool_use", {"server_name", "name", "input"}, {NULL}},
    {SERVE_ASK_MESSAGES, "mcp_tool_result", {NULL}, {"content", "is_error"}},
    {SERVE_ASK_MESSAGES, "web_search_tool_result", {NULL}, {"content"}},
    {SERVE_ASK_MESSAGES, "web_fetch_tool_result", {NULL}, {"content"}},
    {SERVE_ASK_MESSAGES, "code_execution_tool_result", {NULL}, {"content"}},
    {SERVE_ASK_MESSAGES, "bash_code_execution_tool_result", {NULL}, {"content"}},
    {SERVE_ASK_MESSAGES, "text_editor_code_execution_tool_result", {NULL}, {"content"}},
    {SERVE_ASK_MESSAGES, "tool_search_tool_result", {NULL}, {"content"}},
    {SERVE_ASK_MESSAGES, "advisor_tool_result", {NULL}, {"content"}},
    {SERVE_ASK_MESSAGES, "tool_reference", {NULL}, {"tool_name"}},
    {SERVE_ASK_MESSAGES, "search_result", {NULL}, {"title", "source", "content"}},
    {SERVE_ASK_MESSAGES, "browser_state", {NULL}, {"tabs", "state_changes"}},
};
/* clang-format on */

/* NULL: there is none. */
static const foreign_row *find_row(unsigned where, const json_t *item)
{
    const char *type = serve_field_type(item);
    for (size_t i = 0; type != NULL && i < sizeof rows / sizeof *rows; i++)
        if ((rows[i].where & where) != 0 && strcmp(rows[i].type, type) == 0) return &rows[i];
    return NULL;
}

/* ---- What is left out ---- */

/* A type as a header and a log may have it. */
static void copy_type(char out[TYPE_MAX + 1], const char *type)
{
    size_t n = 0;
    for (; n < TYPE_MAX && type[n] != '\0'; n++)
        out[n] = weir__ascii_is_alnum(type[n]) || strchr("_-.", type[n]) != NULL ? type[n] : '?';
    out[n] = '\0';
}

bool serve_foreign_skip(serve_ask *ask, const char *place, const json_t *object, const char *allowed)
{
    const char *type = serve_field_type(object);
    char list[SERVE_PLACE_MAX], shown[TYPE_MAX + 1], name[SERVE_PLACE_MAX + TYPE_MAX + 2];
    if (type == NULL || ask->call->strict) return serve_field_refuse_type(ask->call, place, object, allowed);
    serve_hint_place(place, NULL, list, sizeof list);
    copy_type(shown, type);
    snprintf(name, sizeof name, "%s: %s", list, shown);
    return serve_hint_name(ask->call, name);
}

/* ---- Tools ---- */

static const char *tool_name(const json_t *tool)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    return name != NULL ? name : serve_field_type(tool);
}

bool serve_foreign_tool(serve_ask *ask, const char *place, const json_t *tool, const char *allowed)
{
    if (!serve_foreign_skip(ask, place, tool, allowed)) return false;
    if (json_array_size(ask->left_out) == SERVE_TOOLS_MAX) return true;
    if (ask->left_out == NULL) ask->left_out = json_array();
    return json_array_append(ask->left_out, (json_t *)tool) == 0 || serve_call_no_memory(ask->call);
}

const char *serve_foreign_left_out(const serve_ask *ask, const char *name)
{
    for (size_t i = 0; i < json_array_size(ask->left_out); i++) {
        const json_t *tool = json_array_get(ask->left_out, i);
        if (name == NULL || strcmp(tool_name(tool), name) == 0 || serve_ask_is(serve_field_type(tool), name))
            return tool_name(tool);
    }
    return NULL;
}

/* ---- Texts ---- */

/* True if prompts have a member: no ids of files, no signatures, and neither pictures nor other files. */
static bool is_readable(const json_t *owner, const char *name, const json_t *value)
{
    static const char *const hidden[] = {"encrypted_content", "encrypted_index", "encrypted_stdout",
                                         "signature",         "cache_control",   "file_id"};
    size_t from;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (strcmp(name, hidden[i]) == 0) return false;
    if (strcmp(name, "data") == 0 && serve_ask_is(serve_field_type(owner), "base64")) return false;
    return !json_is_string(value) ||
           !weir__base64_in_url(json_string_value(value), json_string_length(value), &from);
}

/* A copy of the parts that can be read; NULL: out of memory, or interrupted. The parser bounds the depth. */
static json_t *copy_readable(const json_t *value)
{
    const char *name;
    json_t *one;
    size_t i;
    if (!json_is_object(value) && !json_is_array(value)) return json_incref((json_t *)value);
    json_t *copy = json_is_object(value) ? json_object() : json_array();
    bool ok = copy != NULL && !weir_interrupt_asked();
    json_object_foreach((json_t *)value, name, one)
    {
        if (ok && is_readable(value, name, one))
            ok = json_object_set_new(copy, name, copy_readable(one)) == 0;
    }
    json_array_foreach((json_t *)value, i, one) ok =
        ok && json_array_append_new(copy, copy_readable(one)) == 0;
    if (ok) return copy;
    json_decref(copy);
    return NULL;
}

/* True if a value is an array of texts alone. */
static bool is_texts(const json_t *value)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)value, i, one)
    {
        if (!serve_ask_is(serve_field_type(one), "text") || !json_is_string(json_object_get(one, "text")))
            return false;
    }
    return json_array_size(value) > 0;
}

/* Texts as they are, in lines, and anything else as JSON. */
static bool add_value(weir__text *text, const json_t *value, bool got)
{
    if (json_is_string(value))
        return weir__text_add(text, json_string_value(value), json_string_length(value));
    if (is_texts(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *one = json_object_get(json_array_get(value, i), "text");
            if (i > 0) weir__text_add_string(text, "\n");
            weir__text_add(text, json_string_value(one), json_string_length(one));
        }
        return !text->failed;
    }
    json_t *copy = got ? copy_readable(value) : json_incref((json_t *)value);
    char *dump = copy != NULL ? weir__json_dump(copy) : NULL;
    bool ok = dump != NULL && weir__text_add_string(text, dump);
    weir__mem_free(dump);
    json_decref(copy);
    return ok;
}

static bool add_text(serve_turns *turns, const json_t *item, const char *const *members, bool got)
{
    weir__text text = {0};
    bool ok = weir__text_printf(&text, "[%s]", serve_field_type(item));
    for (size_t i = 0; members[i] != NULL; i++) {
        const json_t *value = json_object_get(item, members[i]);
        if (value == NULL || json_is_null(value) || (got && !is_readable(item, members[i], value))) continue;
        ok = ok && weir__text_printf(&text, "\n%s: ", members[i]) && add_value(&text, value, got);
    }
    json_t *made = ok ? json_stringn(text.bytes, text.n) : NULL;
    weir__text_fini(&text);
    if (made == NULL) return serve_call_no_memory(turns->ask->call);
    serve_turns_add_text(turns, made);
    json_decref(made);
    return true;
}

bool serve_foreign_add_text(serve_turns *turns, const json_t *item, const char *const *members)
{
    return add_text(turns, item, members, false);
}

/* True if an item has any of the members. */
static bool has_any(const json_t *item, const char *const *members)
{
    for (size_t i = 0; members[i] != NULL; i++) {
        const json_t *value = json_object_get(item, members[i]);
        if (value != NULL && !json_is_null(value)) return true;
    }
    return false;
}

bool serve_foreign_add(serve_turns *turns, const char *place, const json_t *item, bool within,
                       const char *allowed)
{
    const foreign_row *row = find_row(turns->ask->where, item);
    if (row == NULL) return serve_foreign_skip(turns->ask, place, item, allowed);
    if (row->asked[0] != NULL) {
        if (!within) serve_turns_go_on(turns, "assistant", place);
        if (!add_text(turns, item, row->asked, false)) return false;
    }
    if (row->got[0] == NULL || (row->asked[0] != NULL && !has_any(item, row->got))) return true;
    if (!within) {
        serve_turns_drop_empty(turns);
        serve_turns_go_on(turns, "user", place);
    }
    return add_text(turns, item, row->got, true);
}

bool serve_foreign_keep(json_t *lean, const json_t *item)
{
    const foreign_row *row = find_row(SERVE_ASK_RESPONSES, item);
    bool ok = true;
    for (size_t i = 0; row != NULL && row->asked[i] != NULL; i++) {
        json_t *value = json_object_get(item, row->asked[i]);
        if (value != NULL) ok = ok && json_object_set(lean, row->asked[i], value) == 0;
    }
    for (size_t i = 0; row != NULL && row->got[i] != NULL; i++) {
        const json_t *value = json_object_get(item, row->got[i]);
        if (value != NULL && is_readable(item, row->got[i], value))
            ok = ok && json_object_set_new(lean, row->got[i], copy_readable(value)) == 0;
    }
    return ok;
}

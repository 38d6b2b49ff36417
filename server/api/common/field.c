/* field.c: reads the fields of a request's JSON by their rows, and judges those without one. A request is
 * walked once, member by member. A row says of which requests the field is, what it sets and what its value
 * may be, mostly by the library's own row for that member; special values have a reader. A member without a
 * row is refused if it is nearly a known name, or binds the answer elsewhere; else it is a hint, which
 * `strict` refuses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "field.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/member.h"
#include "hint.h"
#include "server/models/catalog.h"
#include "server/request/body.h"
#include "server/request/call.h"

bool serve_field_refuse(serve_call *call, const char *name, const char *what)
{
    return serve_call_refuse(call, 400, name, "invalid_value", "%s must be %s", name, what);
}

bool serve_field_refuse_type(serve_call *call, const char *place, const json_t *object, const char *allowed)
{
    const char *type = serve_field_type(object);
    return serve_call_refuse(
        call, 400, place, "unsupported_value", "%s is of type \"%.40s\"%s%s", place, type != NULL ? type : "",
        allowed[0] != '\0' ? "; supported here: " : ", which has no meaning here", allowed);
}

/* ---- The tables ---- */

static const serve_field_table *const tables[] = {&serve_ask_table, &serve_embeddings_table,
                                                  &serve_ollama_embed_table, &serve_rerank_table,
                                                  &serve_tokenize_table};

#define N_TABLES (sizeof tables / sizeof *tables)

bool serve_fields_know(const char *name)
{
    for (size_t i = 0; i < N_TABLES; i++)
        for (size_t k = 0; k < tables[i]->n; k++) {
            const char *field = tables[i]->fields[k].name, *dot = strrchr(field, '.');
            if (strcmp(field, name) == 0 || (dot != NULL && strcmp(dot + 1, name) == 0)) return true;
        }
    return weir_member_find("sampler", name) != NULL;
}

/* The row of a hint or refusal within a part of a request, "text.verbosity" or "tools[].strict". NULL: there
 * is none. */
static const serve_field *find_inner(const char *name)
{
    const serve_field_table *table = &serve_ask_table;
    if (strchr(name, '.') == NULL) return NULL;
    for (size_t i = 0; i < table->n; i++) {
        const serve_field *f = &table->fields[i];
        bool judged = f->kind == SERVE_FIELD_NEVER || (f->kind == SERVE_FIELD_HINT && f->read == NULL);
        if (judged && strcmp(f->name, name) == 0) return f;
    }
    return NULL;
}

const char *serve_fields_name(const char *of, const char *member, size_t n, unsigned where)
{
    for (size_t i = 0; i < serve_ask_table.n; i++) {
        const serve_field *f = &serve_ask_table.fields[i];
        if (f->of == NULL || (of != NULL && strcmp(f->of, of) != 0)) continue;
        if (where == 0 ? f->where == SERVE_ASK_OPTIONS : (f->where & where) == 0) continue;
        if (strlen(f->member) == n && memcmp(f->member, member, n) == 0) return f->name;
    }
    return NULL;
}

const serve_object_row serve_objects[] = {
#define ROW(name, where, place, ...) {where, place, {__VA_ARGS__}},
    SERVE_OBJECTS(ROW)
#undef ROW
};

/* ---- Hints ---- */

/* "a string or an array" */
static bool refuse_types(serve_call *call, const char *name, unsigned types)
{
    static const struct {
        unsigned types;
        const char *word;
    } words[] = {{SERVE_JSON_STRING, "a string"},
                 {SERVE_JSON_NUMBER, "a number"},
                 {SERVE_JSON_BOOL, "true or false"},
                 {SERVE_JSON_ARRAY, "an array"},
                 {SERVE_JSON_OBJECT, "an object"}};
    char list[96] = "";
    size_t n = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((types & words[i].types) != 0)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n > 0 ? " or " : "", words[i].word);
    return serve_field_refuse(call, name, list);
}

/* Compares a value with those of a row's `only`. False: the call has its answer, and *same is false. */
static bool compare_only(serve_call *call, const serve_field *f, const json_t *value, bool *same)
{
    char *text = weir__json_dump(value);
    *same = false;
    if (text == NULL) return serve_call_no_memory(call);
    for (const char *at = f->only; at != NULL && *at != '\0' && !*same; at += *at == '|') {
        size_t n = strcspn(at, "|");
        *same = strlen(text) == n && memcmp(text, at, n) == 0;
        at += n;
    }
    weir__mem_free(text);
    return true;
}

static bool asks_for_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

/* Reads a hint; name: where it is in the request. */
static bool read_hint(serve_call *call, const serve_field *f, void *to, const char *name, const json_t *value)
{
    bool same = false, none = json_is_array(value) && json_array_size(value) == 0;
    bool scalar = json_is_string(value) ? json_string_length(value) < 64
                                        : !json_is_array(value) && !json_is_object(value);
    if (call->strict && f->why != NULL && f->why[0] == '\0') return serve_hint_refuse(call, "", name);
    if (f->types != 0 && (f->types & 1u << json_typeof(value)) == 0)
        return refuse_types(call, name, f->types);
    if (f->only != NULL && scalar && !compare_only(call, f, value, &same)) return false;
    if (same || none) return true;
    if (f->read != NULL) return f->read(call, to, name, value);
    return serve_hint_take(call, name, f->why);
}

static bool refuse_never(serve_call *call, const serve_field *f, const char *name, const json_t *value)
{
    return (asks_for_nothing(value) && !call->strict) ||
           serve_call_refuse(call, 400, name, "unsupported_field", "%s is not supported: %s", name, f->why);
}

/* Names that a member of an object could be meant for: none, if another object has it. */
typedef struct known_members {
    const char *key;
    const char *const *members;
} known_members;

static const char *known_member(const void *of, size_t i)
{
    const known_members *known = of;
    return i == 0 && serve_fields_know(known->key) ? NULL : known->members[i];
}

static bool judge_member(serve_call *call, const char *place, const char *key, const json_t *value,
                         const char *const *members)
{
    char name[128], field[128];
    serve_hint_place(place, key, name, sizeof name);
    const serve_field *f = strlen(key) < sizeof name - SERVE_PLACE_MAX ? find_inner(name) : NULL;
    snprintf(field, sizeof field, "%s%s%.60s", place, place[0] != '\0' ? "." : "", key);
    if (f == NULL) {
        const known_members known = {key, members};
        return serve_hint_unknown(call, place, key, known_member, &known);
    }
    return f->kind == SERVE_FIELD_NEVER ? refuse_never(call, f, field, value)
                                        : read_hint(call, f, NULL, field, value);
}

bool serve_field_only(serve_call *call, const char *place, const json_t *object, serve_object of)
{
    const char *const *members = serve_objects[of].names;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;
        if (!serve_call_goes_on(call)) return false;
        while (members[i] != NULL && strcmp(members[i], key) != 0) i++;
        if (members[i] == NULL && !asks_for_nothing(value) && !judge_member(call, place, key, value, members))
            return false;
    }
    return true;
}

/* ---- Values ---- */

static bool refuse_number(serve_call *call, const char *name, const weir_member *member, bool whole)
{
    bool joined = member->or_minus_one && whole && member->min == 0; /* -1 is next to the others */
    return serve_call_refuse(call, 400, name, "invalid_value", "%s must be a %snumber from %.10g to %.13g%s",
                             name, whole ? "whole " : "", joined ? -1 : member->min, member->max,
                             member->or_minus_one && !joined ? ", or -1" : "");
}

/* "trusted", "none" or "all" */
static bool refuse_word(serve_call *call, const char *name, const char *const *words)
{
    char list[256] = "";
    size_t n = 0;
    for (size_t i = 0; words[i] != NULL && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s\"%s\"",
                              i == 0                 ? ""
                              : words[i + 1] == NULL ? " or "
                                                     : ", ",
                              words[i]);
    return serve_field_refuse(call, name, list);
}

bool serve_field_member(serve_call *call, const char *name, const weir_member *member, void *of,
                        const json_t *value)
{
    bool whole = member->type != WEIR_MEMBER_FLOAT && member->type != WEIR_MEMBER_DOUBLE;
    const char *word = json_string_value(value);
    double number = json_number_value(value);
    switch (member->type) {
    case WEIR_MEMBER_BOOL:
        if (!json_is_boolean(value)) return serve_field_refuse(call, name, "true or false");
        number = json_is_true(value);
        break;
    case WEIR_MEMBER_STRING:
        if (word == NULL) return serve_field_refuse(call, name, "a string");
        *(const char **)(void *)((char *)of + member->offset) = word;
        return true;
    case WEIR_MEMBER_CHOICE:
        for (number = 0; word != NULL && member->choices[(int)number] != NULL; number++)
            if (strcmp(member->choices[(int)number], word) == 0) break;
        if (word == NULL || member->choices[(int)number] == NULL)
            return refuse_word(call, name, member->choices);
        break;
    default:
        if (!json_is_number(value) || !weir__member_allows(member, number) ||
            (whole && number != floor(number)))
            return refuse_number(call, name, member, whole);
    }
    weir__member_set(member, of, number);
    return true;
}

/* Reads a member as the library's row says, at the field's place and within its range. */
static bool read_member(serve_call *call, const serve_field *f, void *to, const json_t *value)
{
    weir_member row = {.min = f->least, .max = f->most};
    if (f->kind == SERVE_FIELD_MEMBER) {
        const weir_member *member = weir_member_find(f->of, f->member);
        if (member == NULL) return serve_field_refuse(call, f->name, "left out"); /* every member has a row */
        row = *member;
    } else {
        row.type = f->kind == SERVE_FIELD_BOOL     ? WEIR_MEMBER_BOOL
                   : f->kind == SERVE_FIELD_STRING ? WEIR_MEMBER_STRING
                                                   : WEIR_MEMBER_INT32;
    }
    row.offset = f->target;
    if (f->least < f->most) {
        row.min = f->least;
        row.max = f->most;
    }
    return serve_field_member(call, f->name, &row, to, value);
}

static bool read_only(serve_call *call, const serve_field *f, const json_t *value)
{
    bool same;
    return compare_only(call, f, value, &same) && (same || serve_field_refuse(call, f->name, f->why));
}

static bool read_count(serve_call *call, const serve_field *f, int32_t *to, const json_t *value)
{
    json_int_t n;
    if (!serve_json_whole(value, &n) || n < 1)
        return serve_field_refuse(call, f->name, f->why != NULL ? f->why : "a whole number above 0");
    *to = n < INT32_MAX ? (int32_t)n : INT32_MAX;
    return true;
}

static bool read_field(serve_call *call, const serve_field *f, void *to, const json_t *value)
{
    void *at = (char *)to + f->target;
    switch (f->kind) {
    case SERVE_FIELD_VALUE: *(const json_t **)at = value; return true;
    case SERVE_FIELD_MODEL: return serve_name_read(call, value, at);
    case SERVE_FIELD_OTHER: return f->read(call, to, f->name, value);
    case SERVE_FIELD_COUNT: return read_count(call, f, at, value);
    case SERVE_FIELD_ONLY: return read_only(call, f, value);
    case SERVE_FIELD_NEVER: return refuse_never(call, f, f->name, value);
    case SERVE_FIELD_HINT: return read_hint(call, f, to, f->name, value);
    default: return read_member(call, f, to, value);
    }
}

/* ---- Requests ---- */

/* A row's name without the table's place. */
static const char *own_name(const serve_field_table *table, const serve_field *f)
{
    size_t n = table->place != NULL ? strlen(table->place) : 0;
    return n > 0 && strncmp(f->name, table->place, n) == 0 && f->name[n] == '.' ? f->name + n + 1 : f->name;
}

static const serve_field *find_field(const serve_field_table *table, const char *name, unsigned where)
{
    for (size_t i = 0; i < table->n; i++)
        if ((table->fields[i].where & where) != 0 && strcmp(own_name(table, &table->fields[i]), name) == 0)
            return &table->fields[i];
    return NULL;
}

/* The known names of a request's fields, likewise. */
typedef struct known_fields {
    const char *key;
    const serve_field_table *table;
    unsigned where;
} known_fields;

/* Rows of other requests are "", which is near nothing. */
static const char *known_field(const void *of, size_t i)
{
    const known_fields *known = of;
    const serve_field_table *table = known->table;
    size_t n = 0;
    if (i == 0 && serve_fields_know(known->key)) return NULL;
    const weir_member *members = (table->of_where & known->where) != 0 ? weir_members(table->of, &n) : NULL;
    if (i < table->n) {
        const serve_field *f = &table->fields[i];
        return (f->where & known->where) != 0 ? own_name(table, f) : "";
    }
    i -= table->n;
    if (i >= n) return NULL;
    return members[i].type < WEIR_MEMBER_CHOICE ? members[i].name : "";
}

bool serve_fields_judge(serve_call *call, const serve_field_table *table, unsigned where, const char *key,
                        const json_t *value)
{
    const known_fields known = {key, table, where};
    bool binds = table->place == NULL && find_field(&serve_ask_table, key, SERVE_FIELD_BINDS) != NULL &&
                 !asks_for_nothing(value);
    if (binds || (call->strict && find_field(table, key, ~0U) != NULL))
        return serve_call_refuse(call, 400, key, "unknown_parameter",
                                 "\"%.64s\" is a field of another kind of request; leave it out, or give "
                                 "this API's own field for it",
                                 key);
    if (!call->strict && asks_for_nothing(value) && !json_is_false(value)) return true;
    return serve_hint_unknown(call, table->place != NULL ? table->place : "", key, known_field, &known);
}

bool serve_fields_read(serve_call *call, const serve_field_table *table, unsigned where, const json_t *json,
                       void *to)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json, key, value)
    {
        if (!serve_call_goes_on(call)) return false;
        const serve_field *f = find_field(table, key, where);
        bool known = f != NULL;
        if (!known && table->read != NULL && !table->read(call, to, key, value, &known)) return false;
        if (!known && !serve_fields_judge(call, table, where, key, value)) return false;
        if (f != NULL && !json_is_null(value) && !read_field(call, f, to, value)) return false;
    }
    return true;
}

bool serve_field_each(serve_call *call, void *to, const char *place, const json_t *list, serve_reader *each)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!serve_call_goes_on(call) ||
            !each(call, to, serve_place_at(place, i).text, json_array_get(list, i)) || call->begun)
            return false;
    return true;
}

bool serve_field_texts(serve_call *call, const char *name, const json_t *value, size_t most,
                       serve_reader *each, void *to)
{
    const json_t *first = json_array_get(value, 0);
    bool many = json_is_string(first) || json_is_array(first);
    size_t n = many ? json_array_size(value) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = many ? json_array_get(value, i) : value;
        char place[64], number[32] = "";
        if (!serve_call_goes_on(call)) return false;
        bool empty = !json_is_string(one) && json_array_size(one) == 0;
        if (many && n <= most) snprintf(number, sizeof number, "[%zu]", i);
        snprintf(place, sizeof place, "%s%s", name, number);
        if (n <= most && empty && many)
            return serve_call_refuse(call, 400, place, "invalid_value",
                                     "%s must be a string or an array of token ids that is not empty", place);
        if (n > most || empty)
            return serve_call_refuse(
                call, 400, place, "invalid_value",
                "%s must be a string, an array of at most %zu strings, an array of token ids, or an array of "
                "at most %zu arrays of token ids",
                name, most, most);
        if (!each(call, to, place, one)) return false;
    }
    return true;
}

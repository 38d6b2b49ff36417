/* SPDX-License-Identifier: Apache-2.0 */
#include "field.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/member.h"

bool serve_field_refuse(serve_call *call, const char *name, const char *what)
{
    return serve_call_refuse(call, 400, name, "invalid_value", "%s must be %s", name, what);
}

bool serve_field_refuse_type(serve_call *call, const char *place, const json_t *object, const char *allowed)
{
    const char *type = serve_field_type(object);
    return serve_call_refuse(call, 400, place, "unsupported_value",
                             "%s is of type \"%.40s\"; supported here: %s", place, type != NULL ? type : "",
                             allowed);
}

bool serve_field_only(serve_call *call, const char *place, const json_t *object, const char *const *members)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char field[128];
        size_t i = 0;
        if (!serve_call_goes_on(call)) return false;
        while (members[i] != NULL && strcmp(members[i], key) != 0) i++;
        bool none = json_is_null(value) || json_is_false(value) ||
                    (json_is_array(value) && json_array_size(value) == 0);
        if (members[i] != NULL || none) continue;
        snprintf(field, sizeof field, "%s.%.40s", place, key);
        return serve_call_refuse(call, 400, field, "unknown_parameter", "%s is not supported", field);
    }
    return true;
}

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

/* As the library's row says, at the field's place and within its range. */
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
    char *text = weir__json_dump(value);
    if (text == NULL) return serve_call_no_memory(call);
    bool same = strcmp(text, f->only) == 0;
    weir__mem_free(text);
    return same || serve_field_refuse(call, f->name, f->why);
}

static bool read_field(serve_call *call, const serve_field *f, void *to, const json_t *value)
{
    void *at = (char *)to + f->target;
    switch (f->kind) {
    case SERVE_FIELD_VALUE: *(const json_t **)at = value; return true;
    case SERVE_FIELD_MODEL: return serve_call_read_model(call, value, at);
    case SERVE_FIELD_OTHER: return f->read(call, to, f->name, value);
    case SERVE_FIELD_ONLY: return read_only(call, f, value);
    case SERVE_FIELD_NEVER:
        return serve_call_refuse(call, 400, f->name, "unsupported_field", "%s is not supported: %s", f->name,
                                 f->why);
    default: return read_member(call, f, to, value);
    }
}

static const serve_field *find_field(const serve_field *fields, size_t n, const char *name, unsigned where)
{
    for (size_t i = 0; i < n; i++)
        if ((fields[i].where & where) != 0 && strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

bool serve_fields_read(serve_call *call, const serve_field *fields, size_t n, unsigned where,
                       const json_t *json, void *to,
                       bool (*others)(serve_call *call, void *to, const char *name, const json_t *value,
                                      bool *known))
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json, key, value)
    {
        if (!serve_call_goes_on(call)) return false;
        const serve_field *f = find_field(fields, n, key, where);
        bool known = f != NULL;
        if (!known && others != NULL && !others(call, to, key, value, &known)) return false;
        if (!known)
            return serve_call_refuse(call, 400, strlen(key) < 64 ? key : NULL, "unknown_parameter",
                                     find_field(fields, n, key, ~0U) != NULL
                                         ? "\"%.64s\" is a field of another kind of request"
                                         : "there is no field \"%.64s\" in this request",
                                     key);
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

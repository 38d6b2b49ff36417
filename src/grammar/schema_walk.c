/* schema_walk.c: common to all steps of the schema walk: failures, values, the path, references.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_walk.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"

/* ---- Refusals and where they are ---- */

json_t *weir__schema_no_memory(weir__schema_walk *w)
{
    if (w->status == WEIR_OK)
        w->status = weir__error_set(w->error, WEIR_NO_MEMORY, "schema", "out of memory for the schema");
    return NULL;
}

json_t *weir__schema_made(weir__schema_walk *w, json_t *value)
{
    if (value != NULL && w->status == WEIR_OK) return value;
    json_decref(value);
    return weir__schema_no_memory(w);
}

json_t *weir__schema_pack(weir__schema_walk *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *value = json_vpack_ex(NULL, 0, format, args);
    va_end(args);
    return weir__schema_made(w, value);
}

bool weir__schema_append(weir__schema_walk *w, json_t *list, json_t *value)
{
    return json_array_append_new(list, value) == 0 || weir__schema_no_memory(w) != NULL;
}

bool weir__schema_set(weir__schema_walk *w, json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0 || weir__schema_no_memory(w) != NULL;
}

json_t *weir__schema_without(weir__schema_walk *w, const json_t *schema, const char *keyword)
{
    json_t *less = weir__schema_made(w, weir__json_copy(schema));
    json_object_del(less, keyword);
    return less;
}

json_t *weir__schema_choice(weir__schema_walk *w, const char *keyword, json_t *list)
{
    if (w->status != WEIR_OK || json_array_size(list) > 0)
        return weir__schema_pack(w, "{s:o}", keyword, list);
    json_decref(list);
    return list != NULL ? json_false() : weir__schema_no_memory(w);
}

json_t *weir__schema_any_of(weir__schema_walk *w, json_t *list)
{
    if (w->status != WEIR_OK || json_array_size(list) != 1) return weir__schema_choice(w, "anyOf", list);
    json_t *only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

const char *weir__schema_path(const weir__schema_walk *w)
{
    return w->path.n > 0 ? w->path.bytes : "";
}

static void refuse_keyword(weir__schema_walk *w, const char *keyword, const char *format, va_list args)
{
    char text[320], field[64];
    const char *path = weir__schema_path(w);
    vsnprintf(text, sizeof text, format, args);
    snprintf(w->refused, sizeof w->refused, "%s", keyword != NULL ? keyword : "");
    w->refused_at = w->path.n;
    if ((size_t)snprintf(field, sizeof field, "%s%s", w->where, path) >= sizeof field)
        snprintf(field + 28, sizeof field - 28, "...%s", path + (w->path.n > 31 ? w->path.n - 31 : 0));
    if (keyword != NULL)
        w->status = weir__error_set(w->error, WEIR_GRAMMAR, field, "keyword '%.60s': %s", keyword, text);
    else
        w->status = weir__error_set(w->error, WEIR_GRAMMAR, field, "%s", text);
}

json_t *weir__schema_refuse(weir__schema_walk *w, const char *keyword, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (w->status == WEIR_OK) refuse_keyword(w, keyword, format, args);
    va_end(args);
    return NULL;
}

json_t *weir__schema_refuse_finally(weir__schema_walk *w, const char *keyword, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (w->status == WEIR_OK) {
        refuse_keyword(w, keyword, format, args);
        w->final = true;
    }
    va_end(args);
    return NULL;
}

bool weir__schema_spend(weir__schema_walk *w, size_t n)
{
    if (w->status != WEIR_OK) return false;
    if (weir__budget_step(&w->work->budget, n)) return true;
    w->final = w->work->budget.over != WEIR__LIMIT_INTERRUPT;
    if (w->final) return weir__schema_refuse(w, NULL, "the schema asks for too much work; make it simpler");
    w->status = weir__interrupt_error(w->error);
    return false;
}

bool weir__schema_take(weir__schema_walk *w, const char *keyword, uint64_t n)
{
    if (w->status != WEIR_OK) return false;
    if (n > w->work->elements)
        return weir__schema_refuse(w, keyword,
                                   "it makes the grammar too large: more than %d characters and items in all",
                                   WEIR__SCHEMA_ELEMENTS_MAX) != NULL;
    w->work->elements -= (size_t)n;
    return true;
}

static void add_token(weir__schema_walk *w, const char *token)
{
    weir__text_add(&w->path, "/", 1);
    for (; *token != '\0'; token++) {
        if (*token == '~' || *token == '/')
            weir__text_add(&w->path, *token == '~' ? "~0" : "~1", 2);
        else
            weir__text_add(&w->path, token, 1);
    }
    if (w->path.failed) weir__schema_no_memory(w);
}

size_t weir__schema_enter(weir__schema_walk *w, const char *keyword, const char *name)
{
    size_t before = w->path.n;
    add_token(w, keyword);
    if (name != NULL) add_token(w, name);
    return before;
}

size_t weir__schema_enter_index(weir__schema_walk *w, const char *keyword, size_t i)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", i);
    return weir__schema_enter(w, keyword, text);
}

void weir__schema_leave(weir__schema_walk *w, size_t before)
{
    w->path.n = before;
    if (w->path.bytes != NULL) w->path.bytes[before] = '\0';
}

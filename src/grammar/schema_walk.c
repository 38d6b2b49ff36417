/* schema_walk.c: common to all steps of the schema walk: failures, the path, keywords, types.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first failure stays in the walk, with its keyword and place; after it every function fails at once, so
 * that callers check at the end. `final` marks failures that no left-out keyword would mend. The place is a
 * JSON pointer that enter makes longer and leave cuts again. Steps count the walk's own work, elements the
 * size of the grammar that comes of it. The table of keywords says what each is about, and why some are
 * refused; a name without a row is an annotation, unless it is nearly a keyword. */
#include "grammar/schema_walk.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/words.h"

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

json_t *weir__schema_own_list(weir__schema_walk *w, json_t *schema, const char *keyword)
{
    json_t *known = json_object_get(schema, keyword);
    json_t *list = weir__schema_made(w, known != NULL ? weir__json_copy(known) : json_array());
    return weir__schema_set(w, schema, keyword, list) ? list : NULL;
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
    /* The keywords of conjunctions come from these. */
    if (keyword != NULL && keyword[0] == '\001')
        keyword = strcmp(keyword, WEIR__SCHEMA_PATTERNS) == 0 ? "pattern" : "not";
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

/* ---- Keywords ---- */

const char *const weir__schema_named_properties[] = {"properties", "required", NULL};
const char *const weir__schema_listed_values[] = {"const", "enum", NULL};

/* All but annotations, which have no row: JSON Schema ignores names that it does not know. */
static const struct row {
    enum keyword_kind kind;
    const char *names[13]; /* ends with NULL */
    const char *why;       /* it is refused */
} rows[] = {
    {GENERAL,
     {"$ref", "type", "const", "enum", "anyOf", "oneOf", "allOf", "not", "if", "then", "else"},
     NULL},
    {OBJECT,
     {"properties", "required", "additionalProperties", "unevaluatedProperties", "minProperties",
      "maxProperties", "propertyNames", "patternProperties", "dependentRequired", "dependentSchemas",
      "dependencies", WEIR__SCHEMA_BEYOND},
     NULL},
    {ARRAY,
     {"items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems",
      "contains", "minContains", "maxContains"},
     NULL},
    {STRING,
     {"pattern", "minLength", "maxLength", "format" /* of numbers, too */, WEIR__SCHEMA_PATTERNS,
      WEIR__SCHEMA_NOT_PATTERNS, WEIR__SCHEMA_NOT_STRINGS},
     NULL},
    {NUMBER,
     {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", WEIR__SCHEMA_NOT_NUMBERS},
     NULL},
    {REFUSED, {"$dynamicRef", "$recursiveRef"}, "it may mean one of several schemas; write $ref"},
    {REFUSED, {"divisibleBy", "disallow", "extends"}, "only draft 3 has it; write multipleOf, not or allOf"},
};
#define ROWS (sizeof rows / sizeof *rows)

/* names end with NULL. */
static bool is_listed(const char *const *names, const char *name)
{
    while (*names != NULL && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* NULL: it is no keyword, or an annotation. */
static const struct row *row_of(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (is_listed(rows[i].names, name)) return &rows[i];
    return NULL;
}

enum keyword_kind weir__schema_kind_of(const char *name)
{
    const struct row *row = row_of(name);
    return row != NULL ? row->kind : ANNOTATION;
}

/* The keyword that the name is nearly, or NULL. Programs that add names of their own begin them with "_" or
 * "x-", and too many words are nearly one of three letters. */
static const char *nearest_keyword(const char *name)
{
    const char *nearest = NULL;
    int least = 0;
    if (name[0] == '_' || strncmp(name, "x-", 2) == 0) return NULL;
    for (size_t i = 0; i < ROWS; i++)
        for (const char *const *known = rows[i].names; *known != NULL; known++) {
            int edits = strlen(*known) > 3 && (*known)[0] != '\001' ? weir__words_near(name, *known) : -1;
            if (edits < 0 || (nearest != NULL && edits >= least)) continue;
            nearest = *known;
            least = edits;
        }
    return nearest;
}

bool weir__schema_check_keywords(weir__schema_walk *w, const json_t *schema)
{
    const char *name;
    json_t *value;
    if (!weir__schema_spend(w, json_object_size(schema))) return false;
    json_object_foreach((json_t *)schema, name, value)
    {
        const struct row *row = row_of(name);
        if (row != NULL && row->why != NULL) return weir__schema_refuse(w, name, "%s", row->why) != NULL;
        if (row != NULL) continue;
        const char *meant = nearest_keyword(name);
        if (!weir__schema_spend(w, 8)) return false; /* for that search */
        if (meant != NULL)
            return weir__schema_refuse(w, name,
                                       "unknown keyword; write '%s', or begin an annotation's name with 'x-'",
                                       meant) != NULL;
    }
    return true;
}

const char *weir__schema_other_constraint(const json_t *schema, const char *const *allowed)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)schema, name, value)
    {
        if (weir__schema_kind_of(name) != ANNOTATION && !is_listed(allowed, name)) return name;
    }
    return NULL;
}

bool weir__schema_has_any(const json_t *schema, const char *const *names)
{
    for (; *names != NULL; names++)
        if (json_object_get(schema, *names) != NULL) return true;
    return false;
}

bool weir__schema_is_required(const json_t *schema, const char *name)
{
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *one = json_string_value(json_array_get(required, i));
        if (one != NULL && strcmp(one, name) == 0) return true;
    }
    return false;
}

/* ---- Types ---- */

const struct weir__schema_type weir__schema_types[WEIR__SCHEMA_TYPES] = {
    {"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN},
    {"integer", TYPE_INTEGER}, {"number", TYPE_NUMBER},
    {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
    {"object", TYPE_OBJECT},   {WEIR__SCHEMA_FRACTIONS, TYPE_FRACTION}};

static unsigned mask_of(const json_t *name)
{
    for (size_t i = 0; json_is_string(name) && i < WEIR__SCHEMA_TYPES; i++)
        if (strcmp(weir__schema_types[i].name, json_string_value(name)) == 0)
            return weir__schema_types[i].mask;
    return 0;
}

bool weir__schema_is_object(const json_t *schema)
{
    return mask_of(json_object_get(schema, "type")) == TYPE_OBJECT;
}

unsigned weir__schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return TYPE_BOOLEAN;
    case JSON_INTEGER: return TYPE_INTEGER;
    case JSON_REAL:
        return floor(json_real_value(value)) == json_real_value(value) ? TYPE_INTEGER : TYPE_FRACTION;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    case JSON_OBJECT: return TYPE_OBJECT;
    }
    return 0;
}

bool weir__schema_equal(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_real(b)) return weir__schema_equal(b, a);
    if (json_is_array(a) && json_is_array(b)) {
        bool equal = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; equal && i < json_array_size(a); i++)
            equal = weir__schema_equal(json_array_get(a, i), json_array_get(b, i));
        return equal;
    }
    if (json_is_object(a) && json_is_object(b)) {
        bool equal = json_object_size(a) == json_object_size(b);
        const char *name;
        json_t *value;
        json_object_foreach((json_t *)a, name, value) equal =
            equal && json_object_get(b, name) != NULL && weir__schema_equal(value, json_object_get(b, name));
        return equal;
    }
    if (!json_is_real(a) || !json_is_integer(b)) return json_equal(a, b);
    double d = json_real_value(a); /* the other one may have no double */
    return d >= -0x1p63 && d < 0x1p63 && floor(d) == d && (json_int_t)d == json_integer_value(b);
}

int weir__schema_compare(const json_t *a, const json_t *b)
{
    if (json_is_real(a) && json_is_integer(b)) return -weir__schema_compare(b, a);
    if (json_is_real(b) && json_is_integer(a)) {
        double d = json_real_value(b), whole = floor(d);
        json_int_t i = json_integer_value(a);
        if (whole < -0x1p63 || whole >= 0x1p63) return d < 0 ? 1 : -1;
        if (i != (json_int_t)whole) return i < (json_int_t)whole ? -1 : 1;
        return whole < d ? -1 : 0;
    }
    if (json_is_integer(a)) {
        json_int_t i = json_integer_value(a), k = json_integer_value(b);
        return (i > k) - (i < k);
    }
    return (json_real_value(a) > json_real_value(b)) - (json_real_value(a) < json_real_value(b));
}

bool weir__schema_has_value(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (weir__schema_equal(json_array_get(list, i), value)) return true;
    return false;
}

unsigned weir__schema_declared_types(weir__schema_walk *w, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned mask = 0;
    if (type == NULL) return TYPE_ANY;
    size_t n = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(type) ? json_array_get(type, i) : type;
        unsigned m = mask_of(one);
        if (m == 0) {
            weir__schema_refuse_finally(
                w, "type",
                "it must be one or several of null, boolean, integer, number, string, array, "
                "object");
            return 0;
        }
        mask |= m;
    }
    if (mask == 0) weir__schema_refuse_finally(w, "type", "it must not be empty");
    return mask;
}

bool weir__schema_has_type(unsigned mask, size_t i)
{
    unsigned m = weir__schema_types[i].mask;
    if (m == TYPE_FRACTION) return (mask & TYPE_NUMBER) == TYPE_FRACTION;
    return (mask & m) == m && (m != TYPE_INTEGER || (mask & TYPE_FRACTION) == 0);
}

json_t *weir__schema_type_array(weir__schema_walk *w, unsigned mask)
{
    json_t *types = json_array();
    for (size_t i = 0; i < WEIR__SCHEMA_TYPES; i++)
        if (weir__schema_has_type(mask, i))
            weir__schema_append(w, types, json_string(weir__schema_types[i].name));
    return types;
}

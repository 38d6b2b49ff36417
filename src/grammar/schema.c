/* schema.c: rewrites JSON Schemas in a subset of which grammars enforce everything.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The walk turns each schema into one that a grammar enforces, or refuses it with the keyword and its place.
 * weir__schema_enforce looks at $ref first, then at allOf and conditions, which are merged into one flat
 * schema; a flat schema loses `not`, and is then taken by its alternatives, its values or its types. Each
 * target of a $ref becomes one definition of the result, and a second reference to it is only its name: so
 * recursive schemas stay recursive. With `relax`, a schema that is refused is tried again without the refused
 * keyword, until it passes or only its types are left; what was left out is noted. Parts, depth and work are
 * limited. */
#include "grammar/schema.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/words.h"
#include "grammar/schema_walk.h"

void weir__schema_work_init(weir__schema_work *work)
{
    weir__budget_init(&work->budget, WEIR__SCHEMA_STEPS_MAX, UINT64_MAX);
    work->elements = WEIR__SCHEMA_ELEMENTS_MAX;
}

/* Rewrites the schema that was entered, and leaves it: `before` is what enter returned. */
static json_t *entered(weir__schema_walk *w, size_t before, const json_t *schema, bool deeper)
{
    w->level += deeper;
    json_t *result = weir__schema_node(w, schema);
    w->level -= deeper;
    weir__schema_leave(w, before);
    return result;
}

json_t *weir__schema_below(weir__schema_walk *w, const char *keyword, const char *name, const json_t *schema,
                           bool deeper)
{
    return entered(w, weir__schema_enter(w, keyword, name), schema, deeper);
}

json_t *weir__schema_below_index(weir__schema_walk *w, const char *keyword, size_t i, const json_t *schema,
                                 bool deeper)
{
    return entered(w, weir__schema_enter_index(w, keyword, i), schema, deeper);
}

/* A reference to the target's definition in the result, which is made at the first reference. */
static json_t *refer_to(weir__schema_walk *w, const json_t *target)
{
    char name[64];
    size_t i = 0;
    while (i < w->n_definitions && w->definitions[i].target != target) i++;
    /* The letter at the end keeps names apart when llama.cpp's converter appends digits to one. */
    snprintf(name, sizeof name, "%s%zux", w->tag, i);
    if (i == w->n_definitions) {
        if (!weir__mem_grow(&w->definitions, &w->capacity, i + 1, sizeof *w->definitions))
            return weir__schema_no_memory(w);
        w->definitions[w->n_definitions++] =
            (weir__schema_definition){.target = target, .level = w->level, .open = true};
        json_t *body = weir__schema_node(w, target);
        w->definitions[i].open = false;
        w->definitions[i].impossible = json_is_false(body);
        if (json_is_false(body) && w->definitions[i].used_open)
            return weir__schema_refuse_finally(w, "$ref", "nothing satisfies the schema that it refers to");
        if (body == NULL || (!json_is_false(body) && !weir__schema_set(w, w->defs, name, body))) return NULL;
    } else if (w->definitions[i].open) {
        if (w->definitions[i].level == w->level)
            return weir__schema_refuse(w, "$ref", "it refers to itself with nothing in between");
        w->definitions[i].used_open = true;
    }
    if (w->definitions[i].impossible) return json_false();
    return weir__schema_pack(w, "{s:s+}", "$ref", WEIR__SCHEMA_DEFS, name);
}

/* ---- Schemas ---- */

static json_t *of_type(weir__schema_walk *w, const json_t *schema, unsigned type)
{
    switch (type) {
    case TYPE_OBJECT: return weir__schema_object(w, schema);
    case TYPE_ARRAY: return weir__schema_array(w, schema);
    case TYPE_STRING: return weir__schema_string(w, schema);
    case TYPE_FRACTION:
    case TYPE_INTEGER:
    case TYPE_NUMBER: return weir__schema_numbers(w, schema, type);
    default: return weir__schema_pack(w, "{s:s}", "type", type == TYPE_NULL ? "null" : "boolean");
    }
}

static json_t *of_types(weir__schema_walk *w, const json_t *schema, unsigned mask)
{
    json_t *list = json_array();
    for (size_t i = 0; i < WEIR__SCHEMA_TYPES && w->status == WEIR_OK; i++) {
        if (!weir__schema_has_type(mask, i)) continue;
        json_t *one = of_type(w, schema, weir__schema_types[i].mask);
        if (!json_is_false(one)) weir__schema_append(w, list, one);
    }
    return weir__schema_any_of(w, list);
}

/* A schema without `type` allows all types, of which its keywords narrow some. With relax, it gets only the
 * types that its keywords are about. */
static json_t *untyped_schema(weir__schema_walk *w, const json_t *schema)
{
    static const unsigned types[] = {
        [OBJECT] = TYPE_OBJECT, [ARRAY] = TYPE_ARRAY, [STRING] = TYPE_STRING, [NUMBER] = TYPE_NUMBER};
    const char *name;
    json_t *value;
    unsigned mask = 0;
    json_object_foreach((json_t *)schema, name, value)
    {
        enum keyword_kind kind = weir__schema_kind_of(name);
        if (kind >= OBJECT && kind <= NUMBER) mask |= types[kind];
    }
    if (mask == 0) return weir__schema_made(w, json_object());
    return of_types(w, schema, w->relax ? mask : TYPE_ANY);
}

static json_t *flat_node(weir__schema_walk *w, const json_t *schema)
{
    if (json_object_get(schema, "not") != NULL) {
        json_t *less = weir__schema_without_not(w, schema);
        json_t *result = less == NULL || json_is_false(less) ? json_incref(less) : flat_node(w, less);
        json_decref(less);
        return result;
    }
    if (json_object_get(schema, "anyOf") != NULL || json_object_get(schema, "oneOf") != NULL)
        return weir__schema_alternatives(w, schema);
    if (json_object_get(schema, "enum") != NULL || json_object_get(schema, "const") != NULL)
        return weir__schema_values(w, schema);
    if (json_object_get(schema, "type") == NULL) return untyped_schema(w, schema);
    unsigned mask = weir__schema_declared_types(w, schema);
    return mask == 0 ? NULL : of_types(w, schema, mask);
}

/* Templates that print parameters may use these annotations. Long texts are left out, because annotations
 * beside anyOf are copied into each branch. */
static void keep_annotations(weir__schema_walk *w, const json_t *schema, json_t *result)
{
    static const char *const kept[] = {"type", "title", "description"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *value = json_object_get(schema, kept[i]);
        if (value != NULL && json_string_length(value) <= 1024 && json_array_size(value) <= 16 &&
            json_is_object(result) && json_object_get(result, kept[i]) == NULL)
            weir__schema_set(w, result, kept[i], json_incref(value));
    }
}

json_t *weir__schema_node(weir__schema_walk *w, const json_t *schema)
{
    return w->relax ? weir__schema_relax(w, schema) : weir__schema_enforce(w, schema);
}

json_t *weir__schema_enforce(weir__schema_walk *w, const json_t *schema)
{
    static const char *const only_all[] = {"allOf", NULL};
    json_t *result = NULL;
    if (json_is_false(schema)) return json_false();
    if (json_is_true(schema)) return weir__schema_made(w, json_object());
    if (!json_is_object(schema))
        return weir__schema_refuse_finally(w, NULL, "a schema must be an object or a boolean");
    if (++w->n_nodes > WEIR__SCHEMA_NODES_MAX)
        return weir__schema_refuse_finally(w, NULL, "the schema has more than %d parts",
                                           WEIR__SCHEMA_NODES_MAX);
    if (++w->depth > WEIR__SCHEMA_DEPTH_MAX)
        return weir__schema_refuse(w, NULL, "schemas are nested deeper than %d", WEIR__SCHEMA_DEPTH_MAX);
    if (!weir__schema_spend(w, 16) || !weir__schema_check_keywords(w, schema)) return NULL;
    if (json_object_get(schema, "$ref") != NULL) {
        const json_t *target = weir__schema_target(w, schema);
        result = target != NULL ? refer_to(w, target) : NULL;
    } else if (json_object_get(schema, "allOf") != NULL || weir__schema_has_condition(schema)) {
        const json_t *all = json_object_get(schema, "allOf");
        if (json_array_size(all) == 1 && weir__schema_other_constraint(schema, only_all) == NULL) {
            /* The only schema is not merged, so that a reference stays a reference and may be recursive. */
            result = weir__schema_below_index(w, "allOf", 0, json_array_get(all, 0), false);
        } else {
            json_t *flat = weir__schema_flatten(w, schema);
            if (flat != NULL) result = json_is_false(flat) ? json_false() : flat_node(w, flat);
            json_decref(flat);
        }
    } else {
        result = flat_node(w, schema);
    }
    w->depth--;
    keep_annotations(w, schema, result);
    return weir__schema_made(w, result);
}

/* The root as an object schema instead of a reference. */
static json_t *inline_root(weir__schema_walk *w)
{
    if (w->relax) return weir__schema_relax_object(w, w->root);
    if (json_is_object(w->root) && weir__schema_possible_types(w, w->root) != TYPE_OBJECT &&
        !weir__schema_has_any(w->root, weir__schema_named_properties))
        return weir__schema_refuse(w, "type", "the arguments of a function must be an object");
    const json_t *target = weir__schema_dereference(w, w->root);
    json_t *object = NULL, *result = NULL;
    if (json_is_object(target) && json_object_get(target, "type") == NULL) {
        object = weir__schema_made(w, weir__json_copy(target));
        weir__schema_set(w, object, "type", json_string("object"));
        target = object;
    }
    if (target != NULL && w->status == WEIR_OK) result = weir__schema_node(w, target);
    json_decref(object);
    if (result == NULL || json_is_false(result) || weir__schema_is_object(result)) return result;
    json_decref(result);
    return weir__schema_refuse(w, NULL, "the arguments of a function must be one object with properties");
}

static void walk_fini(weir__schema_walk *w)
{
    for (size_t i = 0; i < w->n_flats; i++) {
        json_decref(w->flats[i].schema);
        json_decref(w->flats[i].flat);
    }
    weir__mem_free(w->flats);
    for (size_t i = 0; i < w->n_pairs; i++) {
        json_decref(w->pairs[i].a);
        json_decref(w->pairs[i].b);
        json_decref(w->pairs[i].reference);
        json_decref(w->pairs[i].target);
    }
    weir__mem_free(w->pairs);
    weir__schema_free_resources(w);
    weir__mem_free(w->definitions);
    weir__text_fini(&w->path);
    json_decref(w->defs);
}

/* Refuses names that only the walk may give. A reference can make a schema of any part, so they are refused
 * everywhere. */
static bool check_reserved(weir__schema_walk *w, const char *name)
{
    static const char *const reserved[] = {WEIR__SCHEMA_PATTERNS,    WEIR__SCHEMA_NOT_PATTERNS,
                                           WEIR__SCHEMA_NOT_STRINGS, WEIR__SCHEMA_NOT_NUMBERS,
                                           WEIR__SCHEMA_FRACTIONS,   WEIR__SCHEMA_BEYOND};
    if (name != NULL && weir__words_have(reserved, sizeof reserved / sizeof *reserved, name))
        weir__schema_refuse_finally(w, NULL, "U+0001 and '%s' is no name that JSON Schema knows", name + 1);
    return w->status == WEIR_OK;
}

/* Looks through a part of the document: notes if it has unevaluatedProperties or unevaluatedItems, and
 * $dynamicRef. False: a failure. */
static bool look_through(weir__schema_walk *w, const json_t *part)
{
    const char *name;
    json_t *value;
    size_t i;
    bool ok = check_reserved(w, json_string_value(part));
    if (!json_is_object(part) && !json_is_array(part)) return ok;
    if (!weir__schema_spend(w, json_object_size(part) / 4 + json_array_size(part) / 4 + 1)) return false;
    json_object_foreach((json_t *)part, name, value)
    {
        w->unevaluated |= strncmp(name, "unevaluated", 11) == 0;
        w->dynamic |= strcmp(name, "$dynamicRef") == 0 && json_is_string(value);
        ok = ok && check_reserved(w, name) && look_through(w, value);
    }
    json_array_foreach((json_t *)part, i, value) ok = ok && look_through(w, value);
    return ok;
}

weir_status weir__schema_rewrite(const json_t *schema, const weir__schema_terms *terms, json_t **rewritten,
                                 weir_error *error)
{
    weir__schema_work own;
    weir_error why = {0}; /* not the caller's: relax may leave out the refused keyword */
    weir__schema_walk w = {
        .root = schema,
        .where = terms->where,
        .tag = terms->tag,
        .work = terms->work != NULL ? terms->work : &own,
        .relax = terms->relax,
        .relaxed = terms->relaxed,
        .error = &why,
        .status = WEIR_OK,
    };
    json_t *result = NULL;
    weir__schema_work_init(&own);
    w.defs = json_object();
    const bool read = look_through(&w, schema) && weir__schema_read_resources(&w);
    schema = w.root;
    if (!read)
        result = NULL; /* the failure stays */
    else if (!json_is_object(schema) && !json_is_boolean(schema))
        weir__schema_refuse_finally(&w, NULL, "a schema must be an object or a boolean");
    else if (terms->inline_root)
        result = inline_root(&w);
    else
        /* A reference even here: llama.cpp's converter then names all rules after it. Otherwise a property
         * such as "date_time" could get the name of one of its own rules. */
        result = json_is_boolean(schema) ? weir__schema_node(&w, schema) : refer_to(&w, schema);
    if (json_is_false(result)) result = weir__schema_refuse(&w, NULL, "nothing can satisfy this schema");
    if (result != NULL && json_object_size(w.defs) > 0)
        weir__schema_set(&w, result, "$defs", json_incref(w.defs));
    walk_fini(&w);
    if (w.status == WEIR_OK)
        *rewritten = result;
    else
        json_decref(result);
    return w.status == WEIR_OK ? WEIR_OK : weir__error_copy(error, &why);
}

/* ---- With relax: leaving out what cannot be enforced ---- */

/* True if the text has this line. */
static bool has_line(const weir__text *text, const char *line)
{
    size_t n = strlen(line);
    for (const char *at = text->bytes; at != NULL && (at = strstr(at, line)) != NULL; at += n)
        if ((at == text->bytes || at[-1] == '\n') && at[n] == '\n') return true;
    return false;
}

/* Notes that a keyword was left out, of the schema with the first part [path_length] of the current path. */
static bool note_keyword_of(weir__schema_walk *w, size_t path_length, const char *keyword)
{
    static const char more[] = "...";
    weir__text *t = w->relaxed, line = {0};
    if (t == NULL) return true;
    weir__text_printf(&line, "%s%.*s: %s", w->where, (int)path_length, weir__schema_path(w), keyword);
    for (char *c = line.bytes; !line.failed && *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    const char *text = t->n + line.n + sizeof more < WEIR__SCHEMA_RELAXED_MAX ? line.bytes : more;
    if (!line.failed && !has_line(t, text)) weir__text_printf(t, "%s\n", text);
    bool failed = t->failed || line.failed;
    weir__text_fini(&line);
    return !failed || weir__schema_no_memory(w) != NULL;
}

static bool note_keyword(weir__schema_walk *w, const char *keyword)
{
    return note_keyword_of(w, w->path.n, keyword);
}

/* A schema with the types only. */
static json_t *types_only(weir__schema_walk *w, const json_t *schema)
{
    const weir_status status = w->status;
    unsigned mask = weir__schema_possible_types(w, schema);
    if (w->final) return NULL;
    w->status = status; /* a reference to another document allows all types */
    if ((mask & TYPE_FRACTION) != 0) mask |= TYPE_INTEGER;
    if (mask == TYPE_ANY || mask == 0) return weir__schema_made(w, json_object());
    json_t *list = json_array();
    for (size_t i = 0; i < WEIR__SCHEMA_TYPES; i++)
        if (weir__schema_has_type(mask, i))
            weir__schema_append(w, list, json_pack("{s:s}", "type", weir__schema_types[i].name));
    return weir__schema_any_of(w, list);
}

/* The keyword to leave out after a refusal; NULL: none would help. The refused keyword may be in a schema
 * that was merged into this one. */
static const char *to_leave_out(const weir__schema_walk *w, const json_t *schema, size_t path_length)
{
    static const char *const merging[] = {"not", "allOf", "anyOf", "oneOf"};
    const bool own = w->refused[0] != '\0' && json_object_get(schema, w->refused) != NULL;
    if (own && w->refused_at == path_length) return w->refused;
    for (size_t i = 0; i < sizeof merging / sizeof *merging; i++)
        if (json_object_get(schema, merging[i]) != NULL) return merging[i];
    return own ? w->refused : NULL;
}

/* Leaves the first of two schemas that the walk put together. False: this is no such pair, or no longer one,
 * or a failure. */
static bool leave_first(weir__schema_walk *w, const json_t *pair, json_t *schema)
{
    json_t *all = json_object_get(schema, "allOf");
    size_t i = 0;
    if (!weir__schema_spend(w, w->n_pairs / 8 + 1)) return false;
    while (i < w->n_pairs && w->pairs[i].target != pair) i++;
    if (i == w->n_pairs || json_array_size(all) < 2) return false;
    const size_t one_of = w->pairs[i].one_of;
    if (one_of <= w->path.n ? !note_keyword_of(w, one_of, "oneOf") : !note_keyword(w, "allOf")) return false;
    return weir__schema_set(w, schema, "allOf", json_pack("[O]", json_array_get(all, 0)));
}

/* Removes the keyword. A oneOf whose branches overlap becomes an anyOf. */
static bool leave_out(weir__schema_walk *w, json_t *schema, const char *keyword)
{
    json_t *branches = json_object_get(schema, "oneOf");
    if (!note_keyword(w, keyword)) return false;
    if (strcmp(keyword, "oneOf") == 0 && json_object_get(schema, "anyOf") == NULL &&
        json_array_size(branches) > 0 && !weir__schema_set(w, schema, "anyOf", json_incref(branches)))
        return false;
    return json_object_del(schema, keyword) == 0;
}

/* The schema without keywords that are null, as some clients write those that they leave out. NULL: out of
 * memory. */
static json_t *without_nulls(weir__schema_walk *w, const json_t *schema)
{
    json_t *rest = json_incref((json_t *)schema), *value;
    const char *key;
    json_object_foreach((json_t *)schema, key, value)
    {
        if (!json_is_null(value) || strcmp(key, "const") == 0 || strcmp(key, "default") == 0) continue;
        if (rest == schema) {
            json_decref(rest);
            rest = weir__schema_made(w, weir__json_copy(schema));
        }
        if (rest != NULL && note_keyword(w, key) && json_object_del(rest, key) == 0) continue;
        json_decref(rest);
        return NULL;
    }
    return rest;
}

json_t *weir__schema_relax(weir__schema_walk *w, const json_t *schema)
{
    const int depth = w->depth, level = w->level;
    const size_t path_length = w->path.n;
    const json_t *const pair = schema; /* perhaps */
    json_t *given = without_nulls(w, schema), *result;
    if (given == NULL) return NULL;
    while ((result = weir__schema_enforce(w, given)) == NULL && w->status == WEIR_GRAMMAR && !w->final) {
        char keyword[sizeof w->refused];
        const char *found = to_leave_out(w, given, path_length);
        w->status = WEIR_OK;
        w->depth = depth;
        w->level = level;
        weir__schema_leave(w, path_length);
        if (found == NULL) {
            if (note_keyword(w, w->refused[0] != '\0' ? w->refused : "all of it"))
                result = types_only(w, given);
            break;
        }
        snprintf(keyword, sizeof keyword, "%s", found);
        if (given == schema) { /* one copy for all keywords: a schema may have many that are left out */
            given = weir__schema_made(w, weir__json_copy(schema));
            json_decref((json_t *)schema);
        }
        if (given == NULL ||
            (!leave_first(w, pair, given) && (w->status != WEIR_OK || !leave_out(w, given, keyword))))
            break;
    }
    json_decref(given);
    return result;
}

json_t *weir__schema_relax_object(weir__schema_walk *w, const json_t *schema)
{
    static const char *const wider[] = {"anyOf", "oneOf", "allOf", "enum", "const", "not", "type"};
    const json_t *target = weir__schema_dereference(w, schema);
    json_t *result = NULL;
    if (target == NULL && (w->final || w->status != WEIR_GRAMMAR)) return NULL;
    w->status = WEIR_OK;
    if (target == NULL && !note_keyword(w, "$ref")) return NULL;
    if (target != NULL) {
        result = weir__schema_relax(w, target);
        if (result == NULL || weir__schema_is_object(result)) return result;
    }
    if (json_is_false(result)) {
        note_keyword(w, "all of it");
        return weir__schema_pack(w, "{s:s}", "type", "object");
    }
    json_decref(result);
    json_t *less = json_is_object(target) ? weir__json_copy(target) : json_object();
    for (size_t i = 0; i < sizeof wider / sizeof *wider; i++)
        if (json_object_del(less, wider[i]) == 0) note_keyword(w, wider[i]);
    weir__schema_set(w, less, "type", json_string("object"));
    result = w->status == WEIR_OK ? weir__schema_relax(w, less) : NULL;
    json_decref(less);
    if (result == NULL || weir__schema_is_object(result)) return result;
    json_decref(result);
    return weir__schema_pack(w, "{s:s}", "type", "object");
}

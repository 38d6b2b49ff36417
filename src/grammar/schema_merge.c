/* schema_merge.c: allOf, anyOf and oneOf.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A conjunction is merged into one flat schema, keyword by keyword, and cached by the address of its source.
 * The branches of an alternative are merged with the keywords beside them; those of oneOf must also exclude
 * each other (schema_one_of.c). */
#include "grammar/schema_walk.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/words.h"
#include "grammar/multiples.h"

/* ---- allOf, and keywords beside anyOf ---- */

static const char *const array_items[] = {"items", "prefixItems", "additionalItems", NULL};

/* The most branches of two alternatives that meet. */
#define BRANCH_PAIRS_MAX 256

/* A conjunction of schemas in the making. */
typedef struct merge {
    weir__schema_walk *w;
    json_t *dst;     /* so far; its values may belong to other schemas and are replaced, never changed */
    bool impossible; /* nothing satisfies it */
} merge;

/* False also after a refusal. */
static bool values_equal(weir__schema_walk *w, const json_t *a, const json_t *b)
{
    if (a == b) return true;
    size_t length = json_dumpb(a, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    return weir__schema_spend(w, length / 4 + 1) && json_equal(a, b);
}

/* Adds the properties to dst. Those that it has must satisfy both schemas. */
static bool merge_properties(weir__schema_walk *w, json_t *dst, json_t *src)
{
    const char *name;
    json_t *value;
    json_object_foreach(src, name, value)
    {
        const json_t *known = json_object_get(dst, name);
        if (known != NULL && values_equal(w, known, value)) continue;
        json_t *one = known == NULL ? json_incref(value) : weir__schema_both(w, (json_t *)known, value);
        if (!weir__schema_set(w, dst, name, one)) return false;
    }
    return true;
}

/* Merges lists of required properties. */
static bool merge_required(weir__schema_walk *w, json_t *dst, const json_t *src)
{
    if (!weir__schema_spend(w, (json_array_size(dst) + 1) * json_array_size(src))) return false;
    for (size_t i = 0; i < json_array_size(src); i++) {
        json_t *name = json_array_get(src, i);
        if (!weir__schema_has_value(dst, name) && !weir__schema_append(w, dst, json_incref(name)))
            return false;
    }
    return true;
}

static bool merge_types(merge *m, const json_t *src)
{
    unsigned mask = weir__schema_declared_types(m->w, m->dst), other = weir__schema_declared_types(m->w, src);
    if (mask == 0 || other == 0) return false;
    m->impossible = (mask & other) == 0;
    return !m->impossible &&
           weir__schema_set(m->w, m->dst, "type", weir__schema_type_array(m->w, mask & other));
}

/* The values that are in both lists. */
static bool merge_values(merge *m, const json_t *known, const json_t *other)
{
    json_t *both = json_array();
    if (weir__schema_spend(m->w, json_array_size(known) * json_array_size(other)))
        for (size_t i = 0; i < json_array_size(known); i++)
            if (weir__schema_has_value(other, json_array_get(known, i)))
                weir__schema_append(m->w, both, json_incref(json_array_get(known, i)));
    m->impossible = json_array_size(both) == 0 && m->w->status == WEIR_OK;
    return weir__schema_set(m->w, m->dst, "enum", both) && !m->impossible;
}

/* The branches of two alternatives, each of one with each of the other. */
static bool merge_branches(merge *m, const char *name, const json_t *known, const json_t *other)
{
    size_t n = json_array_size(known) * json_array_size(other);
    json_t *all = json_array();
    if (n > BRANCH_PAIRS_MAX) {
        json_decref(all);
        return weir__schema_refuse(m->w, name,
                                   "the schemas that meet here, by allOf or anyOf, have %zu pairs of "
                                   "branches; at most %d are supported",
                                   n, BRANCH_PAIRS_MAX) != NULL;
    }
    for (size_t i = 0; i < json_array_size(known); i++)
        for (size_t k = 0; k < json_array_size(other); k++)
            weir__schema_append(m->w, all,
                                weir__schema_both(m->w, json_array_get(known, i), json_array_get(other, k)));
    return weir__schema_set(m->w, m->dst, name, all);
}

/* Merges two values of `not` that are both about listed values, or about types. */
static bool merge_not(merge *m, const json_t *known, const json_t *other)
{
    static const char *const type[] = {"type", NULL};
    json_t *first = json_is_object(known) ? weir__schema_listed(known) : NULL;
    json_t *second = json_is_object(other) ? weir__schema_listed(other) : NULL, *excluded = NULL;
    if (first != NULL && second != NULL &&
        weir__schema_other_constraint(known, weir__schema_listed_values) == NULL &&
        weir__schema_other_constraint(other, weir__schema_listed_values) == NULL) {
        json_t *both = weir__json_copy(first);
        if (both == NULL || json_array_extend(both, second) != 0) weir__schema_no_memory(m->w);
        excluded = weir__schema_pack(m->w, "{s:o}", "enum", both);
    } else if (json_is_object(known) && json_is_object(other) &&
               weir__schema_other_constraint(known, type) == NULL &&
               weir__schema_other_constraint(other, type) == NULL) {
        unsigned mask = weir__schema_declared_types(m->w, known) | weir__schema_declared_types(m->w, other);
        if (m->w->status == WEIR_OK)
            excluded = weir__schema_pack(m->w, "{s:o}", "type", weir__schema_type_array(m->w, mask));
    } else {
        weir__schema_refuse(m->w, "not",
                            "the schemas that meet here, by allOf or anyOf, give it different values");
    }
    json_decref(first);
    json_decref(second);
    return excluded != NULL && weir__schema_set(m->w, m->dst, "not", excluded);
}

int weir__schema_bound_sign(const char *name)
{
    static const char *const lower[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const upper[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        "maxProperties"};
    return weir__words_have(lower, sizeof lower / sizeof *lower, name) -
           weir__words_have(upper, sizeof upper / sizeof *upper, name);
}

/* Puts a second pattern beside the others. */
static bool merge_patterns(merge *m, json_t *pattern)
{
    json_t *all = weir__schema_own_list(m->w, m->dst, WEIR__SCHEMA_PATTERNS);
    return all != NULL && weir__schema_append(m->w, all, json_incref(pattern));
}

/* Merges both into their least common multiple. False: it is too large, or they are no integers. */
static bool merge_multiples(merge *m, const json_t *known, const json_t *other)
{
    const double first = json_number_value(known), second = json_number_value(other);
    if (!(first >= 1 && second >= 1 && first <= 1e6 && second <= 1e6 && floor(first) == first &&
          floor(second) == second))
        return false;
    const int64_t common = (int64_t)weir__common_divisor((uint64_t)first, (uint64_t)second);
    return weir__schema_set(m->w, m->dst, "multipleOf",
                            json_integer((int64_t)first / common * (int64_t)second));
}

/* Merges a keyword that both have. */
static bool merge_keyword(merge *m, const json_t *src, const char *name)
{
    weir__schema_walk *w = m->w;
    const json_t *known = json_object_get(m->dst, name);
    json_t *value = json_object_get(src, name);
    int sign = json_is_number(known) && json_is_number(value) ? weir__schema_bound_sign(name) : 0;
    static const char *const of_schemas[] = {"items", "additionalProperties", "additionalItems",
                                             "propertyNames"};
    bool schemas = weir__words_have(of_schemas, sizeof of_schemas / sizeof *of_schemas, name),
         properties = (strcmp(name, "properties") == 0 || strcmp(name, "patternProperties") == 0) &&
                      json_is_object(known) && json_is_object(value);
    bool lists = json_is_array(known) && json_is_array(value);
    if (strcmp(name, "type") == 0) return merge_types(m, src);
    if (properties || (lists && strcmp(name, "required") == 0)) {
        if (known == value) return true;
        if (!weir__schema_spend(w, json_object_size(known) + json_object_size(value))) return false;
        json_t *both = weir__json_copy(known);
        bool ok = properties ? merge_properties(w, both, value) : merge_required(w, both, value);
        return weir__schema_set(w, m->dst, name, both) && ok;
    }
    if (values_equal(w, known, value)) return true;
    if (sign != 0)
        return sign * weir__schema_compare(value, known) <= 0 ||
               weir__schema_set(w, m->dst, name, json_incref(value));
    if (schemas && !json_is_array(known) && !json_is_array(value))
        return weir__schema_set(w, m->dst, name, weir__schema_both(w, (json_t *)known, value));
    if (strcmp(name, "uniqueItems") == 0) return weir__schema_set(w, m->dst, name, json_true());
    if (strcmp(name, "not") == 0) return merge_not(m, known, value);
    if (json_is_string(value) && strcmp(name, "pattern") == 0) return merge_patterns(m, value);
    if (strcmp(name, "multipleOf") == 0 && merge_multiples(m, known, value)) return true;
    if (lists && name[0] == '\001') {
        json_t *both = weir__schema_own_list(w, m->dst, name);
        return both != NULL && (json_array_extend(both, value) == 0 || weir__schema_no_memory(w) != NULL);
    }
    if (lists && strcmp(name, "enum") == 0) return merge_values(m, known, value);
    if (lists && (strcmp(name, "anyOf") == 0 || strcmp(name, "oneOf") == 0))
        return merge_branches(m, name, known, value);
    m->impossible = strcmp(name, "const") == 0 && !weir__schema_equal(known, value);
    return strcmp(name, "const") == 0
               ? !m->impossible
               : weir__schema_refuse(w, name,
                                     "the schemas that meet here, by allOf or anyOf, give it different "
                                     "values") != NULL;
}

/* True if additionalProperties says anything. */
static bool narrows_others(const json_t *schema)
{
    const json_t *additional = json_object_get(schema, "additionalProperties");
    return additional != NULL && !json_is_true(additional);
}

/* The schema with what the other one's additionalProperties says of properties that only this one names. */
static json_t *closed_by(weir__schema_walk *w, const json_t *schema, const json_t *other)
{
    json_t *additional = json_object_get(other, "additionalProperties");
    const json_t *known = json_object_get(other, "properties"),
                 *patterns = json_object_get(other, "patternProperties");
    json_t *whole = weir__schema_made(w, weir__json_copy(schema));
    if (!narrows_others(other)) return whole;
    if (json_object_size(json_object_get(schema, "patternProperties")) > 0 &&
        !json_equal(json_object_get(schema, "patternProperties"), patterns)) {
        json_decref(whole);
        return weir__schema_refuse(w, "additionalProperties",
                                   "by allOf or anyOf it stands beside patternProperties of another schema");
    }
    if (!weir__schema_has_any(schema, weir__schema_named_properties)) return whole;
    const json_t *given = json_object_get(schema, "properties"), *names = json_object_get(schema, "required");
    json_t *own = json_object_get(schema, "additionalProperties");
    json_t *properties = json_object(), *value;
    const char *name;
    if (!weir__schema_spend(w, json_object_size(given) + json_array_size(names))) additional = NULL;
    json_object_foreach((json_t *)given, name, value)
    {
        const bool evaluated =
            json_object_get(known, name) != NULL || weir__schema_matches(w, patterns, name);
        json_t *one = evaluated                   ? json_incref(value)
                      : json_is_false(additional) ? json_false()
                                                  : weir__schema_both(w, value, additional);
        weir__schema_set(w, properties, name, one);
    }
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *required = json_string_value(json_array_get(names, i));
        if (required != NULL && json_object_get(known, required) == NULL &&
            json_object_get(properties, required) == NULL && !weir__schema_matches(w, patterns, required))
            weir__schema_set(w, properties, required,
                             narrows_others(schema) && own != additional
                                 ? weir__schema_both(w, own, additional)
                                 : json_incref(additional));
    }
    weir__schema_set(w, whole, "properties", properties);
    return weir__schema_made(w, whole);
}

/* The member of an allOf with other keywords for `unevaluatedProperties` and `unevaluatedItems`, which know
 * only the properties and items of that member. */
static json_t *evaluated_here(weir__schema_walk *w, const json_t *src)
{
    static const char *const wider[] = {"anyOf", "oneOf", "$ref", "additionalProperties", NULL};
    json_t *properties = json_object_get(src, "unevaluatedProperties");
    json_t *items = json_object_get(src, "unevaluatedItems");
    if (properties == NULL && items == NULL) return json_incref((json_t *)src);
    bool open = (properties == NULL || json_is_true(properties)) && (items == NULL || json_is_true(items));
    if (!open && weir__schema_has_any(src, wider))
        return weir__schema_refuse(w, properties != NULL ? "unevaluatedProperties" : "unevaluatedItems",
                                   "in a schema of an allOf or anyOf it cannot stand beside anyOf, oneOf and "
                                   "additionalProperties");
    const bool listed = json_is_array(json_object_get(src, "items"));
    const char *rest = listed ? "additionalItems" : "items";
    if (items != NULL && !json_is_true(items) && json_object_get(src, rest) == NULL &&
        json_object_get(src, "contains") != NULL)
        return weir__schema_refuse(w, "unevaluatedItems", "it cannot stand beside contains");
    json_t *own = weir__schema_made(w, weir__json_copy(src));
    if (own == NULL) return NULL;
    if (properties != NULL && json_object_get(src, "additionalProperties") == NULL)
        weir__schema_set(w, own, "additionalProperties", json_incref(properties));
    if (json_is_false(items) && !weir__schema_has_any(src, array_items))
        weir__schema_set(w, own, "maxItems", json_integer(0));
    else if (items != NULL && json_object_get(src, rest) == NULL)
        weir__schema_set(w, own, rest, json_incref(items));
    json_object_del(own, "unevaluatedProperties");
    json_object_del(own, "unevaluatedItems");
    return weir__schema_made(w, own);
}

/* Adds the keywords of src to dst. */
static bool merge_keywords(merge *m, const json_t *src)
{
    const char *name;
    json_t *value;
    if (!weir__schema_spend(m->w, json_object_size(src))) return false;
    json_object_foreach((json_t *)src, name, value)
    {
        const json_t *known = json_object_get(m->dst, name);
        if (weir__schema_kind_of(name) == ANNOTATION) continue;
        if (strncmp(name, "exclusive", 9) == 0 && json_is_boolean(value))
            return weir__schema_refuse(m->w, name, "it must be a number in a schema of an allOf or anyOf") !=
                   NULL;
        if (known == NULL) {
            if (!weir__schema_set(m->w, m->dst, name, json_incref(value))) return false;
        } else if (!merge_keyword(m, src, name)) {
            return false;
        }
    }
    return true;
}

/* True if arrays of the schema are described by more than one schema for all items. */
static bool lists_items(const json_t *schema)
{
    return json_is_array(json_object_get(schema, "items")) ||
           weir__schema_has_any(schema, (const char *const[]){"prefixItems", "additionalItems", NULL});
}

/* The schemas of the first items, an array, and of those after them; NULL: none. */
typedef struct item_schemas {
    json_t *first, *rest;
} item_schemas;

static item_schemas items_of(const json_t *schema)
{
    json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    if (prefix != NULL || !json_is_array(items)) return (item_schemas){prefix, items};
    return (item_schemas){items, json_object_get(schema, "additionalItems")};
}

/* Both schemas, of which one may be NULL. */
static json_t *both_items(weir__schema_walk *w, json_t *a, json_t *b)
{
    return a == NULL || b == NULL || a == b ? json_incref(a != NULL ? a : b) : weir__schema_both(w, a, b);
}

/* {"prefixItems": …, "items": …} for the items of both schemas. */
static json_t *merged_items(weir__schema_walk *w, const json_t *a, const json_t *b)
{
    const item_schemas x = items_of(a), y = items_of(b);
    const size_t n_x = json_array_size(x.first), n_y = json_array_size(y.first);
    if ((x.first != NULL && !json_is_array(x.first)) || (y.first != NULL && !json_is_array(y.first)))
        return weir__schema_refuse_finally(w, "prefixItems", "it must be an array of schemas");
    json_t *items = weir__schema_made(w, json_object()), *first = json_array();
    for (size_t i = 0; (i < n_x || i < n_y) && weir__schema_spend(w, 4); i++)
        weir__schema_append(w, first,
                            both_items(w, i < n_x ? json_array_get(x.first, i) : x.rest,
                                       i < n_y ? json_array_get(y.first, i) : y.rest));
    if (n_x > 0 || n_y > 0) weir__schema_set(w, items, "prefixItems", json_incref(first));
    json_decref(first);
    if (x.rest != NULL || y.rest != NULL) weir__schema_set(w, items, "items", both_items(w, x.rest, y.rest));
    return weir__schema_made(w, items);
}

/* Moves what both schemas say of items to the first one, whose copy is `copy`, if one of them lists some. */
static bool merge_items(weir__schema_walk *w, json_t *dst, json_t *copy, json_t *src)
{
    if (!weir__schema_has_any(dst, array_items) || !weir__schema_has_any(src, array_items) ||
        !(lists_items(dst) || lists_items(src)))
        return true;
    json_t *items = merged_items(w, dst, src);
    for (size_t i = 0; array_items[i] != NULL; i++) {
        json_object_del(dst, array_items[i]);
        json_object_del(copy, array_items[i]);
        json_object_del(src, array_items[i]);
    }
    const bool ok =
        items != NULL && (json_object_update(copy, items) == 0 || weir__schema_no_memory(w) != NULL);
    json_decref(items);
    return ok;
}

/* Without `contains` these say nothing, even where another schema has it. */
static const char *const counts_of_items[] = {"minContains", "maxContains", NULL};

static void drop_counts(json_t *schema)
{
    for (size_t i = 0; counts_of_items[i] != NULL; i++) json_object_del(schema, counts_of_items[i]);
}

/* True if both are missing, or equal. */
static bool is_same(const json_t *a, const json_t *b)
{
    return a == b || json_equal(a, b);
}

/* dst becomes the conjunction of dst and src. False: a refusal, or nothing satisfies both (*impossible). */
static bool merge_schema(weir__schema_walk *w, json_t *dst, const json_t *src, bool *impossible)
{
    merge m = {.w = w};
    static const char *const counts[] = {"contains", "minContains", "maxContains"};
    const bool both = json_object_get(dst, "contains") != NULL && json_object_get(src, "contains") != NULL;
    for (size_t i = 0; i < 3 && both; i++)
        if (!weir__schema_spend(w, 64) ||
            !is_same(json_object_get(dst, counts[i]), json_object_get(src, counts[i])))
            return weir__schema_refuse(w, "contains", "several schemas of an allOf or anyOf have it") != NULL;
    if (json_object_get(dst, "contains") == NULL) drop_counts(dst);
    json_t *own = evaluated_here(w, src);
    if (own != NULL && json_object_get(own, "contains") == NULL &&
        weir__schema_has_any(own, counts_of_items)) {
        json_t *copy = weir__schema_made(w, weir__json_copy(own));
        json_decref(own);
        own = copy;
        drop_counts(own);
    }
    json_t *closed = own != NULL ? closed_by(w, own, dst) : NULL;
    m.dst = closed != NULL ? closed_by(w, dst, own) : NULL;
    bool ok = m.dst != NULL && merge_items(w, dst, m.dst, closed) && merge_keywords(&m, closed) &&
              (json_object_update(dst, m.dst) == 0 || weir__schema_no_memory(w) != NULL);
    *impossible = m.impossible;
    json_decref(own);
    json_decref(closed);
    json_decref(m.dst);
    return ok;
}

/* Merges the members of an allOf into flat. False: a refusal, or nothing satisfies one of them
 * (*impossible). */
static bool merge_all(weir__schema_walk *w, const json_t *all, json_t *flat, bool *impossible)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *member = weir__schema_dereference(w, json_array_get(all, i));
        if (member == NULL || !weir__schema_spend(w, 1)) return false;
        if (json_is_true(member)) continue;
        if (json_is_false(member)) {
            *impossible = true;
            return false;
        }
        size_t before = weir__schema_enter_index(w, "allOf", i);
        bool ok = json_is_object(member) ||
                  weir__schema_refuse_finally(w, NULL, "a schema must be an object or a boolean") != NULL;
        ok = ok && weir__schema_check_keywords(w, member);
        json_t *part = ok ? weir__schema_flatten(w, member) : NULL;
        *impossible = json_is_false(part);
        ok = part != NULL && !*impossible && merge_schema(w, flat, part, impossible);
        json_decref(part);
        weir__schema_leave(w, before);
        if (!ok) return false;
    }
    return true;
}

/* Caches a flattened schema. Both are held, so that no other schema gets the same address. */
static bool remember_merged(weir__schema_walk *w, const json_t *schema, json_t *flat)
{
    if (!weir__mem_grow(&w->flats, &w->flats_capacity, w->n_flats + 1, sizeof *w->flats))
        return weir__schema_no_memory(w) != NULL;
    w->flats[w->n_flats++] = (weir__schema_flat){json_incref((json_t *)schema), json_incref(flat)};
    return true;
}

json_t *weir__schema_flatten(weir__schema_walk *w, const json_t *schema)
{
    const json_t *all = json_object_get(schema, "allOf");
    bool impossible = false;
    const bool has_condition = weir__schema_has_condition(schema);
    if (all == NULL && !has_condition) return json_incref((json_t *)schema);
    if (!weir__schema_spend(w, w->n_flats / 8 + 1)) return NULL;
    for (size_t i = 0; i < w->n_flats; i++)
        if (w->flats[i].schema == schema) return json_incref(w->flats[i].flat);
    if (all != NULL && (!json_is_array(all) || json_array_size(all) == 0))
        return weir__schema_refuse_finally(w, "allOf", "it must be an array of schemas, and not empty");
    if (++w->depth > WEIR__SCHEMA_DEPTH_MAX)
        return weir__schema_refuse(w, "allOf", "schemas are nested deeper than %d", WEIR__SCHEMA_DEPTH_MAX);
    json_t *flat = weir__schema_without(w, schema, "allOf");
    json_t *conditions = has_condition ? weir__schema_conditions(w, schema) : NULL;
    if (flat != NULL) weir__schema_drop_conditions(flat);
    bool ok = flat != NULL && w->status == WEIR_OK && merge_all(w, all, flat, &impossible) &&
              merge_all(w, conditions, flat, &impossible);
    json_decref(conditions);
    if (!ok) {
        json_decref(flat);
        flat = impossible ? json_false() : NULL;
    }
    w->depth--;
    if (flat == NULL || remember_merged(w, schema, flat)) return flat;
    json_decref(flat);
    return NULL;
}

/* ---- anyOf and oneOf ---- */

/* A branch merged with the keywords beside it; `false` if nothing satisfies it. */
static json_t *merged_branch(weir__schema_walk *w, const json_t *schema, const char *keyword,
                             const json_t *branch)
{
    const json_t *target = weir__schema_dereference(w, branch);
    if (target == NULL || !weir__schema_spend(w, json_object_size(schema))) return NULL;
    if (json_is_false(target)) return json_false();
    if (json_is_true(target)) return weir__schema_without(w, schema, keyword);
    if (!json_is_object(target))
        return weir__schema_refuse_finally(w, NULL, "a schema must be an object or a boolean");
    if (!weir__schema_check_keywords(w, target)) return NULL;
    json_t *flat = weir__schema_flatten(w, target);
    if (flat == NULL || json_is_false(flat)) return flat;
    json_t *whole = weir__schema_without(w, schema, keyword);
    bool impossible = false, ok = whole != NULL && merge_schema(w, whole, flat, &impossible);
    json_decref(flat);
    if (ok) return whole;
    json_decref(whole);
    return impossible ? json_false() : NULL;
}

/* The branches, each merged with the keywords beside them. */
static json_t *merged_branches(weir__schema_walk *w, const json_t *schema, const char *keyword)
{
    const char *const allowed[] = {keyword, NULL};
    json_t *branches = json_object_get(schema, keyword), *result = json_array();
    if (weir__schema_other_constraint(schema, allowed) == NULL) {
        json_decref(result);
        return json_incref(branches);
    }
    for (size_t i = 0; i < json_array_size(branches) && w->status == WEIR_OK; i++) {
        size_t before = weir__schema_enter_index(w, keyword, i);
        weir__schema_append(w, result, merged_branch(w, schema, keyword, json_array_get(branches, i)));
        weir__schema_leave(w, before);
    }
    return result;
}

json_t *weir__schema_alternatives(weir__schema_walk *w, const json_t *schema)
{
    bool one_of = json_object_get(schema, "oneOf") != NULL;
    const char *keyword = one_of ? "oneOf" : "anyOf";
    const json_t *given = json_object_get(schema, keyword);
    if (!json_is_array(given) || json_array_size(given) == 0)
        return weir__schema_refuse_finally(w, keyword, "it must be an array of schemas, and not empty");
    json_t *branches = merged_branches(w, schema, keyword), *list = json_array();
    if (one_of && w->status == WEIR_OK) {
        json_t *parted = weir__schema_part_branches(w, branches, given);
        json_decref(branches);
        branches = parted;
    }
    for (size_t i = 0; i < json_array_size(branches) && w->status == WEIR_OK; i++) {
        json_t *one = weir__schema_below_index(w, keyword, i, json_array_get(branches, i), false);
        if (!json_is_false(one)) weir__schema_append(w, list, one);
    }
    json_decref(branches);
    return weir__schema_choice(w, "anyOf", list);
}

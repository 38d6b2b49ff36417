/* schema_one_of.c: makes branches of oneOf that exclude each other.
 * SPDX-License-Identifier: Apache-2.0
 *
 * oneOf is enforced as anyOf of branches that exclude each other: by their types, by their values, by a
 * required property for which they list different strings, or by one that the other branch cannot have. Of
 * two branches that do not, each must lack a property that the other requires, or gets what contradicts the
 * other. */
#include "base/json.h"
#include "base/mem.h"
#include "grammar/schema_walk.h"

json_t *weir__schema_listed(const json_t *schema)
{
    json_t *only = json_object_get(schema, "const");
    if (only != NULL) return json_pack("[O]", only);
    json_t *list = json_object_get(schema, "enum");
    return json_is_array(list) ? json_incref(list) : NULL;
}

/* The most schemas that one search for types reads: nested alternatives can be endless. */
#define LOOKS_MAX 1000

static unsigned types_of_values(const json_t *list, int *looks)
{
    unsigned mask = 0;
    *looks -= (int)(json_array_size(list) / 64 < LOOKS_MAX ? json_array_size(list) / 64 : LOOKS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) mask |= weir__schema_type_of(json_array_get(list, i));
    return mask;
}

static unsigned look_at_types(weir__schema_walk *w, const json_t *schema, int depth, int *looks)
{
    if (json_is_false(schema)) return 0;
    if (!json_is_object(schema) || depth > 16 || --*looks <= 0) return TYPE_ANY;
    unsigned mask = TYPE_ANY;
    if (json_object_get(schema, "type") != NULL && w->status == WEIR_OK)
        mask = weir__schema_declared_types(w, schema);
    if (json_object_get(schema, "const") != NULL)
        mask &= weir__schema_type_of(json_object_get(schema, "const"));
    const json_t *list = json_object_get(schema, "enum");
    if (json_is_array(list)) mask &= types_of_values(list, looks);
    const json_t *reference = json_object_get(schema, "$ref");
    if (reference != NULL && w->hides) mask = TYPE_ANY; /* what stands beside it may not count */
    if (reference != NULL && w->status == WEIR_OK) {
        const json_t *target = weir__schema_resolve(w, reference);
        if (target != NULL) mask &= look_at_types(w, target, depth + 1, looks);
        if (w->hides) return mask;
    }
    const json_t *all = json_object_get(schema, "allOf");
    for (size_t i = 0; i < json_array_size(all); i++)
        mask &= look_at_types(w, json_array_get(all, i), depth + 1, looks);
    for (int k = 0; k < 2; k++) {
        const json_t *branches = json_object_get(schema, k == 0 ? "anyOf" : "oneOf");
        if (!json_is_array(branches)) continue;
        unsigned any = 0;
        for (size_t i = 0; i < json_array_size(branches) && any != TYPE_ANY; i++)
            any |= look_at_types(w, json_array_get(branches, i), depth + 1, looks);
        mask &= any;
    }
    return mask;
}

unsigned weir__schema_possible_types(weir__schema_walk *w, const json_t *schema)
{
    int looks = LOOKS_MAX;
    unsigned mask = look_at_types(w, schema, 0, &looks);
    weir__schema_spend(w, (size_t)(LOOKS_MAX - looks));
    return mask;
}

/* Arrays and objects always may be: they are not compared. */
static bool may_be_equal(const json_t *a, const json_t *b)
{
    return weir__schema_equal(a, b) ||
           (json_typeof(a) == json_typeof(b) && (json_is_array(a) || json_is_object(a)));
}

static bool values_differ(weir__schema_walk *w, const json_t *a, const json_t *b)
{
    json_t *first = weir__schema_listed(a), *second = weir__schema_listed(b);
    bool differ = first != NULL && second != NULL &&
                  weir__schema_spend(w, json_array_size(first) * json_array_size(second));
    for (size_t i = 0; differ && i < json_array_size(first); i++)
        for (size_t k = 0; differ && k < json_array_size(second); k++)
            differ = !may_be_equal(json_array_get(first, i), json_array_get(second, k));
    json_decref(first);
    json_decref(second);
    return differ;
}

/* The most listed values that are judged by another schema. */
#define TRIED_MAX 64

/* True if a lists values, none of which satisfies b. */
static bool values_violate(weir__schema_walk *w, const json_t *a, const json_t *b)
{
    json_t *values = weir__schema_listed(a);
    bool violate = values != NULL && json_array_size(values) <= TRIED_MAX;
    for (size_t i = 0; i < json_array_size(values) && violate; i++)
        violate = weir__schema_judge(w, b, json_array_get(values, i), NULL) == WEIR__SCHEMA_VIOLATED;
    json_decref(values);
    return violate;
}

/* True if objects that satisfy the schema have listed properties only. */
static bool is_closed(const json_t *schema)
{
    const json_t *additional = json_object_get(schema, "additionalProperties");
    if (additional == NULL) additional = json_object_get(schema, "unevaluatedProperties");
    return json_is_false(additional) && json_object_get(schema, "patternProperties") == NULL;
}

bool weir__schema_is_made_closed(const weir__schema_walk *w, const json_t *schema)
{
    return is_closed(schema) || (w->relax && json_object_get(schema, "patternProperties") == NULL &&
                                 weir__schema_has_any(schema, weir__schema_named_properties));
}

/* True if b requires a property that objects for a have not. */
static bool lacks_required(const weir__schema_walk *w, const json_t *a, const json_t *b)
{
    static const char *const wider[] = {
        "anyOf", "oneOf",         "allOf", "if", "dependencies", "dependentRequired", "dependentSchemas",
        "$ref",  "propertyNames", NULL};
    const json_t *required = json_object_get(b, "required");
    if (!weir__schema_is_made_closed(w, a) || weir__schema_has_any(a, wider)) return false;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name != NULL && json_object_get(json_object_get(a, "properties"), name) == NULL &&
            !weir__schema_is_required(a, name))
            return true;
    }
    return false;
}

/* What a comparison of two branches costs at the least. */
#define PAIR_STEPS 8

/* True if no text of one schema's grammar satisfies the other schema. types: those that each may have. */
static bool exclude_each_other(weir__schema_walk *w, const json_t *a, unsigned types_a, const json_t *b,
                               unsigned types_b)
{
    if ((types_a & types_b) == 0) return true;
    if (!weir__schema_spend(w, PAIR_STEPS)) return false;
    a = weir__schema_judged(w, a);
    b = weir__schema_judged(w, b);
    if (!json_is_object(a) || !json_is_object(b)) return false;
    if (values_differ(w, a, b) || values_violate(w, a, b) || values_violate(w, b, a)) return true;
    if (types_a != TYPE_OBJECT || types_b != TYPE_OBJECT) return false;
    const char *name;
    json_t *property;
    size_t asked =
        json_array_size(json_object_get(a, "required")) + json_array_size(json_object_get(b, "required"));
    json_object_foreach(json_object_get(a, "properties"), name, property)
    {
        if (!weir__schema_spend(w, asked / 4 + 1)) return false;
        const json_t *other = json_object_get(json_object_get(b, "properties"), name);
        if (other == NULL || !weir__schema_is_required(a, name) || !weir__schema_is_required(b, name))
            continue;
        const json_t *one = weir__schema_judged(w, property);
        other = one != NULL ? weir__schema_judged(w, other) : NULL;
        if (json_is_object(one) && json_is_object(other) && values_differ(w, one, other)) return true;
    }
    const bool a_lacks = lacks_required(w, a, b), b_lacks = lacks_required(w, b, a);
    return (a_lacks && (b_lacks || is_closed(a))) || (b_lacks && is_closed(b));
}

/* Of two branches of objects, each requires a property that the other does not: notes that each must lack the
 * other's, so that no value satisfies both. without [n]: names that a branch must not have. False: there are
 * no such properties. */
static bool part_branches(weir__schema_walk *w, const json_t *branches, size_t i, size_t k, json_t *without)
{
    const size_t both[] = {i, k};
    const json_t *schemas[2];
    const char *names[2] = {NULL, NULL};
    for (int m = 0; m < 2; m++) {
        schemas[m] = weir__schema_judged(w, json_array_get(branches, both[m]));
        if (!json_is_object(schemas[m])) return false;
    }
    for (int m = 0; m < 2; m++) {
        const json_t *required = json_object_get(schemas[m], "required");
        for (size_t n = 0; n < json_array_size(required) && names[m] == NULL; n++) {
            const char *name = json_string_value(json_array_get(required, n));
            if (name != NULL && weir__schema_spend(w, 4) && !weir__schema_is_required(schemas[1 - m], name))
                names[m] = name;
        }
    }
    if (names[0] == NULL || names[1] == NULL) return false;
    for (int m = 0; m < 2; m++)
        weir__schema_set(w, json_array_get(without, both[m]), names[1 - m], json_false());
    return true;
}

/* The most opposites that one branch gets. */
#define OPPOSED_MAX 64

/* Notes that each of two branches must satisfy what contradicts the other. schemas [n]: for each branch, a
 * list of such schemas. opposites [n]: what contradicts each, or null: not asked for yet. False: that is
 * unknown, there are too many, or a failure. */
static bool oppose_branches(weir__schema_walk *w, const json_t *branches, size_t i, size_t k,
                            json_t *opposites, json_t *schemas)
{
    const size_t both[] = {i, k};
    for (int m = 0; m < 2; m++) {
        if (json_array_size(json_array_get(schemas, both[m])) >= OPPOSED_MAX) return false;
        if (!json_is_null(json_array_get(opposites, both[m]))) continue;
        json_t *other = weir__schema_opposite(w, "oneOf", json_array_get(branches, both[m]));
        if (other == NULL) return false;
        if (json_array_set_new(opposites, both[m], other) != 0) return weir__schema_no_memory(w) != NULL;
    }
    return weir__schema_append(w, json_array_get(schemas, i), json_incref(json_array_get(opposites, k))) &&
           weir__schema_append(w, json_array_get(schemas, k), json_incref(json_array_get(opposites, i)));
}

/* The branch with what contradicts others; takes it over. With relax, where the two cannot be merged, the
 * branch stays as it is and oneOf is noted. */
static json_t *beside_opposites(weir__schema_walk *w, json_t *branch, json_t *opposites)
{
    json_t *all = weir__schema_pack(w, "{s:O}", "allOf", opposites);
    json_t *both = all != NULL ? weir__schema_both(w, branch, all) : NULL; /* a new pair */
    if (both != NULL) w->pairs[w->n_pairs - 1].one_of = w->path.n;
    json_decref(all);
    json_decref(branch);
    return both;
}

/* True if each branch requires the property, and lists strings for it that no other branch lists. */
static bool is_discriminator(weir__schema_walk *w, const json_t *branches, const char *name)
{
    json_t *seen = weir__schema_made(w, json_object());
    bool distinct = seen != NULL;
    for (size_t i = 0; i < json_array_size(branches) && distinct; i++) {
        const json_t *branch = weir__schema_judged(w, json_array_get(branches, i));
        const json_t *property = json_object_get(json_object_get(branch, "properties"), name);
        if (property != NULL) property = weir__schema_judged(w, property);
        json_t *values = weir__schema_listed(property);
        distinct = values != NULL && weir__schema_is_required(branch, name) &&
                   weir__schema_spend(w, json_array_size(values) + 8);
        for (size_t k = 0; k < json_array_size(values) && distinct; k++) {
            const char *text = json_string_value(json_array_get(values, k));
            distinct = text != NULL && json_object_get(seen, text) == NULL &&
                       weir__schema_set(w, seen, text, json_true());
        }
        json_decref(values);
    }
    json_decref(seen);
    return distinct;
}

/* True if one property decides which branch an object satisfies: then no pair need be compared. */
static bool have_discriminator(weir__schema_walk *w, const json_t *branches, const unsigned *types)
{
    const json_t *first = weir__schema_judged(w, json_array_get(branches, 0));
    const json_t *required = json_object_get(first, "required");
    for (size_t i = 0; i < json_array_size(branches); i++)
        if (types[i] != TYPE_OBJECT) return false;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name != NULL && is_discriminator(w, branches, name)) return true;
    }
    return false;
}

json_t *weir__schema_part_branches(weir__schema_walk *w, json_t *branches, const json_t *given)
{
    /* Where a $ref hides what stands beside it, a branch is merged with more than a value must satisfy. */
    const json_t *judged = w->hides ? given : branches;
    const size_t n = json_array_size(branches);
    json_t *without = json_array(), *opposed = json_array(), *parted = json_array();
    json_t *opposites = json_array();
    unsigned *types = weir__mem_calloc(n + 1, sizeof *types);
    if (types == NULL) weir__schema_no_memory(w);
    for (size_t i = 0; i < n; i++) {
        if (types != NULL) types[i] = weir__schema_possible_types(w, json_array_get(judged, i));
        weir__schema_append(w, opposites, json_null());
        weir__schema_append(w, without, json_object());
        weir__schema_append(w, opposed, json_array());
    }
    const bool decided = types != NULL && have_discriminator(w, judged, types);
    for (size_t i = 0; i < n && !decided; i++)
        for (size_t k = i + 1; k < n && w->status == WEIR_OK; k++) {
            if (exclude_each_other(w, json_array_get(judged, i), types[i], json_array_get(judged, k),
                                   types[k]) ||
                (types[i] == TYPE_OBJECT && types[k] == TYPE_OBJECT &&
                 part_branches(w, judged, i, k, without)) ||
                (!w->relax && oppose_branches(w, judged, i, k, opposites, opposed)))
                continue;
            weir__schema_refuse(
                w, "oneOf",
                "one value may satisfy both branch %zu and branch %zu; give each a type of its own, or a "
                "required property with distinct const values, or write anyOf",
                i, k);
        }
    for (size_t i = 0; i < n && w->status == WEIR_OK; i++) {
        json_t *branch = json_incref(json_array_get(branches, i)), *names = json_array_get(without, i);
        json_t *rest = json_array_get(opposed, i);
        if (json_object_size(names) > 0)
            weir__schema_append(w, rest, weir__schema_pack(w, "{s:O}", "properties", names));
        if (json_array_size(rest) > 0) branch = beside_opposites(w, branch, rest);
        weir__schema_append(w, parted, branch);
    }
    weir__mem_free(types);
    json_decref(opposites);
    json_decref(without);
    json_decref(opposed);
    return weir__schema_made(w, parted);
}

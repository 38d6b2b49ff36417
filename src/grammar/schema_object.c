/* schema_object.c: objects and their properties.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_walk.h"

#include <string.h>

#include "base/json.h"

/* The listed properties and those that are only required, which get the schema of the others. */
static json_t *all_properties(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    const json_t *given = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required");
    json_t *properties = weir__schema_made(w, given != NULL ? weir__json_copy(given) : json_object());
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (json_object_get(properties, name) == NULL)
            weir__schema_set(w, properties, name,
                             others != NULL ? json_incref((json_t *)others) : json_true());
    }
    return properties;
}

/* Adds a property to the result's properties and, perhaps, to its required ones. False: it is required and
 * nothing satisfies it, or a refusal. */
static bool add_property(weir__schema_walk *w, const char *name, const json_t *property, bool is_required,
                         json_t *listed, json_t *required)
{
    if (strlen(name) > WEIR__SCHEMA_NAME_MAX)
        weir__schema_refuse(w, "properties", "the name '%.40s...' has more than 256 bytes", name);
    if (strcmp(name, "*") == 0) weir__schema_refuse(w, "properties", "a property cannot be named '*'");
    if (!weir__schema_take(w, "properties", strlen(name) + 20)) return false;
    json_t *one = weir__schema_below(w, "properties", name, property, true);
    if (json_is_false(one)) return !is_required;
    return weir__schema_set(w, listed, name, one) &&
           (!is_required || weir__schema_append(w, required, json_string(name)));
}

/* An object with the listed properties only. */
static json_t *closed_object(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    json_t *listed = json_object(), *required = json_array(), *properties = NULL, *property;
    size_t n_names = json_array_size(json_object_get(schema, "required"));
    uint64_t least = 0, most = UINT64_MAX;
    bool possible = true;
    const char *name;
    if (weir__schema_spend(w, n_names)) properties = all_properties(w, schema, others);
    if (json_object_size(properties) > WEIR__SCHEMA_PROPERTIES_MAX)
        weir__schema_refuse(w, "properties", "an object can have at most %d", WEIR__SCHEMA_PROPERTIES_MAX);
    json_object_foreach(properties, name, property)
    {
        if (!weir__schema_spend(w, n_names / 2)) break;
        bool is_required = weir__schema_is_required(schema, name);
        possible &= add_property(w, name, property, is_required, listed, required);
    }
    weir__schema_count(w, schema, "minProperties", &least);
    weir__schema_count(w, schema, "maxProperties", &most);
    if (least > json_array_size(required))
        weir__schema_refuse(w, "minProperties",
                            "fewer properties than that are required; list them in required");
    else if (most < json_object_size(listed))
        weir__schema_refuse(w, "maxProperties", "more properties than that are listed");
    json_t *result = weir__schema_pack(w, "{s:s,s:o,s:o,s:b}", "type", "object", "properties", listed,
                                       "required", required, "additionalProperties", 0);
    json_decref(properties);
    if (result == NULL || possible) return result;
    json_decref(result);
    return json_false();
}

/* An object with properties of any names, whose values satisfy `others` (NULL: any). */
static json_t *open_object(weir__schema_walk *w, const json_t *schema, const json_t *others)
{
    static const char *const counts[] = {"minProperties", "maxProperties", NULL};
    for (size_t i = 0; counts[i] != NULL; i++)
        if (json_object_get(schema, counts[i]) != NULL)
            return weir__schema_refuse(w, counts[i],
                                       "a grammar cannot count properties that are not listed in properties");
    json_t *value =
        others == NULL ? json_object() : weir__schema_below(w, "additionalProperties", NULL, others, true);
    if (json_is_false(value)) return closed_object(w, schema, NULL);
    if (json_object_size(value) > 0)
        return weir__schema_pack(w, "{s:s,s:o}", "type", "object", "additionalProperties", value);
    json_decref(value);
    return weir__schema_pack(w, "{s:s}", "type", "object");
}

/* The schema with the properties that propertyNames lists: if it has `properties`, those that are in both. */
static json_t *with_names(weir__schema_walk *w, const json_t *schema, const json_t *list)
{
    const json_t *given = json_object_get(schema, "properties");
    json_t *others = json_object_get(schema, "additionalProperties");
    json_t *properties = json_object(), *less = weir__schema_without(w, schema, "propertyNames");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        json_t *property = name != NULL ? json_object_get(given, name) : NULL;
        if (name == NULL || (property == NULL && given != NULL)) continue;
        if (property == NULL) property = others != NULL ? others : json_true();
        weir__schema_set(w, properties, name, json_incref(property));
    }
    weir__schema_set(w, less, "properties", properties);
    weir__schema_set(w, less, "additionalProperties", json_false());
    return less;
}

/* An object with propertyNames. */
static json_t *named_object(weir__schema_walk *w, const json_t *schema, const json_t *names)
{
    static const char *const type_alone[] = {"type", NULL}, *const list_alone[] = {"type", "enum", NULL};
    json_t *less = NULL, *list = json_object_get(names, "enum");
    bool strings = json_is_object(names) && (json_object_get(names, "type") == NULL ||
                                             (weir__schema_declared_types(w, names) & TYPE_STRING) != 0);
    if (w->status != WEIR_OK) return NULL;
    if (json_is_true(names) || (strings && weir__schema_other_constraint(names, type_alone) == NULL)) {
        less = weir__schema_without(w, schema, "propertyNames");
    } else if (strings && json_is_array(list) && weir__schema_other_constraint(names, list_alone) == NULL) {
        less = with_names(w, schema, list);
        for (size_t i = 0; i < json_array_size(json_object_get(schema, "required")); i++) {
            if (weir__schema_has_value(list, json_array_get(json_object_get(schema, "required"), i)))
                continue;
            json_decref(less);
            return json_false();
        }
    } else {
        return weir__schema_refuse(w, "propertyNames",
                                   "only a list (enum) is supported; list names in properties");
    }
    json_t *result = w->status == WEIR_OK ? weir__schema_object(w, less) : NULL;
    json_decref(less);
    return result;
}

json_t *weir__schema_object(weir__schema_walk *w, const json_t *schema)
{
    const json_t *others = json_object_get(schema, "additionalProperties");
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const json_t *unevaluated = json_object_get(schema, "unevaluatedProperties");
    if (properties != NULL && !json_is_object(properties))
        return weir__schema_refuse_finally(w, "properties", "it must be an object");
    if (required != NULL && !json_is_array(required))
        return weir__schema_refuse_finally(w, "required", "it must be an array of names");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name))
            return weir__schema_refuse_finally(w, "required", "it must be an array of names");
    }
    if (others != NULL && !json_is_object(others) && !json_is_boolean(others))
        return weir__schema_refuse_finally(w, "additionalProperties", "it must be a schema or a boolean");
    if (unevaluated != NULL && !json_is_true(unevaluated)) {
        if (!json_is_false(unevaluated) || (others != NULL && !json_is_false(others)))
            return weir__schema_refuse(w, "unevaluatedProperties",
                                       "only false is supported, without additionalProperties");
        others = unevaluated;
    }
    const json_t *names = json_object_get(schema, "propertyNames");
    if (names != NULL) return named_object(w, schema, names);
    bool listed = properties != NULL || json_array_size(required) > 0;
    if (!listed && !json_is_false(others)) return open_object(w, schema, others);
    return closed_object(w, schema, others);
}

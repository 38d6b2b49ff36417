/* schema_keyword.c: the keywords and types of JSON Schema, and which of them are refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_walk.h"

#include <math.h>
#include <string.h>

const char *const weir__schema_named_properties[] = {"properties", "required", NULL};

/* ---- Keywords ---- */

static const struct keyword {
    const char *name;
    enum family family;
    const char *why; /* REFUSED */
} keywords[] = {
    {"title", ANNOTATION, NULL},
    {"description", ANNOTATION, NULL},
    {"default", ANNOTATION, NULL},
    {"examples", ANNOTATION, NULL},
    {"example", ANNOTATION, NULL},
    {"$schema", ANNOTATION, NULL},
    {"$id", ANNOTATION, NULL},
    {"$comment", ANNOTATION, NULL},
    {"$vocabulary", ANNOTATION, NULL},
    {"$anchor", ANNOTATION, NULL},
    {"$defs", ANNOTATION, NULL},
    {"definitions", ANNOTATION, NULL},
    {"deprecated", ANNOTATION, NULL},
    {"readOnly", ANNOTATION, NULL},
    {"writeOnly", ANNOTATION, NULL},
    {"nullable", ANNOTATION, NULL},
    {"discriminator", ANNOTATION, NULL},
    {"externalDocs", ANNOTATION, NULL},
    {"xml", ANNOTATION, NULL},
    {"$ref", GENERAL, NULL},
    {"type", GENERAL, NULL},
    {"const", GENERAL, NULL},
    {"enum", GENERAL, NULL},
    {"anyOf", GENERAL, NULL},
    {"oneOf", GENERAL, NULL},
    {"allOf", GENERAL, NULL},
    {"properties", OBJECT, NULL},
    {"required", OBJECT, NULL},
    {"additionalProperties", OBJECT, NULL},
    {"unevaluatedProperties", OBJECT, NULL},
    {"minProperties", OBJECT, NULL},
    {"maxProperties", OBJECT, NULL},
    {"items", ARRAY, NULL},
    {"prefixItems", ARRAY, NULL},
    {"additionalItems", ARRAY, NULL},
    {"unevaluatedItems", ARRAY, NULL},
    {"minItems", ARRAY, NULL},
    {"maxItems", ARRAY, NULL},
    {"uniqueItems", ARRAY, NULL},
    {"pattern", STRING, NULL},
    {"minLength", STRING, NULL},
    {"maxLength", STRING, NULL},
    {"format", STRING, NULL}, /* of numbers too */
    {"minimum", NUMBER, NULL},
    {"maximum", NUMBER, NULL},
    {"exclusiveMinimum", NUMBER, NULL},
    {"exclusiveMaximum", NUMBER, NULL},
    {"multipleOf", NUMBER, NULL},
    {"not", GENERAL, NULL},
    {"if", REFUSED, "a grammar has no conditions; write the cases as oneOf"},
    {"then", REFUSED, "a grammar has no conditions; write the cases as oneOf"},
    {"else", REFUSED, "a grammar has no conditions; write the cases as oneOf"},
    {"patternProperties", REFUSED, "properties are told by their names only"},
    {"propertyNames", OBJECT, NULL},
    {"dependentRequired", REFUSED, "which properties are required cannot depend on others"},
    {"dependentSchemas", REFUSED, "schemas cannot depend on which properties there are"},
    {"dependencies", REFUSED, "which properties are required cannot depend on others"},
    {"contains", REFUSED, "a grammar cannot ask for an item somewhere"},
    {"minContains", REFUSED, "a grammar cannot count items of a kind"},
    {"maxContains", REFUSED, "a grammar cannot count items of a kind"},
    {"contentEncoding", REFUSED, "the encoding of a string's text cannot be enforced"},
    {"contentMediaType", REFUSED, "the format of a string's text cannot be enforced"},
    {"contentSchema", REFUSED, "the format of a string's text cannot be enforced"},
    {"$dynamicRef", REFUSED, "only $ref into the same document is followed"},
    {"$recursiveRef", REFUSED, "only $ref into the same document is followed"},
};

static const struct keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    return NULL;
}

enum family weir__schema_family_of(const char *name)
{
    const struct keyword *k = find_keyword(name);
    return k == NULL ? ANNOTATION : k->family;
}

bool weir__schema_check_keywords(weir__schema_walk *w, const json_t *schema)
{
    const char *name;
    json_t *value;
    if (!weir__schema_spend(w, json_object_size(schema))) return false;
    json_object_foreach((json_t *)schema, name, value)
    {
        const struct keyword *k = find_keyword(name);
        if (k == NULL && strncmp(name, "x-", 2) != 0)
            return weir__schema_refuse(
                       w, name,
                       "it is not known, so it cannot be honoured; remove it or begin its name "
                       "with 'x-'") != NULL;
        if (k != NULL && k->family == REFUSED) return weir__schema_refuse(w, name, "%s", k->why) != NULL;
        if (strcmp(name, "$id") == 0 && schema != w->root)
            return weir__schema_refuse(w, name, "it is allowed in the outermost schema only") != NULL;
    }
    return true;
}

const char *weir__schema_other_constraint(const json_t *schema, const char *const *allowed)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)schema, name, value)
    {
        if (weir__schema_family_of(name) == ANNOTATION) continue;
        const char *const *a = allowed;
        while (*a != NULL && strcmp(*a, name) != 0) a++;
        if (*a == NULL) return name;
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
    {"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER}, {"number", TYPE_NUMBER},
    {"string", TYPE_STRING}, {"array", TYPE_ARRAY},     {"object", TYPE_OBJECT}};

unsigned weir__schema_type_mask(const char *name)
{
    for (size_t i = 0; name != NULL && i < WEIR__SCHEMA_TYPES; i++)
        if (strcmp(weir__schema_types[i].name, name) == 0) return weir__schema_types[i].mask;
    return 0;
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
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

unsigned weir__schema_declared_types(weir__schema_walk *w, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned mask = 0;
    if (type == NULL) return TYPE_ANY;
    size_t n = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(type) ? json_array_get(type, i) : type;
        unsigned m = weir__schema_type_mask(json_string_value(one));
        if (m == 0) {
            weir__schema_refuse(w, "type",
                                "it must be one or several of null, boolean, integer, number, string, array, "
                                "object");
            return 0;
        }
        mask |= m;
    }
    if (mask == 0) weir__schema_refuse(w, "type", "it must not be empty");
    return mask;
}

bool weir__schema_has_type(unsigned mask, size_t i)
{
    unsigned m = weir__schema_types[i].mask;
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

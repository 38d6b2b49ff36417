/* schema_random_test.c: random schemas. Every text that the grammar of a schema makes satisfies the schema.
 * The grammars are read by the tests' own GBNF reader, the texts by the tests' own validator.
 * SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <weir/more.h>

#include "support/dice.h"
#include "support/gbnf.h"

/* ---- The validator ---- */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % n;
}

static bool has_type(const json_t *value, const char *type)
{
    bool whole = json_is_integer(value) ||
                 (json_is_real(value) && floor(json_real_value(value)) == json_real_value(value));
    return (strcmp(type, "null") == 0 && json_is_null(value)) ||
           (strcmp(type, "boolean") == 0 && json_is_boolean(value)) ||
           (strcmp(type, "integer") == 0 && whole) ||
           (strcmp(type, "number") == 0 && json_is_number(value)) ||
           (strcmp(type, "string") == 0 && json_is_string(value)) ||
           (strcmp(type, "array") == 0 && json_is_array(value)) ||
           (strcmp(type, "object") == 0 && json_is_object(value));
}

static size_t code_points(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static bool has_pattern(const char *text, const char *pattern)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    bool matches = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return matches;
}

/* Whether both are one value: 1 is 1.0. */
static bool same(const json_t *a, const json_t *b)
{
    const char *name;
    json_t *value;
    size_t i;
    bool all = true;
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b) || json_array_size(a) != json_array_size(b) ||
        json_object_size(a) != json_object_size(b))
        return false;
    if (!json_is_array(a) && !json_is_object(a)) return json_equal(a, b);
    json_array_foreach(a, i, value) all = all && same(value, json_array_get(b, i));
    json_object_foreach((json_t *)a, name, value) all =
        all && json_object_get(b, name) != NULL && same(value, json_object_get(b, name));
    return all;
}

static bool valid(const json_t *root, const json_t *schema, const json_t *value)
{
    const json_t *k;
    const char *name;
    json_t *item;
    size_t i, n_true = 0;
    if (json_is_boolean(schema)) return json_is_true(schema);
    if ((k = json_object_get(schema, "$ref")) != NULL) {
        const char *ref = json_string_value(k);
        const json_t *target =
            ref[1] == '\0' ? root : json_object_get(json_object_get(root, "$defs"), ref + 8);
        assert_non_null(target);
        return valid(root, target, value);
    }
    if ((k = json_object_get(schema, "type")) != NULL) {
        bool any = json_is_string(k) && has_type(value, json_string_value(k));
        json_array_foreach(k, i, item) any |= has_type(value, json_string_value(item));
        if (!any) return false;
    }
    if ((k = json_object_get(schema, "const")) != NULL && !same(k, value)) return false;
    if ((k = json_object_get(schema, "enum")) != NULL) {
        bool any = false;
        json_array_foreach(k, i, item) any |= same(item, value);
        if (!any) return false;
    }
    json_array_foreach(json_object_get(schema, "allOf"), i, item) if (!valid(root, item, value)) return false;
    if ((k = json_object_get(schema, "anyOf")) != NULL) {
        json_array_foreach(k, i, item) n_true += valid(root, item, value);
        if (n_true == 0) return false;
    }
    n_true = 0;
    if ((k = json_object_get(schema, "oneOf")) != NULL) {
        json_array_foreach(k, i, item) n_true += valid(root, item, value);
        if (n_true != 1) return false;
    }
    if ((k = json_object_get(schema, "not")) != NULL && valid(root, k, value)) return false;
    if ((k = json_object_get(schema, "if")) != NULL) {
        k = json_object_get(schema, valid(root, k, value) ? "then" : "else");
        if (k != NULL && !valid(root, k, value)) return false;
    }
    if (json_is_number(value)) {
        double v = json_number_value(value);
        if ((k = json_object_get(schema, "minimum")) != NULL && v < json_number_value(k)) return false;
        if ((k = json_object_get(schema, "maximum")) != NULL && v > json_number_value(k)) return false;
        if ((k = json_object_get(schema, "exclusiveMinimum")) != NULL && v <= json_number_value(k))
            return false;
        if ((k = json_object_get(schema, "exclusiveMaximum")) != NULL && v >= json_number_value(k))
            return false;
        if ((k = json_object_get(schema, "multipleOf")) != NULL && fmod(v, json_number_value(k)) != 0)
            return false;
    }
    if (json_is_string(value)) {
        size_t n = code_points(json_string_value(value));
        if ((k = json_object_get(schema, "minLength")) != NULL && n < (size_t)json_integer_value(k))
            return false;
        if ((k = json_object_get(schema, "maxLength")) != NULL && n > (size_t)json_integer_value(k))
            return false;
        if ((k = json_object_get(schema, "pattern")) != NULL) {
            if (!has_pattern(json_string_value(value), json_string_value(k))) return false;
        }
    }
    if (json_is_array(value)) {
        const json_t *prefix = json_object_get(schema, "prefixItems"),
                     *items = json_object_get(schema, "items");
        if ((k = json_object_get(schema, "minItems")) &&
            json_array_size(value) < (size_t)json_integer_value(k))
            return false;
        if ((k = json_object_get(schema, "maxItems")) &&
            json_array_size(value) > (size_t)json_integer_value(k))
            return false;
        if ((k = json_object_get(schema, "contains")) != NULL) {
            const json_t *least = json_object_get(schema, "minContains"),
                         *most = json_object_get(schema, "maxContains");
            json_int_t n = 0;
            json_array_foreach(value, i, item) n += valid(root, k, item);
            if (n < (least != NULL ? json_integer_value(least) : 1)) return false;
            if (most != NULL && n > json_integer_value(most)) return false;
        }
        if (json_is_true(json_object_get(schema, "uniqueItems")))
            for (size_t m = 0; m < json_array_size(value); m++)
                for (size_t l = 0; l < m; l++)
                    if (same(json_array_get(value, l), json_array_get(value, m))) return false;
        json_array_foreach(value, i, item)
        {
            const json_t *s = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
            if (s != NULL && !valid(root, s, item)) return false;
        }
    }
    if (json_is_object(value)) {
        const json_t *properties = json_object_get(schema, "properties");
        const json_t *others = json_object_get(schema, "additionalProperties");
        json_array_foreach(json_object_get(schema, "required"), i,
                           item) if (json_object_get(value, json_string_value(item)) == NULL) return false;
        if ((k = json_object_get(schema, "minProperties")) != NULL &&
            json_object_size(value) < (size_t)json_integer_value(k))
            return false;
        if ((k = json_object_get(schema, "maxProperties")) != NULL &&
            json_object_size(value) > (size_t)json_integer_value(k))
            return false;
        json_object_foreach((json_t *)value, name, item)
        {
            const json_t *s = json_object_get(properties, name),
                         *names = json_object_get(schema, "propertyNames");
            const char *pattern;
            json_t *one, *text = json_string(name);
            bool ok = names == NULL || valid(root, names, text), known = s != NULL;
            json_decref(text);
            if (!ok || (known && !valid(root, s, item))) return false;
            json_object_foreach(json_object_get(schema, "patternProperties"), pattern, one)
            {
                if (!has_pattern(name, pattern)) continue;
                known = true;
                if (!valid(root, one, item)) return false;
            }
            if (!known && others != NULL && !valid(root, others, item)) return false;
        }
    }
    return true;
}

/* ---- Random schemas ---- */

static json_t *random_schema(uint64_t *seed, int depth);

static void maybe(uint64_t *seed, json_t *schema, const char *keyword, json_t *value, uint32_t one_in)
{
    if (draw(seed, one_in) == 0)
        json_object_set_new(schema, keyword, value);
    else
        json_decref(value);
}

static json_t *some(uint64_t *seed, int depth, uint32_t least, uint32_t most)
{
    json_t *list = json_array();
    for (uint32_t n = least + draw(seed, most - least + 1); n > 0; n--)
        json_array_append_new(list, random_schema(seed, depth + 1));
    return list;
}

static json_t *random_value(uint64_t *seed)
{
    switch (draw(seed, 6)) {
    case 0: return json_null();
    case 1: return json_integer((int)draw(seed, 30) - 10);
    case 2: return json_real(draw(seed, 10) + 0.5);
    case 3: return json_pack("[i,s]", 1, "\"x\\");
    case 4: return json_string("quote \" and \n");
    default: return json_string("v");
    }
}

static void random_object(uint64_t *seed, json_t *s, int depth)
{
    static const char *const names[] = {"a",        "b",       "date_time",  "a b",
                                        "\xC3\xA4", "quote\"", "additional", "value"};
    json_t *properties = json_object(), *required = json_array();
    for (uint32_t n = draw(seed, 5); n > 0; n--) {
        const char *name = names[draw(seed, 8)];
        if (json_object_get(properties, name) != NULL) continue;
        json_object_set_new(properties, name, random_schema(seed, depth + 1));
        if (draw(seed, 2) == 0) json_array_append_new(required, json_string(name));
    }
    if (draw(seed, 10) == 0) json_array_append_new(required, json_string("extra"));
    maybe(seed, s, "properties", json_incref(properties), 1);
    if (draw(seed, 8) == 0) json_object_del(s, "properties");
    maybe(seed, s, "required", json_incref(required), 1);
    if (draw(seed, 4) == 0)
        json_object_set_new(s, "additionalProperties",
                            draw(seed, 2) ? json_false() : random_schema(seed, depth + 1));
    if (draw(seed, 4) == 0) {
        static const char *const patterns[] = {"^a", "e$", "^[^t]*$", "^(a|b)+$"};
        json_t *by_pattern = json_object();
        for (uint32_t n = 1 + draw(seed, 2); n > 0; n--)
            json_object_set_new(by_pattern, patterns[draw(seed, 4)], random_schema(seed, depth + 1));
        json_object_set_new(s, "patternProperties", by_pattern);
    }
    maybe(seed, s, "propertyNames", json_pack("{s:s}", "pattern", draw(seed, 2) ? "^[a-v_]+$" : "^.{1,4}$"),
          10);
    maybe(seed, s, "minProperties", json_integer(draw(seed, 3)), 8);
    maybe(seed, s, "maxProperties", json_integer(1 + draw(seed, 3)), 8);
    json_decref(properties);
    json_decref(required);
}

static json_t *random_schema(uint64_t *seed, int depth)
{
    static const char *const types[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    static const char *const patterns[] = {"^[a-c]{1,3}$", "^(ab|c)+$", "x?y",     "^[0-9]{2}:[0-9]{2}$",
                                           "^a.c",         "b$",        "^[^x]+$", "^(a|b){2,4}[.]$"};
    json_t *s = json_object();
    uint32_t pick = draw(seed, depth > 3 ? 8 : 14);
    if (pick < 8 || pick == 9) {
        const char *type = types[depth > 3 ? draw(seed, 5) : draw(seed, 7)];
        json_object_set_new(s, "type", json_string(type));
        if (draw(seed, 8) == 0)
            json_object_set_new(s, "type", json_pack("[s,s]", type, types[draw(seed, 5)]));
        maybe(seed, s, "title", json_string("t"), 4);
        maybe(seed, s, "minimum", json_integer((int)draw(seed, 300) - 150), 12);
        maybe(seed, s, "maximum", json_integer((int)draw(seed, 3000) - 150), 12);
        maybe(seed, s, "exclusiveMinimum", json_real((int)draw(seed, 30) - 15.5), 20);
        maybe(seed, s, "minLength", json_integer(draw(seed, 3)), 8);
        maybe(seed, s, "maxLength", json_integer(draw(seed, 5)), 8);
        maybe(seed, s, "pattern", json_string(patterns[draw(seed, 8)]), 5);
        if (draw(seed, 8) == 0) {
            json_t *no = draw(seed, 2)   ? json_pack("{s:s}", "pattern", patterns[draw(seed, 8)])
                         : draw(seed, 2) ? json_pack("{s:o}", "const", random_value(seed))
                                         : json_pack("{s:i}", "minimum", (int)draw(seed, 9));
            json_object_set_new(s, "not", no);
        }
        maybe(seed, s, "minItems", json_integer(draw(seed, 3)), 8);
        maybe(seed, s, "maxItems", json_integer(draw(seed, 5)), 8);
        if (depth <= 3) {
            maybe(seed, s, "items", random_schema(seed, depth + 1), 3);
            maybe(seed, s, "prefixItems", some(seed, depth, 0, 3), 8);
            maybe(seed, s, "contains", random_schema(seed, depth + 2), 6);
            maybe(seed, s, "minContains", json_integer(draw(seed, 3)), 8);
            maybe(seed, s, "maxContains", json_integer(1 + draw(seed, 2)), 8);
            maybe(seed, s, "uniqueItems", json_true(), 10);
            if (strcmp(type, "object") == 0) random_object(seed, s, depth);
        }
        maybe(seed, s, "multipleOf", json_integer(2), 60);
    } else if (pick == 8) {
        json_object_set_new(s, "$ref",
                            json_string(draw(seed, 3) == 0 ? "#"
                                        : draw(seed, 2)    ? "#/$defs/a_b"
                                                           : "#/$defs/a-b"));
    } else if (pick == 10) {
        json_t *list = json_array();
        for (uint32_t n = 1 + draw(seed, 3); n > 0; n--) json_array_append_new(list, random_value(seed));
        json_object_set_new(s, "enum", list);
        maybe(seed, s, "type", json_pack("[s,s]", "string", "integer"), 3);
    } else if (pick == 11) {
        json_object_set_new(s, draw(seed, 2) ? "anyOf" : "oneOf", some(seed, depth, 1, 3));
        if (draw(seed, 3) == 0) {
            json_object_set_new(s, "type", json_string("object"));
            random_object(seed, s, depth + 1);
        }
    } else if (pick == 12) {
        json_object_set_new(s, "allOf", some(seed, depth, 1, 2));
    } else if (draw(seed, 4) == 0) {
        json_decref(s);
        return draw(seed, 3) == 0 ? json_false() : json_true();
    } else {
        json_object_set_new(s, "const", random_value(seed));
    }
    if (depth < 3) {
        if (json_object_get(s, "not") == NULL) maybe(seed, s, "not", random_schema(seed, depth + 2), 10);
        if (draw(seed, 12) == 0) {
            json_object_set_new(s, "if", random_schema(seed, depth + 2));
            maybe(seed, s, "then", random_schema(seed, depth + 1), 2);
            maybe(seed, s, "else", random_schema(seed, depth + 1), 2);
        }
    }
    return s;
}

/* Whether a `not` or an `if` refers to anything: it might be to itself, which says nothing. */
static bool refers_in_condition(const json_t *schema, bool in_condition)
{
    const char *name;
    json_t *value;
    size_t i;
    bool any = false;
    json_object_foreach((json_t *)schema, name, value)
    {
        const bool below = in_condition || strcmp(name, "not") == 0 || strcmp(name, "if") == 0;
        any |= (below && strcmp(name, "$ref") == 0) || refers_in_condition(value, below);
    }
    json_array_foreach((json_t *)schema, i, value) any |= refers_in_condition(value, in_condition);
    return any;
}

static void test_never_weaker(void **state)
{
    enum { SCHEMAS = 300, SAMPLES = 30 };
    (void)state;
    /* regexec then counts code points */
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) assert_non_null(setlocale(LC_CTYPE, "en_US.UTF-8"));
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 20261121);
    print_message("seed %llu (WEIR_TEST_SEED)\n", (unsigned long long)seed);
    size_t n_made = 0, n_refused = 0, n_texts = 0;
    while (n_made < SCHEMAS) {
        json_t *schema = random_schema(&seed, 0);
        if (refers_in_condition(schema, false)) {
            json_decref(schema);
            continue;
        }
        if (json_is_object(schema)) {
            json_t *defs = json_object();
            json_object_set_new(defs, "a_b", random_schema(&seed, 2));
            json_object_set_new(defs, "a-b", random_schema(&seed, 2));
            json_object_set_new(schema, "$defs", defs);
            if (refers_in_condition(defs, false)) {
                json_decref(schema);
                continue;
            }
        }
        char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY), *grammar = NULL;
        weir_error error = {0};
        weir_status status = weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error);
        if (status != WEIR_OK) {
            if (status != WEIR_GRAMMAR) fail_msg("%s: %s", text, error.message);
            /* The rewritten schema always has a grammar, though perhaps one without an end. */
            if (strstr(error.message, "line ") == error.message && strstr(error.message, "to an end") == NULL)
                fail_msg("%s: %s", text, error.message);
            n_refused++;
            assert_true(n_refused < 20 * SCHEMAS);
        } else {
            n_made++;
            gbnf *g = gbnf_parse(grammar);
            for (int i = 0; i < SAMPLES; i++) {
                static char sample[1 << 16];
                json_error_t what;
                if (!gbnf_sample(g, &seed, sample, sizeof sample)) continue;
                json_t *value = json_loads(sample, JSON_DECODE_ANY | JSON_ALLOW_NUL, &what);
                /* Strings may hold lone surrogates, and numbers be out of range. */
                if (value == NULL &&
                    (strstr(what.text, "\\u") != NULL || strstr(what.text, "overflow") != NULL ||
                     strstr(what.text, "surrogate") != NULL || strstr(what.text, "integer") != NULL))
                    continue;
                if (value == NULL) fail_msg("%s makes %s: %s\n%s", text, sample, what.text, grammar);
                if (!valid(schema, schema, value)) fail_msg("%s makes %s\n%s", text, sample, grammar);
                json_decref(value);
                n_texts++;
            }
            gbnf_free(g);
        }
        weir_free(grammar);
        free(text);
        json_decref(schema);
    }
    print_message("%zu schemas, %zu texts; %zu schemas were refused\n", n_made, n_texts, n_refused);
    assert_true(n_texts > 10 * SCHEMAS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_never_weaker)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* schema_relax_test.c: tools as programs send them: the parts of their schemas that are enforced, and the
 * list of those left out. tests/tools.json has them, each with the lines that it is to give.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "grammar/schema.h"
#include "grammar/schema_grammar.h"
#include "support/gbnf.h"
#include "support/jansson.h"

static weir_status rewrite(const json_t *schema, bool relax, weir__text *relaxed, json_t **rewritten,
                           weir_error *error)
{
    const weir__schema_terms terms = {
        .where = "", .tag = "w", .inline_root = true, .relax = relax, .relaxed = relaxed};
    return weir__schema_rewrite(schema, &terms, rewritten, error);
}

/* Asserts that the text has exactly these lines. */
static void assert_lines(const char *name, const char *text, const json_t *lines)
{
    size_t n = 0, i;
    json_t *line;
    for (const char *c = text; c != NULL && *c != '\0'; c++) n += *c == '\n';
    if (n != json_array_size(lines)) fail_msg("%s: %zu lines:\n%s", name, n, text);
    json_array_foreach((json_t *)lines, i, line)
    {
        char whole[512];
        snprintf(whole, sizeof whole, "%s\n", json_string_value(line));
        if (text == NULL || strstr(text, whole) == NULL) fail_msg("%s: no %s in\n%s", name, whole, text);
    }
}

/* Texts of its grammar are objects with all that is required, and no properties but the listed ones if the
 * schema lists any, and no patterns of others. Returns how many texts were read. */
static int assert_objects(const char *name, const json_t *schema, const json_t *rewritten, uint64_t *seed)
{
    const json_t *listed = json_object_get(schema, "properties");
    const bool closed = json_object_size(listed) > 0 && json_object_get(schema, "patternProperties") == NULL;
    int n_read = 0;
    char *grammar = NULL;
    weir_error error = {0};
    if (weir__grammar_from_schema(rewritten, "schema", &grammar, &error) != WEIR_OK)
        fail_msg("%s: %s", name, error.message);
    gbnf *g = gbnf_parse(grammar);
    weir_free(grammar);
    for (int k = 0; k < 10; k++) {
        static char sample[1 << 16];
        json_error_t what;
        const char *property;
        size_t i;
        json_t *required, *member;
        if (!gbnf_sample(g, seed, sample, sizeof sample)) continue;
        json_t *value = json_loads(sample, JSON_ALLOW_NUL, &what);
        if (value == NULL && (strstr(what.text, "\\u") != NULL || strstr(what.text, "surrogate") != NULL ||
                              strstr(what.text, "overflow") != NULL || strstr(what.text, "integer") != NULL))
            continue; /* which strings and numbers may hold */
        if (!json_is_object(value)) fail_msg("%s makes %s: %s", name, sample, what.text);
        json_array_foreach(json_object_get(schema, "required"), i, required)
        {
            if (json_object_get(value, json_string_value(required)) == NULL)
                fail_msg("%s makes %s", name, sample);
        }
        json_object_foreach(value, property, member)
        {
            if (closed && json_object_get(listed, property) == NULL) fail_msg("%s makes %s", name, sample);
        }
        json_decref(value);
        n_read++;
    }
    gbnf_free(g);
    return n_read;
}

static void test_tools(void **state)
{
    (void)state;
    json_error_t what;
    json_t *tools = json_load_file("tests/tools.json", 0, &what), *tool;
    uint64_t seed = 7;
    size_t i, n_read = 0;
    if (tools == NULL) fail_msg("tests/tools.json: %s, line %d", what.text, what.line);
    assert_true(json_array_size(tools) >= 60);
    json_array_foreach(tools, i, tool)
    {
        const char *name = json_string_value(json_object_get(tool, "name"));
        const json_t *schema = json_object_get(tool, "parameters"), *lines = json_object_get(tool, "relaxed");
        json_t *rewritten = NULL;
        weir__text relaxed = {0};
        weir_error error = {0};
        assert_non_null(name);
        if (rewrite(schema, true, &relaxed, &rewritten, &error) != WEIR_OK)
            fail_msg("%s: %s [%s]", name, error.message, error.field);
        assert_lines(name, relaxed.bytes, lines);
        n_read += (size_t)assert_objects(name, schema, rewritten, &seed);
        json_decref(rewritten);
        weir__text_fini(&relaxed);

        /* The schema is refused to the letter just where something would be left out. */
        rewritten = NULL;
        weir_status status = rewrite(schema, false, NULL, &rewritten, &error);
        if (status != (json_array_size(lines) == 0 ? WEIR_OK : WEIR_GRAMMAR))
            fail_msg("%s: %s", name, status == WEIR_OK ? "not refused" : error.message);
        json_decref(rewritten);
    }
    if (n_read < 5 * json_array_size(tools)) fail_msg("%zu texts are too few", n_read);
    json_decref(tools);
}

/* The result of each refusal: the given schema, the lines, and the schema that is left. */
static void test_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *lines, *result;
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(?=x)\","
         "\"contentEncoding\":\"base64\"}}}",
         "/properties/a: pattern\n", "{\"type\":\"string\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"other.json\"}}}", "/properties/a: $ref\n",
         "{}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"oneOf\":[{\"type\":\"integer\"},{\"multipleOf\":1,"
         "\"type\":\"number\"}"
         "]}}}",
         "/properties/a: oneOf\n", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"pattern\":\"^a\",\"allOf\":[{\"pattern\":\"(?=b)\"},{"
         "}]}"
         "}}",
         "/properties/a: pattern\n/properties/a: allOf\n", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\",\"if\":{\"multipleOf\":2},"
         "\"then\":{},"
         "\"$recursiveRef\":\"#\"}}}",
         "/properties/a: $recursiveRef\n/properties/a: if\n", "{\"type\":\"object\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"a\",\"b\"],\"format\":\"date\"}}}",
         "/properties/a: format\n", "{\"enum\":[\"a\",\"b\"]}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"title\":\"T\",\"description\":"
         "\"D\",\"pattern\":\"(?=x)\"}}}",
         "/properties/a: pattern\n", "{\"type\":\"string\",\"title\":\"T\",\"description\":\"D\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\",\"properties\":{\"x\":{},\"y\":{}},"
         "\"maxProperties\":2,\"$recursiveRef\":\"#\"}}}",
         "/properties/a: $recursiveRef\n", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"allOf\":[{\"type\":[\"integer\",\"string\",\"null\"]}"
         ","
         "{\"type\":[\"integer\",\"null\"]}],\"$recursiveRef\":\"#\"}}}",
         "/properties/a: $recursiveRef\n", "{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\"}]}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
         "\"pattern\":\"^\\\\u0041\\\\u0042\\\\uFF21\\\\uD83D\\\\uDE00$\",\"$recursiveRef\":\"#\"}}}",
         "/properties/a: $recursiveRef\n",
         "{\"type\":\"string\",\"pattern\":\"^([\\\\u0041][\\\\u0042][\\\\uFF21][\\\\U0001F600])$\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"\\\\uD83D\\\\u0041\"}"
         "}}",
         "/properties/a: pattern\n", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-zc-ed]$\","
         "\"$recursiveRef\":\"#\"}}}",
         "/properties/a: $recursiveRef\n", "{\"type\":\"string\",\"pattern\":\"^([\\\\u0061-\\\\u007A])$\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"\\\\u004\"}}}",
         "/properties/a: pattern\n", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"integer\",\"null\"],"
         "\"exclusiveMinimum\":9999999999999999}}}",
         "/properties/a: exclusiveMinimum\n", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":-1e30,\"minimum\":-5}}"
         "}",
         "/properties/a: maximum\n", "{\"type\":\"integer\",\"minimum\":-5}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"self\":1,\"minimun\":2,\"id\":3}"
         "}}",
         "/properties/a: minimun\n", "{\"type\":\"integer\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"a\",\"é\"],\"pattern\":\"^\\\\p{L}$\"}}}",
         "/properties/a: pattern\n", "{\"enum\":[\"a\",\"é\"]}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"\",\"2020-01-01\"],\"minLength\":1,"
         "\"format\":\"date\"}}}",
         "/properties/a: format\n", "{\"enum\":[\"2020-01-01\"]}"},
        /* as some clients write what they leave out */
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":null,\"default\":null,\"anyOf\":[{\"type\":"
         "\"string\","
         "\"maxLength\":null},{\"type\":\"null\"}]}}}",
         "/properties/a: type\n/properties/a/anyOf/0: maxLength\n", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":null,\"const\":null,\"minimum\":null}}}",
         "/properties/a: enum\n/properties/a: minimum\n", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *schema = json_loads(cases[i].schema, 0, NULL), *rewritten = NULL;
        weir__text relaxed = {0};
        weir_error error = {0};
        assert_non_null(schema);
        if (rewrite(schema, true, &relaxed, &rewritten, &error) != WEIR_OK)
            fail_msg("%s: %s", cases[i].schema, error.message);
        assert_int_equal(error.code, 0); /* an omitted keyword is no error */
        if (relaxed.bytes == NULL || strcmp(relaxed.bytes, cases[i].lines) != 0)
            fail_msg("%s: %s", cases[i].schema, relaxed.bytes);
        const json_t *result = json_object_get(json_object_get(rewritten, "properties"), "a");
        char *text = json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY);
        if (cases[i].result != NULL) assert_string_equal(text, cases[i].result);
        free(text);
        json_decref(rewritten);
        rewritten = NULL;
        assert_int_equal(rewrite(schema, false, NULL, &rewritten, &error), WEIR_GRAMMAR);
        json_decref(schema);
        weir__text_fini(&relaxed);
    }
}

/* A text that is no JSON Schema at all is refused, even where keywords may be left out. */
static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *property, *word;
    } cases[] = {
        {"{\"type\":\"strng\"}", "'type'"},
        {"{\"type\":[\"string\",\"nul\"]}", "'type'"},
        {"{\"type\":[]}", "'type'"},
        {"{\"type\":3}", "'type'"},
        {"{\"$ref\":\"#/no\"}", "'$ref'"},
        {"{\"$ref\":\"#/$defs/~2\"}", "'$ref'"},
        {"{\"$ref\":3}", "'$ref'"},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/no\"}]}", "'$ref'"},
        {"{\"allOf\":[{\"type\":\"null\"},{\"type\":\"nul\"}]}", "'type'"},
        {"{\"not\":{\"type\":\"strng\"}}", "'type'"},
        {"{\"oneOf\":{}}", "'oneOf'"},
        {"{\"allOf\":[]}", "'allOf'"},
        {"{\"enum\":\"a\"}", "'enum'"},
        {"{\"type\":\"object\",\"properties\":[]}", "'properties'"},
        {"{\"type\":\"object\",\"required\":true}", "'required'"},
        {"{\"type\":\"object\",\"required\":[3]}", "'required'"},
        {"{\"type\":\"object\",\"additionalProperties\":3}", "'additionalProperties'"},
        {"{\"type\":\"array\",\"prefixItems\":{}}", "'prefixItems'"},
        {"{\"type\":\"array\",\"minItems\":-1}", "'minItems'"},
        {"{\"type\":\"string\",\"maxLength\":\"3\"}", "'maxLength'"},
        {"{\"type\":\"string\",\"pattern\":3}", "'pattern'"},
        {"{\"type\":\"integer\",\"minimum\":\"3\"}", "'minimum'"},
        {"3", "a schema must be"},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char text[300];
        weir_error error = {0};
        weir__text relaxed = {0};
        json_t *rewritten = NULL;
        snprintf(text, sizeof text, "{\"type\":\"object\",\"properties\":{\"a\":%s}}", cases[i / 2].property);
        json_t *schema = json_loads(text, 0, NULL);
        assert_non_null(schema);
        if (rewrite(schema, i % 2 == 0, &relaxed, &rewritten, &error) != WEIR_GRAMMAR)
            fail_msg("not refused: %s", text);
        if (strstr(error.message, cases[i / 2].word) == NULL) fail_msg("%s: %s", text, error.message);
        if (strncmp(error.field, "/properties/a", 13) != 0) fail_msg("%s: %s", text, error.field);
        assert_null(relaxed.bytes);
        json_decref(schema);
    }
}

/* Arguments are an object, whatever is left out; a value that is no schema is refused; the list has an
 * end. */
static void test_edges(void **state)
{
    (void)state;
    static const char *const objects[] = {
        "{\"type\":\"string\"}",
        "{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"object\"}]}",
        "{\"$ref\":\"other.json\"}",
        "{\"enum\":[1]}",
        "false",
        ("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}}},"
         "{\"type\":\"object\",\"properties\":{\"b\":{}}}]}"),
        "{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}"};
    weir_error error = {0};
    json_t *rewritten = NULL;
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        json_t *schema = json_loads(objects[i], JSON_DECODE_ANY, NULL);
        weir__text relaxed = {0};
        if (rewrite(schema, true, &relaxed, &rewritten, &error) != WEIR_OK)
            fail_msg("%s: %s", objects[i], error.message);
        assert_string_equal(json_string_value(json_object_get(rewritten, "type")), "object");
        assert_true(relaxed.n > 0);
        json_decref(rewritten);
        rewritten = NULL;
        json_decref(schema);
        weir__text_fini(&relaxed);
    }
    json_t *number = json_integer(3);
    assert_int_equal(rewrite(number, true, NULL, &rewritten, &error), WEIR_GRAMMAR);
    json_decref(number);

    json_t *properties = json_object();
    for (int i = 0; i < 200; i++) {
        char name[64];
        snprintf(name, sizeof name, "a_property_with_a_long_name_so_that_lines_are_long_%d", i);
        json_object_set_new(properties, name, json_pack("{s:b}", "uniqueItems", 1));
    }
    json_t *schema = json_pack("{s:s,s:o}", "type", "object", "properties", properties);
    weir__text relaxed = {0};
    assert_int_equal(rewrite(schema, true, &relaxed, &rewritten, &error), WEIR_OK);
    assert_true(relaxed.n < WEIR__SCHEMA_RELAXED_MAX && relaxed.n > WEIR__SCHEMA_RELAXED_MAX / 2);
    assert_string_equal(relaxed.bytes + relaxed.n - 5, "\n...\n");
    json_decref(rewritten);
    json_decref(schema);
    weir__text_fini(&relaxed);
}

/* Parts that are too deep keep their types. */
static void test_too_deep(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *type = i < 2 ? "integer" : "number";
        int n = WEIR__SCHEMA_DEPTH_MAX + i % 2;
        char wanted[32];
        weir__text relaxed = {0};
        weir_error error = {0};
        json_t *schema = json_pack("{s:[s,s]}", "type", type, "null"), *rewritten = NULL;
        if (i < 2) json_object_set_new(schema, "minimum", json_integer(3));
        for (int depth = 2; depth < n; depth++)
            schema = json_pack("{s:s,s:o}", "type", "array", "items", schema);
        schema = json_pack("{s:s,s:{s:o}}", "type", "object", "properties", "a", schema);
        assert_int_equal(rewrite(schema, true, &relaxed, &rewritten, &error), WEIR_OK);
        bool cut = n > WEIR__SCHEMA_DEPTH_MAX;
        char *text = json_dumps(rewritten, JSON_COMPACT);
        assert_int_equal(relaxed.n > 0, cut);
        if (cut) assert_non_null(strstr(relaxed.bytes, "/items: all of it\n"));
        snprintf(wanted, sizeof wanted, "{\"type\":\"%s\"", type);
        assert_non_null(strstr(text, wanted));
        assert_non_null(strstr(text, "{\"type\":\"null\"}"));
        assert_int_equal(strstr(text, "minimum") != NULL, i < 2 && !cut);
        free(text);
        json_decref(rewritten);
        json_decref(schema);
        weir__text_fini(&relaxed);
    }
}

/* A fraction in a bound leaves of the type any number. */
static void test_fraction_too_deep(void **state)
{
    (void)state;
    weir_error error = {0};
    char *grammar = NULL;
    json_t *schema = json_pack("{s:f}", "const", 1.5), *rewritten = NULL;
    for (int depth = 1; depth < WEIR__SCHEMA_DEPTH_MAX; depth++)
        schema = json_pack("{s:s,s:o}", "type", "array", "items", schema);
    schema = json_pack("{s:s,s:{s:o}}", "type", "object", "properties", "a", schema);
    assert_int_equal(rewrite(schema, true, NULL, &rewritten, &error), WEIR_OK);
    char *text = json_dumps(rewritten, JSON_COMPACT);
    assert_non_null(strstr(text, "\"items\":{\"type\":\"number\"}"));
    assert_int_equal(weir__grammar_from_schema(rewritten, "schema", &grammar, &error), WEIR_OK);
    weir_free(grammar);
    free(text);
    json_decref(rewritten);
    json_decref(schema);
}

/* Where one value of the result cannot be allocated, nothing is left out instead. */
static void check_no_values(const char *text)
{
    json_t *schema = json_loads(text, 0, NULL), *whole = NULL;
    weir_error error = {0};
    assert_non_null(schema);
    assert_int_equal(rewrite(schema, true, NULL, &whole, &error), WEIR_OK);
    bool failed = true;
    long n = 0;
    for (; failed; n++) {
        json_t *rewritten = NULL;
        weir__text relaxed = {0};
        json_set_alloc_funcs(failing_malloc, free);
        allocations_left = n;
        weir_status status = rewrite(schema, true, &relaxed, &rewritten, &error);
        failed = allocations_left < 0;
        allocations_left = -1;
        json_set_alloc_funcs(malloc, free);
        if (status == WEIR_OK && !json_equal(rewritten, whole))
            fail_msg("without allocation %ld: left out %s", n, relaxed.n > 0 ? relaxed.bytes : "nothing");
        if (status != WEIR_OK) assert_int_equal(status, WEIR_NO_MEMORY);
        json_decref(rewritten);
        weir__text_fini(&relaxed);
    }
    assert_true(n > 100);
    json_decref(whole);
    json_decref(schema);
}

static void check_no_memory(const char *text)
{
    json_t *schema = json_loads(text, 0, NULL);
    assert_non_null(schema);
    long live = weir__mem_live(), n = 0;
    for (;; n++) {
        json_t *rewritten = NULL;
        weir__text relaxed = {0};
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = rewrite(schema, true, &relaxed, &rewritten, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        json_decref(rewritten);
        weir__text_fini(&relaxed);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
    assert_true(n > 20);
    json_decref(schema);
}

static void test_no_memory(void **state)
{
    static const char *const texts[] = {
        "{\"$id\":\"http://a/b\",\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
        "\"uniqueItems\":true,"
        "\"minLength\":2},\"b\":{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]},"
        "\"c\":{\"type\":\"string\",\"pattern\":\"^a+$\",\"maxLength\":3,\"not\":{\"const\":\"aa\"}},"
        "\"d\":{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true,\"$id\":\"c\"},"
        "\"e\":{\"type\":\"array\",\"contains\":{\"minimum\":1},\"maxContains\":2},\"f\":{\"$ref\":\"c\"},"
        "\"g\":{\"$dynamicRef\":\"#g\",\"$dynamicAnchor\":\"h\"},\"h\":{\"type\":\"integer\","
        "\"not\":{\"enum\":[3,4]},\"$dynamicAnchor\":\"g\"}},"
        "\"patternProperties\":{\"^x\":{\"type\":\"null\"},\"y$\":{}},\"propertyNames\":{\"maxLength\":4},"
        "\"minProperties\":1,\"maxProperties\":3}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":[\"boolean\","
        "\"null\"]},\"uniqueItems\":true},\"b\":{\"type\":\"array\",\"prefixItems\":[{\"minimum\":1}],"
        "\"allOf\":[{\"prefixItems\":[true,{\"type\":\"null\"}],\"unevaluatedItems\":{\"const\":1}}]},"
        "\"c\":{\"$ref\":\"#/$defs/o\",\"required\":[\"z\"],\"unevaluatedProperties\":false},"
        "\"d\":{\"type\":\"number\",\"minimum\":2,\"exclusiveMinimum\":true,\"not\":{\"enum\":[5,3]}},"
        "\"e\":{\"type\":\"boolean\",\"not\":{\"const\":true}},\"f\":{\"allOf\":[{\"type\":\"object\","
        "\"required\":[\"x\"],\"additionalProperties\":{\"minimum\":1}},{\"additionalProperties\":"
        "{\"maximum\":2}}]}},\"$defs\":{\"o\":{\"type\":\"object\",\"properties\":{\"z\":{}}}}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        check_no_memory(texts[i]);
        check_no_values(texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tools),     cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_edges),
        cmocka_unit_test(test_too_deep),  cmocka_unit_test(test_fraction_too_deep),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* schema_bounds_test.c: schemas that would crash the walk, or keep it busy, and what stays of a schema where
 * strictness was not asked for. SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "grammar/schema_grammar.h"
#include "support/schema_examples.h"

static weir_status compile(const char *schema, bool relax, weir__text *relaxed, weir__schema_work *work,
                           char **grammar, weir_error *error)
{
    const weir__schema_terms terms = {
        .where = "", .tag = "w", .relax = relax, .relaxed = relaxed, .work = work};
    return schema_compile(schema, &terms, grammar, error);
}

/* ---- Names of the walk's own ---- */

static void names_of_the_walk_are_refused(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"\\u0001not strings\":[1]}",
        "{\"type\":\"string\",\"\\u0001not patterns\":[1]}",
        "{\"type\":\"string\",\"\\u0001patterns\":[\"a\"]}",
        "{\"type\":\"number\",\"\\u0001not numbers\":[\"x\"]}",
        "{\"type\":\"\\u0001fraction\"}",
        "{\"type\":[\"null\",\"\\u0001fraction\"]}",
        "{\"properties\":{\"a\":{\"anyOf\":[{\"\\u0001not strings\":[{}]},{\"type\":\"null\"}]}}}",
        /* a reference makes a schema of what was none */
        "{\"$ref\":\"#/properties\",\"properties\":{\"\\u0001not strings\":[1],\"type\":\"string\"}}",
        "{\"$ref\":\"#/const\",\"const\":{\"\\u0001not numbers\":[\"x\"],\"type\":\"number\"}}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        for (int relax = 0; relax < 2; relax++) {
            weir_error error = {0};
            if (compile(schemas[i], relax, NULL, NULL, NULL, &error) != WEIR_GRAMMAR)
                fail_msg("%s is not refused", schemas[i]);
            assert_non_null(strstr(error.message, "U+0001"));
        }
    /* Other names and values with that character are nothing special. */
    weir_error error = {0};
    assert_int_equal(compile("{\"properties\":{\"\\u0001a\":{\"enum\":[\"\\u0001b\"]}},\"\\u0001c\":1}", true,
                             NULL, NULL, NULL, &error),
                     WEIR_OK);
}

/* ---- Nested schemas ---- */

/* The schema with `before`, n times, the innermost, and `after`, n times. */
static char *nested(const char *before, const char *innermost, const char *after, int n)
{
    char *text = malloc((strlen(before) + strlen(after)) * (size_t)n + strlen(innermost) + 1), *end = text;
    assert_non_null(text);
    for (int i = 0; i < n; i++) end += sprintf(end, "%s", before);
    end += sprintf(end, "%s", innermost);
    for (int i = 0; i < n; i++) end += sprintf(end, "%s", after);
    return text;
}

static size_t size_of_nested(const char *before, const char *innermost, const char *after, int n, bool relax)
{
    char *schema = nested(before, innermost, after, n), *grammar = NULL;
    weir_error error = {0};
    weir_status status = compile(schema, relax, NULL, NULL, &grammar, &error);
    if (status != WEIR_OK) fail_msg("%s: %s [%s]", schema, error.message, error.field);
    const size_t size = strlen(grammar);
    weir_free(grammar);
    free(schema);
    return size;
}

/* A level adds as many bytes to the grammar deep inside as it does outside. */
static void nested_objects_are_written_once(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
    } forms[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":", "}}"},
        {"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"a\":{\"type\":\"string\"},"
         "\"b\":",
         "}}"},
        {"{\"type\":\"object\",\"required\":[\"b\"],\"additionalProperties\":false,\"properties\":{\"a\":{},"
         "\"b\":",
         ",\"c\":{}}}"},
        {"{\"type\":\"object\",\"minProperties\":1,\"properties\":{\"a\":{},\"b\":",
         "},\"additionalProperties\":false}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":", ",\"c\":{}},\"maxProperties\":2}"},
        {"{\"type\":\"object\",\"additionalProperties\":", ",\"properties\":{\"a\":{}}}"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int relax = 0; relax < 2; relax++) {
            const char *before = forms[i].before, *after = forms[i].after;
            const size_t ten = size_of_nested(before, "{}", after, 10, relax);
            const size_t deep = size_of_nested(before, "{}", after, 45, relax);
            if (deep > 6 * ten) fail_msg("%s: %zu, then %zu bytes", before, ten, deep);
            /* Below 64 levels little is left of a schema; strict ones are refused. */
            if (relax) assert_true(size_of_nested(before, "{}", after, 90, true) < 12 * ten);
        }
}

static void nested_arrays_are_written_once(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
    } forms[] = {
        {"{\"type\":\"array\",\"contains\":{\"type\":\"array\"},\"items\":", "}"},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"array\"},\"minContains\":3,\"items\":", "}"},
        {"{\"type\":\"array\",\"contains\":", "}"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int relax = 0; relax < 2; relax++) {
            /* Each level is made alone, and together with what contains asks for. */
            const size_t ten = size_of_nested(forms[i].before, "{}", forms[i].after, 10, relax);
            const size_t deep = size_of_nested(forms[i].before, "{}", forms[i].after, 30, relax);
            if (deep > 10 * ten) fail_msg("%s: %zu, then %zu bytes", forms[i].before, ten, deep);
        }
}

/* Eight values of 200 bytes, each of which 128 sets lack. */
static void different_values_are_written_once(void **state)
{
    (void)state;
    char schema[4000], *end = schema, *grammar = NULL;
    weir_error error = {0};
    end += sprintf(end, "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[");
    for (int i = 0; i < 8; i++) end += sprintf(end, "%s\"%0200d\"", i > 0 ? "," : "", i);
    strcpy(end, "]}}");
    assert_int_equal(compile(schema, false, NULL, NULL, &grammar, &error), WEIR_OK);
    assert_true(strlen(grammar) < 50000);
    weir_free(grammar);
}

static bool ask(void *user)
{
    return ++*(int *)user > 0;
}

/* The rules of a schema end at the limit of grammars, and where the caller has gone away. */
static void rules_are_bounded(void **state)
{
    (void)state;
    const size_t n = 20000;
    json_t *branches = json_array(), *schema;
    weir__text rules = {0};
    weir_error error = {0};
    int asked = 0;
    for (size_t i = 0; i < n; i++) {
        char pattern[64];
        snprintf(pattern, sizeof pattern, "^[\\u0061]{%zu}[\\u0062]{%zu}$", i, i);
        json_array_append_new(branches, json_pack("{s:s,s:s}", "type", "string", "pattern", pattern));
    }
    schema = json_pack("{s:o}", "anyOf", branches);
    assert_int_equal(weir__grammar_add_rules(schema, NULL, "root", &rules, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "make it smaller"));
    weir__text_fini(&rules);
    weir_interrupt_set(ask, &asked);
    memset(&rules, 0, sizeof rules);
    assert_int_equal(weir__grammar_add_rules(schema, NULL, "root", &rules, &error), WEIR_ABORTED);
    assert_int_equal(asked, 1);
    weir_interrupt_set(NULL, NULL);
    weir__text_fini(&rules);
    json_decref(schema);
}

/* ---- Refusals ---- */

/* Beside unevaluatedProperties it is not known what contradicts an object that requires nothing. That is a
 * refusal, not a lack of memory. */
static void opposites_that_are_unknown_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *keyword;
    } cases[] = {
        {"{\"type\":\"object\",\"not\":{\"properties\":{\"b\":{}}},\"unevaluatedProperties\":false}", "not"},
        {"{\"type\":\"object\",\"if\":{\"properties\":{\"b\":{}}},\"then\":{\"required\":[\"c\"]},"
         "\"unevaluatedProperties\":false}",
         "if"},
        {"{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"required\":[\"b\"]}}},"
         "\"unevaluatedProperties\":false}",
         "not"},
        {"{\"type\":\"object\",\"not\":{\"anyOf\":[{\"properties\":{\"b\":{}}}]},\"unevaluatedProperties\":"
         "false}",
         "not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_error error = {0};
        weir__text relaxed = {0};
        char word[32];
        snprintf(word, sizeof word, "'%s'", cases[i].keyword);
        assert_int_equal(compile(cases[i].schema, false, NULL, NULL, NULL, &error), WEIR_GRAMMAR);
        assert_non_null(strstr(error.message, word));
        assert_int_equal(compile(cases[i].schema, true, &relaxed, NULL, NULL, &error), WEIR_OK);
        snprintf(word, sizeof word, ": %s\n", cases[i].keyword);
        assert_string_equal(relaxed.bytes, word);
        weir__text_fini(&relaxed);
    }
}

/* Empty groups are steps of the automaton's maker that take no character, and are counted. Where there are
 * too many, maxLength is lowered. */
static void empty_groups_are_counted(void **state)
{
    (void)state;
    char schema[1000], *end = schema, *grammar = NULL;
    weir_error error = {0};
    weir__schema_work work;
    end += sprintf(end, "{\"type\":\"string\",\"pattern\":\"^(a");
    for (int i = 0; i < 30; i++) end += sprintf(end, "(){999}");
    strcpy(end, ")*[a-z]*$\",\"maxLength\":400}");
    weir__schema_work_init(&work);
    assert_int_equal(compile(schema, false, NULL, &work, &grammar, &error), WEIR_OK);
    assert_true(WEIR__SCHEMA_STEPS_MAX - work.budget.steps > 400000);
    gbnf *g = gbnf_parse(grammar);
    assert_true(gbnf_matches(g, "\"aaaz\""));
    assert_false(gbnf_matches(g, "\"A\""));
    gbnf_free(g);
    weir_free(grammar);
}

/* The match of a name with a pattern takes nothing of the grammar, which is not made of it. */
static void matches_of_names_take_no_room(void **state)
{
    (void)state;
    enum { N = 200, LENGTH = 200 };
    char *schema = malloc((size_t)N * (LENGTH + 10) + 200), *end = schema, *grammar = NULL;
    char name[LENGTH + 1], text[LENGTH + 10];
    weir_error error = {0};
    assert_non_null(schema);
    memset(name, 'a', LENGTH);
    end += sprintf(end, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < N; i++) {
        snprintf(name + LENGTH - 3, 4, "%03d", i);
        end += sprintf(end, "%s\"%s\":{}", i > 0 ? "," : "", name);
    }
    strcpy(end,
           "},\"patternProperties\":{\"^a+[0-9]+$\":{\"type\":\"null\"}},\"additionalProperties\":false}");
    if (compile(schema, false, NULL, NULL, &grammar, &error) != WEIR_OK) fail_msg("%s", error.message);
    gbnf *g = gbnf_parse(grammar);
    snprintf(text, sizeof text, "{\"%s\":null}", name);
    assert_true(gbnf_matches(g, text));
    snprintf(text, sizeof text, "{\"%s\":1}", name);
    assert_false(gbnf_matches(g, text));
    gbnf_free(g);
    weir_free(grammar);
    free(schema);
}

/* What contradicts a schema takes memory, so it is made a bounded number of times: once for each branch, and
 * not without end where definitions ask for each other. The spent steps bound the memory. */
static void opposites_are_bounded(void **state)
{
    (void)state;
    const size_t n = 500;
    char *schema = malloc(100 * n + 100), *end = schema;
    weir_error error = {0};
    weir__schema_work work;
    weir__text relaxed = {0};
    assert_non_null(schema);
    end += sprintf(end, "{\"oneOf\":[");
    for (size_t i = 0; i < n; i++)
        end += sprintf(end, "%s{\"type\":\"object\",\"properties\":{\"a%zu\":{\"type\":\"null\"}}}",
                       i > 0 ? "," : "", i);
    strcpy(end, "]}");
    weir__schema_work_init(&work);
    assert_int_equal(compile(schema, false, NULL, &work, NULL, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "'oneOf'"));
    assert_int_equal(compile(schema, true, &relaxed, &work, NULL, &error), WEIR_OK);
    assert_string_equal(relaxed.bytes, ": oneOf\n");
    weir__text_fini(&relaxed);

    end = schema + sprintf(schema, "{\"not\":{\"$ref\":\"#/$defs/d0\"},\"$defs\":{");
    for (int i = 0; i < 4; i++) {
        end += sprintf(end, "\"d%d\":{\"anyOf\":[{}", i);
        for (int k = 0; k < 20; k++) end += sprintf(end, ",{\"$ref\":\"#/$defs/d%d\"}", i + 1);
        end += sprintf(end, "]},");
    }
    strcpy(end, "\"d4\":{\"required\":[\"a\"]}}}");
    weir__schema_work_init(&work);
    assert_int_equal(compile(schema, false, NULL, &work, NULL, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "too much work"));
    free(schema);
}

/* So many strings cannot be excluded; what is refused is `not`. */
static void many_excluded_strings_are_refused(void **state)
{
    (void)state;
    const int n = 100000; /* a step for each pair of them would take minutes */
    char *schema = malloc((size_t)n * 12 + 100), *end = schema;
    weir_error error = {0};
    weir__text relaxed = {0};
    assert_non_null(schema);
    end += sprintf(end, "{\"type\":\"string\",\"not\":{\"enum\":[\"\"");
    for (int i = 0; i < n; i++) end += sprintf(end, ",\"v%d\"", i);
    strcpy(end, "]}}");
    assert_int_equal(compile(schema, false, NULL, NULL, NULL, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "'not'"));
    assert_int_equal(compile(schema, true, &relaxed, NULL, NULL, &error), WEIR_OK);
    assert_string_equal(relaxed.bytes, ": not\n");
    weir__text_fini(&relaxed);
    free(schema);
}

/* ---- Without strictness ---- */

static const struct loose_example {
    const char *schema, *lines; /* lines: what is left out */
    const char *made[6];
    const char *refused[6];
} loose_examples[] = {
    /* objects with listed properties have no others, whatever the schema says of these */
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":true}",
     "",
     {"{}", "{\"a\":1}"},
     {"{\"b\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":{}}",
     "",
     {"{}", "{\"a\":1}"},
     {"{\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"string\"}}",
     "",
     {"{}", "{\"a\":1}"},
     {"{\"b\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":true}",
     "",
     {"{}", "{\"a\":1}"},
     {"{\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{},\"additionalProperties\":{\"type\":\"null\"}}",
     "",
     {"{}"},
     {"{\"b\":null}"}},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":{\"type\":\"null\"}}",
     "",
     {"{\"a\":null}"},
     {"{}", "{\"a\":1}", "{\"a\":null,\"b\":null}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"}}",
     "",
     {"{}", "{\"b\":null}"},
     {"{\"b\":1}"}},
    /* so two that require different properties exclude each other */
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"x\":{}},\"required\":[\"x\"],"
     "\"additionalProperties\":true},{\"type\":\"object\",\"properties\":{\"y\":{}},\"required\":[\"y\"],"
     "\"additionalProperties\":true}]}",
     "",
     {"{\"x\":1}", "{\"y\":1}"},
     {"{\"x\":1,\"y\":1}", "{\"y\":1,\"x\":1}", "{}"}},
    /* where the opposite of a branch cannot be added to the other one, that branch stays as it is */
    {"{\"oneOf\":[{\"type\":\"array\",\"contains\":{\"const\":1}},{\"type\":\"array\",\"items\":{\"type\":"
     "\"integer\"}}]}",
     ": oneOf\n",
     {"[1,\"a\"]", "[2]", "[]"},
     {"3", "{}", "\"x\"", "[\"a\"]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"oneOf\":[{\"type\":\"array\",\"contains\":{\"const\":1}},"
     "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}]}}}",
     "/properties/a: oneOf\n",
     {"{\"a\":[2]}", "{}"},
     {"{\"a\":3}", "{\"a\":[\"a\"]}"}},
    /* branches that overlap are alternatives, and what only `not` brings in goes with it */
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", ": oneOf\n", {"5", "1.5"}, {"\"x\""}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}},{\"type\":\"object\","
     "\"properties\":{\"lat\":{\"type\":\"number\"}}}]}",
     ": oneOf\n",
     {"{\"city\":\"Ulm\"}", "{\"lat\":1}"},
     {"{\"city\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"not\":{\"maxProperties\":1}}",
     ": not\n",
     {"{\"a\":1}", "{}"},
     {"{\"a\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"propertyNames\":{\"enum\":[\"a\",\"b\"]},"
     "\"minProperties\":2}",
     ": minProperties\n",
     {"{\"a\":1}"},
     {"{\"a\":1,\"b\":1}"}},
    {"{\"anyOf\":[{\"type\":\"array\",\"items\":{\"type\":\"string\"}},{\"type\":\"array\",\"items\":{"
     "\"type\":\"integer\"}}],\"not\":{\"const\":[]}}",
     ": not\n",
     {"[\"a\"]", "[1]"},
     {"[null]"}},
    {"{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":1}}]}",
     "",
     {"[1]"},
     {"[]", "[2]"}},
    /* and where two schemas for one property cannot be merged, the first one stays */
    {"{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{\"type\":\"array\",\"contains\":{\"const\":1}}}"
     "}"
     ","
     "{\"properties\":{\"a\":{\"type\":\"array\",\"contains\":{\"const\":2}}}}]}",
     "/properties/a: allOf\n",
     {"{\"a\":[1]}", "{}"},
     {"{\"a\":3}", "{\"a\":[2]}"}},
};

static void schemas_that_are_not_strict(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof loose_examples / sizeof *loose_examples; i++) {
        const struct loose_example *e = &loose_examples[i];
        weir__text relaxed = {0};
        weir_error error = {0};
        char *text = NULL;
        weir_status status = compile(e->schema, true, &relaxed, NULL, &text, &error);
        if (status != WEIR_OK) fail_msg("%s: %s [%s]", e->schema, error.message, error.field);
        gbnf *g = gbnf_parse(text);
        check_texts(g, e->schema, e->made, 6, e->refused, 6);
        if (strcmp(relaxed.bytes != NULL ? relaxed.bytes : "", e->lines) != 0)
            fail_msg("%s: %s", e->schema, relaxed.bytes);
        gbnf_free(g);
        weir_free(text);
        weir__text_fini(&relaxed);
    }
}

/* Objects of which none requires a property have more opposites than can meet. */
static void many_branches_that_overlap_stay_objects(void **state)
{
    (void)state;
    char schema[4000], *end = schema, *text = NULL;
    weir__text relaxed = {0};
    weir_error error = {0};
    end += sprintf(end, "{\"oneOf\":[");
    for (int i = 0; i < 12; i++)
        end += sprintf(end,
                       "%s{\"type\":\"object\",\"properties\":{\"a%d\":{\"type\":\"null\"},\"b%d\":{\"type\":"
                       "\"null\"}}}",
                       i > 0 ? "," : "", i, i);
    strcpy(end, "]}");
    if (compile(schema, true, &relaxed, NULL, &text, &error) != WEIR_OK) fail_msg("%s", error.message);
    gbnf *g = gbnf_parse(text);
    assert_true(gbnf_matches(g, "{\"a3\":null}"));
    assert_false(gbnf_matches(g, "{\"a3\":1}"));
    assert_false(gbnf_matches(g, "3"));
    assert_string_equal(relaxed.bytes, ": oneOf\n");
    gbnf_free(g);
    weir_free(text);
    weir__text_fini(&relaxed);
}

/* More properties than are listed are possible, if not where others are left out. */
static void counts_beyond_listed_properties(void **state)
{
    (void)state;
    const char *const schema = "{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":2}";
    weir__text relaxed = {0};
    weir_error error = {0};
    char *text = NULL;
    assert_int_equal(compile(schema, true, &relaxed, NULL, &text, &error), WEIR_OK);
    gbnf *g = gbnf_parse(text);
    assert_true(gbnf_matches(g, "{\"a\":1}"));
    assert_false(gbnf_matches(g, "{\"a\":1,\"b\":1}"));
    assert_string_equal(relaxed.bytes, ": minProperties\n");
    gbnf_free(g);
    weir_free(text);
    weir__text_fini(&relaxed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_the_walk_are_refused),
        cmocka_unit_test(nested_objects_are_written_once),
        cmocka_unit_test(nested_arrays_are_written_once),
        cmocka_unit_test(different_values_are_written_once),
        cmocka_unit_test(rules_are_bounded),
        cmocka_unit_test(opposites_that_are_unknown_are_refused),
        cmocka_unit_test(empty_groups_are_counted),
        cmocka_unit_test(matches_of_names_take_no_room),
        cmocka_unit_test(opposites_are_bounded),
        cmocka_unit_test(many_excluded_strings_are_refused),
        cmocka_unit_test(schemas_that_are_not_strict),
        cmocka_unit_test(many_branches_that_overlap_stay_objects),
        cmocka_unit_test(counts_beyond_listed_properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* schema_work_test.c: schemas that ask for much work, and for large grammars.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/schema.h"

/* Schemas whose parts meet often. */

/* Every definition asks twice for the next. */
static void write_doubling(char *text, int n)
{
    char *end = text + sprintf(text,
                               "{\"allOf\":[{\"$ref\":\"#/$defs/d0\"},{\"$ref\":\"#/$defs/d0\"}],\"$defs\":"
                               "{\"d%d\":{\"type\":\"null\"}",
                               n);
    for (int i = 0; i < n; i++)
        end += sprintf(end, ",\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}", i,
                       i + 1, i + 1);
    strcpy(end, "}}");
}

/* Alternatives of alternatives, each of them `breadth` times the next, 16 deep; nothing distinguishes
 * them. */
static void write_branching(char *text, int breadth)
{
    char *end =
        text + sprintf(text, "{\"oneOf\":[{\"$ref\":\"#/$defs/d0\"},{\"$ref\":\"#/$defs/d0\"}],\"$defs\":"
                             "{\"d16\":{\"type\":\"null\"}");
    for (int i = 0; i < 16; i++) {
        end += sprintf(end, ",\"d%d\":{\"anyOf\":[", i);
        for (int k = 0; k < breadth; k++)
            end += sprintf(end, "%s{\"$ref\":\"#/$defs/d%d\"}", k > 0 ? "," : "", i + 1);
        end += sprintf(end, "]}");
    }
    strcpy(end, "}}");
}

/* Two equal long lists, read in turn. */
static void write_alternating(char *text, int n)
{
    char *end = text + sprintf(text, "{\"$defs\":{");
    for (int k = 0; k < 2; k++) {
        end += sprintf(end, "%s\"%c\":{\"enum\":[0", k > 0 ? "," : "", 'a' + k);
        for (int i = 1; i < n; i++) end += sprintf(end, ",%d", i);
        end += sprintf(end, "]}");
    }
    end += sprintf(end, "},\"allOf\":[{}");
    for (int i = 0; i < n; i++) end += sprintf(end, ",{\"$ref\":\"#/$defs/%c\"}", 'a' + i % 2);
    strcpy(end, "]}");
}

static bool leaves, is_gone; /* the caller, once the schema is read */

static bool ask(void *user)
{
    (void)user;
    return is_gone;
}

static weir_status rewrite(const char *text, weir__schema_work *work, weir_error *error)
{
    const weir__schema_terms terms = {.where = "", .tag = "w", .work = work};
    json_t *schema = NULL, *rewritten = NULL;
    assert_int_equal(weir__json_parse(text, WEIR_NUL, "schema", WEIR_GRAMMAR, &schema, error), WEIR_OK);
    is_gone = leaves;
    weir_status status = weir__schema_rewrite(schema, &terms, &rewritten, error);
    is_gone = false;
    json_decref(rewritten);
    json_decref(schema);
    return status;
}

/* {"properties":{"a":{"enum":[...]}}} of n values that differ in their first character, or in their last. */
static char *write_enum(int n, bool at_once)
{
    char *text = malloc((size_t)n * 16 + 100), *end = text;
    assert_non_null(text);
    end += sprintf(end, "{\"properties\":{\"a\":{\"enum\":[");
    for (int i = 0; i < n; i++) {
        int code = 0x4E00 + i; /* CJK */
        end += at_once ? sprintf(end, "%s\"%c%c%c\"", i > 0 ? "," : "", 0xE0 | code >> 12,
                                 0x80 | (code >> 6 & 63), 0x80 | (code & 63))
                       : sprintf(end, "%s\"value%d\"", i > 0 ? "," : "", i);
    }
    strcpy(end, "]}},\"required\":[\"a\"]}");
    return text;
}

static void test_large_enums(void **state)
{
    (void)state;
    static const struct {
        int n;
        bool at_once;
        const char *word; /* of the refusal, or NULL */
    } cases[] = {{10000, false, NULL},
                 {4000, true, NULL},
                 {4001, true, "4001 of its values"},
                 {60000, false, "makes the grammar too large"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = write_enum(cases[i].n, cases[i].at_once);
        weir_error error = {0};
        weir_status status = rewrite(text, NULL, &error);
        assert_int_equal(status, cases[i].word != NULL ? WEIR_GRAMMAR : WEIR_OK);
        if (cases[i].word != NULL) {
            assert_string_equal(error.field, "/properties/a");
            assert_non_null(strstr(error.message, "'enum'"));
            assert_non_null(strstr(error.message, cases[i].word));
        }
        free(text);
    }
}

/* {"not":{keyword:[...]}} of n equal items, and one at the end. */
static char *write_excluded(const char *keyword, int n, const char *item, const char *last)
{
    const size_t capacity = (size_t)n * (strlen(item) + 1) + strlen(last) + 64;
    char *text = malloc(capacity), *end = text;
    assert_non_null(text);
    end += snprintf(end, capacity, "{\"not\":{\"%s\":[", keyword);
    for (int i = 0; i < n; i++) end += snprintf(end, capacity - (size_t)(end - text), "%s,", item);
    snprintf(end, capacity - (size_t)(end - text), "%s]}}", last);
    return text;
}

/* What contradicts long lists has no more parts than contradict, and is paid for. */
static void test_opposites(void **state)
{
    (void)state;
    static const struct {
        const char *keyword;
        int n;
        const char *item, *last, *word;
    } cases[] = {
        {"prefixItems", 3000, "true", "true", "nothing can satisfy"},
        {"prefixItems", 2500, "true", "{\"type\":\"null\"}", "'not': a grammar cannot exclude"},
        {"required", 60000, "\"a\"", "\"b\"", "too much work"},
        {"required", 3, "\"a\"", "\"b\"", NULL},
        {"prefixItems", 20, "true", "{\"type\":\"null\"}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = write_excluded(cases[i].keyword, cases[i].n, cases[i].item, cases[i].last);
        weir_error error = {0};
        weir_status status = rewrite(text, NULL, &error);
        if (status != (cases[i].word != NULL ? WEIR_GRAMMAR : WEIR_OK)) fail_msg("%zu: %s", i, error.message);
        if (cases[i].word != NULL && strstr(error.message, cases[i].word) == NULL)
            fail_msg("%zu: %s", i, error.message);
        free(text);
    }
}

/* A list's n items, each a number between two texts, and what stands before them. */
typedef struct items {
    const char *before, *open, *close;
} items;

static char *add_items(char *end, const items *given, int n)
{
    end += sprintf(end, "%s", given->before);
    for (int i = 0; i < n; i++)
        end += sprintf(end, "%s%s%d%s", i > 0 ? "," : "", given->open, i, given->close);
    return end;
}

/* Each of many listed values is judged by what stands beside them, which is long, too. */
static void test_judged_values(void **state)
{
    (void)state;
    static const struct {
        items first, second;
        const char *end;
    } cases[] = {
        {{"{\"type\":\"string\",\"not\":{\"enum\":[", "\"a", "\""},
         {"]},\"anyOf\":[{\"enum\":[", "\"b", "\""},
         "]},{\"const\":\"c\"}]}"},
        {{"{\"enum\":[", "{\"a\":{\"b", "\":1}}"},
         {"],\"properties\":{\"a\":{\"dependentRequired\":{", "\"c", "\":[]"},
         "}}}}"},
        {{"{\"enum\":[", "{\"a\":{\"b", "\":1}}"}, {"],\"properties\":{\"a\":{", "\"x-", "\":0"}, "}}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int n = 500; n <= 5000; n *= 10) {
            char *text = malloc((size_t)n * 64 + 200);
            weir_error error = {0};
            assert_non_null(text);
            strcpy(add_items(add_items(text, &cases[i].first, n), &cases[i].second, n), cases[i].end);
            const weir_status status = rewrite(text, NULL, &error);
            if (status != (n == 500 ? WEIR_OK : WEIR_GRAMMAR)) fail_msg("%zu: %s", i, error.message);
            if (n > 500) assert_non_null(strstr(error.message, "too much work"));
            free(text);
        }
}

static void test_work(void **state)
{
    (void)state;
    char *text = malloc(1 << 20);
    weir_error error = {0};
    weir__schema_work work;
    assert_non_null(text);
    weir__schema_work_init(&work);
    write_doubling(text, 60);
    assert_int_equal(rewrite(text, &work, &error), WEIR_OK);
    uint64_t first = WEIR__SCHEMA_STEPS_MAX - work.budget.steps;
    assert_true(first > 0 && first < 10000);

    /* Each further schema of a request has the rest of the budget. */
    assert_int_equal(rewrite(text, &work, &error), WEIR_OK);
    assert_int_equal(WEIR__SCHEMA_STEPS_MAX - work.budget.steps, 2 * first);
    work.budget.steps = first - 1;
    assert_int_equal(rewrite(text, &work, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "too much work"));

    weir__schema_work_init(&work);
    write_branching(text, 10);
    assert_int_equal(rewrite(text, &work, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "'oneOf'"));
    assert_true(WEIR__SCHEMA_STEPS_MAX - work.budget.steps < 10000);

    weir__schema_work_init(&work);
    write_alternating(text, 5000);
    assert_int_equal(rewrite(text, &work, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "too much work"));

    /* A caller that has gone away ends it. */
    leaves = true;
    weir_interrupt_set(ask, NULL);
    weir__schema_work_init(&work);
    assert_int_equal(rewrite(text, &work, &error), WEIR_ABORTED);
    weir_interrupt_set(NULL, NULL);
    leaves = false;
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_enums),
        cmocka_unit_test(test_opposites),
        cmocka_unit_test(test_judged_values),
        cmocka_unit_test(test_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

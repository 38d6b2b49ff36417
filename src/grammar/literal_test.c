/* literal_test.c: JSON values as literals of a grammar. SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_grammar.h"

#include "base/json.h"
#include "base/mem.h"
#include "support/model.h"

static void assert_literal(const char *json, const char *wanted)
{
    json_t *value = NULL;
    weir__text text = {0};
    assert_ok(weir__json_parse(json, WEIR_NUL, "value", WEIR_GRAMMAR, &value, error));
    weir__literal_add(&text, value);
    assert_string_equal(text.bytes, wanted);
    weir__text_fini(&text);
    json_decref(value);
}

static void values_are_their_json_texts(void **state)
{
    (void)state;
    assert_literal("null", "\"null\"");
    assert_literal("[true,false,[],{}]", "\"[true,false,[],{}]\"");
    assert_literal("{\"b\": 1, \"a\": [2, -3]}", "\"{\\\"b\\\":1,\\\"a\\\":[2,-3]}\"");
    assert_literal("\"a\\\"b\\\\c/\"", "\"\\\"a\\\\\\\"b\\\\\\\\c/\\\"\"");
    assert_literal("\"\\n\\r\\t\\b\\f\\u001f\\u007f\"", "\"\\\"\\\\n\\\\r\\\\t\\\\b\\\\f\\\\u001f\x7F\\\"\"");
    assert_literal("\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\\"\xC3\xA9\xF0\x9F\x98\x80\\\"\"");
    assert_literal("\"\"", "\"\\\"\\\"\"");
}

static void numbers_have_the_fewest_digits(void **state)
{
    (void)state;
    static const char *const numbers[][2] = {
        {"9007199254740993", "9007199254740993"},
        {"0.0", "0.0"},
        {"-0.0", "-0.0"},
        {"0.1", "0.1"},
        {"-12.50", "-12.5"},
        {"100.0", "100.0"},
        {"1.0", "1.0"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"0.0001", "0.0001"},
        {"0.00012", "0.00012"},
        {"0.00001", "1e-05"},
        {"1.5E-7", "1.5e-07"},
        {"999999999999999.0", "999999999999999.0"},
        {"100000000000000.0", "100000000000000.0"},
        {"99999999999999.5", "99999999999999.5"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"1e+300", "1e+300"},
        {"123456789012345680000.0", "1.2345678901234568e+20"},
        {"5e-324", "5e-324"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"-6.562162326818006e-17", "-6.562162326818006e-17"},
    };
    for (size_t i = 0; i < N_ELEMENTS(numbers); i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", numbers[i][1]);
        assert_literal(numbers[i][0], quoted);
    }
}

static void memory_that_runs_out(void **state)
{
    (void)state;
    json_t *value = json_pack("{s:[s,f,i]}", "a", "b", 2.5, 3);
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir__text text = {0};
        weir__mem_fail_after(n);
        weir__literal_add(&text, value);
        weir__literal_add_string(&text, "a\"");
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(!text.failed, pending);
        weir__text_fini(&text);
        assert_int_equal(weir__mem_live(), live);
        if (pending) {
            assert_true(n > 0);
            break;
        }
    }
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_their_json_texts),
        cmocka_unit_test(numbers_have_the_fewest_digits),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

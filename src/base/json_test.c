/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void nobody_reads_of_flags_and_types(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        size_t flags;
    } cases[] = {
        {"", "too early", 0},
        {"{\"a\": 1", "too early", 0},
        {"[1] 2", "behind its end", 0},
        {"{\"a\": 1, \"a\": 2}", "duplicate key in an object, near '\"a\"'", JSON_REJECT_DUPLICATES},
        {"[\"a\\u0000\"]", "U+0000", 0},
        {"{\"a\\u0000\": 1}", "U+0000", JSON_ALLOW_NUL},
        {"[1e999]", "too large", 0},
        {"[99999999999999999999]", "too large", 0},
        {"[nope]", "stand here, near 'nope'", 0},
        {"7", "no value", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_error_t why;
        json_t *value = json_loadb(cases[i].text, strlen(cases[i].text), cases[i].flags, &why);
        assert_null(value);
        assert_non_null(strstr(weir__json_problem(&why).text, cases[i].says));
        assert_null(strstr(weir__json_problem(&why).text, "JSON_"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_reads_of_flags_and_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

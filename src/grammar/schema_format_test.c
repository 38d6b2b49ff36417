/* schema_format_test.c: formats of strings, read by others. SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "grammar/schema.h"
#include "support/gbnf.h"

/* ---- Formats: generated texts, read by other code ---- */

static bool is_day(const char *text)
{
    struct tm given = {0};
    int n = 0;
    if (sscanf(text, "%4d-%2d-%2d%n", &given.tm_year, &given.tm_mon, &given.tm_mday, &n) != 3 || n != 10)
        return false;
    given.tm_year -= 1900;
    given.tm_mon -= 1;
    struct tm same = given;
    timegm(&same); /* changes a day that does not exist to one that does */
    return same.tm_mday == given.tm_mday && same.tm_mon == given.tm_mon && same.tm_year == given.tm_year;
}

static void test_formats(void **state)
{
    (void)state;
    static const char *const formats[] = {"date", "date-time", "ipv4", "ipv6"};
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char schema[80], sample[512], to[16];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"format\":\"%s\"}", formats[i]);
        char *text = NULL;
        assert_int_equal(weir_grammar_from_json_schema(schema, WEIR_NUL, &text, NULL), WEIR_OK);
        gbnf *g = gbnf_parse(text);
        weir_free(text);
        for (int k = 0; k < 2000; k++) {
            assert_true(gbnf_sample(g, &seed, sample, sizeof sample));
            size_t n = strlen(sample);
            assert_true(n > 2 && sample[0] == '"' && sample[n - 1] == '"');
            sample[n - 1] = '\0';
            bool good =
                i < 2 ? is_day(sample + 1) : inet_pton(i == 2 ? AF_INET : AF_INET6, sample + 1, to) == 1;
            if (!good) fail_msg("%s: %s", formats[i], sample);
        }
        gbnf_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

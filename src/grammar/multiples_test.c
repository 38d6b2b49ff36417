/* multiples_test.c: multiples of a step as a grammar, compared with division.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "grammar/grammar.h"
#include "support/dice.h"
#include "support/gbnf.h"
#include "support/model.h"

static gbnf *grammar_of(const char *schema)
{
    char *text = NULL;
    weir_error error = {0};
    if (weir_grammar_from_json_schema(schema, WEIR_NUL, &text, &error) != WEIR_OK)
        fail_msg("%s: %s", schema, error.message);
    gbnf *g = gbnf_parse(text);
    weir_free(text);
    return g;
}

static void check(gbnf *g, const char *schema, int64_t value, bool wanted)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    if (gbnf_matches(g, text) != wanted) fail_msg("%s: %s, wanted %d", schema, text, wanted);
}

static void integers_are_divided(void **state)
{
    (void)state;
    static const int64_t steps[] = {2, 3, 4, 6, 7, 8, 10, 12, 25, 97, 100, 125, 1000};
    static const int64_t bounds[][2] = {{INT64_MIN, INT64_MAX}, {0, INT64_MAX},
                                        {1, INT64_MAX},         {INT64_MIN, -17},
                                        {-2500, INT64_MAX},     {INT64_MIN, 987654321},
                                        {-1234567, 7654321},    {2001, 4000000},
                                        {-9876543, -1001},      {999999999999, 9999999999999}};
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    for (size_t i = 0; i < N_ELEMENTS(steps); i++)
        for (size_t k = 0; k < N_ELEMENTS(bounds); k++) {
            const int64_t step = steps[i], low = bounds[k][0], high = bounds[k][1];
            char schema[256], least[64] = "", most[64] = "";
            if (low != INT64_MIN) snprintf(least, sizeof least, ",\"minimum\":%" PRId64, low);
            if (high != INT64_MAX) snprintf(most, sizeof most, ",\"maximum\":%" PRId64, high);
            snprintf(schema, sizeof schema, "{\"type\":\"%s\",\"multipleOf\":%" PRId64 "%s%s}",
                     k % 2 == 0 ? "integer" : "number", step, least, most);
            gbnf *g = grammar_of(schema);
            for (int n = 0; n < 200; n++) {
                const int64_t near[] = {0, low == INT64_MIN ? -9999999999999999 : low,
                                        high == INT64_MAX ? 9999999999999999 : high,
                                        (int64_t)(dice_roll(&d) % 9999999999999999),
                                        -(int64_t)(dice_roll(&d) % 10000000)};
                int64_t value = near[n % 5] + dice_in(&d, -300, 300);
                if (n % 3 == 0) value = value / step * step;
                if (value < -9999999999999999 || value > 9999999999999999) continue;
                check(g, schema, value, value % step == 0 && value >= low && value <= high);
            }
            static const char *const others[] = {
                "", "-", "-0", "00", "02", "1.", "+2", "a", "20000000000000000"};
            for (size_t n = 0; n < N_ELEMENTS(others); n++) assert_false(gbnf_matches(g, others[n]));
            gbnf_free(g);
        }
}

static void decimals_are_divided(void **state)
{
    (void)state;
    static const struct {
        const char *step;
        int64_t whole, places; /* the step is whole / 10^places */
    } steps[] = {{"0.5", 5, 1},  {"1.5", 15, 1},  {"0.25", 25, 2},
                 {"2.5", 25, 1}, {"0.003", 3, 3}, {"0.05", 5, 2}};
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    for (size_t i = 0; i < N_ELEMENTS(steps); i++)
        for (int positive = 0; positive < 2; positive++) {
            char schema[128], text[64];
            snprintf(schema, sizeof schema, "{\"type\":\"number\",\"multipleOf\":%s%s}", steps[i].step,
                     positive ? ",\"minimum\":0" : "");
            gbnf *g = grammar_of(schema);
            for (int n = 0; n < 700; n++) {
                int64_t power = 1, value = dice_in(&d, 0, n % 2 == 0 ? 2000 : 2000000000);
                for (int64_t k = 0; k < steps[i].places; k++) power *= 10;
                const bool minus = dice_one_in(&d, 3);
                snprintf(text, sizeof text, "%s%" PRId64 ".%0*" PRId64, minus ? "-" : "", value / power,
                         (int)steps[i].places, value % power);
                if (gbnf_matches(g, text) != (value % steps[i].whole == 0 && !(minus && positive)))
                    fail_msg("%s: %s", schema, text);
                snprintf(text, sizeof text, "%s%" PRId64, minus ? "-" : "", value);
                if (gbnf_matches(g, text) != (value * power % steps[i].whole == 0 && !(minus && positive)))
                    fail_msg("%s: %s", schema, text);
            }
            gbnf_free(g);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_divided),
        cmocka_unit_test(decimals_are_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

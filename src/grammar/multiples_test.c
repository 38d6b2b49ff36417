/* multiples_test.c: multiples of a step as a grammar, compared with division.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "grammar/grammar.h"
#include "grammar/multiples.h"
#include "grammar/schema_work.h"
#include "support/dice.h"
#include "support/effort.h"
#include "support/gbnf.h"
#include "support/model.h"
#include "support/schema_examples.h"

static void check(gbnf *g, const char *schema, int64_t value, bool wanted)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    if (gbnf_matches(g, text) != wanted) fail_msg("%s: %s, wanted %d", schema, text, wanted);
}

static void integers_are_divided(void **state)
{
    (void)state;
    static const int64_t steps[] = {2, 3, 4, 6, 7, 8, 10, 12, 25, 97, 100, 125, 251, 1000};
    static const int64_t bounds[][2] = {{INT64_MIN, INT64_MAX}, {0, INT64_MAX},
                                        {1, INT64_MAX},         {INT64_MIN, -17},
                                        {-2500, INT64_MAX},     {INT64_MIN, 987654321},
                                        {-1234567, 7654321},    {2001, 4000000},
                                        {-9876543, -1001},      {999999999999, 9999999999999}};
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    for (size_t i = 0; i < N_ELEMENTS(steps); i += EFFORT(1, 5))
        for (size_t k = 0; k < N_ELEMENTS(bounds); k++) {
            const int64_t step = steps[i], low = bounds[k][0], high = bounds[k][1];
            char schema[256], least[64] = "", most[64] = "";
            if (low != INT64_MIN) snprintf(least, sizeof least, ",\"minimum\":%" PRId64, low);
            if (high != INT64_MAX) snprintf(most, sizeof most, ",\"maximum\":%" PRId64, high);
            snprintf(schema, sizeof schema, "{\"type\":\"%s\",\"multipleOf\":%" PRId64 "%s%s}",
                     k % 2 == 0 ? "integer" : "number", step, least, most);
            gbnf *g = grammar_of(schema);
            for (int n = 0; n < EFFORT(200, 40); n++) {
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
    for (size_t i = 0; i < N_ELEMENTS(steps); i += EFFORT(1, 3))
        for (int positive = 0; positive < 2; positive++) {
            char schema[128], text[64];
            snprintf(schema, sizeof schema, "{\"type\":\"number\",\"multipleOf\":%s%s}", steps[i].step,
                     positive ? ",\"minimum\":0" : "");
            gbnf *g = grammar_of(schema);
            for (int n = 0; n < EFFORT(700, 70); n++) {
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

/* A step that passes the limit of elements passes that of bytes; one that does not is named, and is left out
 * where that is allowed. */
static void steps_are_refused_before_their_grammar_is(void **state)
{
    (void)state;
    static const char *const bounds[] = {"", ",\"minimum\":0",
                                         ",\"minimum\":-1234567890123456,\"maximum\":9876543210987654"};
    static const struct {
        int64_t step;
        bool passes;
    } steps[] = {{2, true},    {7, true},    {199, true},   {250, true},  {499, false},
                 {500, true},  {573, false}, {640, true},   {777, false}, {997, false},
                 {999, false}, {1000, true}, {1001, false}, {9973, false}};
    for (size_t i = 0; i < N_ELEMENTS(steps); i += EFFORT(1, 3))
        for (size_t k = 0; k < N_ELEMENTS(bounds); k++) {
            char schema[256], *text = NULL;
            weir_error why = {0};
            snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"multipleOf\":%" PRId64 "%s}",
                     steps[i].step, bounds[k]);
            const weir_status status = weir_grammar_from_json_schema(schema, WEIR_NUL, &text, &why);
            if ((status == WEIR_OK) != steps[i].passes) fail_msg("%s: %s", schema, why.message);
            if (status != WEIR_OK) assert_non_null(strstr(why.message, "keyword 'multipleOf': it needs"));
            weir_free(text);
            assert_ok(schema_compile(schema, &(weir__schema_terms){.where = "", .tag = "w", .relax = true},
                                     &text, error));
            weir_free(text);
        }
}

/* The size that is counted is at least the text's, each as a part of its limit. */
static void no_size_is_too_small(void **state)
{
    (void)state;
    static const int wholes[] = {3, 9, 11, 113, 251, 299};
    static const int64_t bounds[][2] = {{0, 9999999999999999},
                                        {-9999999999999999, 9999999999999999},
                                        {-9876543210987654, 1234567890123456},
                                        {1111111111111111, 8888888888888888}};
    size_t n = 0;
    for (size_t i = 0; i < N_ELEMENTS(wholes); i += EFFORT(1, 3))
        for (size_t k = 0; k < N_ELEMENTS(bounds); k++)
            for (int places = 0; places < (k < 2 ? 15 : 1); places += 7) {
                const weir__multiples of = {(uint64_t)wholes[i], places, bounds[k][0], bounds[k][1]};
                const double size = (double)weir__multiples_size(&of) / WEIR__SCHEMA_ELEMENTS_MAX;
                char schema[256], *text = NULL;
                if (size > 1) continue;
                if (places > 0)
                    snprintf(schema, sizeof schema, "{\"type\":\"number\",\"multipleOf\":%de-%d%s}",
                             wholes[i], places, k == 0 ? ",\"minimum\":0" : "");
                else
                    snprintf(schema, sizeof schema,
                             "{\"type\":\"integer\",\"multipleOf\":%d,\"minimum\":%" PRId64
                             ",\"maximum\":%" PRId64 "}",
                             wholes[i], bounds[k][0], bounds[k][1]);
                assert_ok(weir_grammar_from_json_schema(schema, WEIR_NUL, &text, error));
                if ((double)strlen(text) / WEIR__GRAMMAR_BYTES_MAX > size)
                    fail_msg("%s: %zu bytes, counted as %.4f of all", schema, strlen(text), size);
                weir_free(text);
                n++;
            }
    assert_true(n > EFFORT(25, 8));
}

/* Numbers with the same step share their rules. */
static void the_same_step_is_written_once(void **state)
{
    (void)state;
    char *one = NULL, *two = NULL;
    assert_ok(weir_grammar_from_json_schema("{\"type\":\"array\",\"minItems\":1,\"prefixItems\":[{\"type\":"
                                            "\"integer\",\"multipleOf\":97}],\"items\":false}",
                                            WEIR_NUL, &one, error));
    assert_ok(weir_grammar_from_json_schema("{\"type\":\"array\",\"minItems\":2,\"prefixItems\":[{\"type\":"
                                            "\"integer\",\"multipleOf\":97},{\"type\":\"integer\","
                                            "\"multipleOf\":97,\"minimum\":-1}],\"items\":false}",
                                            WEIR_NUL, &two, error));
    assert_in_range(strlen(two), strlen(one) + 1, strlen(one) + 6000);
    weir_free(one);
    weir_free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_divided),
        cmocka_unit_test(decimals_are_divided),
        cmocka_unit_test(steps_are_refused_before_their_grammar_is),
        cmocka_unit_test(no_size_is_too_small),
        cmocka_unit_test(the_same_step_is_written_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

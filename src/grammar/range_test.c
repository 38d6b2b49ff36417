/* range_test.c: ranges of numbers as a grammar, compared with exact arithmetic.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/range.h"

#include <math.h>

#include "base/mem.h"
#include "support/gbnf.h"
#include "support/model.h"

#define BILLION INT64_C(1000000000)

static const char *const shared_rules = "\n" WEIR__RANGE_FRACTION " ::= (\".\" [0-9]{1,16})?"
                                        "\n" WEIR__RANGE_DIGITS " ::= [0-9]{0,16}"
                                        "\n" WEIR__RANGE_ZEROS " ::= [0]{0,16}\n";

/* NULL: the range is empty. */
static gbnf *grammar_of(const weir__range *range)
{
    weir__text text = {0};
    gbnf *g = NULL;
    assert_true(weir__text_add_string(&text, "root ::= "));
    if (weir__range_add(&text, range)) {
        weir__text_add_string(&text, shared_rules);
        assert_false(text.failed);
        g = gbnf_parse(text.bytes);
    }
    weir__text_fini(&text);
    return g;
}

/* The number times a billion; all of these are integers. */
static int64_t value_of(const char *text)
{
    int64_t value = 0, unit = BILLION;
    bool minus = *text == '-', point = false;
    for (text += minus; *text != '\0' && *text != 'e'; text++) {
        point |= *text == '.';
        if (*text == '.') continue;
        if (point) unit /= 10;
        value = point ? value + (*text - '0') * unit : value * 10 + (*text - '0') * BILLION;
    }
    if (*text == 'e') {
        int e = atoi(text + 1);
        for (; e > 0; e--) value *= 10;
        for (; e < 0; e++) {
            assert_int_equal(value % 10, 0);
            value /= 10;
        }
    }
    return minus ? -value : value;
}

static bool is_inside(const weir__range *r, int64_t value)
{
    if (r->low != NULL && (r->low_out ? value <= value_of(r->low) : value < value_of(r->low))) return false;
    return r->high == NULL || (r->high_out ? value < value_of(r->high) : value <= value_of(r->high));
}

static const char *const bounds[] = {NULL,  "0",    "0.5",   "1",   "1.05",    "-1",   "-0.25",
                                     "9.9", "10.0", "100.2", "123", "-101.07", "1e-3", "-2.5e2"};
#define N_BOUNDS (sizeof bounds / sizeof *bounds)

static void add_text(char (*texts)[24], size_t *n, const char *format, int a, int b)
{
    snprintf(texts[(*n)++], sizeof *texts, format, a, b);
}

/* Numbers near the bounds in several spellings. */
static size_t spell(char (*texts)[24], size_t max)
{
    static const int wholes[] = {0, 1, 2, 9, 10, 11, 99, 100, 101, 122, 123, 124, 249, 250, 251, 1000};
    static const int fractions[] = {0, 1, 4, 5, 6, 20, 25, 49, 50, 51, 69, 70, 71, 90, 91, 99};
    size_t n = 0;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        add_text(texts, &n, "%d", wholes[i], 0);
        for (size_t k = 0; k < sizeof fractions / sizeof *fractions; k++) {
            add_text(texts, &n, "%d.%02d", wholes[i], fractions[k]);
            add_text(texts, &n, "%d.%02d000", wholes[i], fractions[k]);
            if (fractions[k] % 10 == 0) add_text(texts, &n, "%d.%d", wholes[i], fractions[k] / 10);
        }
        add_text(texts, &n, "%d.001", wholes[i], 0);
        add_text(texts, &n, "%d.0010001", wholes[i], 0);
    }
    for (int e = -3; e <= 3; e++)
        for (int digit = 1; digit <= 9; digit++) {
            add_text(texts, &n, "%de%d", digit, e);
            if (e >= 0) add_text(texts, &n, "%de+%02d", digit, e);
            for (size_t k = 0; k < sizeof fractions / sizeof *fractions; k++) {
                snprintf(texts[n++], sizeof *texts, "%d.%02de%d", digit, fractions[k], e);
            }
        }
    size_t half = n;
    for (size_t i = 0; i < half; i++) snprintf(texts[n++], sizeof *texts, "-%.22s", texts[i]);
    assert_true(n <= max);
    return n;
}

static void ranges_have_exactly_their_numbers(void **state)
{
    (void)state;
    static char texts[8192][24];
    size_t n = spell(texts, 8192), n_inside = 0, n_empty = 0;
    for (size_t i = 0; i < N_BOUNDS * N_BOUNDS * 4; i++) {
        weir__range r = {bounds[i / 4 % N_BOUNDS], bounds[i / 4 / N_BOUNDS], i % 2 != 0, i / 2 % 2 != 0, -1};
        if ((r.low == NULL && r.low_out) || (r.high == NULL && r.high_out)) continue;
        gbnf *g = grammar_of(&r);
        for (size_t k = 0; k < n; k++) {
            bool inside = is_inside(&r, value_of(texts[k]));
            n_inside += inside;
            if (inside != (g != NULL && gbnf_matches(g, texts[k])))
                fail_msg("%s%s to %s%s: %s", r.low != NULL ? r.low : "-", r.low_out ? " (out)" : "",
                         r.high != NULL ? r.high : "-", r.high_out ? " (out)" : "", texts[k]);
        }
        n_empty += g == NULL;
        if (g != NULL) gbnf_free(g);
    }
    assert_true(n_inside > 100000 && n_empty > 50);
}

/* Texts of ranges with bounds that do not fit in their rows of digits. strtod rounds, as bounds do. */
static void texts_of_wide_ranges_are_inside(void **state)
{
    static const char *const far[] = {NULL,
                                      "0",
                                      "-1e-300",
                                      "4e-324",
                                      "1e-20",
                                      "0.12345678901234567890",
                                      "-1e20",
                                      "12345678901234567890",
                                      "1e16",
                                      "-0.1",
                                      "1.7976931348623157e308"};
    enum { N = sizeof far / sizeof *far };
    char text[256];
    uint64_t seed = 1;
    size_t n_texts = 0;
    (void)state;
    for (size_t i = 0; i < (size_t)N * N * 4; i++) {
        weir__range r = {far[i / 4 % N], far[i / 4 / N], i % 2 != 0, i / 2 % 2 != 0, (int)(i % 4) - 1};
        double low = r.low != NULL ? strtod(r.low, NULL) : -HUGE_VAL;
        double high = r.high != NULL ? strtod(r.high, NULL) : HUGE_VAL;
        gbnf *g = grammar_of(&r);
        if (g == NULL) continue;
        for (int k = 0; k < 200; k++) {
            if (!gbnf_sample(g, &seed, text, sizeof text)) continue;
            char *end;
            double value = strtod(text, &end);
            if (*end != '\0' || !isfinite(value) || value < low || value > high ||
                (r.low_out && value == low && strlen(text) < 17))
                fail_msg("%s to %s: %s", r.low != NULL ? r.low : "-", r.high != NULL ? r.high : "-", text);
            n_texts++;
        }
        gbnf_free(g);
    }
    assert_true(n_texts > 10000);
}

static void places_are_limited(void **state)
{
    static const struct {
        weir__range range;
        const char *in[4], *out[4];
    } rows[] = {
        {{"0", NULL, false, false, 2}, {"0", "0.05", "12.340", "7.0"}, {"0.005", "-0.01", "1e2", "1.234"}},
        {{NULL, NULL, false, false, 0}, {"-3", "4.0", "0", "99"}, {"0.5", "4.01", "1e1", "01"}},
        {{"0.25", "1.5", true, false, 1}, {"0.3", "1.5", "1.50", "1"}, {"0.2", "0.25", "1.55", "1.6"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gbnf *g = grammar_of(&rows[i].range);
        assert_non_null(g);
        for (size_t k = 0; k < 4; k++) {
            if (!gbnf_matches(g, rows[i].in[k])) fail_msg("row %zu refuses %s", i, rows[i].in[k]);
            if (gbnf_matches(g, rows[i].out[k])) fail_msg("row %zu accepts %s", i, rows[i].out[k]);
        }
        gbnf_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_have_exactly_their_numbers),
        cmocka_unit_test(texts_of_wide_ranges_are_inside),
        cmocka_unit_test(places_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

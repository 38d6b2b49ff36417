/* The load's arithmetic: plans, counts and random draws.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tally.h"
#include "traffic.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The spread is that of all values sorted. */
static void test_spread(void **state)
{
    (void)state;
    enum { N = 20000 };
    static double values[N];
    static cli_spread spread;
    const uint32_t seed = 7;
    srand(seed);
    for (int i = 0; i < N; i++) {
        values[i] = exp((double)rand() / RAND_MAX * 16 - 5); /* 7 µs to a minute */
        cli_spread_add(&spread, values[i]);
    }
    qsort(values, N, sizeof *values, compare);
    for (int k = 0; k <= 100; k++) {
        double p = k / 100.0, exact = values[(size_t)(p * (N - 1))], got = cli_spread_part(&spread, p);
        if (fabs(got / exact - 1) > 0.011) print_error("seed %u, part %.2f\n", seed, p);
        assert_true(fabs(got / exact - 1) <= 0.011);
    }
    assert_true(cli_spread_part(&spread, 0) == values[0] && cli_spread_part(&spread, 1) == values[N - 1]);
    cli_spread small = {0};
    assert_true(cli_spread_part(&small, 0.5) == 0);
    cli_spread_add(&small, 401.953);
    assert_true(cli_spread_part(&small, 0.99) == 401.953);
    cli_spread_add(&small, 402.047); /* of the same bucket */
    assert_true(cli_spread_part(&small, 0) == 401.953 && cli_spread_part(&small, 1) == 402.047);
    cli_spread_add(&small, 0);
    cli_spread_add(&small, 1e12);
    assert_true(cli_spread_part(&small, 0) == 0 && cli_spread_part(&small, 1) == 1e12);
}

static void test_tally(void **state)
{
    (void)state;
    static cli_tally tally;
    cli_tally_init(&tally);
    const int64_t ms = 1000000;
    cli_record record = {.sent_ns = 100 * ms, .n_prompt = 10, .n_generated = -1, .n_cached = 4};
    cli_tally_piece(&tally, &record, 150 * ms);
    cli_tally_piece(&tally, &record, 160 * ms);
    cli_tally_piece(&tally, &record, 460 * ms);
    record.n_generated = 3; /* the last event says it */
    record.fate = CLI_FATE_ANSWERED;
    record.end_ns = 500 * ms;
    cli_tally_end(&tally, &record, "");
    cli_record late = {
        .index = CLI_TRAFFIC_LATE, .sent_ns = 0, .n_prompt = 90, .n_generated = 1, .n_cached = -1};
    cli_tally_piece(&tally, &late, 900 * ms);
    late.end_ns = 1000 * ms;
    cli_tally_end(&tally, &late, "");
    cli_record cut = {.fate = CLI_FATE_CUT, .n_prompt = -1, .n_generated = -1, .n_cached = -1};
    cli_tally_piece(&tally, &cut, 20 * ms);
    cli_tally_end(&tally, &cut, "why");
    cli_tally_end(&tally, &cut, "later");
    assert_int_equal(record.worst_gap_ns, 300 * ms);
    assert_true(cli_spread_part(&tally.ttft, 1) == 50 && tally.ttft.n == 3); /* the late one has its own */
    assert_true(cli_spread_part(&tally.worst, 1) == 300 && tally.itl.n == 2);
    assert_int_equal(tally.n_generated, 3 + 1 + 1 + 1); /* pieces where nobody counted */
    assert_int_equal(tally.n_uncounted, 2);
    assert_true(tally.tpot.n == 1 && cli_spread_part(&tally.tpot, 1) == 310.0 / 2);
    assert_int_equal(tally.n_prompt, 100);
    assert_int_equal(cli_tally_errors(&tally), 2);
    assert_string_equal(tally.examples[CLI_FATE_CUT], "why");
    assert_true(fabs(cli_tally_rate(&tally, false) - 6) < 1e-9 &&
                fabs(cli_tally_rate(&tally, true) - 106) < 1e-9);
    assert_true(tally.timeline.gap_ms[160 / 20] == 10 && tally.timeline.gap_ms[460 / 20] == 300);
    /* A gap long after: stretches become longer, the longest gap of each stays. */
    record.last_ns = 0;
    cli_tally_piece(&tally, &record, 60000 * ms);
    int64_t stretch = tally.timeline.stretch_ns;
    assert_int_equal(stretch, 160 * ms);
    assert_true(tally.timeline.gap_ms[160 * ms / stretch] == 10 &&
                tally.timeline.gap_ms[460 * ms / stretch] == 300);
    assert_true(tally.timeline.gap_ms[60000 * ms / stretch] == 60000);
    json_t *json = cli_tally_json(&tally);
    assert_non_null(json);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json_object_get(json, "errors"), "cut"), "n")), 2);
    json_decref(json);
}

/* A server that counts in each event, and whose pieces have several tokens: also of an
 * answer that was left. */
static void test_pieces(void **state)
{
    (void)state;
    static cli_tally tally;
    cli_tally_init(&tally);
    const int64_t ms = 1000000;
    for (int left = 0; left < 2; left++) {
        cli_record record = {.fate = left ? CLI_FATE_LEFT : CLI_FATE_ANSWERED, .n_generated = -1};
        for (int piece = 1; piece <= 3; piece++) {
            record.n_generated = 5 * piece;
            cli_tally_piece(&tally, &record, 100 * piece * ms);
        }
        cli_tally_end(&tally, &record, "");
    }
    assert_int_equal(tally.n_generated, 30);
    assert_int_equal(tally.n_uncounted, 0);
    assert_true(tally.itl.n == 4 && cli_spread_part(&tally.itl, 0) == 100);
    assert_true(tally.tpot.n == 2 && cli_spread_part(&tally.tpot, 0) == 20 &&
                cli_spread_part(&tally.tpot, 1) == 20);
    json_t *json = cli_tally_json(&tally);
    assert_true(json_is_true(json_object_get(json, "counted_by_server")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "tpot_ms"), "n")), 2);
    json_decref(json);
}

static int count_words(const char *text)
{
    int n = *text != '\0';
    for (; *text != '\0'; text++) n += *text == ' ';
    return n;
}

static void test_traffic(void **state)
{
    (void)state;
    cli_traffic traffic = {.seed = 3,
                           .rate = 5,
                           .prompt = {10, 30},
                           .answer = {4, 8},
                           .n_shared = 6,
                           .n_late = 50,
                           .leave = 0.25};
    int n_left = 0;
    double time = 0;
    enum { N = 20000 };
    for (uint64_t i = 0; i < N; i++) {
        cli_planned planned = cli_traffic_plan(&traffic, i);
        assert_in_range(planned.n_words, 16, 36);
        assert_in_range(planned.n_answer, 4, 8);
        assert_in_range(planned.leave_after, 0, planned.n_answer / 2 + 1);
        n_left += planned.leave_after > 0;
        time += planned.gap_s;
        assert_true(planned.gap_s >= 0 && planned.gap_s < 10);
    }
    assert_in_range(n_left, N / 4 - 300, N / 4 + 300);
    assert_true(fabs(time / N * 5 - 1) < 0.03); /* as many as asked for each second */
    cli_text a = {0}, b = {0};
    cli_traffic_prompt(&traffic, 1, &a);
    cli_traffic_prompt(&traffic, 1, &b);
    assert_string_equal(a.bytes, b.bytes);
    assert_int_equal(count_words(a.bytes), cli_traffic_plan(&traffic, 1).n_words);
    weir__text_clear(&b);
    cli_traffic_prompt(&traffic, CLI_TRAFFIC_LATE, &b);
    assert_int_equal(count_words(b.bytes), 50);
    assert_int_equal(cli_traffic_plan(&traffic, CLI_TRAFFIC_LATE).leave_after, 0);
    weir__text_fini(&a);
    weir__text_fini(&b);
    static const struct {
        const char *text;
        int least, most; /* 0 = refused */
    } spans[] = {{"5", 5, 5},   {"5-9", 5, 9},  {"1-100", 1, 100}, {"0", 0, 0},
                 {"9-5", 0, 0}, {"5-", 0, 0},   {"-5", 0, 0},      {"", 0, 0},
                 {"5x", 0, 0},  {"5-9x", 0, 0}, {"101", 0, 0},     {"99999999999999999999", 0, 0}};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        cli_span span = {0};
        assert_int_equal(cli_span_parse(spans[i].text, 100, &span), spans[i].least > 0);
        assert_int_equal(span.least, spans[i].least);
        assert_int_equal(span.most, spans[i].most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_tally),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cost_test.c: what the filter learns from ticks of a machine with known costs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "schedule/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "support/dice.h"

#define N_LANES 12

static dice d = {20261121};

static int32_t below(int32_t n)
{
    return dice_in(&d, 0, n - 1);
}

/* ---- Simulated machines ---- */

typedef struct machine {
    weir_cost truth;
    double speed;   /* the time of ticks is divided by it */
    int32_t noise;  /* percent, up and down */
    int32_t bursts; /* percent of ticks, which take up to ten times as long */
} machine;

static double truth_of(const machine *m, const weir__shape *shape)
{
    return weir_cost_tick_ns(&m->truth, shape->n_passes, shape->n_decode, shape->n_prefill,
                             shape->n_context_k) /
           m->speed;
}

static int64_t measured(const machine *m, const weir__shape *shape)
{
    double factor = 1 + (m->noise > 0 ? (below(2 * m->noise + 1) - m->noise) / 100.0 : 0);
    if (below(100) < m->bursts) factor *= 2 + below(9);
    return (int64_t)(truth_of(m, shape) * factor);
}

static weir__shape decodes(int32_t n, int32_t n_past)
{
    return (weir__shape){.n_passes = 1, .n_decode = n, .n_context_k = n * weir__cost_context_k(n_past, 1)};
}

static weir__shape chunk(int32_t n_decode, int32_t n_prefill, int32_t n_past)
{
    return (weir__shape){.n_passes = n_decode > 0 ? 2 : 1,
                         .n_decode = n_decode,
                         .n_prefill = n_prefill,
                         .n_context_k = n_decode * weir__cost_context_k(500, 1) +
                                        weir__cost_context_k(n_past, n_prefill)};
}

/* Streams that come and go, now and then a prompt in chunks. */
static weir__shape some_shape(void)
{
    if (below(3) > 0) return decodes(1 + below(8), below(2000));
    return chunk(below(8), 16 + below(300), below(2000));
}

static double predicted(const weir__cost *cost, const weir__shape *shape)
{
    weir_cost c = weir__cost_get(cost);
    return weir_cost_tick_ns(&c, shape->n_passes, shape->n_decode, shape->n_prefill, shape->n_context_k);
}

static double error_of(const weir__cost *cost, const machine *m, weir__shape shape)
{
    return predicted(cost, &shape) / truth_of(m, &shape) - 1;
}

static void watch(weir__cost *cost, const machine *m, int n, weir__shape (*next)(void))
{
    for (int i = 0; i < n; i++) {
        weir__shape shape = next();
        weir__cost_observe(cost, &shape, measured(m, &shape));
        weir_cost c = weir__cost_get(cost);
        assert_true(c.pass_ns >= 0 && c.decode_ns >= 0 && c.prefill_ns >= 0 && c.context_ns >= 0);
        assert_true(isfinite(c.pass_ns + c.decode_ns + c.prefill_ns + c.context_ns));
    }
}

static weir__shape four_decodes(void)
{
    return decodes(4, 300);
}

static const machine small = {
    {.pass_ns = 4e6, .decode_ns = 1e6, .prefill_ns = 0.7e6, .context_ns = 0.1e6}, 1, 0, 0};

/* The small machine with this noise, in percent, and a cost model that has seen n of its ticks. */
static machine learn(weir__cost *cost, int32_t noise, int n)
{
    machine m = small;
    m.noise = noise;
    weir__cost_init(cost);
    watch(cost, &m, n, some_shape);
    return m;
}

static void without_data_it_is_a_guess(void **state)
{
    (void)state;
    weir__cost cost;
    weir__cost_init(&cost);
    weir_cost c = weir__cost_get(&cost);
    assert_int_equal(c.n_ticks, 0);
    assert_true(c.pass_ns > 0 && c.decode_ns > 0 && c.prefill_ns > 0 && c.context_ns > 0);
    /* No ticks, and a pass of none. */
    weir__cost_observe(&cost, &(weir__shape){.n_passes = 0}, 1000);
    weir__cost_observe(&cost, &(weir__shape){.n_passes = 1, .n_decode = 1}, 0);
    weir__cost_observe(&cost, &(weir__shape){.n_passes = 1, .n_decode = 1}, -5);
    assert_int_equal(weir__cost_get(&cost).n_ticks, 0);
    weir__cost_observe(&cost, &(weir__shape){.n_passes = 1, .n_decode = 1}, 1000);
    assert_int_equal(weir__cost_get(&cost).n_ticks, 1);
}

/* The first tick finds the scale, from a thousand times faster than the guess to a hundred times slower. */
static void the_first_tick_finds_the_scale(void **state)
{
    (void)state;
    for (double speed = 1e-2; speed < 1e4; speed *= 10) {
        machine m = small;
        m.speed = speed;
        weir__cost cost;
        weir__cost_init(&cost);
        weir__shape shape = chunk(0, 100, 0);
        weir__cost_observe(&cost, &shape, measured(&m, &shape));
        assert_true(fabs(error_of(&cost, &m, shape)) < 0.01);
        assert_true(fabs(error_of(&cost, &m, chunk(0, 300, 0))) < 0.5);
        assert_true(error_of(&cost, &m, decodes(4, 100)) > -0.5);
        assert_true(error_of(&cost, &m, decodes(4, 100)) < 3);
    }
}

static void it_learns_each_cost(void **state)
{
    (void)state;
    weir__cost cost;
    machine m = learn(&cost, 5, 100);
    for (int32_t n = 1; n <= 8; n++) assert_true(fabs(error_of(&cost, &m, decodes(n, 100 * n))) < 0.15);
    for (int32_t n = 16; n <= 512; n *= 2) assert_true(fabs(error_of(&cost, &m, chunk(4, n, 1000))) < 0.15);
}

static void long_contexts_cost_more(void **state)
{
    (void)state;
    machine m = small;
    weir__cost cost;
    m.truth.context_ns = 1e6; /* at 4,000 tokens a row costs five times as much */
    weir__cost_init(&cost);
    for (int32_t past = 0; past < 8000; past += 10) { /* one long generation */
        weir__shape shape = decodes(4, past);
        if (past > 200) assert_true(fabs(error_of(&cost, &m, shape)) < 0.1);
        weir__cost_observe(&cost, &shape, measured(&m, &shape));
    }
}

static void a_slower_machine_is_noticed_within_thirty_ticks(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        weir__cost cost;
        machine m = learn(&cost, 10, 200);
        m.speed = round % 2 == 0 ? 0.5 : 2;
        watch(&cost, &m, 30, some_shape);
        assert_true(fabs(error_of(&cost, &m, decodes(4, 500))) < 0.25);
        assert_true(fabs(error_of(&cost, &m, chunk(4, 64, 500))) < 0.25);
    }
}

/* A speed that is learned from streams alone holds for prompts too. */
static void decodes_tell_about_prefills(void **state)
{
    (void)state;
    weir__cost cost;
    machine m = learn(&cost, 0, 200);
    watch(&cost, &m, 50, four_decodes);
    m.speed = 0.5;
    watch(&cost, &m, 40, four_decodes);
    assert_true(fabs(error_of(&cost, &m, decodes(4, 300))) < 0.1);
    assert_true(fabs(error_of(&cost, &m, chunk(4, 64, 500))) < 0.25);
}

static void bursts_hardly_count(void **state)
{
    (void)state;
    weir__cost cost;
    machine m = learn(&cost, 5, 100);
    weir__shape shape = decodes(4, 300);
    double before = predicted(&cost, &shape);
    weir__cost_observe(&cost, &shape, 100 * measured(&m, &shape));
    assert_true(predicted(&cost, &shape) < 1.15 * before);
    m.bursts = 5;
    double sum = 0;
    for (int i = 0; i < 1000; i++) {
        watch(&cost, &m, 1, some_shape);
        double error = error_of(&cost, &m, decodes(4, 500));
        assert_true(error < 0.6 && error > -0.25);
        sum += error;
    }
    assert_true(sum / 1000 < 0.1);
}

static void one_cost_may_change_alone(void **state)
{
    (void)state;
    weir__cost cost;
    machine m = learn(&cost, 5, 20000);
    m.truth.prefill_ns *= 3;
    watch(&cost, &m, 100, some_shape);
    assert_true(fabs(error_of(&cost, &m, chunk(4, 64, 500))) < 0.2);
    assert_true(fabs(error_of(&cost, &m, decodes(4, 500))) < 0.2);
}

/* Years of the same tick, then something else. */
static void long_sameness_does_no_harm(void **state)
{
    (void)state;
    weir__cost cost;
    machine m = learn(&cost, 10, 200);
    watch(&cost, &m, 1000000, four_decodes);
    assert_true(fabs(error_of(&cost, &m, decodes(4, 300))) < 0.15);
    assert_true(fabs(error_of(&cost, &m, chunk(4, 64, 500))) < 0.5);
    for (int i = 0; i < WEIR__COST_TERMS; i++)
        assert_true(sqrt(cost.covariance[i][i]) < 1.1 * (cost.ns[i] + cost.usual[i]));
    watch(&cost, &m, 30, some_shape);
    assert_true(fabs(error_of(&cost, &m, chunk(4, 64, 500))) < 0.2);
}

/* The spread is that of the uniform noise, whatever bursts there are. */
static void the_spread_is_that_of_the_ticks(void **state)
{
    (void)state;
    static const int32_t noises[] = {0, 5, 10, 30};
    double before = -1;
    for (int i = 0; i < 4; i++) {
        weir__cost cost;
        machine m = learn(&cost, noises[i], 1000);
        double sum = 0, right = noises[i] / 100.0 / sqrt(3);
        for (int n = 0; n < 1000; n++) {
            watch(&cost, &m, 1, some_shape);
            sum += weir__cost_get(&cost).spread / 1000;
        }
        assert_true(sum > 0.9 * right && sum < 1.3 * right + 0.01);
        assert_true(sum > before);
        before = sum;
        m.bursts = 3;
        watch(&cost, &m, 1000, some_shape);
        assert_true(weir__cost_get(&cost).spread < 1);
    }
    weir__cost cost;
    weir__cost_init(&cost);
    assert_true(weir__cost_get(&cost).spread > 0); /* nothing is known */
}

/* A cost that is none, times that make no sense: nothing negative, nothing infinite. */
static void anything_may_be_measured(void **state)
{
    (void)state;
    weir__cost cost;
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (int round = 0; round < 1000; round++) {
        machine m = {.speed = 1, .noise = 30, .bursts = below(50)};
        m.truth =
            (weir_cost){.pass_ns = below(3) * 1e6, .decode_ns = below(3) * 1e6, .prefill_ns = below(3) * 1e5};
        weir__cost_init(&cost);
        watch(&cost, &m, 50, some_shape);
        for (int i = 0; i < 50; i++) {
            weir__shape shape = some_shape();
            weir__cost_observe(&cost, &shape, INT64_C(1) << below(63));
            weir_cost c = weir__cost_get(&cost);
            assert_true(c.pass_ns >= 0 && c.decode_ns >= 0 && c.prefill_ns >= 0 && c.context_ns >= 0);
            assert_true(isfinite(c.pass_ns + c.decode_ns + c.prefill_ns + c.context_ns + c.spread));
        }
    }
}

static void context_is_counted_row_by_row(void **state)
{
    (void)state;
    for (int32_t past = 0; past < 50; past++) {
        for (int32_t n = 0, sum = 0; n < 20; sum += past + ++n)
            assert_true(fabs(weir__cost_context_k(past, n) - sum / 1024.0) < 1e-9);
    }
}

/* ---- Passes ---- */

static int32_t passes(weir_layout layout, int32_t n_ubatch, int32_t n, const int32_t *rows)
{
    int32_t copy[N_LANES];
    memcpy(copy, rows, (size_t)n * sizeof *rows);
    return weir__cost_passes(copy, n, n_ubatch, layout);
}

#define PASSES(layout, n_ubatch, ...)                                                                        \
    passes(layout, n_ubatch, (int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)),                  \
           (const int32_t[]){__VA_ARGS__})

static void passes_of_a_pool_are_full(void **state)
{
    (void)state;
    assert_int_equal(PASSES(WEIR_LAYOUT_UNIFIED, 512, 1, 0, 1, 510), 1);
    assert_int_equal(PASSES(WEIR_LAYOUT_UNIFIED, 512, 1, 1, 511), 2);
    assert_int_equal(PASSES(WEIR_LAYOUT_UNIFIED, 1, 3, 4), 7);
    assert_int_equal(PASSES(WEIR_LAYOUT_UNIFIED, 0, 3), 3);
    assert_int_equal(PASSES(WEIR_LAYOUT_UNIFIED, 512, 0), 0);
}

static void assert_before(weir_layout layout, int32_t n_ubatch, const int32_t *rows, const int32_t *want)
{
    int32_t left[4], before[4];
    weir__cost_before(rows, 4, n_ubatch, layout, left, before);
    assert_memory_equal(before, want, sizeof before);
}

#define ROWS(...) ((const int32_t[4]){__VA_ARGS__})

static void rows_before_the_last_pass(void **state)
{
    (void)state;
    assert_before(WEIR_LAYOUT_UNIFIED, 10, ROWS(3, 0, 3, 4), ROWS(0, 0, 0, 0));
    assert_before(WEIR_LAYOUT_UNIFIED, 9, ROWS(3, 0, 3, 4), ROWS(3, 0, 3, 3));
    assert_before(WEIR_LAYOUT_UNIFIED, 4, ROWS(3, 0, 3, 4), ROWS(3, 0, 3, 2));
    assert_before(WEIR_LAYOUT_UNIFIED, 4, ROWS(0, 0, 0, 0), ROWS(0, 0, 0, 0));
    assert_before(WEIR_LAYOUT_PER_SLOT, 64, ROWS(4, 4, 4, 4), ROWS(0, 0, 0, 0));
    assert_before(WEIR_LAYOUT_PER_SLOT, 64, ROWS(1, 5, 1, 5), ROWS(0, 1, 0, 1));
    assert_before(WEIR_LAYOUT_PER_SLOT, 64, ROWS(5, 3, 1, 0), ROWS(3, 1, 0, 0));
    assert_before(WEIR_LAYOUT_PER_SLOT, 64, ROWS(5, 0, 1, 2), ROWS(0, 0, 0, 1));
    assert_before(WEIR_LAYOUT_PER_SLOT, 4, ROWS(9, 0, 4, 4), ROWS(8, 0, 2, 2));
    assert_before(WEIR_LAYOUT_PER_SLOT, 4, ROWS(0, 8, 0, 0), ROWS(0, 4, 0, 0));
}

static void passes_of_lanes_are_equal_rows_of_neighbours(void **state)
{
    (void)state;
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 1, 1, 1, 1), 1);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 1, 0, 1, 0, 1, 0, 1), 4);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 1, 1, 1, 64), 2);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 1, 64, 1, 1), 2);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 1, 3, 5, 9), 4);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 600), 2);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 300, 300), 2);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 0, 0, 7), 1);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 512, 0, 0, 0), 0);
    assert_int_equal(PASSES(WEIR_LAYOUT_PER_SLOT, 2, 1, 1, 1, 1), 2); /* three lanes, then one */
}

/* llama.cpp's way token by token: count the rows left, choose lanes, take one row from each until one has
 * none. */
static int32_t reference_passes(int32_t *rows, int32_t n, int32_t n_ubatch)
{
    for (int32_t n_passes = 0;; n_passes++) {
        int32_t chosen[N_LANES], n_chosen = 0, n_rows = 0;
        for (int32_t lane = 0; lane < n && n_chosen <= n_ubatch; lane++)
            if (rows[lane] > 0 && (n_chosen == 0 || chosen[n_chosen - 1] == lane - 1))
                chosen[n_chosen++] = lane;
        if (n_chosen == 0) return n_passes;
        for (bool more = true; more;) {
            for (int32_t i = 0; i < n_chosen; i++) more = --rows[chosen[i]] > 0 && more;
            more = more && (++n_rows + 1) * n_chosen <= n_ubatch;
        }
    }
}

static void passes_are_those_of_the_reference(void **state)
{
    (void)state;
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (int round = 0; round < 100000; round++) {
        int32_t rows[N_LANES], n = 1 + below(N_LANES), n_ubatch = 1 + below(below(2) == 0 ? 8 : 64);
        int32_t most = below(2) == 0 ? 3 : 100;
        for (int32_t i = 0; i < n; i++) rows[i] = below(3) == 0 ? 0 : below(most);
        int32_t counted = passes(WEIR_LAYOUT_PER_SLOT, n_ubatch, n, rows);
        assert_int_equal(counted, reference_passes(rows, n, n_ubatch));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_data_it_is_a_guess),
        cmocka_unit_test(the_first_tick_finds_the_scale),
        cmocka_unit_test(it_learns_each_cost),
        cmocka_unit_test(long_contexts_cost_more),
        cmocka_unit_test(a_slower_machine_is_noticed_within_thirty_ticks),
        cmocka_unit_test(decodes_tell_about_prefills),
        cmocka_unit_test(bursts_hardly_count),
        cmocka_unit_test(one_cost_may_change_alone),
        cmocka_unit_test(long_sameness_does_no_harm),
        cmocka_unit_test(the_spread_is_that_of_the_ticks),
        cmocka_unit_test(anything_may_be_measured),
        cmocka_unit_test(context_is_counted_row_by_row),
        cmocka_unit_test(passes_of_a_pool_are_full),
        cmocka_unit_test(passes_of_lanes_are_equal_rows_of_neighbours),
        cmocka_unit_test(rows_before_the_last_pass),
        cmocka_unit_test(passes_are_those_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

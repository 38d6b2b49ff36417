/* latency_target_test.c: plans beside a simulated machine: what ticks take, and how prompts progress.
 * SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "support/dice.h"
#include "support/scene.h"

#define MS INT64_C(1000000)

static void start_latency_target(scene *s, int32_t budget)
{
    scene_start(s, budget, 512);
    s->strategy = weir_strategy_latency_target();
}

/* Two streams and a prompt: a pass 5 ms, two rows 2 ms. */
static void start_beside_streams(scene *s)
{
    start_latency_target(s, 2048);
    scene_generating(s, 0);
    scene_generating(s, 1);
    scene_prefilling(s, 2, 1000);
}

static void latency_target_cuts_prompts_to_the_target(void **state)
{
    (void)state;
    scene s;
    start_beside_streams(&s);
    assert_int_equal(scene_plan(&s), 3); /* 43 ms at 0.5 ms a token */
    scene_expect(&s, 2, 2, 86);
    scene_prefilling(&s, 3, 1000);
    s.slots[2].n_prompt_left = 36;
    assert_int_equal(scene_plan(&s), 4); /* tokens that the first does not need go to the next one */
    scene_expect(&s, 2, 2, 36);
    scene_expect(&s, 3, 3, 50);
    s.view.layout = WEIR_LAYOUT_PER_SLOT; /* passes of 1, 29 and 6 tokens a lane: 10 ms more */
    assert_int_equal(scene_plan(&s), 4);
    scene_expect(&s, 2, 2, 36);
    scene_expect(&s, 3, 3, 30);
}

static void latency_target_knows_the_context(void **state)
{
    (void)state;
    scene s;
    start_latency_target(&s, 2048);
    s.view.cost.context_ns = 0.5e6;
    scene_generating(&s, 0)->n_past = 4 * 1024 - 1; /* attends to itself too: 2 ms */
    scene_prefilling(&s, 1, 1000)->n_past = 2048;   /* 1.5 ms a token and a little */
    assert_int_equal(scene_plan(&s), 2);
    assert_in_range(s.plan[1].n_tokens, 27, 28);
}

/* The margin is twice the spread, and half of the tick at the most. */
static void latency_target_keeps_a_margin(void **state)
{
    (void)state;
    scene s;
    start_beside_streams(&s);
    s.view.cost.spread = 0.125; /* 40 ms */
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 2, 2, 66);
    s.view.cost.spread = 9; /* 33.3 ms */
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 2, 2, 52);
}

static void latency_target_never_stops_prompts(void **state)
{
    (void)state;
    scene s;
    start_latency_target(&s, 2048);
    s.view.itl_target_ns = 1 * MS;
    s.view.cost.prefill_ns = 0.1e6;
    scene_generating(&s, 0);
    scene_prefilling(&s, 2, 1000);
    assert_int_equal(scene_plan(&s), 2);
    scene_expect(&s, 1, 2, 16);
    s.slots[1].n_prompt_left = 3;
    assert_int_equal(scene_plan(&s), 2);
    scene_expect(&s, 1, 2, 3);
    s.slots[1].n_prompt_left = 1000;
    s.view.budget = 9;
    assert_int_equal(scene_plan(&s), 2);
    scene_expect(&s, 1, 2, 8);
    s.view.budget = 100;
    scene_prefilling(&s, 3, 1000)->priority = 1; /* both share the least */
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 1, 3, 12);
    scene_expect(&s, 2, 2, 4);
}

/* A token costs 0.5 ms, and 0.5 ms for each 1,024 tokens it attends to; all else is 6 ms. */
static void latency_target_takes_fewer_tokens_behind_a_long_context(void **state)
{
    (void)state;
    static const struct {
        int32_t target_ms, n_past, wanted;
    } cases[] = {
        {50, 1024, 43},   /* 1 ms each, a little more for those that come first: 44 ms */
        {50, 15360, 5},   /* 8 ms each */
        {100, 15360, 11}, /* 94 ms */
        {1, 1024, 12},    /* more than twice too late: twice as much as all else */
        {5, 1024, 6},     /* a quarter as much would be 1.5 times too late: 1.5³ times a quarter as much */
        {1, 0, 16},       /* half a millisecond each: 24 would cost as much, but 16 are enough */
        {1, 15360, 4},    /* two would do, but 4 are the fewest */
        {15, 3072, 4},    /* 2 ms each: 8 ms, more than a quarter of all else */
        {12, 1024, 5},    /* 1 ms each: 6 ms and a little more are too long */
        {9, 1024, 4},     /* late by 1 ms */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        start_latency_target(&s, 2048);
        s.view.cost.context_ns = 0.5e6;
        s.view.itl_target_ns = cases[i].target_ms * MS;
        scene_generating(&s, 0);
        scene_prefilling(&s, 1, 1000)->n_past = cases[i].n_past;
        assert_int_equal(scene_plan(&s), 2);
        assert_int_equal(s.plan[1].n_tokens, cases[i].wanted);
    }
}

/* A simulated machine, on which 16 tokens behind 16,000 take more than the target alone. Four streams
 * generate while a prompt of 16,000 tokens arrives; nothing is known about costs when it begins. */
static void latency_target_holds_beside_a_prompt_of_16000_tokens(void **state)
{
    (void)state;
    static const weir_cost truth = {
        .pass_ns = 4e6, .decode_ns = 0.8e6, .prefill_ns = 0.35e6, .context_ns = 0.25e6};
    dice d = {20261126};
    for (weir_layout layout = WEIR_LAYOUT_UNIFIED; layout <= WEIR_LAYOUT_PER_SLOT; layout++) {
        scene s;
        weir__cost cost;
        weir__cost_init(&cost);
        start_latency_target(&s, 2048);
        s.view.layout = layout;
        for (int32_t i = 0; i < 4; i++) scene_generating(&s, i)->n_past = 300;
        weir_slot_view *prompt = scene_prefilling(&s, 4, 16000);
        double total_ns = 0;
        int32_t n_ticks = 0, n_late = 0;
        for (; prompt->n_prompt_left > 0; n_ticks++) {
            s.view.cost = weir__cost_get(&cost);
            size_t n = scene_plan(&s);
            weir__shape shape = weir__schedule_shape(&s.view, s.plan, n);
            double ns = weir_cost_tick_ns(&truth, shape.n_passes, shape.n_decode, shape.n_prefill,
                                          shape.n_context_k) *
                        dice_in(&d, 95, 105) / 100;
            weir__cost_observe(&cost, &shape, (int64_t)ns);
            for (int32_t i = 0; i < 4; i++) s.slots[i].n_past++;
            prompt->n_past += s.plan[n - 1].n_tokens;
            prompt->n_prompt_left -= s.plan[n - 1].n_tokens;
            n_late += ns > 50 * MS;
            total_ns += ns;
        }
        assert_true(n_late * 20 <= n_ticks);
        /* The prompt takes at most a half more than without streams, in chunks of 512. */
        assert_true(total_ns < 1.5 * weir_cost_tick_ns(&truth, 32, 0, 16000, weir__cost_context_k(0, 16000)));
    }
}

static void latency_target_without_streams_uses_the_budget(void **state)
{
    (void)state;
    scene s;
    start_latency_target(&s, 700);
    s.view.itl_target_ns = 1;
    scene_prefilling(&s, 2, 1000);
    scene_prefilling(&s, 3, 1000);
    assert_int_equal(scene_plan(&s), 2);
    scene_expect(&s, 0, 2, 512);
    scene_expect(&s, 1, 3, 188);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latency_target_cuts_prompts_to_the_target),
        cmocka_unit_test(latency_target_knows_the_context),
        cmocka_unit_test(latency_target_keeps_a_margin),
        cmocka_unit_test(latency_target_never_stops_prompts),
        cmocka_unit_test(latency_target_takes_fewer_tokens_behind_a_long_context),
        cmocka_unit_test(latency_target_holds_beside_a_prompt_of_16000_tokens),
        cmocka_unit_test(latency_target_without_streams_uses_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

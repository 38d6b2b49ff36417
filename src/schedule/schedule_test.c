/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define N_SLOTS 16

/* A view written slot by slot: prefilling with so many tokens left, or generating. */
typedef struct scene {
    weir_slot_view slots[N_SLOTS];
    weir_plan_entry plan[N_SLOTS];
    weir_view view;
} scene;

static void start(scene *s, int32_t budget, int32_t chunk_size)
{
    memset(s, 0, sizeof *s);
    s->view = (weir_view){.slots = s->slots, .budget = budget, .chunk_size = chunk_size};
}

static void generating(scene *s, int32_t slot)
{
    s->slots[s->view.n_slots++] =
        (weir_slot_view){.slot = slot, .state = WEIR_SLOT_GENERATING, .n_prompt = 5, .n_generated = 1};
}

static void prefilling(scene *s, int32_t slot, int32_t left)
{
    s->slots[s->view.n_slots++] = (weir_slot_view){
        .slot = slot, .state = WEIR_SLOT_PREFILLING, .n_prompt_left = left, .n_prompt = left + 3};
}

static size_t plan(scene *s)
{
    const weir_strategy *strategy = weir_strategy_decode_maximal();
    return strategy->plan(&s->view, s->plan, strategy->user);
}

static void expect(const scene *s, size_t i, int32_t slot, int32_t n_tokens)
{
    assert_int_equal(s->plan[i].slot, slot);
    assert_int_equal(s->plan[i].n_tokens, n_tokens);
}

static void nothing_to_do_is_an_empty_plan(void **state)
{
    (void)state;
    scene s;
    start(&s, 100, 10);
    assert_int_equal(plan(&s), 0);
}

static void decodes_come_before_older_prefills(void **state)
{
    (void)state;
    scene s;
    start(&s, 100, 50);
    prefilling(&s, 3, 20);
    generating(&s, 1);
    generating(&s, 0);
    assert_int_equal(plan(&s), 3);
    expect(&s, 0, 1, 1);
    expect(&s, 1, 0, 1);
    expect(&s, 2, 3, 20);
}

static void prefills_take_what_decodes_leave_oldest_first(void **state)
{
    (void)state;
    scene s;
    start(&s, 10, 8);
    prefilling(&s, 5, 6);
    generating(&s, 2);
    prefilling(&s, 1, 9);
    prefilling(&s, 0, 9);
    assert_int_equal(plan(&s), 3);
    expect(&s, 0, 2, 1);
    expect(&s, 1, 5, 6);
    expect(&s, 2, 1, 3); /* and nothing is left for the youngest */
}

static void a_prompt_comes_in_chunks(void **state)
{
    (void)state;
    scene s;
    start(&s, 1000, 64);
    prefilling(&s, 0, 200);
    assert_int_equal(plan(&s), 1);
    expect(&s, 0, 0, 64);
    start(&s, 1000, 64);
    prefilling(&s, 0, 64);
    assert_int_equal(plan(&s), 1);
    expect(&s, 0, 0, 64);
    start(&s, 1000, 64);
    prefilling(&s, 0, 1);
    assert_int_equal(plan(&s), 1);
    expect(&s, 0, 0, 1);
}

static void a_budget_that_decodes_use_up_leaves_no_prefill(void **state)
{
    (void)state;
    scene s;
    start(&s, 2, 64);
    prefilling(&s, 7, 10);
    generating(&s, 4);
    generating(&s, 5);
    generating(&s, 6);
    assert_int_equal(plan(&s), 2);
    expect(&s, 0, 4, 1);
    expect(&s, 1, 5, 1);
}

static void the_parts_go_on_where_the_other_stopped(void **state)
{
    (void)state;
    scene s;
    int32_t budget = 4;
    start(&s, 4, 64);
    generating(&s, 1);
    prefilling(&s, 2, 10);
    size_t n = weir__schedule_prefills(&s.view, s.plan, 0, &budget);
    assert_int_equal(n, 1);
    assert_int_equal(budget, 0);
    assert_int_equal(weir__schedule_decodes(&s.view, s.plan, n, &budget), 1);
    budget = 1;
    assert_int_equal(weir__schedule_decodes(&s.view, s.plan, n, &budget), 2);
    expect(&s, 0, 2, 4);
    expect(&s, 1, 1, 1);
    assert_int_equal(budget, 0);
}

static uint64_t random_state = 20261121;

static int32_t below(int32_t n)
{
    random_state ^= random_state >> 12; /* xorshift64* */
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (int32_t)((random_state * UINT64_C(2685821657736338717) >> 33) % (uint32_t)n);
}

/* The contract of weir_strategy, and that nothing is left undone for which there was budget. */
static void check_plan(const scene *s, size_t n)
{
    int32_t given[N_SLOTS] = {0}, total = 0;
    assert_true(n <= s->view.n_slots);
    for (size_t i = 0; i < n; i++) {
        assert_in_range(s->plan[i].slot, 0, N_SLOTS - 1);
        assert_int_equal(given[s->plan[i].slot], 0);
        assert_true(s->plan[i].n_tokens > 0);
        given[s->plan[i].slot] = s->plan[i].n_tokens;
        total += s->plan[i].n_tokens;
    }
    assert_true(total <= s->view.budget);
    for (size_t i = 0; i < s->view.n_slots; i++) {
        const weir_slot_view *slot = &s->slots[i];
        int32_t most = 1;
        if (slot->state == WEIR_SLOT_PREFILLING)
            most = slot->n_prompt_left < s->view.chunk_size ? slot->n_prompt_left : s->view.chunk_size;
        assert_true(given[slot->slot] <= most);
        if (given[slot->slot] < most) assert_int_equal(total, s->view.budget);
    }
}

static void every_plan_keeps_the_rules_and_wastes_nothing(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        scene s;
        start(&s, 1 + below(40), 1 + below(12));
        int32_t n = below(N_SLOTS + 1), first = below(N_SLOTS);
        for (int32_t i = 0; i < n; i++) {
            int32_t slot = (first + 5 * i) % N_SLOTS; /* each once, in no order */
            if (below(2) == 0)
                generating(&s, slot);
            else
                prefilling(&s, slot, 1 + below(30));
        }
        check_plan(&s, plan(&s));
    }
}

static void the_strategy_is_named(void **state)
{
    (void)state;
    assert_string_equal(weir_strategy_decode_maximal()->name, "decode-maximal");
    assert_ptr_equal(weir_strategy_decode_maximal(), weir_strategy_decode_maximal());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_do_is_an_empty_plan),
        cmocka_unit_test(decodes_come_before_older_prefills),
        cmocka_unit_test(prefills_take_what_decodes_leave_oldest_first),
        cmocka_unit_test(a_prompt_comes_in_chunks),
        cmocka_unit_test(a_budget_that_decodes_use_up_leaves_no_prefill),
        cmocka_unit_test(the_parts_go_on_where_the_other_stopped),
        cmocka_unit_test(every_plan_keeps_the_rules_and_wastes_nothing),
        cmocka_unit_test(the_strategy_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* schedule_test.c: plans of the strategies, and the work that they are counted as.
 * SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "support/dice.h"
#include "support/scene.h"

#define N_RANDOM 100000 /* views */
#define PROMPT   100    /* the longest, in sequences of plans */
#define MS       INT64_C(1000000)

static void nothing_to_do_is_an_empty_plan(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 100, 10);
    assert_int_equal(scene_plan(&s), 0);
}

static void decodes_come_before_older_prefills(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 100, 50);
    scene_prefilling(&s, 3, 20);
    scene_generating(&s, 1);
    scene_generating(&s, 0);
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 0, 1, 1);
    scene_expect(&s, 1, 0, 1);
    scene_expect(&s, 2, 3, 20);
}

static void prefills_take_what_decodes_leave_oldest_first(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 10, 8);
    scene_prefilling(&s, 5, 6);
    scene_generating(&s, 2);
    scene_prefilling(&s, 1, 9);
    scene_prefilling(&s, 0, 9);
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 0, 2, 1);
    scene_expect(&s, 1, 5, 6);
    scene_expect(&s, 2, 1, 3); /* and nothing is left for the youngest */
}

static void a_prompt_comes_in_chunks(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 1000, 64);
    scene_prefilling(&s, 0, 200);
    assert_int_equal(scene_plan(&s), 1);
    scene_expect(&s, 0, 0, 64);
    scene_start(&s, 1000, 64);
    scene_prefilling(&s, 0, 64);
    assert_int_equal(scene_plan(&s), 1);
    scene_expect(&s, 0, 0, 64);
    scene_start(&s, 1000, 64);
    scene_prefilling(&s, 0, 1);
    assert_int_equal(scene_plan(&s), 1);
    scene_expect(&s, 0, 0, 1);
}

static void a_budget_that_decodes_use_up_leaves_no_prefill(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 2, 64);
    scene_prefilling(&s, 7, 10);
    scene_generating(&s, 4);
    scene_generating(&s, 5);
    scene_generating(&s, 6);
    assert_int_equal(scene_plan(&s), 2);
    scene_expect(&s, 0, 4, 1);
    scene_expect(&s, 1, 5, 1);
}

static void priority_goes_first_and_the_oldest_keeps_a_quarter(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 100, 512);
    scene_prefilling(&s, 0, 500);
    scene_prefilling(&s, 1, 500)->priority = 1;
    scene_prefilling(&s, 2, 10)->priority = 2;
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 0, 2, 10);
    scene_expect(&s, 1, 1, 65);
    scene_expect(&s, 2, 0, 25);
    s.slots[0].n_prompt_left = 7; /* needs less than a quarter */
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 1, 1, 83);
    scene_expect(&s, 2, 0, 7);
    s.slots[0].n_prompt_left = 500;
    s.view.chunk_size = 20;
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 1, 1, 20);
    scene_expect(&s, 2, 0, 20);
    s.view.budget = 1; /* one cannot be divided */
    assert_int_equal(scene_plan(&s), 1);
    scene_expect(&s, 0, 0, 1);
}

static void a_joined_slot_gets_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        scene s;
        scene_start(&s, 100, 512);
        s.strategy = weir_strategy_get(i);
        scene_prefilling(&s, 0, 500)->state = WEIR_SLOT_JOINED;
        scene_prefilling(&s, 1, 500);
        assert_int_equal(scene_plan(&s), 1);
        scene_expect(&s, 0, 1, 100);
    }
}

static void those_that_waited_longest_decode_when_not_all_can(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 2, 64);
    scene_generating(&s, 0)->idle_ns = 10;
    scene_generating(&s, 1)->idle_ns = 30;
    scene_generating(&s, 2)->idle_ns = 20;
    assert_int_equal(scene_plan(&s), 2);
    scene_expect(&s, 0, 1, 1);
    scene_expect(&s, 1, 2, 1);
}

static void prefill_priority_leaves_one_token_to_the_streams(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 100, 512);
    s.strategy = weir_strategy_prefill_priority();
    scene_generating(&s, 0)->idle_ns = 10;
    scene_generating(&s, 1)->idle_ns = 20;
    scene_prefilling(&s, 2, 200);
    assert_int_equal(scene_plan(&s), 2);
    scene_expect(&s, 0, 2, 99);
    scene_expect(&s, 1, 1, 1);
    s.slots[2].n_prompt_left = 90; /* the rest is theirs */
    assert_int_equal(scene_plan(&s), 3);
    scene_expect(&s, 0, 2, 90);
    scene_expect(&s, 1, 0, 1);
    scene_expect(&s, 2, 1, 1);
    s.view.n_slots = 0;
    scene_prefilling(&s, 2, 200);
    assert_int_equal(scene_plan(&s), 1);
    scene_expect(&s, 0, 2, 100);
}

static void balanced_halves_the_budget(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 5, 512);
    s.strategy = weir_strategy_balanced();
    scene_prefilling(&s, 8, 100);
    for (int32_t i = 0; i < 5; i++) scene_generating(&s, i);
    assert_int_equal(scene_plan(&s), 4); /* 2 prompt tokens, 3 streams */
    scene_expect(&s, 0, 8, 2);
    scene_expect(&s, 1, 0, 1);
    scene_expect(&s, 3, 2, 1);
    s.slots[0].n_prompt_left = 1; /* prompts use less than their half */
    assert_int_equal(scene_plan(&s), 5);
    scene_expect(&s, 0, 8, 1);
    s.slots[0].n_prompt_left = 100; /* streams use less than theirs */
    s.view.n_slots = 2;
    assert_int_equal(scene_plan(&s), 2);
    scene_expect(&s, 0, 8, 4);
    scene_expect(&s, 1, 0, 1);
}

static void assert_ns(double is, double wanted)
{
    assert_true(fabs(is - wanted) < 1);
}

static void a_plan_costs_what_its_slots_cost(void **state)
{
    (void)state;
    scene s;
    scene_start(&s, 2048, 512);
    s.view.cost.context_ns = 1024e6; /* a token attended to: 1 ms */
    scene_generating(&s, 0)->n_past = 10;
    scene_prefilling(&s, 1, 1000)->n_past = 20;
    const weir_plan_entry entries[] = {{1, 3}, {0, 1}, {7, 5}, {-1, 4}, {1 << 30, 4}};
    assert_ns(weir_plan_tick_ns(&s.view, entries, 5), 5e6 + 1e6 + 1.5e6 + (11 + 21 + 22 + 23) * 1e6);
    s.view.layout = WEIR_LAYOUT_PER_SLOT;
    assert_ns(weir_plan_tick_ns(&s.view, entries, 5), 10e6 + 1e6 + 1.5e6 + (11 + 21 + 22 + 23) * 1e6);
    assert_ns(weir_plan_tick_ns(&s.view, NULL, 0), 0);
    assert_ns(weir_cost_tick_ns(&s.view.cost, 2, 3, 4, 0.5), 10e6 + 3e6 + 2e6 + 512e6);
}

static dice d = {20261121};

static int32_t below(int32_t n)
{
    return dice_in(&d, 0, n - 1);
}

static int32_t most_of(const scene *s, const weir_slot_view *slot)
{
    if (slot->state == WEIR_SLOT_GENERATING) return 1;
    if (slot->state != WEIR_SLOT_PREFILLING) return 0;
    return slot->n_prompt_left < s->view.chunk_size ? slot->n_prompt_left : s->view.chunk_size;
}

/* Tokens of each side: those planned, and those possible. */
typedef struct sides {
    int32_t decode, prefill;
    int32_t could_decode, could_prefill;
} sides;

/* The contract of weir_strategy; given: tokens by slot. */
static sides check_plan(const scene *s, size_t n, int32_t *given)
{
    sides sum = {0};
    memset(given, 0, SCENE_SLOTS * sizeof *given);
    assert_true(n <= s->view.n_slots);
    for (size_t i = 0; i < n; i++) {
        assert_in_range(s->plan[i].slot, 0, SCENE_SLOTS - 1);
        assert_int_equal(given[s->plan[i].slot], 0);
        assert_true(s->plan[i].n_tokens > 0);
        given[s->plan[i].slot] = s->plan[i].n_tokens;
    }
    for (size_t i = 0; i < s->view.n_slots; i++) {
        const weir_slot_view *slot = &s->slots[i];
        int32_t most = most_of(s, slot);
        assert_true(given[slot->slot] <= most);
        bool decodes = slot->state == WEIR_SLOT_GENERATING;
        *(decodes ? &sum.could_decode : &sum.could_prefill) += most;
        *(decodes ? &sum.decode : &sum.prefill) += given[slot->slot];
    }
    assert_true(sum.decode + sum.prefill <= s->view.budget);
    if (sum.could_decode + sum.could_prefill > 0) assert_true(n > 0);
    return sum;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The promises of each strategy about the two sides. */
static void check_sides(const scene *s, size_t which, size_t n, sides sum)
{
    int32_t budget = s->view.budget, used = sum.decode + sum.prefill;
    bool all = used == sum.could_decode + sum.could_prefill;
    switch (which) {
    case 0:
        assert_int_equal(sum.decode, least(sum.could_decode, budget));
        assert_true(all || used == budget);
        break;
    case 1:
        assert_int_equal(sum.prefill, least(sum.could_prefill, budget - (sum.could_decode > 0)));
        assert_true(all || used == budget);
        break;
    case 2:
        assert_true(sum.decode >= least(sum.could_decode, budget - budget / 2));
        assert_true(sum.prefill >= least(sum.could_prefill, budget / 2));
        assert_true(all || used == budget);
        break;
    default:
        assert_int_equal(sum.decode, least(sum.could_decode, budget));
        if (sum.could_decode == 0) assert_int_equal(sum.prefill, least(sum.could_prefill, budget));
        assert_true(sum.prefill >= least(least(sum.could_prefill, 4), budget - sum.decode));
        if (sum.decode > 0 && sum.prefill > 16)
            assert_true(weir_plan_tick_ns(&s->view, s->plan, n) <= (double)s->view.itl_target_ns);
    }
}

static void random_slot(scene *s, int32_t slot)
{
    weir_slot_view *v = below(2) == 0 ? scene_generating(s, slot) : scene_prefilling(s, slot, 1 + below(300));
    if (below(8) == 0) v->state = WEIR_SLOT_JOINED;
    v->priority = below(3) == 0 ? below(201) - 100 : 0;
    v->n_past = below(4096);
    v->idle_ns = v->state == WEIR_SLOT_GENERATING ? below(1000) * MS : 0;
    v->waited_ns = below(100000) * MS;
    if (below(4) == 0) v->deadline_ns = (below(1000) - 10) * MS;
}

static void random_scene(scene *s)
{
    scene_start(s, 1 + below(below(2) == 0 ? 40 : 2048), 1 + below(below(2) == 0 ? 12 : 512));
    s->view.layout = below(2) == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
    s->view.n_ubatch = 1 + below(512);
    s->view.itl_target_ns = below(200) * MS;
    s->view.cost = (weir_cost){.pass_ns = below(20) * 1e6,
                               .decode_ns = below(5) * 1e6,
                               .prefill_ns = below(5) * 0.3e6,
                               .context_ns = below(5) * 0.1e6,
                               .spread = below(5) * 0.1};
    int32_t n = below(SCENE_SLOTS + 1), first = below(SCENE_SLOTS);
    for (int32_t i = 0; i < n; i++)
        random_slot(s, (first + 5 * i) % SCENE_SLOTS); /* each once, in no order */
}

static void every_plan_keeps_the_rules(void **state)
{
    (void)state;
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (int round = 0; round < N_RANDOM; round++) {
        scene s;
        int32_t given[SCENE_SLOTS];
        random_scene(&s);
        for (size_t which = 0; which < 4; which++) {
            s.strategy = weir_strategy_get(which);
            size_t n = scene_plan(&s);
            check_sides(&s, which, n, check_plan(&s, n, given));
        }
    }
}

/* ---- Sequences of plans ---- */

/* A machine of slots: each tick takes 10 ms; who is done makes room for a younger request, as mean as the
 * test. */
typedef struct machine {
    scene s;
    int32_t n_slots;
    int32_t hungry[SCENE_SLOTS]; /* ticks since the slot's last token, by slot */
    int32_t answer[SCENE_SLOTS]; /* tokens it still generates, by slot */
    bool is_mean; /* newcomers have a higher priority than all, and prompts alone after the first */
} machine;

static void arrive(machine *m, int32_t slot, int32_t round)
{
    weir_slot_view *v = scene_prefilling(&m->s, slot, m->is_mean ? PROMPT : 1 + below(PROMPT));
    v->n_past = 0;
    v->priority = m->is_mean ? least(round / 50 - 100, 100) : below(201) - 100;
    m->answer[slot] = m->is_mean ? (slot < 3 && round < 100 ? 2000 : 0) : below(30);
    m->hungry[slot] = 0;
}

static void leave(machine *m, size_t at)
{
    memmove(&m->s.slots[at], &m->s.slots[at + 1], (--m->s.view.n_slots - at) * sizeof *m->s.slots);
}

/* One tick of the view's i-th slot. False: it has ended. */
static bool advance(machine *m, size_t i, int32_t given)
{
    weir_slot_view *v = &m->s.slots[i];
    m->hungry[v->slot] = given > 0 ? 0 : m->hungry[v->slot] + 1;
    v->waited_ns += 10 * MS;
    if (v->state == WEIR_SLOT_GENERATING) v->idle_ns = given > 0 ? 0 : v->idle_ns + 10 * MS;
    v->n_past += given;
    if (v->state == WEIR_SLOT_PREFILLING) {
        v->n_prompt_left -= given;
        if (v->n_prompt_left > 0) return true;
        v->state = WEIR_SLOT_GENERATING;
        return m->answer[v->slot] > 0;
    }
    return given == 0 || --m->answer[v->slot] > 0;
}

/* The longest that a slot went without a token. */
static int32_t longest_hunger(machine *m, int32_t n_ticks)
{
    int32_t worst = 0;
    for (int32_t round = 0; round < n_ticks; round++) {
        int32_t given[SCENE_SLOTS];
        bool taken[SCENE_SLOTS] = {false};
        check_plan(&m->s, scene_plan(&m->s), given);
        for (size_t i = 0; i < m->s.view.n_slots;) {
            int32_t slot = m->s.slots[i].slot;
            if (!advance(m, i, given[slot])) {
                leave(m, i);
                continue;
            }
            if (m->hungry[slot] > worst) worst = m->hungry[slot];
            taken[slot] = true;
            i++;
        }
        for (int32_t slot = 0; slot < m->n_slots; slot++)
            if (!taken[slot] && (m->is_mean || below(3) == 0)) arrive(m, slot, round);
    }
    return worst;
}

/* Any budget that an engine may have (a token for each slot and more), targets from impossible to loose. A
 * prompt is served at the latest when it is the oldest, and the older ones get a token in each tick; a stream
 * waits for its turn among the others. */
static void nobody_starves(void **state)
{
    (void)state;
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (int round = 0; round < 400; round++) {
        machine m = {.n_slots = 1 + below(SCENE_SLOTS), .is_mean = round % 2 == 0};
        scene_start(&m.s, m.n_slots + below(100), 1 + below(100));
        m.s.strategy = weir_strategy_get((size_t)(round / 2 % 4));
        m.s.view.itl_target_ns = below(3) * 20 * MS;
        m.s.view.layout = below(2) == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
        assert_true(longest_hunger(&m, 5000) <= m.n_slots * PROMPT);
    }
}

static void strategies_are_found_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"decode-maximal", "prefill-priority", "balanced", "latency-target"};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(weir_strategy_get(i)->name, names[i]);
        assert_ptr_equal(weir_strategy_find(names[i]), weir_strategy_get(i));
    }
    assert_null(weir_strategy_get(4));
    assert_null(weir_strategy_find("balance"));
    assert_null(weir_strategy_find(""));
    assert_null(weir_strategy_find(NULL));
    assert_true(weir_plan_tick_ns(NULL, NULL, 0) == 0);
    assert_true(weir_cost_tick_ns(NULL, 1, 1, 1, 1) == 0);
    assert_ptr_equal(weir_strategy_get(0), weir_strategy_decode_maximal());
    assert_ptr_equal(weir_strategy_get(1), weir_strategy_prefill_priority());
    assert_ptr_equal(weir_strategy_get(2), weir_strategy_balanced());
    assert_ptr_equal(weir_strategy_get(3), weir_strategy_latency_target());
}

static void drafts_take_what_streams_and_prompts_leave(void **state)
{
    (void)state;
    weir_slot_view slots[] = {
        {.slot = 0, .state = WEIR_SLOT_GENERATING, .n_draft = 4, .n_past = 10},
        {.slot = 1, .state = WEIR_SLOT_GENERATING, .n_past = 10, .lane = 1},
        {.slot = 2, .state = WEIR_SLOT_GENERATING, .n_draft = 4, .n_past = 10, .lane = 2},
        {.slot = 3, .state = WEIR_SLOT_PREFILLING, .n_prompt_left = 100, .lane = 3},
    };
    const struct {
        size_t n_slots;
        int32_t budget;
        int32_t want[3]; /* tokens of the generating slots */
    } cases[] = {
        {3, 2, {1, 1, 0}}, {3, 3, {1, 1, 1}}, {3, 5, {3, 1, 1}}, {3, 8, {5, 1, 2}},   {3, 100, {5, 1, 5}},
        {4, 4, {1, 1, 1}}, {4, 5, {2, 1, 1}}, {4, 9, {4, 1, 1}}, {4, 100, {5, 1, 5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t got[4] = {0}, sum = 0;
        weir_plan_entry plan[4];
        weir_view view = {.slots = slots,
                          .n_slots = cases[i].n_slots,
                          .budget = cases[i].budget,
                          .chunk_size = 512,
                          .n_ubatch = 512};
        size_t n = weir_strategy_decode_maximal()->plan(&view, plan, NULL);
        for (size_t k = 0; k < n; k++) {
            got[plan[k].slot] = plan[k].n_tokens;
            sum += plan[k].n_tokens;
        }
        assert_memory_equal(got, cases[i].want, sizeof cases[i].want);
        assert_true(sum <= cases[i].budget && (cases[i].n_slots < 4 || got[3] > 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_do_is_an_empty_plan),
        cmocka_unit_test(decodes_come_before_older_prefills),
        cmocka_unit_test(prefills_take_what_decodes_leave_oldest_first),
        cmocka_unit_test(a_prompt_comes_in_chunks),
        cmocka_unit_test(a_budget_that_decodes_use_up_leaves_no_prefill),
        cmocka_unit_test(priority_goes_first_and_the_oldest_keeps_a_quarter),
        cmocka_unit_test(a_joined_slot_gets_nothing),
        cmocka_unit_test(those_that_waited_longest_decode_when_not_all_can),
        cmocka_unit_test(prefill_priority_leaves_one_token_to_the_streams),
        cmocka_unit_test(balanced_halves_the_budget),
        cmocka_unit_test(a_plan_costs_what_its_slots_cost),
        cmocka_unit_test(every_plan_keeps_the_rules),
        cmocka_unit_test(nobody_starves),
        cmocka_unit_test(strategies_are_found_by_name),
        cmocka_unit_test(drafts_take_what_streams_and_prompts_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

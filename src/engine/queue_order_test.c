/* queue_order_test.c: the order of the queue, compared with a naive model that applies the rules of ADR 0019
 * one by one and drops requests that lose by them. WEIR_TEST_SEED repeats a run.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/queue.h"
#include "support/dice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MS   INT64_C(1000000)
#define MOST 40

typedef struct scene {
    weir__queue queue;
    weir__request requests[MOST];
    weir__tenant tenants[5];
    int n;
    int64_t ageing_ns, now;
} scene;

static void make_scene(scene *s, dice *d)
{
    memset(s, 0, sizeof *s);
    s->n = dice_in(d, 0, MOST);
    s->ageing_ns = dice_one_in(d, 4) ? 0 : dice_in(d, 1, 50) * MS;
    s->now = 1000 * MS;
    for (int i = 0; i < 5; i++) {
        s->tenants[i].at_ns = s->now - dice_in(d, 0, 3) * WEIR__TENANT_HALF_NS;
        s->tenants[i].served = dice_in(d, 0, 3) * 64;
    }
    int spread = dice_in(d, 0, 4);
    for (int i = 0; i < s->n; i++) {
        weir__request *r = &s->requests[i];
        r->priority = dice_one_in(d, 10) ? dice_in(d, -100, 100) : dice_in(d, -spread, spread);
        r->submit_ns = s->now - dice_in(d, -5, 300) * MS;
        r->ageing_ns = s->ageing_ns;
        r->serial = (uint64_t)i * 7 % 41; /* suspended ones come in again later */
        r->tenant = &s->tenants[dice_in(d, 0, 4)];
        weir__queue_push(&s->queue, r);
    }
}

static int naive_level(const scene *s, const weir__request *r, int top)
{
    int level = r->priority;
    int64_t waited = s->now - r->submit_ns;
    while (s->ageing_ns > 0 && waited >= s->ageing_ns && level < top) {
        level++;
        waited -= s->ageing_ns;
    }
    return level;
}

/* The tokens of its tenant that are not yet forgotten: half-lives are whole ones here. */
static int naive_served(const scene *s, const weir__request *r)
{
    int64_t served = (int64_t)r->tenant->served;
    for (int64_t at = r->tenant->at_ns; at < s->now; at += WEIR__TENANT_HALF_NS) served /= 2;
    return (int)served;
}

static const weir__request *naive_next(const scene *s, uint64_t end, int above)
{
    const weir__request *left[MOST];
    int n = 0, top = INT32_MIN, best_level = INT32_MIN, least = INT32_MAX;
    for (const weir__request *r = s->queue.first; r != NULL; r = r->next) {
        if (r->serial >= end) continue;
        if (r->priority > top) top = r->priority;
        if (r->priority > above) left[n++] = r;
    }
    for (int i = 0; i < n; i++)
        if (naive_level(s, left[i], top) > best_level) best_level = naive_level(s, left[i], top);
    for (int i = 0; i < n; i++)
        if (naive_level(s, left[i], top) == best_level && naive_served(s, left[i]) < least)
            least = naive_served(s, left[i]);
    const weir__request *oldest = NULL;
    for (int i = 0; i < n; i++)
        if (naive_level(s, left[i], top) == best_level && naive_served(s, left[i]) == least &&
            (oldest == NULL || left[i]->serial < oldest->serial))
            oldest = left[i];
    return oldest;
}

static uint64_t seed_of(void)
{
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 20261121);
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void the_whole_order_is_the_naive_models(void **state)
{
    (void)state;
    static scene s;
    dice d = {.state = seed_of()};
    for (int round = 0; round < 3000; round++) {
        make_scene(&s, &d);
        while (s.queue.n > 0) {
            int above = dice_one_in(&d, 3) ? dice_in(&d, -3, 3) : INT32_MIN;
            uint64_t end = dice_one_in(&d, 3) ? (uint64_t)dice_in(&d, 0, 41) : UINT64_MAX;
            weir__request *next = weir__queue_next(&s.queue, end, above, NULL, s.now);
            assert_ptr_equal(next, naive_next(&s, end, above));
            if (next == NULL) next = weir__queue_next(&s.queue, UINT64_MAX, INT32_MIN, NULL, s.now);
            int n = s.queue.n;
            weir__queue_remove(&s.queue, next);
            assert_int_equal(s.queue.n, n - 1);
            if (dice_one_in(&d, 2)) weir__tenant_bill(next->tenant, 64, next->tenant->at_ns);
        }
        assert_null(s.queue.first);
        assert_null(s.queue.last);
    }
}

static void nobody_outranks_whom_he_could_lose_to(void **state)
{
    (void)state;
    static scene s;
    dice d = {.state = seed_of()};
    int n_pairs = 0;
    for (int round = 0; round < 500; round++) {
        make_scene(&s, &d);
        for (int i = 0; i < s.n; i++)
            for (int j = 0; j < s.n; j++) {
                const weir__request *a = &s.requests[i], *b = &s.requests[j];
                if (!weir__queue_outranks(a, b, s.now)) continue;
                n_pairs++;
                assert_true(a->priority > b->priority); /* so it cannot go in circles, now or later */
                int64_t head_start = (b->submit_ns - a->submit_ns) / MS, gain = s.ageing_ns / MS;
                if (gain > 0) /* by whole levels: age has not made up for it */
                    assert_true(head_start + (a->priority - b->priority) * gain > -gain - 6);
            }
    }
    assert_true(n_pairs > 1000);
}

/* One slot that always serves the next for a while; two greedy flows that never end beside single requests of
 * others: each of those is served within a bound. */
static void nobody_starves(void **state)
{
    (void)state;
    enum { FLOW = 8, STEPS = 4000 };
    static weir__request requests[FLOW + 3];
    static weir__tenants tenants;
    weir__queue queue = {0};
    const int64_t step = 100 * MS;
    uint64_t serial = 0, fresh = 100;
    dice d = {.state = seed_of()};
    memset(requests, 0, sizeof requests);
    memset(&tenants, 0, sizeof tenants);
    int64_t now = 0, worst = 0;
    for (int i = 0; i < FLOW + 3; i++) {
        weir__request *r = &requests[i];
        r->serial = serial++;
        r->submit_ns = now;
        r->ageing_ns = 1000 * MS;
        /* flows: priority 5 of one tenant; 0 of ever new tenants. Singles: the lowest of a third tenant. */
        r->priority = i < FLOW / 2 ? 5 : i < FLOW ? 0 : -3;
        r->tenant = weir__tenant_hold(&tenants, i < FLOW / 2 ? 1 : i < FLOW ? fresh++ : 2, now);
        weir__queue_push(&queue, r);
    }
    for (int i = 0; i < STEPS; i++) {
        now += step;
        weir__request *r = weir__queue_next(&queue, UINT64_MAX, INT32_MIN, NULL, now);
        weir__queue_remove(&queue, r);
        weir__tenant_bill(r->tenant, dice_in(&d, 50, 2000), now);
        if (r->priority == -3 && now - r->submit_ns > worst) worst = now - r->submit_ns;
        weir__tenant_release(r->tenant);
        r->tenant = weir__tenant_hold(&tenants, r->priority == 5 ? 1 : r->priority == 0 ? fresh++ : 2, now);
        r->serial = serial++;
        r->submit_ns = now;
        weir__queue_push(&queue, r);
    }
    for (const weir__request *r = queue.first; r != NULL; r = r->next)
        if (now - r->submit_ns > worst) worst = now - r->submit_ns;
    /* 8 levels of a second; then its tenant's tokens are forgotten: 2^15 tokens in 15 half-lives */
    assert_true(worst < 8 * 1000 * MS + 15 * WEIR__TENANT_HALF_NS + 20 * step);
}

static void a_hundred_of_one_tenant_do_not_keep_back_the_first_of_another(void **state)
{
    (void)state;
    static weir__request requests[101];
    static weir__tenants tenants;
    weir__queue queue = {0};
    memset(requests, 0, sizeof requests);
    memset(&tenants, 0, sizeof tenants);
    for (int i = 0; i < 100; i++) {
        requests[i].serial = (uint64_t)i;
        requests[i].ageing_ns = 10000 * MS;
        requests[i].tenant = weir__tenant_hold(&tenants, 1, 0);
        weir__queue_push(&queue, &requests[i]);
    }
    int64_t now = 60000 * MS; /* they are old */
    weir__tenant_bill(requests[0].tenant, 500, now);
    requests[100] = (weir__request){.serial = 100, .submit_ns = now, .ageing_ns = 10000 * MS};
    requests[100].tenant = weir__tenant_hold(&tenants, 2, now);
    weir__queue_push(&queue, &requests[100]);
    assert_ptr_equal(weir__queue_next(&queue, UINT64_MAX, INT32_MIN, NULL, now), &requests[100]);
    weir__queue_remove(&queue, &requests[100]);
    assert_ptr_equal(weir__queue_next(&queue, UINT64_MAX, INT32_MIN, NULL, now), &requests[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_order_is_the_naive_models),
        cmocka_unit_test(nobody_outranks_whom_he_could_lose_to),
        cmocka_unit_test(nobody_starves),
        cmocka_unit_test(a_hundred_of_one_tenant_do_not_keep_back_the_first_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/slot.h"

#include "support/dice.h"
#include "support/engine/engine.h"

#define N_SLOTS 8
#define N_SETS  5

/* A naive model of the contract: since when each slot waits, in ticks. */
typedef struct row {
    weir__slot slots[N_SLOTS];
    weir__request requests[N_SLOTS];
    uint64_t since[N_SLOTS];
} row;

static bool works(const weir__slot *slot)
{
    return slot->state == WEIR_SLOT_PREFILLING || slot->state == WEIR_SLOT_GENERATING;
}

static void change(row *r, weir__turns *turns, int32_t i, uint64_t now, dice *d)
{
    weir__slot *slot = &r->slots[i];
    if (slot->state != WEIR_SLOT_IDLE && dice_one_in(d, 3)) {
        slot->state = WEIR_SLOT_IDLE;
        slot->request = NULL;
        return;
    }
    if (slot->state != WEIR_SLOT_IDLE) {
        slot->state = (weir_slot_state)dice_in(d, WEIR_SLOT_PREFILLING, WEIR_SLOT_JOINED);
        r->since[i] = now;
        return;
    }
    r->requests[i].history.adapters.key = (uint64_t)dice_in(d, 0, N_SETS - 1);
    slot->request = &r->requests[i];
    slot->state = WEIR_SLOT_PREFILLING;
    weir__turns_enter(turns, slot);
    r->since[i] = now;
}

/* No slot that has work waits for more ticks than there are sets, whatever comes and goes. */
static void test_no_set_starves(void **state)
{
    (void)state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t s = 0; s < 200; s++) {
        static row r;
        dice d = {seed + s};
        weir__turns turns = {0};
        const weir__slots slots = {r.slots, r.slots + N_SLOTS};
        memset(&r, 0, sizeof r);
        int32_t busy = dice_in(&d, 1, 10);
        for (uint64_t now = 0; now < 500; now++) {
            for (int32_t i = 0; i < N_SLOTS; i++)
                if (dice_one_in(&d, busy)) change(&r, &turns, i, now, &d);
            weir__turns_choose(&turns, &slots);
            uint64_t key = turns.key;
            bool any = false, served = false, seen[N_SETS] = {false};
            int32_t n_sets = 0;
            weir__turns_choose(&turns, &slots); /* asked twice: the same */
            assert_int_equal(turns.key, key);
            for (int32_t i = 0; i < N_SLOTS; i++) {
                if (!works(&r.slots[i])) continue;
                any = true;
                n_sets += !seen[r.requests[i].history.adapters.key];
                seen[r.requests[i].history.adapters.key] = true;
                served |= weir__turns_has(&turns, &r.slots[i]);
                if (weir__turns_has(&turns, &r.slots[i])) r.since[i] = now + 1;
                if (now + 1 - r.since[i] >= N_SETS)
                    fail_msg("seed %llu: slot %d waits since %llu at %llu", (unsigned long long)(seed + s), i,
                             (unsigned long long)r.since[i], (unsigned long long)now);
            }
            assert_int_equal(turns.n_sets, n_sets);
            assert_true(served == any);
            weir__turns_pass(&turns, &slots);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_set_starves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The choice of a pass's number of threads on simulated machines: processors, other programs that come and
 * go, noise, growing contexts. The work done is compared with that of the best fixed number of threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/team.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/dice.h"

#define MS INT64_C(1000000)

static dice the_dice;

static double chance(void)
{
    return (double)(dice_roll(&the_dice) >> 11) / 9007199254740992.0;
}

/* A pass whose work takes one thread work_ns, on n_processors that n_others busy threads use too. Threads
 * meet about a hundred times a pass: with more threads than processors, all wait for the one that does not
 * run. */
typedef struct machine {
    int32_t n_processors;
    double meeting_ns; /* of one more thread in each pass */
    double noise;      /* 0.05: passes take up to 5 % less or more */
    int32_t hiccup_in; /* one in hiccup_in passes takes three times as long; 0 = none */
    bool tells_stalls;
} machine;

static int64_t pass_ns(const machine *m, double work_ns, int32_t n_threads, int32_t n_others,
                       int64_t *stalled_ns)
{
    double share = fmin(1, (double)m->n_processors / (n_threads + n_others));
    double free_ns = work_ns / n_threads + m->meeting_ns * n_threads;
    double ns = n_threads == 1 ? free_ns / share : free_ns / pow(share, 3);
    ns *= 1 + m->noise * (2 * chance() - 1);
    *stalled_ns = 0;
    if (m->tells_stalls) *stalled_ns = (int64_t)(ns * (1 - (n_threads == 1 ? share : pow(share, 3))));
    if (m->hiccup_in > 0 && dice_one_in(&the_dice, m->hiccup_in)) {
        if (m->tells_stalls) *stalled_ns += (int64_t)(2 * ns);
        ns *= 3;
    }
    return (int64_t)ns;
}

/* The least that a pass takes with any number up to `most`, without noise. */
static double best_ns(const machine *m, double work_ns, int32_t most, int32_t n_others)
{
    machine quiet = *m;
    quiet.noise = 0;
    quiet.hiccup_in = 0;
    double best = INFINITY;
    int64_t stalled;
    for (int32_t n = 1; n <= most; n++)
        best = fmin(best, (double)pass_ns(&quiet, work_ns, n, n_others, &stalled));
    return best;
}

/* Runs passes for `ms`; the part of the best speed that it keeps, hiccups and noise of the machine apart. */
static double run(weir__team *team, const machine *m, double work_ns, double growth, int32_t n_tokens,
                  int32_t n_others, int64_t ms)
{
    machine quiet = *m;
    quiet.noise = 0;
    quiet.hiccup_in = 0;
    double took = 0, best = 0;
    for (int64_t at = 0; at < ms * MS;) {
        int64_t stalled, unused;
        int32_t n = weir__team_size(team, n_tokens);
        assert_in_range(n, 1, team->most);
        int64_t ns = pass_ns(m, work_ns, n, n_others, &stalled);
        weir__team_took(team, n_tokens, ns, stalled);
        took += (double)pass_ns(&quiet, work_ns, n, n_others, &unused);
        best += best_ns(m, work_ns, team->most, n_others);
        work_ns *= 1 + growth;
        at += ns;
    }
    return best / took;
}

typedef struct row {
    const char *name;
    machine machine;
    int32_t most;
    double work_ms;
    double growth; /* of the work, each pass */
    int32_t n_others;
    double least,
        least_settled; /* of the best speed: in the first 2 s beside the others, and in the 20 s after */
} row;

static const row rows[] = {
    {"two processors, one neighbour", {2, 2e4, 0.05, 0, true}, 2, 20, 0, 1, 0.75, 0.96},
    {"the same, stalls unknown", {2, 2e4, 0.05, 0, false}, 2, 20, 0, 1, 0.75, 0.96},
    {"short passes", {2, 1e4, 0.05, 0, true}, 2, 4, 0, 1, 0.85, 0.96},
    {"long passes", {2, 2e4, 0.05, 0, true}, 2, 150, 0, 1, 0.4, 0.93},
    {"noise", {2, 2e4, 0.2, 50, true}, 2, 20, 0, 1, 0.5, 0.95},
    {"growing context", {2, 2e4, 0.05, 0, true}, 2, 20, 0.0005, 1, 0.75, 0.96},
    {"four processors, two neighbours", {4, 2e4, 0.05, 0, true}, 4, 40, 0, 2, 0.6, 0.95},
    {"64 processors, one neighbour", {64, 1e4, 0.02, 0, true}, 64, 640, 0, 1, 0.85, 0.88},
    {"64 processors, 40 neighbours", {64, 1e4, 0.02, 0, true}, 64, 640, 0, 40, 0.3, 0.82},
    {"twice as many threads as processors", {8, 1e4, 0.05, 0, true}, 16, 80, 0, 0, 0.3, 0.88},
};

/* A team keeps its speed when it is alone; beside others it comes near the best; when they have gone it is
 * soon as before. */
static void follows_the_machine(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        weir__team team;
        weir__team_init(&team, r->most);
        if (r->most <= r->machine.n_processors) {
            double alone = run(&team, &r->machine, r->work_ms * 1e6, r->growth / 10, 8, 0, 60000);
            if (alone < (r->machine.hiccup_in > 0 ? 0.99 : 0.995)) fail_msg("%s: alone %.4f", r->name, alone);
        }
        double first = run(&team, &r->machine, r->work_ms * 1e6, r->growth, 8, r->n_others, 2000);
        double settled = run(&team, &r->machine, r->work_ms * 1e6, r->growth, 8, r->n_others, 20000);
        run(&team, &r->machine, r->work_ms * 1e6, 0, 8, 0, 15000);
        double after = run(&team, &r->machine, r->work_ms * 1e6, 0, 8, 0, 10000);
        print_message("%-36s first 2 s %.2f, settled %.3f, after %.3f\n", r->name, first, settled, after);
        if (first < r->least) fail_msg("%s: first %.3f", r->name, first);
        if (settled < r->least_settled) fail_msg("%s: settled %.3f", r->name, settled);
        if (after < 0.97) fail_msg("%s: after %.3f with %d threads", r->name, after, team.n_threads);
    }
}

/* Undisturbed for long, in steady and growing contexts, with noise: the trials cost at most half a
 * percent. */
static void costs_little_alone(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 512; n *= 4)
        for (int kind = 0; kind < 4; kind++) {
            machine m = {n, 1e3, kind & 1 ? 0.1 : 0.02, kind & 2 ? 200 : 0, true};
            weir__team team;
            weir__team_init(&team, n);
            double kept = run(&team, &m, 1e7 * n, kind & 1 ? 1e-5 : 0, 1, 0, 200000);
            if (kept < 0.995) fail_msg("%d threads, kind %d: %.4f", n, kind, kept);
        }
}

/* Two engines on the same processors, each with a team: together they do not fall far below one that is
 * alone. */
static void two_share(void **state)
{
    (void)state;
    machine m = {2, 2e4, 0.05, 100, true};
    weir__team teams[2];
    int64_t at[2] = {0, 0};
    double done[2] = {0, 0}; /* passes since the first second */
    for (int i = 0; i < 2; i++) weir__team_init(&teams[i], 2);
    while (at[0] < 20000 * MS || at[1] < 20000 * MS) {
        int i = at[0] <= at[1] ? 0 : 1;
        int64_t stalled, ns = pass_ns(&m, 20e6, weir__team_size(&teams[i], 8),
                                      weir__team_size(&teams[1 - i], 8), &stalled);
        weir__team_took(&teams[i], 8, ns, stalled);
        if (at[i] >= 1000 * MS && at[i] + ns <= 20000 * MS) done[i]++;
        at[i] += ns;
    }
    double alone = 19000 * 1e6 / best_ns(&m, 20e6, 2, 0);
    print_message("two engines: %.2f and %.2f of one alone\n", done[0] / alone, done[1] / alone);
    assert_true(done[0] + done[1] > 0.9 * alone);
    assert_true(fmin(done[0], done[1]) > 0.35 * alone);
}

/* Passes of changing sizes: those of another size are left out; it never leaves its range, and soon
 * follows where most have one size. */
static void leaves_out_other_sizes(void **state)
{
    (void)state;
    machine m = {2, 2e4, 0.05, 0, true};
    weir__team team;
    weir__team_init(&team, 2);
    for (int i = 0; i < 2000; i++) { /* all differ */
        int64_t stalled;
        int32_t n_tokens = 1 << (i % 8);
        int64_t ns = pass_ns(&m, 3e6 * n_tokens, weir__team_size(&team, n_tokens), 0, &stalled);
        weir__team_took(&team, n_tokens, ns, stalled);
        assert_int_equal(weir__team_size(&team, n_tokens), 2);
    }
    int32_t n_fewer = 0;
    for (int i = 0; i < 400; i++) { /* three of four have 8 tokens, beside a neighbour */
        int64_t stalled;
        int32_t n_tokens = i % 4 == 3 ? 200 : 8, n = weir__team_size(&team, n_tokens);
        int64_t ns = pass_ns(&m, 2e6 * n_tokens, n, 1, &stalled);
        weir__team_took(&team, n_tokens, ns, stalled);
        n_fewer += n == 1;
    }
    assert_in_range(n_fewer, 300, 400);
}

/* The team stays in its range for any times. */
static void bears_anything(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        int32_t most = 1 << dice_in(&the_dice, 0, 9), size = 8;
        weir__team team;
        weir__team_init(&team, most);
        for (int i = 0; i < 500; i++) {
            if (dice_one_in(&the_dice, 30)) size = dice_in(&the_dice, 1, 2048);
            int32_t n = weir__team_size(&team, size);
            assert_in_range(n, 1, most);
            int64_t ns = (int64_t)pow(10, 11 * chance());
            if (dice_one_in(&the_dice, 50)) ns = 0;
            weir__team_took(&team, size, ns, (int64_t)((double)ns * chance()));
        }
    }
}

int main(void)
{
    the_dice.state = dice_environment("WEIR_TEST_SEED", 1);
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)the_dice.state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_machine), cmocka_unit_test(costs_little_alone),
        cmocka_unit_test(two_share),           cmocka_unit_test(leaves_out_other_sizes),
        cmocka_unit_test(bears_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

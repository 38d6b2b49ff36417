/* team.h: how many of a context's threads a pass gets, learned from the cost of passes.
 *
 * Threads synchronize after each operation, so one that the system has preempted delays the others: beside
 * other programs, fewer threads are often faster. Calls no clock: the caller reports how long passes took.
 * Each kind of pass needs a team of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_TEAM_H
#define WEIR_BACKEND_TEAM_H

#include <stdbool.h>
#include <stdint.h>

/* Passes that are compared with others. */
typedef struct weir__team_window {
    int32_t n_passes;
    int64_t n_tokens, ns, stalled_ns;
    int64_t longest_ns, most_stalled_ns; /* of one pass */
} weir__team_window;

/* A trial has three windows: n_threads before it, n_trial, and n_threads after it. Invariant: 1 <= n_threads
 * <= most; from stage 1 on 1 <= n_trial <= most. */
typedef struct weir__team {
    int32_t most;
    int32_t n_threads;
    int32_t n_trial;
    int32_t stage; /* the current window: 0 before, 1 trial, 2 after */
    weir__team_window windows[3];
    int32_t n_tokens;   /* of the passes that are compared; others do not count */
    int32_t n_unlike;   /* passes of another size since a full window */
    int32_t n_first;    /* coming passes that do not count */
    int32_t n_failed;   /* trials since the last success, or since the processors were free */
    double lowest;      /* ns per token in recent windows; 0 = unknown */
    int64_t rest_ns[2]; /* of passes without trials: undisturbed, disturbed */
    bool disturbed;     /* when the trial began */
    bool wants_fewer;   /* the direction of the next trial, if both are possible */
} weir__team;

/* most >= 1: the number to start with and never to exceed. */
void weir__team_init(weir__team *team, int32_t most);

/* The number of threads for the next pass, which has n_tokens >= 1. */
int32_t weir__team_size(const weir__team *team, int32_t n_tokens);

/* Reports that pass: it took ns, of which its first thread did not run for stalled_ns; 0 = unknown. */
void weir__team_took(weir__team *team, int32_t n_tokens, int64_t ns, int64_t stalled_ns);

#endif

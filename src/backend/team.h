/* team.h: how many of a context's threads a pass gets, learned from what passes cost.
 *
 * Threads meet after each operation, so one that the system has put back holds up the others: beside other
 * programs fewer of them are often faster. No clock, no system call: what passes took is told. The same
 * for each kind of pass; one who calls keeps a team for each.
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

/* A trial is three windows: with n_threads before it, with n_trial, and with n_threads after it.
 * Invariant: 1 <= n_threads <= most; from stage 1 on 1 <= n_trial <= most. */
typedef struct weir__team {
    int32_t most;
    int32_t n_threads;
    int32_t n_trial;
    int32_t stage; /* the window that is being filled: 0 before, 1 on trial, 2 after */
    weir__team_window windows[3];
    int32_t n_tokens;   /* of the passes that are compared; others are left out */
    int32_t n_unlike;   /* since a window was full */
    int32_t n_first;    /* passes to come that do not count */
    int32_t n_failed;   /* trials since one succeeded or the processors were free */
    double lowest;      /* ns a token, of the windows lately; 0 = none */
    int64_t rest_ns[2]; /* of passes without trials: undisturbed, disturbed */
    bool disturbed;     /* when the trial began */
    bool wants_fewer;   /* next time, where there are both */
} weir__team;

/* most >= 1: what it begins with, and never exceeds. */
void weir__team_init(weir__team *team, int32_t most);

/* The threads of the next pass, which has n_tokens >= 1. */
int32_t weir__team_size(const weir__team *team, int32_t n_tokens);

/* That pass took ns, of which its first thread did not run for stalled_ns; 0 where that is not known. */
void weir__team_took(weir__team *team, int32_t n_tokens, int64_t ns, int64_t stalled_ns);

#endif

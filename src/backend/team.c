/* team.c: how many of a context's threads a pass gets.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/team.h"

#include <math.h>
#include <string.h>

/* The length of a window: several time slices, which are some 3 ms. */
#define WINDOW_NS     30000000
#define WINDOW_PASSES 3
/* The first passes touch memory for the first time and build graphs. */
#define FIRST_PASSES 2
/* Windows of other passes in a row after which those become the ones that are compared. */
#define MOST_UNLIKE 16
/* A trial must win by this factor against the windows before and after it. A window that costs this much more
 * than the one before need not be full. */
#define GAIN  0.95
#define CLEAR 1.3
/* Disturbed: the first thread did not run for this part of the time, or passes cost this much more than
 * lately. */
#define STALLED 0.1
#define DEARER  1.3
/* The lowest cost rises by this factor each window, as longer contexts cost more. */
#define FORGET 1.02
/* Milliseconds without a trial after one that lost 1 ms: undisturbed trials cost at most 0.25 %; disturbed
 * ones 2 %, down to 0.5 % as failures repeat. */
#define REST_UNDISTURBED 400
#define REST_DISTURBED   50
#define REST_MORE        15
#define REST_MOST        200

void weir__team_init(weir__team *team, int32_t most)
{
    memset(team, 0, sizeof *team);
    team->most = team->n_threads = most;
    team->n_first = FIRST_PASSES;
    team->rest_ns[false] = (int64_t)WINDOW_NS * REST_UNDISTURBED;
    team->wants_fewer = true;
}

/* ---- Numbers of threads: most, an eighth less, an eighth of that less, … 1 ---- */

static int32_t fewer_threads(int32_t n)
{
    return n < 16 ? n - 1 : n - n / 8;
}

static int32_t more_threads(const weir__team *team)
{
    int32_t n = team->most;
    while (fewer_threads(n) > team->n_threads) n = fewer_threads(n);
    return n;
}

/* ---- Windows ---- */

static bool is_full(const weir__team_window *w)
{
    return w->n_passes >= WINDOW_PASSES && w->ns >= WINDOW_NS;
}

static double window_cost(const weir__team_window *w)
{
    return (double)w->ns / (double)w->n_tokens;
}

static void begin_again(weir__team *team)
{
    memset(team->windows, 0, sizeof team->windows);
    team->stage = 0;
}

static bool is_like(const weir__team *team, int32_t n_tokens)
{
    int64_t apart = (int64_t)n_tokens - team->n_tokens;
    return (apart < 0 ? -apart : apart) * 8 <= team->n_tokens;
}

/* ---- Trials ---- */

/* The number of threads to try now, if any. */
static void choose_threads(weir__team *team)
{
    const weir__team_window *w = &team->windows[0];
    bool has_fewer = team->n_threads > 1, has_more = team->n_threads < team->most;
    /* Leaves out the worst pass, which may be an accident. */
    double rest = (double)(w->n_passes - 1) / w->n_passes;
    double usual = (double)(w->ns - w->longest_ns) / (rest * (double)w->n_tokens);
    bool stalled = (double)(w->stalled_ns - w->most_stalled_ns) > STALLED * rest * (double)w->ns ||
                   (team->lowest > 0 && usual > DEARER * team->lowest);
    team->lowest = team->lowest > 0 && team->lowest * FORGET < usual ? team->lowest * FORGET : usual;
    team->disturbed = stalled || has_more;
    if (!team->disturbed) team->n_failed = 0;
    if (team->rest_ns[team->disturbed] > 0) {
        begin_again(team);
        return;
    }
    team->n_trial =
        has_fewer && (team->wants_fewer || !has_more) ? fewer_threads(team->n_threads) : more_threads(team);
    team->stage = 1;
}

static void keep_trial(weir__team *team)
{
    team->wants_fewer = team->n_trial < team->n_threads;
    team->n_threads = team->n_trial;
    team->lowest = window_cost(&team->windows[1]);
    team->n_failed = 0;
    begin_again(team);
}

static void fail_team(weir__team *team)
{
    const weir__team_window *w = &team->windows[1];
    double lost = (double)w->ns - window_cost(&team->windows[0]) * (double)w->n_tokens;
    if (lost < 0.25 * (double)w->ns) lost = 0.25 * (double)w->ns;
    int32_t times = REST_UNDISTURBED;
    if (team->disturbed) {
        times = REST_DISTURBED + REST_MORE * team->n_failed++;
        if (times > REST_MOST) {
            times = REST_MOST;
            team->n_failed--;
        }
    }
    team->rest_ns[team->disturbed] = (int64_t)(lost * times);
    team->wants_fewer = !team->wants_fewer;
    begin_again(team);
}

/* ---- Passes ---- */

int32_t weir__team_size(const weir__team *team, int32_t n_tokens)
{
    return team->stage == 1 && is_like(team, n_tokens) ? team->n_trial : team->n_threads;
}

static void compare_with(weir__team *team, int32_t n_tokens)
{
    if (team->stage > 0) fail_team(team);
    begin_again(team);
    team->n_tokens = n_tokens;
    team->n_unlike = 0;
    team->lowest = 0;
}

void weir__team_took(weir__team *team, int32_t n_tokens, int64_t ns, int64_t stalled_ns)
{
    weir__team_window *windows = team->windows, *w = &windows[team->stage];
    if (team->most == 1) return;
    if (team->n_first > 0) {
        team->n_first--;
        return;
    }
    for (int i = 0; i < 2; i++) team->rest_ns[i] = team->rest_ns[i] > ns ? team->rest_ns[i] - ns : 0;
    if (!is_like(team, n_tokens)) {
        if (team->n_tokens == 0 || ++team->n_unlike > MOST_UNLIKE) compare_with(team, n_tokens);
        return;
    }
    w->n_passes++;
    w->n_tokens += n_tokens;
    w->ns += ns;
    w->stalled_ns += stalled_ns;
    if (ns > w->longest_ns) w->longest_ns = ns;
    if (stalled_ns > w->most_stalled_ns) w->most_stalled_ns = stalled_ns;
    double clear = team->stage == 0 ? INFINITY : CLEAR * window_cost(&windows[team->stage - 1]);
    if (!is_full(w) && window_cost(w) <= clear) return;
    team->n_unlike = 0;
    if (team->stage == 0)
        choose_threads(team);
    else if (window_cost(&windows[1]) >= GAIN * window_cost(&windows[team->stage == 1 ? 0 : 2]))
        fail_team(team);
    else if (team->stage == 2)
        keep_trial(team);
    else
        team->stage = 2;
}

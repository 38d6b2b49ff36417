/* cost.c: a Kalman filter: the costs of a tick's parts are its state, and each tick's time is a measurement.
 * SPDX-License-Identifier: Apache-2.0 */
#include "schedule/cost.h"

#include <math.h>
#include <string.h>

/* All relative: to the cost itself, or to the tick's time, per tick. */
#define DRIFT_ALL 0.03  /* the machine gets faster or slower: all costs together */
#define DRIFT_OWN 0.006 /* one cost changes alone: other kernels, other lengths */
#define NOISE     0.1   /* of a tick's time, as on an idle machine */
#define DOUBT     1.0   /* limit on the uncertainty of a cost */
#define GATE      2.5   /* standard deviations; outliers, such as another process's burst, count as this */
#define FLOOR_NS  1e3   /* clocks do not resolve shorter ticks */
#define NEWEST    0.03  /* weight of the newest tick in the mean of squares */

void weir__cost_init(weir__cost *cost)
{
    /* A model of a billion parameters on a small machine; after the first tick only the proportions
     * matter. */
    static const double guess[WEIR__COST_TERMS] = {20e6, 5e6, 5e6, 0.5e6};
    *cost = (weir__cost){.off_squared = NOISE * NOISE};
    memcpy(cost->ns, guess, sizeof guess);
    memcpy(cost->usual, guess, sizeof guess);
}

static void shape_terms(const weir__shape *shape, double *x)
{
    x[WEIR__COST_PASS] = shape->n_passes;
    x[WEIR__COST_DECODE] = shape->n_decode;
    x[WEIR__COST_PREFILL] = shape->n_prefill;
    x[WEIR__COST_CONTEXT] = shape->n_context_k;
}

static double dot_product(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < WEIR__COST_TERMS; i++) sum += a[i] * b[i];
    return sum;
}

/* The first tick gives the speed of the machine; the proportions of the costs stay a guess. */
static void begin_cost(weir__cost *cost, double scale)
{
    for (int i = 0; i < WEIR__COST_TERMS; i++) {
        cost->ns[i] *= scale;
        cost->usual[i] = cost->ns[i];
        cost->covariance[i][i] = DOUBT * cost->ns[i] * DOUBT * cost->ns[i];
    }
}

/* Adds the uncertainty since the last tick. The uncertainty of a cost that no tick shows is limited. */
static void drift_cost(weir__cost *cost)
{
    for (int i = 0; i < WEIR__COST_TERMS; i++) {
        double size = cost->ns[i] + 0.05 * cost->usual[i];
        for (int j = 0; j < WEIR__COST_TERMS; j++)
            cost->covariance[i][j] += DRIFT_ALL * cost->ns[i] * DRIFT_ALL * cost->ns[j];
        cost->covariance[i][i] += DRIFT_OWN * size * DRIFT_OWN * size;
    }
    for (int i = 0; i < WEIR__COST_TERMS; i++) {
        double most = DOUBT * (cost->ns[i] + 0.05 * cost->usual[i]);
        if (cost->covariance[i][i] <= most * most) continue;
        double shrink = most / sqrt(cost->covariance[i][i]);
        for (int j = 0; j < WEIR__COST_TERMS; j++) {
            cost->covariance[i][j] *= shrink;
            cost->covariance[j][i] *= shrink;
        }
    }
}

void weir__cost_observe(weir__cost *cost, const weir__shape *shape, int64_t ns)
{
    double x[WEIR__COST_TERMS], spread[WEIR__COST_TERMS];
    shape_terms(shape, x);
    double predicted = dot_product(cost->ns, x), actual = (double)ns;
    if (shape->n_passes < 1 || ns < 1) return;
    if (cost->n_ticks < INT32_MAX) cost->n_ticks++;
    if (cost->n_ticks == 1) {
        begin_cost(cost, actual / predicted);
        return;
    }
    drift_cost(cost);
    for (int i = 0; i < WEIR__COST_TERMS; i++) spread[i] = dot_product(cost->covariance[i], x);
    double noise = NOISE * (predicted > FLOOR_NS ? predicted : FLOOR_NS);
    double variance = dot_product(spread, x) + noise * noise;
    double most = GATE * sqrt(variance), off = actual - predicted;
    if (off > most) off = most;
    if (off < -most) off = -most;
    if (predicted > FLOOR_NS)
        cost->off_squared += NEWEST * (off / predicted * (off / predicted) - cost->off_squared);
    for (int i = 0; i < WEIR__COST_TERMS; i++) {
        cost->ns[i] += spread[i] / variance * off;
        if (cost->ns[i] < 0) cost->ns[i] = 0;
        for (int j = 0; j < WEIR__COST_TERMS; j++) cost->covariance[i][j] -= spread[i] * spread[j] / variance;
    }
}

weir_cost weir__cost_get(const weir__cost *cost)
{
    return (weir_cost){
        .pass_ns = cost->ns[WEIR__COST_PASS],
        .decode_ns = cost->ns[WEIR__COST_DECODE],
        .prefill_ns = cost->ns[WEIR__COST_PREFILL],
        .context_ns = cost->ns[WEIR__COST_CONTEXT],
        .spread = sqrt(cost->off_squared),
        .n_ticks = cost->n_ticks,
    };
}

double weir_cost_tick_ns(const weir_cost *cost, int32_t n_passes, int32_t n_decode, int32_t n_prefill,
                         double n_context_k)
{
    if (cost == NULL) return 0;
    return cost->pass_ns * n_passes + cost->decode_ns * n_decode + cost->prefill_ns * n_prefill +
           cost->context_ns * n_context_k;
}

double weir__cost_context_k(int32_t n_past, int32_t n)
{
    return (double)n * (n_past + (n + 1) / 2.0) / 1024;
}

/* ---- Passes ---- */

/* The next passes over lanes, all of the same shape. A pass takes the first lane that has tokens left and the
 * lanes after it without a gap, and the same number of tokens from each: as many as the shortest lane has,
 * within n_ubatch. */
typedef struct lane_run {
    int32_t first, end;
    int32_t n, each; /* passes, and tokens of each lane in all of them */
} lane_run;

/* Subtracts the tokens of the next passes, from lane `first` on. False: none are left. */
static bool take_run(int32_t *rows, int32_t first, int32_t n_lanes, int32_t n_ubatch, lane_run *run)
{
    while (first < n_lanes && rows[first] == 0) first++;
    if (first == n_lanes) return false;
    int32_t end = first + 1, least = rows[first];
    /* one lane more than a pass has tokens for, as in llama.cpp */
    while (end < n_lanes && rows[end] > 0 && end - first <= n_ubatch) {
        if (rows[end] < least) least = rows[end];
        end++;
    }
    int32_t most = n_ubatch / (end - first);
    if (most < 1) most = 1;
    *run = (lane_run){.first = first, .end = end, .n = 1, .each = least};
    if (least > most) {
        run->n = least / most;
        run->each = run->n * most;
    }
    for (int32_t lane = first; lane < end; lane++) rows[lane] -= run->each;
    return true;
}

void weir__cost_before(const int32_t *rows, int32_t n_lanes, int32_t n_ubatch, weir_layout layout,
                       int32_t *left, int32_t *before)
{
    int64_t total = 0, at = 0;
    lane_run run = {0};
    if (n_ubatch < 1) n_ubatch = 1;
    for (int32_t lane = 0; lane < n_lanes; lane++) {
        left[lane] = rows[lane];
        before[lane] = 0;
        total += rows[lane];
    }
    if (layout == WEIR_LAYOUT_PER_SLOT) {
        while (take_run(left, run.first, n_lanes, n_ubatch, &run))
            for (int32_t lane = run.first; lane < run.end; lane++)
                before[lane] = rows[lane] - left[lane] - run.each / run.n;
        return;
    }
    int64_t last = total > 0 ? (total - 1) / n_ubatch * n_ubatch : 0; /* where the last pass begins */
    for (int32_t lane = 0; lane < n_lanes; at += rows[lane++])
        if (last > at) before[lane] = last - at < rows[lane] ? (int32_t)(last - at) : rows[lane];
}

int32_t weir__cost_passes(int32_t *rows, int32_t n_lanes, int32_t n_ubatch, weir_layout layout)
{
    if (n_ubatch < 1) n_ubatch = 1;
    lane_run run = {0};
    int32_t n_passes = 0;
    if (layout == WEIR_LAYOUT_PER_SLOT) {
        while (take_run(rows, run.first, n_lanes, n_ubatch, &run)) n_passes += run.n;
        return n_passes;
    }
    int64_t total = 0;
    for (int32_t lane = 0; lane < n_lanes; lane++) total += rows[lane];
    return (int32_t)((total + n_ubatch - 1) / n_ubatch);
}

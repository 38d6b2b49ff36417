/* resampler.c: a sinc under a Kaiser window, tabulated at 512 places between two samples.
 * SPDX-License-Identifier: Apache-2.0 */
#include "media/resampler.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Interpolation between this many phases has an error of at most -106 dB. */
#define PHASES    512
#define CROSSINGS 32   /* zeroes of the sinc on each side */
#define CUTOFF    0.92 /* the pass band ends at 0.84, the stop band begins at 1 */
#define BETA      8.0  /* -80 dB in the stop band */
#define LANES     8    /* sums side by side, for vector registers */

static double kaiser(double x) /* -1 … 1 */
{
    double half = BETA / 2 * sqrt(1 - x * x), term = 1, sum = 1; /* the Bessel function I0 */
    for (int i = 1; term > 1e-9; i++) {
        term *= half / i;
        sum += term * term;
    }
    return sum;
}

static double sinc(double x)
{
    const double pi = 3.14159265358979323846;
    return x == 0 ? 1 : sin(pi * x) / (pi * x);
}

/* Each row adds up to 1, so that a constant does not change. */
static void fill_kernel(weir__resampler *r, double cutoff)
{
    size_t taps = 2 * r->half;
    for (size_t phase = 0; phase <= PHASES; phase++) {
        float *row = r->kernel + phase * taps;
        double sum = 0;
        for (size_t i = 0; i < taps; i++) {
            double distance = (double)phase / PHASES + (double)r->half - 1 - (double)i;
            double x = distance / (double)r->half;
            double value = fabs(x) > 1 ? 0 : sinc(cutoff * distance) * kaiser(x);
            row[i] = (float)value;
            sum += value;
        }
        for (size_t i = 0; i < taps; i++) row[i] = (float)((double)row[i] / sum);
    }
}

bool weir__resampler_init(weir__resampler *r, int32_t from, int32_t to)
{
    memset(r, 0, sizeof *r);
    r->from = (uint64_t)from;
    r->to = (uint64_t)to;
    if (from == to) return true;
    double ratio = from > to ? (double)from / to : 1;
    size_t half = (size_t)ceil(CROSSINGS * ratio);
    r->half = (half + LANES - 1) / LANES * LANES;
    r->kernel = weir__mem_calloc(PHASES + 1, 2 * r->half * sizeof *r->kernel);
    r->window = weir__mem_calloc(2 * r->half + WEIR__RESAMPLER_BLOCK, sizeof *r->window);
    if (r->kernel == NULL || r->window == NULL) {
        weir__resampler_fini(r);
        return false;
    }
    fill_kernel(r, CUTOFF / ratio);
    r->n_window = r->half - 1; /* zeroes before the first sample */
    r->window_at = 1 - (int64_t)r->half;
    return true;
}

void weir__resampler_fini(weir__resampler *r)
{
    weir__mem_free(r->kernel);
    weir__mem_free(r->window);
    memset(r, 0, sizeof *r);
}

size_t weir__resampler_room(const weir__resampler *r)
{
    uint64_t block = WEIR__RESAMPLER_BLOCK + r->half;
    return (size_t)(block * r->to / r->from + 2);
}

/* The sum of x times the row between a and b. */
static float weigh_samples(const float *x, const float *a, const float *b, float fraction, size_t n)
{
    float lane[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += x[i + j] * (a[i + j] + fraction * (b[i + j] - a[i + j]));
    for (size_t j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

/* The place in the window where the samples of the next result begin. */
static size_t window_begin(const weir__resampler *r)
{
    int64_t before = (int64_t)(r->n_out * r->from / r->to);
    return (size_t)(before - (int64_t)r->half + 1 - r->window_at);
}

/* All results up to `limit` whose samples are in the window. */
static size_t take_results(weir__resampler *r, uint64_t limit, float *results)
{
    size_t taps = 2 * r->half, n = 0, begin = window_begin(r);
    while (begin + taps <= r->n_window && r->n_out < limit) {
        double place = (double)(r->n_out * r->from % r->to) / (double)r->to * PHASES;
        size_t phase = (size_t)place;
        const float *row = r->kernel + phase * taps;
        results[n++] =
            weigh_samples(r->window + begin, row, row + taps, (float)(place - (double)phase), taps);
        r->n_out++;
        begin = window_begin(r);
    }
    if (begin > r->n_window) begin = r->n_window;
    r->n_window -= begin;
    r->window_at += (int64_t)begin;
    memmove(r->window, r->window + begin, r->n_window * sizeof *r->window);
    return n;
}

size_t weir__resampler_push(weir__resampler *r, const float *samples, size_t n, float *results)
{
    r->n_in += n;
    if (r->kernel == NULL) {
        memcpy(results, samples, n * sizeof *samples);
        return n;
    }
    memcpy(r->window + r->n_window, samples, n * sizeof *samples);
    r->n_window += n;
    return take_results(r, UINT64_MAX, results);
}

size_t weir__resampler_end(weir__resampler *r, float *results)
{
    if (r->kernel == NULL) return 0;
    memset(r->window + r->n_window, 0, r->half * sizeof *r->window);
    r->n_window += r->half;
    return take_results(r, (r->n_in * r->to + r->from - 1) / r->from, results);
}

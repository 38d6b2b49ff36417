/* resampler.h: samples at one rate to samples at another, in pieces.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MEDIA_RESAMPLER_H
#define WEIR_MEDIA_RESAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR__RESAMPLER_BLOCK 4096 /* samples of a push, at most */

/* Sample k of the result is the signal at the time k / to, below 0.92 of the lower Nyquist frequency. */
typedef struct weir__resampler {
    uint64_t from, to;    /* Hz */
    uint64_t n_in, n_out; /* samples so far */
    size_t half;          /* samples on each side of a result */
    float *kernel;        /* [PHASES + 1][2 × half]; NULL: the rates are equal */
    float *window;        /* [n_window] samples, the first of them number window_at */
    size_t n_window;
    int64_t window_at;
} weir__resampler;

/* False: no memory. Rates: 1 … 2^20 Hz. */
bool weir__resampler_init(weir__resampler *resampler, int32_t from, int32_t to);
void weir__resampler_fini(weir__resampler *resampler);

/* The largest number of results of a push, and of the end. */
size_t weir__resampler_room(const weir__resampler *resampler);

/* Adds n samples and writes the results that they complete. Returns their number. */
size_t weir__resampler_push(weir__resampler *resampler, const float *samples, size_t n, float *results);

/* The results that need samples after the last one, which count as 0. */
size_t weir__resampler_end(weir__resampler *resampler, float *results);

#endif

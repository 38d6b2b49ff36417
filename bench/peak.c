/* peak.c: weir's kernels alone, beside what the processor can do at the most: products of data that lie in
 * the caches, and of one row with weights that come from memory.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: peak REPETITIONS. One line of JSON for each format and number of threads; the best repetition
 * counts, and what limits it is measured in turn with it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernels/kernels.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "cli/limits.h"

/* In the second-level cache, weights and activations together. */
#define CACHED_COLUMNS 1024
#define CACHED_ROWS    128
#define CACHED_TOKENS  64
#define PASSES         16 /* over them, at once */

/* Matrices that are read from memory. */
#define COLUMNS 2048
#define ROWS    2048
#define BYTES   ((size_t)256 << 20) /* of all of them */

#define LARGEST (CACHED_TOKENS * CACHED_COLUMNS)

static _Alignas(64) float activations[LARGEST], products[CACHED_TOKENS * CACHED_ROWS];

/* What threads multiply. */
struct work {
    const weir__gemm *gemm;
    weir__panel_format format;
    const char *panels;
    size_t matrix_bytes;
    char *rounded;
    float *out; /* [matrices][ROWS] */
};

static void multiply_matrix(void *user, int32_t i)
{
    const struct work *w = user;
    w->gemm->multiply(w->format, w->panels + (size_t)i * w->matrix_bytes, w->rounded, 1, COLUMNS,
                      w->out + (size_t)i * ROWS, ROWS, 0, ROWS / WEIR__PANEL_ROWS);
}

static double seconds_since(int64_t started)
{
    return (double)(weir__clock_now_ns() - started) * 1e-9;
}

static double in_cache(struct work *w)
{
    int64_t units = (int64_t)CACHED_TOKENS * CACHED_COLUMNS / WEIR__UNIT;
    w->gemm->quantize(activations, CACHED_COLUMNS, 0, CACHED_TOKENS, CACHED_COLUMNS, w->rounded, 0, units);
    int64_t started = weir__clock_now_ns();
    for (int i = 0; i < PASSES; i++)
        w->gemm->multiply(w->format, w->panels, w->rounded, CACHED_TOKENS, CACHED_COLUMNS, products,
                          CACHED_ROWS, 0, CACHED_ROWS / WEIR__PANEL_ROWS);
    return (double)PASSES * CACHED_TOKENS * CACHED_COLUMNS * CACHED_ROWS / seconds_since(started);
}

static double from_memory(struct work *w, weir__crew *crew)
{
    int32_t n = (int32_t)(BYTES / w->matrix_bytes);
    w->gemm->quantize(activations, COLUMNS, 0, 1, COLUMNS, w->rounded, 0, COLUMNS / WEIR__UNIT);
    int64_t started = weir__clock_now_ns();
    weir__crew_run(crew, multiply_matrix, w, n);
    return (double)n * (double)w->matrix_bytes / seconds_since(started);
}

int main(int argc, char **argv)
{
    int repetitions = argc == 2 ? atoi(argv[1]) : 0, status = 1;
    int32_t counts[] = {1, weir__cpu_count()};
    size_t room = 0;
    if (repetitions < 1) {
        fputs("usage: peak REPETITIONS\n", stderr);
        return 2;
    }
    for (int f = 0; f < WEIR__PANEL_N_FORMATS; f++) {
        const weir__gemm *gemm = weir__kernels_gemm((weir__panel_format)f, 0);
        size_t size = gemm != NULL ? weir__activations_bytes(gemm, CACHED_TOKENS, CACHED_COLUMNS) : 0;
        if (size > room) room = size;
    }
    char *memory = aligned_alloc(64, BYTES), *rounded = aligned_alloc(64, (room + 8191) / 64 * 64);
    float *out = calloc(BYTES / ((size_t)COLUMNS * ROWS / 2), ROWS * sizeof *out);
    if (memory == NULL || rounded == NULL || out == NULL) goto done;
    memset(memory, 0x21, BYTES); /* small numbers in every format */
    for (int i = 0; i < LARGEST; i++) activations[i] = (float)(i * 7919 % 1000 - 500) * 0.002f;
    for (int t = 0; t < 1 + (counts[1] > 1); t++) {
        cli_limits limits;
        if (!cli_limits_init(&limits, counts[t])) goto done;
        for (int f = 0; f < WEIR__PANEL_N_FORMATS; f++) {
            struct work w = {.gemm = weir__kernels_gemm((weir__panel_format)f, 0),
                             .format = (weir__panel_format)f};
            double macs = 0, bytes = 0;
            if (w.gemm == NULL) continue;
            w.panels = memory;
            w.matrix_bytes = weir__panel_bytes(w.format, ROWS, COLUMNS);
            w.rounded = rounded;
            w.out = out;
            for (int i = 0; i < repetitions; i++) {
                double now = counts[t] == 1 ? in_cache(&w) : 0;
                if (now > macs) macs = now;
                now = from_memory(&w, limits.crew);
                if (now > bytes) bytes = now;
                cli_limits_measure(&limits, memory, BYTES);
            }
            printf("{\"format\": \"%s\", \"threads\": %" PRId32
                   ", \"gmac_per_second\": %.1f, \"gb_per_second\": %.1f, "
                   "\"most_gmac_per_second\": %.1f, \"most_gb_per_second\": %.1f, \"instruction\": \"%s\"}\n",
                   weir__panel_layouts[f].name, counts[t], macs / 1e9, bytes / 1e9, limits.macs / 1e9,
                   limits.bytes / 1e9, limits.instruction);
            fflush(stdout);
        }
        cli_limits_fini(&limits);
    }
    status = 0;
done:
    if (status != 0) fputs("peak: out of memory\n", stderr);
    free(out);
    free(rounded);
    free(memory);
    return status;
}

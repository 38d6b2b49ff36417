/* limits.h: what this machine can do at the most: products of bytes, and bytes read from memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_LIMITS_H
#define WEIR_BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crew.h"

/* The best seen so far, by threads that work at the same time. */
typedef struct cli_limits {
    const char *instruction; /* what multiplies bytes fastest here; "" = not known */
    double macs;             /* multiplications with an addition, per second; 0 = not known */
    double bytes;            /* read from memory, per second */
    int32_t n_threads;
    weir__crew *crew;
    size_t at; /* in the memory that is read: what comes next */
} cli_limits;

/* False: no memory. Freed with fini in any case. */
bool cli_limits_init(cli_limits *limits, int32_t n_threads);
void cli_limits_fini(cli_limits *limits);

/* Measures once more, some milliseconds. memory: [size] bytes that were written to, many more than the caches
 * hold. */
void cli_limits_measure(cli_limits *limits, char *memory, size_t size);

#endif

/* limits.h: the machine's limits: products of bytes, and bytes read from memory, per second.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_LIMITS_H
#define WEIR_BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/thread.h"

/* The best seen so far, by threads that work at the same time. */
typedef struct cli_limits {
    const char *instruction; /* the fastest one here that multiplies bytes; "" = not known */
    double macs;             /* multiplications with an addition, per second; 0 = not known */
    double bytes;            /* read from memory, per second */
    int32_t n_threads;
    weir__thread_pool *threads;
    size_t at; /* the next byte of the memory that is read */
} cli_limits;

/* False: no memory. Freed with fini in any case. */
bool cli_limits_init(cli_limits *limits, int32_t n_threads);
void cli_limits_fini(cli_limits *limits);

/* Measures once more, some milliseconds. memory: [size] bytes that were written to, many more than the caches
 * hold. */
void cli_limits_measure(cli_limits *limits, char *memory, size_t size);

#endif

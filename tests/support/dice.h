/* dice.h: random numbers that a seed repeats.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_DICE_H
#define WEIR_TESTS_DICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One thread at a time; seed it by assignment. */
typedef struct dice {
    uint64_t state;
} dice;

/* splitmix64 */
static inline uint64_t dice_roll(dice *d)
{
    uint64_t x = d->state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* low … high, both included */
static inline int32_t dice_in(dice *d, int32_t low, int32_t high)
{
    return low + (int32_t)(dice_roll(d) % (uint64_t)((int64_t)high - low + 1));
}

static inline bool dice_one_in(dice *d, int32_t n)
{
    return dice_in(d, 1, n) == 1;
}

/* The number in this environment variable, or `otherwise`, which is the same in each run: a test that passed
 * passes again. The word "random" stands for a number from the clock, which is printed so that a failure can
 * be repeated. */
static inline uint64_t dice_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') return otherwise;
    if (strcmp(text, "random") != 0) return strtoull(text, NULL, 0);
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    dice d = {(uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec};
    uint64_t number = dice_roll(&d) % 1000000000;
    fprintf(stderr, "%s=%llu\n", name, (unsigned long long)number);
    return number;
}

#endif

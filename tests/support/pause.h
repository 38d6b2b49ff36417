/* pause.h: sleeping for a while, also where signals interrupt it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_PAUSE_H
#define WEIR_TESTS_PAUSE_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

static inline void pause_us(int64_t us)
{
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

#endif

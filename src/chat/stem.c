/* stem.c: words that a text lacks, for marks in prompts. SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "chat/stem.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

#define TRIES 8

bool weir__chat_stem_choose(char stem[WEIR__CHAT_STEM + 1], const char *text, size_t n)
{
    for (uint64_t i = 0; i < TRIES; i++) {
        const uint64_t from[] = {(uint64_t)weir__clock_now_ns(), (uint64_t)(uintptr_t)stem, i};
        uint64_t number = weir__hash(i, from, sizeof from) % UINT64_C(10000000000000000);
        snprintf(stem, WEIR__CHAT_STEM + 1, "q%016llu", (unsigned long long)number);
        if (memmem(text, n, stem, WEIR__CHAT_STEM) == NULL) return true;
    }
    return false;
}

/* effort.h: how often a test repeats a part. Under sanitizers, where some things take thirty times as long,
 * it is a part: one of each kind stays. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_EFFORT_H
#define WEIR_TESTS_EFFORT_H

#include <stdbool.h>

#ifdef WEIR_SANITIZED
#define EFFORT(all, part) (part)
#else
#define EFFORT(all, part) (all)
#endif

/* Whether the thread sanitizer looks on: it finds races, so tests of one thread are left to other builds. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EFFORT_RACES 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define EFFORT_RACES 1
#endif
#ifndef EFFORT_RACES
#define EFFORT_RACES 0
#endif

/* Of things with names, whether this one is left out: where there is less to do, all but every sixth or
 * so. */
static inline bool effort_skips(const char *name)
{
    unsigned sum = 0;
    while (*name != '\0') sum += (unsigned char)*name++;
    return EFFORT(false, true) && sum % 6 != 0;
}

#endif

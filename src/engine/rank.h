/* rank.h: the order of waiting requests: by priority and age, then by the recent tokens of their salts, then
 * by submit. Pure functions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_RANK_H
#define WEIR_ENGINE_RANK_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weir__rank {
    int32_t level;   /* priority plus age; higher goes first */
    int64_t served;  /* recent tokens of its salt; fewer goes first */
    uint64_t serial; /* order of submit; earlier goes first */
} weir__rank;

/* The priority plus one level for each whole ageing_ns (0 = never) of waiting: at most `top`, but not below
 * the priority. */
int32_t weir__rank_level(int32_t priority, int64_t waited_ns, int64_t ageing_ns, int32_t top);

/* Whether a goes before b: a strict order if serials differ. */
bool weir__rank_before(const weir__rank *a, const weir__rank *b);

/* Whether a request may preempt a running one: its priority is higher, even counting the other's age. */
bool weir__rank_outranks(int32_t priority, int64_t submit_ns, int32_t running_priority,
                         int64_t running_submit_ns, int64_t ageing_ns, int64_t now);

#endif

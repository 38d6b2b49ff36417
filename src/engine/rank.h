/* rank.h: the order of waiting requests: by priority with age, recent tokens of the salt, then submit. Pure
 * functions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_RANK_H
#define WEIR_ENGINE_RANK_H

#include <stdbool.h>
#include <stdint.h>

/* What decides it. */
typedef struct weir__rank {
    int32_t level;   /* of priority, with what age adds; the higher one first */
    int64_t served;  /* tokens that its salt had lately; the fewer first */
    uint64_t serial; /* of submit; the earlier first */
} weir__rank;

/* Priority and one level more for each whole ageing_ns since submit, 0 = never; at most `top`, but not below
 * the priority. */
int32_t weir__rank_level(int32_t priority, int64_t waited_ns, int64_t ageing_ns, int32_t top);

/* Whether a goes before b. A strict order wherever serials differ. */
bool weir__rank_before(const weir__rank *a, const weir__rank *b);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/rank.h"

int32_t weir__rank_level(int32_t priority, int64_t waited_ns, int64_t ageing_ns, int32_t top)
{
    if (ageing_ns <= 0 || waited_ns <= 0 || priority >= top) return priority;
    int64_t gained = waited_ns / ageing_ns;
    return gained < (int64_t)top - priority ? priority + (int32_t)gained : top;
}

bool weir__rank_before(const weir__rank *a, const weir__rank *b)
{
    if (a->level != b->level) return a->level > b->level;
    if (a->served != b->served) return a->served < b->served;
    return a->serial < b->serial;
}

bool weir__rank_outranks(int32_t priority, int64_t submit_ns, int32_t running_priority,
                         int64_t running_submit_ns, int64_t ageing_ns, int64_t now)
{
    return priority > running_priority &&
           weir__rank_level(priority, now - submit_ns, ageing_ns, INT32_MAX) >
               weir__rank_level(running_priority, now - running_submit_ns, ageing_ns, INT32_MAX);
}

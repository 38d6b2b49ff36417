/* pace.h: limits the prefill of prompts while requests of higher priority run, here (ADR 0086) or in another
 * engine, or of tenants that had less time there (ADR 0088).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_PACE_H
#define WEIR_ENGINE_PACE_H

#include "engine/slot.h"

typedef struct weir__driver weir__driver;

#define WEIR__PACE_TURN 4 /* one tick in this many belongs to an outranked prompt */

/* Watches passes: from now on, a pass that need not finish ends early. */
void weir__pace_watch(weir__driver *driver);

/* The target for the length of a tick: the least of the streams that generate; a set of adapters has its
 * share. */
int64_t weir__pace_target_ns(const weir__driver *driver);

/* Sets the limits of this tick. A second call in the same tick sets the same limits, except for slots that
 * have ended since. */
void weir__pace_choose(weir__driver *driver, int64_t now);

/* True if the slot may be planned in this tick. */
static inline bool weir__pace_has(const weir__slot *slot)
{
    return slot->state != WEIR_SLOT_PREFILLING || slot->pace.limit > 0;
}

/* The pass begins: the batch is filled and its shape known. */
void weir__pace_begin(weir__driver *driver, int64_t now);

/* The time until which prompts wait for other engines' requests; WEIR__CLOCK_NEVER = none waits. */
int64_t weir__pace_rest_ns(const weir__driver *driver);

/* The pass took ns, whether or not it was abandoned: bills the tenants. */
void weir__pace_bill(weir__driver *driver, int64_t ns, int64_t now);

/* The pass was computed. */
void weir__pace_advance(const weir__slots *slots);

/* The pass was abandoned: removes its cells, so that its tokens are computed again. */
void weir__pace_restart(weir__driver *driver);

#endif

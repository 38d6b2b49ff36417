/* suspend.h: out of a slot, back into the queue, and into a slot again.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SUSPEND_H
#define WEIR_ENGINE_SUSPEND_H

#include "cache/cache.h"
#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* Suspends the slot's request: saves its cells if it may, frees them, and puts it into the queue. */
void weir__suspend(weir__driver *driver, weir__slot *slot);

/* After weir__lanes_enter: brings back what was saved. Without it the tokens are computed again. */
void weir__suspend_restore(weir__memory *memory, weir__cache *cache, weir__slot *slot);

/* Forgets what was saved. */
void weir__suspend_drop(weir__cache *cache, weir__request *request);

/* Of slots [n_slots] the one to suspend first: of those that `by` outranks (NULL: all) the youngest of the
 * lowest priority. */
weir__slot *weir__suspend_victim(weir__slot *slots, int32_t n_slots, const weir__request *by,
                                 int64_t ageing_ns, int64_t now);

/* Before a pass: evicts cached prefixes, then suspends, until what the slots hold fits. The last one
 * always does. True: some were suspended. */
bool weir__suspend_relieve(weir__driver *driver, int64_t now);

#endif

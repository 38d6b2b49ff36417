/* suspend.h: suspends requests and restores them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SUSPEND_H
#define WEIR_ENGINE_SUSPEND_H

#include "cache/cache.h"
#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* Suspends the slot's request: saves its cells if possible, frees them, and puts the request into the
 * queue. */
void weir__suspend(weir__driver *driver, weir__slot *slot);

/* After weir__lanes_enter: restores the saved cells, if there are any. Otherwise the tokens are computed
 * again. */
void weir__suspend_restore(weir__memory *memory, weir__cache *cache, weir__slot *slot);

/* Frees the saved cells. */
void weir__suspend_drop(weir__cache *cache, weir__request *request);

/* The slot to suspend first: the youngest of the lowest priority among those that `by` outranks (NULL: among
 * all). */
weir__slot *weir__suspend_victim(const weir__slots *slots, const weir__request *by, int64_t now);

/* Before a pass: evicts cached prefixes, then suspends requests, until the slots' tokens fit. One request
 * always fits. True: some were suspended. */
bool weir__suspend_relieve(weir__driver *driver, int64_t now);

#endif

/* doorbell.h: how any thread wakes the engine's thread. Reference-counted, so that a stream may ring after
 * its engine is gone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_DOORBELL_H
#define WEIR_ENGINE_DOORBELL_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/weir.h"

typedef struct weir__doorbell weir__doorbell;

/* One reference for the caller. NO_MEMORY. */
weir_status weir__doorbell_create(weir__doorbell **out);
weir__doorbell *weir__doorbell_hold(weir__doorbell *bell);
void weir__doorbell_release(weir__doorbell *bell);

/* Wakes the waiter, or makes its next wait return at once. Any thread; takes a lock of its own for a few
 * instructions. Does nothing in a child of fork(): nobody waits there, and the lock may be held forever. */
void weir__doorbell_ring(weir__doorbell *bell);

/* Counts a cancel and rings. The engine searches its queue for cancelled streams only if the count has
 * changed. */
void weir__doorbell_cancel(weir__doorbell *bell);
uint32_t weir__doorbell_cancels(const weir__doorbell *bell);

/* Whether this process is a child of fork() whose parent created the doorbell. The threads that answer it are
 * not here. */
bool weir__doorbell_is_inherited(const weir__doorbell *bell);

/* Returns when it was rung since the last wait, or when deadline_ns has passed. One waiter. */
void weir__doorbell_wait(weir__doorbell *bell, int64_t deadline_ns);

#endif

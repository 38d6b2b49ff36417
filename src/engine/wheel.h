/* wheel.h: the engines that this thread drives, so that a call that would wait for its own thread is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_WHEEL_H
#define WEIR_ENGINE_WHEEL_H

#include <stdbool.h>

#include "engine/doorbell.h"

/* A doorbell stands for its engine, since streams know no more of it. Lies where it was taken until it is
 * left. */
typedef struct weir__wheel {
    const weir__doorbell *bell;
    const struct weir__wheel *outer; /* what this thread has taken before */
} weir__wheel;

/* For a tick, and for a ready callback on whichever thread it runs. Left in the reverse order. */
void weir__wheel_take(weir__wheel *wheel, const weir__doorbell *bell);
void weir__wheel_leave(const weir__wheel *wheel);

/* Whether this thread has it: whatever waits here for the engine waits for ever. */
bool weir__wheel_held(const weir__doorbell *bell);

/* Whether a call on the engine of this doorbell may wait: it has a driver, and that is not this thread. A
 * child of fork() has no threads of its parent's. */
bool weir__wheel_may_wait(const weir__doorbell *bell);

#endif

/* wheel.h: the engines that this thread drives, so that a call that would wait for its own thread can be
 * refused.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_WHEEL_H
#define WEIR_ENGINE_WHEEL_H

#include <stdbool.h>

#include "engine/doorbell.h"

/* A doorbell stands for its engine, because streams know only that. A wheel must not move between take and
 * leave. */
typedef struct weir__wheel {
    const weir__doorbell *bell;
    const struct weir__wheel *outer; /* taken by this thread before */
} weir__wheel;

/* For a tick, and for a ready callback on any thread. Leave in the reverse order. */
void weir__wheel_take(weir__wheel *wheel, const weir__doorbell *bell);
void weir__wheel_leave(const weir__wheel *wheel);

/* Whether this thread has the wheel: then waiting for the engine here would never end. */
bool weir__wheel_held(const weir__doorbell *bell);

/* Whether a call may wait for this doorbell's engine: the driver exists and is another thread. A child of
 * fork() has no threads of its parent. */
bool weir__wheel_may_wait(const weir__doorbell *bell);

#endif

/* admit.h: moves requests from the queue into slots.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ADMIT_H
#define WEIR_ENGINE_ADMIT_H

#include <stdint.h>

typedef struct weir__driver weir__driver;

/* Fills free slots from the queue, and lets requests preempt those that they outrank. now: the start of the
 * tick, so that ages, and with them the order, follow from the record of ticks (ADR 0020). */
void weir__admit(weir__driver *driver, int64_t now);

#endif

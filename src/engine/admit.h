/* admit.h: which requests have slots: takes them out of the queue, and suspends those for which there is no
 * room.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ADMIT_H
#define WEIR_ENGINE_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weir__driver weir__driver;

/* Makes room before a pass: evicts cached prefixes, then suspends requests, until the slots' tokens fit. One
 * request always fits. True: some were suspended. */
bool weir__admit_relieve(weir__driver *driver, int64_t now);

/* Fills free slots from the queue, and lets requests preempt those that they outrank. now: the start of the
 * tick, so that ages, and with them the order, follow from the record of ticks (ADR 0020). */
void weir__admit(weir__driver *driver, int64_t now);

#endif

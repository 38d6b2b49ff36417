/* admit.h: from the queue into a slot.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ADMIT_H
#define WEIR_ENGINE_ADMIT_H

#include <stdint.h>

typedef struct weir__driver weir__driver;

/* Gives free slots to the queue, and slots of lower priority to requests that outrank them. now: the start of
 * the tick, so that ages, and with them the order, follow from its record (ADR 0020). */
void weir__admit(weir__driver *driver, int64_t now);

#endif

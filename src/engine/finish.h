/* finish.h: how requests end.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_FINISH_H
#define WEIR_ENGINE_FINISH_H

#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* Reads cancels and deadlines, of slots and of the queue, and ends what they concern. */
void weir__finish_collect(weir__driver *driver, int64_t now);

/* Those of the slots alone; also between a pass and its sampling, where they beat the pass's end. */
void weir__finish_collect_slots(weir__slot *slots, int32_t n_slots, int64_t now);

/* Closes the slots that have a reason. */
void weir__finish_latched(weir__driver *driver);

/* Ends everything, slots and queue, with WEIR_STOPPED. */
void weir__finish_all(weir__driver *driver);

#endif

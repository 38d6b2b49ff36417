/* lanes.h: which sequence holds a slot's cells.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_LANES_H
#define WEIR_ENGINE_LANES_H

#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* The first lane that holds nothing, -1 = none; the slot's lane; its cells freed and its lane given back. */
int32_t weir__lanes_free(const weir__driver *driver);
void weir__lanes_enter(weir__driver *driver, weir__slot *slot, int32_t lane);
void weir__lanes_leave(weir__driver *driver, weir__slot *slot);

/* Closes a gap between lanes, one move a tick. */
void weir__lanes_compact(weir__driver *driver);

#endif

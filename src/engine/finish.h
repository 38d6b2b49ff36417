/* finish.h: how requests end.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_FINISH_H
#define WEIR_ENGINE_FINISH_H

#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* Ends requests in slots and in the queue that were cancelled or whose deadline has passed. */
void weir__finish_collect(weir__driver *driver, int64_t now);

/* Latches the reasons of slots and does no more. Also called between a pass and its sampling: a cancel or
 * deadline has precedence over an end by that pass. */
void weir__finish_collect_slots(const weir__slots *slots, int64_t now);

/* Ends the requests of slots that have a reason. */
void weir__finish_latched(weir__driver *driver);

/* Ends all requests, in slots and in the queue, with WEIR_STOPPED. */
void weir__finish_all(weir__driver *driver);

#endif

/* reuse.h: gives slots the tokens that need not be computed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_REUSE_H
#define WEIR_ENGINE_REUSE_H

#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* Gives the slot, after weir__slot_start, a lane with those of the request's tokens that are available, or
 * makes it JOINED, without a lane. */
void weir__reuse_start(weir__driver *driver, weir__slot *slot);

/* Starts the JOINED slots whose leader has computed their tokens or is gone, or whose file has been read or
 * does not come in time. */
void weir__reuse_rejoin(weir__driver *driver);

/* Carries out a transfer that a caller waits for: gives or takes the state of a cached prefix. */
void weir__reuse_transfer(weir__driver *driver);

#endif

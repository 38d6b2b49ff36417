/* lookahead.h: encodes images and sounds before slots need them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_LOOKAHEAD_H
#define WEIR_ENGINE_LOOKAHEAD_H

#include <stdint.h>

typedef struct weir__driver weir__driver;

/* If the encoder is idle, has it encode media of slots, then of queued requests, as far as its budget goes.
 * now: as in weir__admit. */
void weir__lookahead(weir__driver *driver, int64_t now);

#endif

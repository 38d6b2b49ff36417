/* lookahead.h: encodes images and sounds before slots need them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_LOOKAHEAD_H
#define WEIR_ENGINE_LOOKAHEAD_H

#include <stdint.h>

typedef struct weir__driver weir__driver;

/* If the encoder has nothing to do: what slots will need, then what queued requests will, as far as the
 * budget goes. now: as in weir__admit. */
void weir__lookahead(weir__driver *driver, int64_t now);

#endif

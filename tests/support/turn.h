/* turn.h: one tick or one look at a random schedule, and all that must hold behind it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_TURN_H
#define WEIR_TESTS_TURN_H

#include "support/play.h"

const weir_view *play_view(play *p);

/* plain: nothing fails, and the engine's strategy makes the plan. */
weir_report play_tick(play *p, bool plain);

#endif

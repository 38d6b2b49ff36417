/* order.h: one submit of a random schedule, sound or poisoned, and the status that the engine must return.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_ORDER_H
#define WEIR_TESTS_ORDER_H

#include "support/play.h"

void play_submit(play *p);

/* weir_generate drives the engine till these requests have ended; others run along. */
void play_generate(play *p);

/* Counts the ticks of weir_generate since the last call of this. */
void play_count_generate(play *p);

#endif

/* event.h: events of a random schedule between ticks and inside them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_EVENT_H
#define WEIR_TESTS_EVENT_H

#include "support/play.h"

/* Something that a program may do now: a submit, a cancel, a stop, reading, another interval … */
void play_act(play *p);

void play_read_all(play *p);

/* The fake's hooks; user is the play. They check the batch, and things happen there. */
void play_before_decode(void *user, const weir__batch *batch);
void play_before_sample(void *user, int32_t row);

/* A strategy that plans anything; user is the play. */
size_t play_plan(const weir_view *view, weir_plan_entry *plan, void *user);

#endif

/* plan.h: random plans for a tick, good and bad, and which is which.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_PLAN_H
#define WEIR_TESTS_PLAN_H

#include "support/dice.h"
#include "weir/more.h"

/* A plan of at most `room` entries. Three of four keep all rules. */
size_t plan_random(dice *d, const weir_view *view, int32_t n_slots, weir_plan_entry *plan, size_t room);

/* Whether more.h allows it. */
bool plan_allowed(const weir_view *view, int32_t n_slots, const weir_plan_entry *plan, size_t n);

/* Tokens in all. */
int64_t plan_sum(const weir_plan_entry *plan, size_t n);

#endif

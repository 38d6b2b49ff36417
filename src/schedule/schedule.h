/* schedule.h: the strategies that come with weir. The contract of a strategy is weir_strategy in weir.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SCHEDULE_SCHEDULE_H
#define WEIR_SCHEDULE_SCHEDULE_H

#include "weir/weir.h"

/* Adds an entry for each generating slot, one token each, while the budget lasts. Returns the entries written
 * so far. */
size_t weir__schedule_decodes(const weir_view *view, weir_plan_entry *plan, size_t n, int32_t *budget);

/* Adds prefill chunks, oldest request first, while the budget lasts. */
size_t weir__schedule_prefills(const weir_view *view, weir_plan_entry *plan, size_t n, int32_t *budget);

#endif

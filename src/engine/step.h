/* step.h: the tick.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_STEP_H
#define WEIR_ENGINE_STEP_H

#include "weir/weir.h"

typedef struct weir__driver weir__driver;

/* One tick; docs/architecture.md describes its phases. The caller drives. plan NULL: the strategy's. */
void weir__step_tick(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan, weir_report *report);

/* The tick's first three phases: collect, finish, and, where that may change who has a slot, admit. */
void weir__step_prepare(weir__driver *driver, bool admits, int64_t now);

/* Describes the slots that have work, oldest first, in driver->view. */
void weir__step_view(weir__driver *driver, int64_t now);

#endif

/* step.h: the tick.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_STEP_H
#define WEIR_ENGINE_STEP_H

#include "weir/more.h"

typedef struct weir__driver weir__driver;

/* Runs one tick; docs/architecture.md describes its phases. plan NULL: the strategy plans. */
void weir__step_tick(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan, weir_report *report);

/* The first three phases of a tick: collect, finish and, if `admits`, admit. */
void weir__step_prepare(weir__driver *driver, bool admits, int64_t now);

/* Describes the slots that have work in driver->view, oldest request first. */
void weir__step_view(weir__driver *driver, int64_t now);

#endif

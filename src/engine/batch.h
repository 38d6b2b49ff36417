/* batch.h: makes the batch of a plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_BATCH_H
#define WEIR_ENGINE_BATCH_H

#include <stdbool.h>

#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* The caller gets the view as it is now. Its next plan is judged by it. */
void weir__batch_show(weir__driver *driver);

/* The tokens of its prompt that the slot may have in this tick; 0 = as many as it has. */
int32_t weir__batch_limit(const weir__driver *driver, const weir__slot *slot);

/* Writes the plan into the batch, each lane's rows together. False: the plan breaks a rule (see
 * weir_strategy), nothing was written. Leaves out slots of the shown view that are gone. */
bool weir__batch_fill(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan);

#endif

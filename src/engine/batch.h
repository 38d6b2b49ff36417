/* batch.h: from a plan to the batch.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_BATCH_H
#define WEIR_ENGINE_BATCH_H

#include <stdbool.h>

#include "weir/weir.h"

typedef struct weir__driver weir__driver;

/* The caller was shown the view as it is: a plan is judged by that. */
void weir__batch_show(weir__driver *driver);

/* Writes the plan into the batch: rows in lane order. False: the plan breaks a rule (see weir_strategy),
 * nothing was written. What the plan has of the view, and what is not there any more, is left out. */
bool weir__batch_fill(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan);

#endif

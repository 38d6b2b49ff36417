/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/passes.h"

#include <stdatomic.h>

static atomic_int n_passes;

void weir__passes_begin(void)
{
    atomic_fetch_add_explicit(&n_passes, 1, memory_order_relaxed);
}

void weir__passes_end(void)
{
    atomic_fetch_sub_explicit(&n_passes, 1, memory_order_relaxed);
}

bool weir__passes_run(void)
{
    return atomic_load_explicit(&n_passes, memory_order_relaxed) > 0;
}

/* passes.h: how many forward passes run now, in all contexts of the process. Loads leave the processors to
 * them. Any thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_PASSES_H
#define WEIR_BACKEND_PASSES_H

#include <stdbool.h>

/* Around each pass. */
void weir__passes_begin(void);
void weir__passes_end(void);

bool weir__passes_run(void);

#endif

/* loader.h: the thread of a pool that reads headers, loads and unloads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_POOL_LOADER_H
#define WEIR_POOL_LOADER_H

#include "pool/shared.h"

/* The thread of pool->loader; user is the pool. */
void *weir__loader_run(void *user);

#endif

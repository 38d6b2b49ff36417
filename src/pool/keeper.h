/* keeper.h: the thread of a pool that decides.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_POOL_KEEPER_H
#define WEIR_POOL_KEEPER_H

#include "pool/shared.h"

/* The thread of pool->keeper; user is the pool. */
void *weir__keeper_run(void *user);

#endif

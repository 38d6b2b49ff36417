/* pace.h: an engine whose clock stands, so costs stay the first guess: a pass 20 ms, a token 5 ms.
 * Ticks of up to 41 ms are planned for the target of 50 ms. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_ENGINE_PACE_H
#define WEIR_SUPPORT_ENGINE_PACE_H

#include "engine.h"

#define START INT64_C(1000000000)
#define CHUNK 16
#define LONG  400 /* tokens of the long prompt */

static inline int pace_setup(void **state)
{
    if (rig_setup(state) != 0) return -1;
    rig *r = *state;
    weir__clock_stand(START);
    r->params.chunk_size = CHUNK;
    r->params.n_ctx = 1024;
    r->params.ageing_ms = 0;
    return 0;
}

static inline int pace_teardown(void **state)
{
    weir__clock_stand(-1);
    return rig_teardown(state);
}

#endif

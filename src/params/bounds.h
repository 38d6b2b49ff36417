/* bounds.h: the largest values that parameters may have.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PARAMS_BOUNDS_H
#define WEIR_PARAMS_BOUNDS_H

#include "base/cpu.h" /* WEIR__CPU_MAX */

#define WEIR__TOKENS_MAX      (1 << 28) /* cells are counted in 32 bits, with room for sums */
#define WEIR__CELLS_MAX       (1 << 30) /* of a context alone; llama.cpp rounds them up in 32 bits */
#define WEIR__BATCH_MAX       (1 << 20) /* tokens of a tick, and of its passes */
#define WEIR__SEQ_MAX         256 /* LLAMA_MAX_SEQ of the pinned llama.cpp, the bound of an array there */
#define WEIR__DEVICES_MAX     16
#define WEIR__AGEING_MS_MAX   86400000 /* a day */
#define WEIR__ITL_MS_MAX      60000
#define WEIR__PRIORITY_MAX    100  /* the lowest is its negative */
#define WEIR__LOGPROBS_MAX    20   /* alternatives; OpenAI's limit */
#define WEIR__DRAFT_MAX       32   /* tokens; longer drafts are hardly faster even if all of them are right */
#define WEIR__CACHE_BLOCK_MAX 1024 /* tokens */
#define WEIR__LEASES_MAX      (1 << 20)
#define WEIR__IDLE_MS_MAX     (WEIR__AGEING_MS_MAX * INT64_C(365))
#define WEIR__WINDOW_MAX      1000000 /* tokens that penalties look back on; llama.cpp allocates by it */

#define WEIR__SIDE_MAX     65535 /* pixels; JPEG's own limit */
#define WEIR__RATE_MIN     4000  /* Hz */
#define WEIR__CHANNELS_MAX 32

#endif

/* bounds.h: the largest numbers that an engine, its requests and a record of them may have.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_BOUNDS_H
#define WEIR_ENGINE_BOUNDS_H

#define WEIR__TOKENS_MAX    (1 << 28) /* cells are counted in 32 bits, with room for sums */
#define WEIR__BATCH_MAX     (1 << 20) /* tokens of a tick, and so its passes */
#define WEIR__AGEING_MS_MAX 86400000  /* a day */
#define WEIR__ITL_MS_MAX    60000
#define WEIR__PRIORITY_MAX  100 /* and the least one is as far below 0 */

#endif

/* worth.h: whether one more draft token brings a tick's tokens sooner. Pure: numbers in, numbers out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SPECULATE_WORTH_H
#define WEIR_SPECULATE_WORTH_H

#include <stdbool.h>

/* What a tick brings and takes as it is planned so far. */
typedef struct weir__worth {
    double tokens; /* expected */
    double ns;
    double row_ns; /* what one more row takes */
} weir__worth;

/* Whether a draft token that is right with this probability brings the tick's tokens sooner, where drafting
 * it takes own_ns besides. If so it is counted in. */
bool weir__worth_take(weir__worth *worth, double probability, double own_ns);

#endif

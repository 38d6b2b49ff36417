/* throughput.h: whether one more draft token raises a tick's throughput. Pure: numbers in, numbers out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SPECULATE_THROUGHPUT_H
#define WEIR_SPECULATE_THROUGHPUT_H

#include <stdbool.h>

/* The tokens that a tick is expected to bring as it is planned so far, and the time that it takes. */
typedef struct weir__throughput {
    double tokens; /* expected */
    double ns;
    double row_ns; /* of one more row */
} weir__throughput;

/* True if a draft token that is right with this probability brings the tick's tokens sooner, where drafting
 * it takes own_ns besides. If so it is counted in. */
bool weir__throughput_raise(weir__throughput *throughput, double probability, double own_ns);

#endif

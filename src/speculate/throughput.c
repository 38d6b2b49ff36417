/* throughput.c: a draft token is worth its cost if it raises the tokens per second of a tick by more than the
 * doubt about that cost.
 * SPDX-License-Identifier: Apache-2.0 */
#include "speculate/throughput.h"

#define MARGIN 1.1 /* the cost of a row is known to about a tenth */

bool weir__throughput_raise(weir__throughput *throughput, double probability, double own_ns)
{
    double ns = throughput->row_ns + own_ns;
    if (probability * throughput->ns <= MARGIN * ns * throughput->tokens) return false;
    throughput->tokens += probability;
    throughput->ns += ns;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "speculate/worth.h"

#define MARGIN 1.1 /* what a row costs is known to about a tenth */

bool weir__worth_take(weir__worth *worth, double probability, double own_ns)
{
    double ns = worth->row_ns + own_ns;
    if (probability * worth->ns <= MARGIN * ns * worth->tokens) return false;
    worth->tokens += probability;
    worth->ns += ns;
    return true;
}

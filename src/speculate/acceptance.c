/* acceptance.c: rates of right drafts by class, from counts that fade. A draft token is worth its cost
 * if it raises the tokens per second of a tick by more than the doubt about that cost.
 * SPDX-License-Identifier: Apache-2.0 */
#include "speculate/acceptance.h"

#define PRIOR 6.0         /* tries that the first guess counts as */
#define FADE  (31.0 / 32) /* so that some 32 tries are remembered */

void weir__acceptance_init(weir__acceptance *acceptance, const double prior[WEIR__ACCEPTANCE_CLASSES])
{
    for (int i = 0; i < WEIR__ACCEPTANCE_CLASSES; i++) {
        acceptance->of[i].tries = PRIOR;
        acceptance->of[i].right = PRIOR * prior[i];
    }
}

void weir__acceptance_note(weir__acceptance *acceptance, int class_, bool right)
{
    acceptance->of[class_].tries = acceptance->of[class_].tries * FADE + 1;
    acceptance->of[class_].right = acceptance->of[class_].right * FADE + right;
}

double weir__acceptance_rate(const weir__acceptance *acceptance, int class_)
{
    return acceptance->of[class_].right / acceptance->of[class_].tries;
}

/* ---- Throughput ---- */

#define MARGIN 1.1 /* the cost of a row is known to about a tenth */

bool weir__throughput_raise(weir__throughput *throughput, int32_t n, double before, double probability,
                            double own_ns)
{
    double ns = throughput->row_ns + own_ns;
    if (throughput->replays) /* the text's own token and those before this one */
        ns += (before - probability) * (throughput->undo_ns + (1 + n) * throughput->row_ns);
    if (probability * throughput->ns <= MARGIN * ns * throughput->tokens) return false;
    throughput->tokens += probability;
    throughput->ns += ns + (n == 0 ? throughput->mark_ns : 0); /* all tokens of a draft share it */
    return true;
}

/* acceptance.h: how likely a draft is right: how often drafts like it were, in this stream; and
 * whether it is worth its row. Pure: numbers in,
 * numbers out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SPECULATE_ACCEPTANCE_H
#define WEIR_SPECULATE_ACCEPTANCE_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR__ACCEPTANCE_CLASSES 6

/* Counts, of one stream and one drafter, how often its draft tokens were right, by class: how sure it could
 * be of them. Invariant: 0 <= right <= tries of each. */
typedef struct weir__acceptance {
    struct {
        double right, tries; /* both fade, so that recent drafts count most */
    } of[WEIR__ACCEPTANCE_CLASSES];
} weir__acceptance;

/* prior: the probabilities to begin with. */
void weir__acceptance_init(weir__acceptance *acceptance, const double prior[WEIR__ACCEPTANCE_CLASSES]);

/* A draft token of this class was right, or it was not. */
void weir__acceptance_note(weir__acceptance *acceptance, int class_, bool right);

/* The probability that a draft token of this class is right, where all before it are. */
double weir__acceptance_rate(const weir__acceptance *acceptance, int class_);

/* ---- Throughput ---- */

/* The tokens that a tick is expected to bring as it is planned so far, and the time that it takes. */
typedef struct weir__throughput {
    double tokens; /* expected */
    double ns;
    double row_ns; /* of one more row */
    /* Where memory cannot be cut, the time for being able to undo a draft, and for undoing it. Then the
     * tokens that were right are computed again. */
    bool replays;
    double mark_ns, undo_ns;
} weir__throughput;

/* True if a draft's token brings the tick's tokens sooner, where drafting it takes own_ns besides. If so it
 * is counted in. n: tokens before it in the draft, which are right with the probability `before`; with
 * `probability` this one is, too. */
bool weir__throughput_raise(weir__throughput *throughput, int32_t n, double before, double probability,
                            double own_ns);

#endif

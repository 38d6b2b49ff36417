/* pace.h: how long a draft should be: how often drafts like it were right in this stream, and what one more
 * row costs. Pure: numbers in, numbers out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SPECULATE_PACE_H
#define WEIR_SPECULATE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR__PACE_CLASSES 6

/* Of one stream and one drafter: how often its draft tokens were right, by how sure it could be of them,
 * which is what a class says. Invariant: 0 <= right <= tries of each. */
typedef struct weir__pace {
    struct {
        double right, tries; /* both fade, so that what was right lately counts most */
    } of[WEIR__PACE_CLASSES];
} weir__pace;

/* prior: the probabilities to begin with. */
void weir__pace_init(weir__pace *pace, const double prior[WEIR__PACE_CLASSES]);

/* A draft token of this class was right, or it was not. */
void weir__pace_note(weir__pace *pace, int class_, bool right);

/* The probability that a draft token of this class is right, where all before it are. */
double weir__pace_hope(const weir__pace *pace, int class_);

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

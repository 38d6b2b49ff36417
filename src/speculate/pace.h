/* pace.h: how likely a draft is right: how often drafts like it were, in this stream. Pure: numbers in,
 * numbers out.
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

#endif

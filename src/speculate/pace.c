/* SPDX-License-Identifier: Apache-2.0 */
#include "speculate/pace.h"

#define PRIOR 6.0         /* tries that the first guess counts as */
#define FADE  (31.0 / 32) /* so that some 32 tries are remembered */

void weir__pace_init(weir__pace *pace, const double prior[WEIR__PACE_CLASSES])
{
    for (int i = 0; i < WEIR__PACE_CLASSES; i++) {
        pace->of[i].tries = PRIOR;
        pace->of[i].right = PRIOR * prior[i];
    }
}

void weir__pace_note(weir__pace *pace, int class_, bool right)
{
    pace->of[class_].tries = pace->of[class_].tries * FADE + 1;
    pace->of[class_].right = pace->of[class_].right * FADE + right;
}

double weir__pace_hope(const weir__pace *pace, int class_)
{
    return pace->of[class_].right / pace->of[class_].tries;
}

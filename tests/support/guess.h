/* guess.h: a drafter for tests: right and wrong by turns, which follows from the text alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_GUESS_H
#define WEIR_TESTS_GUESS_H

#include "speculate/drafter.h"

typedef struct guess {
    weir__drafter base;
    weir_model *model;    /* a fake, whose greedy text it knows */
    int32_t right, wrong; /* tokens of each draft, in this order; negative: at random, from the text */
    int32_t token;        /* above 0: this one, and nothing else */
    int n_calls, n_judged;
    int32_t last_drafted, last_right;
} guess;

/* Puts it in place of an engine's drafters. False: the engine has none. It must live as long as the
 * engine. */
bool guess_install(guess *g, weir_engine *engine, weir_model *model, int32_t right, int32_t wrong);

#endif

/* logprob.h: log-probabilities of the tokens of a row.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_LOGPROB_H
#define WEIR_MODEL_LOGPROB_H

#include <weir/weir.h>

#include "params/bounds.h"

/* Returns the log-probability of `token`, and the n_top most likely tokens, ties by id; n_top <=
 * WEIR__LOGPROBS_MAX and <= n_vocab. logits [n_vocab]; NaN counts as -INFINITY. Sums in double, allocates
 * nothing. */
float weir__logprob(const float *logits, int32_t n_vocab, int32_t token, weir_logprob *top, int32_t n_top);

#endif

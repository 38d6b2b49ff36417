/* logprob.h: how probable the tokens of a row are: its log-softmax.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_LOGPROB_H
#define WEIR_MODEL_LOGPROB_H

#include <weir/weir.h>

#include "params/bounds.h"

/* The logarithm of `token`'s probability, and the n_top likeliest tokens, equal ones by id; n_top <=
 * WEIR__LOGPROBS_MAX and <= n_vocab. logits [n_vocab]; one that is NaN counts as -INFINITY. Sums in float64,
 * allocates nothing. */
float weir__logprob(const float *logits, int32_t n_vocab, int32_t token, weir_logprob *top, int32_t n_top);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/score.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/logprob.h"
#include "model/model.h"

/* Cells of images and sounds have no logprob. */
static void skip_media(weir__score *score)
{
    while (score->n_scored < score->n && score->tokens[score->n_scored] < 0) score->n_scored++;
}

weir__score *weir__score_create(const int32_t *prompt, int32_t n, int32_t n_top)
{
    weir__score *score = weir__mem_calloc(1, sizeof *score);
    if (score == NULL) return NULL;
    atomic_init(&score->refs, 1);
    score->n = n;
    score->n_top = n_top;
    score->n_scored = 1;
    score->tokens = weir__mem_dup(prompt, (size_t)n * sizeof *prompt);
    score->logprobs = weir__mem_calloc((size_t)n, sizeof *score->logprobs);
    if (n_top > 0) score->top = weir__mem_calloc((size_t)n * (size_t)n_top, sizeof *score->top);
    if (score->tokens == NULL || score->logprobs == NULL || (n_top > 0 && score->top == NULL)) {
        weir__score_release(score);
        return NULL;
    }
    for (int32_t i = 0; i < n; i++) {
        if (i > 0 && prompt[i] >= 0) continue;
        if (prompt[i] < 0) score->tokens[i] = -1;
        score->logprobs[i] = NAN;
        for (int32_t k = 0; k < n_top; k++)
            score->top[(size_t)i * (size_t)n_top + (size_t)k] = (weir_logprob){-1, NAN};
    }
    skip_media(score);
    atomic_init(&score->done, score->n_scored == n);
    return score;
}

weir__score *weir__score_hold(weir__score *score)
{
    if (score != NULL) atomic_fetch_add_explicit(&score->refs, 1, memory_order_relaxed);
    return score;
}

void weir__score_release(weir__score *score)
{
    if (score == NULL || atomic_fetch_sub_explicit(&score->refs, 1, memory_order_acq_rel) != 1) return;
    weir__mem_free(score->top);
    weir__mem_free(score->logprobs);
    weir__mem_free(score->tokens);
    weir__mem_free(score);
}

weir_chunk weir__score_chunk(const weir__score *score)
{
    return (weir_chunk){
        .tokens = score->tokens,
        .n_tokens = (size_t)score->n,
        .text = "",
        .logprobs = score->logprobs,
        .top_logprobs = score->top,
        .n_top_logprobs = score->n_top,
    };
}

weir_status weir__score_rows(weir__score *score, const weir_model *model, weir__bcontext *context,
                             int32_t row, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const float *logits = model->ops->logits(context, row + i);
        if (logits == NULL) return WEIR_NO_MEMORY; /* the pass kept the row */
        int32_t at = score->n_scored++;
        score->logprobs[at] = weir__logprob(
            logits, model->info.n_vocab, score->tokens[at],
            score->n_top > 0 ? score->top + (size_t)at * (size_t)score->n_top : NULL, score->n_top);
        skip_media(score);
    }
    if (n > 0 && score->n_scored == score->n) atomic_store_explicit(&score->done, true, memory_order_release);
    return WEIR_OK;
}

/* sample.c: a token for each slot whose row the pass has computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/engine.h"

/* Waking a helper costs some 50 us, and a greedy choice takes less. */
#define WORTH_SHARING_NS 200000
/* Over a vocabulary smaller than this no choice takes so long, but under a debugger or a sanitizer. */
#define LEAST_VOCABULARY 4096
/* Draws of 100 to 600 us each are done in the time of one with as many helpers as there are slots by
 * default. */
#define MOST_HELPERS 7

static weir_status score_row(weir_engine *engine, const weir__slot *slot, int32_t row, weir__sampled *sampled)
{
    const float *logits = engine->model->ops->logits(engine->context, row);
    if (logits == NULL) return WEIR_NO_MEMORY; /* the row was there to sample from */
    sampled->logprob = weir__logprob(logits, engine->model->info.n_vocab, sampled->token, sampled->top,
                                     slot->request->n_top);
    return WEIR_OK;
}

/* Row by row as long as the draft says what was sampled: the rows behind a wrong token are of another text.
 * So sampler and random numbers go on as they would without a draft. */
static weir_status sample_rows(weir_engine *engine, weir__slot *slot, weir_error *error)
{
    const weir__backend *ops = engine->model->ops;
    for (int32_t i = 0; i <= slot->n_drafted; i++) {
        weir__sampled *sampled = &slot->burst[i];
        int32_t row = slot->row + i;
        weir_status status =
            ops->sample(slot->request->sampler->chain, engine->context, row, &sampled->token, error);
        if (status == WEIR_OK && slot->request->scored) status = score_row(engine, slot, row, sampled);
        if (status != WEIR_OK) return status;
        slot->n_burst = i + 1;
        if (i == slot->n_drafted || sampled->token != slot->draft.token[i]) break;
    }
    return WEIR_OK;
}

/* Each slot has a sampler of its own, so that slots do not share state. */
static void sample_slot(void *user, int32_t i)
{
    weir_engine *engine = user;
    weir__slot *slot = engine->sampling[i];
    weir_error error = {0};
    int64_t start = weir__clock_now_ns();
    weir_status status = weir__score_rows(engine, slot);
    if (status == WEIR_OK && slot->row >= 0) status = sample_rows(engine, slot, &error);
    slot->sample_ns = weir__clock_now_ns() - start;
    if (status == WEIR_OK) return;
    slot->failed = status; /* the tokens before it are the answer's */
    slot->error = error;
}

/* Whether helpers would bring more than they cost, going by what each slot took last time. */
static bool is_worth_sharing(const weir_engine *engine, int32_t n)
{
    int64_t ns = 0, longest = 0;
    if (engine->params.n_threads < 2 || engine->model->info.n_vocab < LEAST_VOCABULARY) return false;
    for (int32_t i = 0; i < n; i++) {
        ns += engine->sampling[i]->sample_ns;
        if (engine->sampling[i]->sample_ns > longest) longest = engine->sampling[i]->sample_ns;
    }
    return ns - longest > WORTH_SHARING_NS;
}

/* Started when they are first of use. NULL: there are none. */
static weir__crew *sampling_crew(weir_engine *engine)
{
    int32_t n = engine->params.n_threads - 1;
    if (engine->crew == NULL) engine->crew = weir__crew_create(n < MOST_HELPERS ? n : MOST_HELPERS);
    return engine->crew;
}

void weir__sample(weir_engine *engine)
{
    int32_t n = 0;
    engine->model->ops->logits_ready(engine->context);
    for (int32_t lane = 0; lane < engine->info.n_seq_max; lane++) {
        weir__slot *slot = engine->lanes[lane];
        if (slot == NULL || slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        if (slot->row < 0 && slot->n_scored == 0) continue;
        engine->sampling[n++] = slot;
    }
    weir__crew *crew = is_worth_sharing(engine, n) ? sampling_crew(engine) : NULL;
    if (crew != NULL) {
        weir__crew_run(crew, sample_slot, engine, n);
        return;
    }
    for (int32_t i = 0; i < n; i++) sample_slot(engine, i);
}

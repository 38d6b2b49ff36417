/* sample.c: samples a token for each slot that has a row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample.h"
#include "base/clock.h"
#include "engine/driver.h"
#include "model/sampler.h"

/* Waking a helper takes about 50 us; a greedy choice takes less. */
#define WORTH_SHARING_NS 200000
/* The vocabulary below which a choice takes this long only under a debugger or a sanitizer. */
#define LEAST_VOCABULARY 4096
/* Helpers at most: with 7, draws of 100 to 600 us for 8 slots, the default, take the time of one. */
#define MOST_HELPERS 7

static weir_status score_row(weir__driver *driver, const weir__slot *slot, int32_t row,
                             weir__sampled *sampled)
{
    const float *logits = driver->model->ops->logits(driver->context, row);
    if (logits == NULL) return WEIR_NO_MEMORY; /* the pass kept the row */
    sampled->logprob = weir__logprob(logits, driver->model->info.n_vocab, sampled->token, sampled->top,
                                     slot->request->n_top);
    return WEIR_OK;
}

/* The sampler's choice among the tokens that the request allows. */
static weir_status draw_token(weir__driver *driver, const weir__slot *slot, int32_t row, int32_t *token,
                              weir_error *error)
{
    const weir__backend *ops = driver->model->ops;
    weir__filter *filter = &slot->request->filter;
    weir__bsampler *chain = slot->request->sampler->chain;
    weir_status status = ops->sample(chain, driver->context, row, weir__filter_mask(filter), token, error);
    if (status == WEIR_REFUSED && weir__filter_yield(filter)) /* if only ends waited, all may come now */
        status = ops->sample(chain, driver->context, row, filter->limits != NULL ? filter->mask : NULL, token,
                             error);
    if (status != WEIR_REFUSED) return status;
    return weir__invalid(
        error, WEIR_ERROR_CONFLICT, filter->limits,
        "`allowed_tokens` and `bad_words`, with grammar and `logit_bias`, leave no token that may come next");
}

/* Chooses the token of a row: the one that ends the reasoning, where that must end and the grammar allows it,
 * or the sampler's. */
static weir_status choose_token(weir__driver *driver, const weir__slot *slot, int32_t row, int32_t *token,
                                weir_error *error)
{
    const weir__backend *ops = driver->model->ops;
    weir__request *request = slot->request;
    weir__bsampler *chain = request->sampler->chain;
    weir__reasoning *reasoning = &request->reasoning;
    int32_t forced = weir__reasoning_forced(reasoning, weir__request_ends_reasoning(request));
    weir_status status = forced >= 0 ? ops->accept(chain, forced, error) : WEIR_REFUSED;
    bool is_forced = status == WEIR_OK;
    if (is_forced)
        *token = forced;
    else if (status == WEIR_REFUSED)
        status = draw_token(driver, slot, row, token, error);
    if (status == WEIR_OK) weir__filter_take(&request->filter, *token);
    if (status == WEIR_OK && !weir__reasoning_take(reasoning, *token, is_forced)) status = WEIR_NO_MEMORY;
    return status;
}

/* Samples row by row as long as the draft agrees: the rows after a wrong token belong to another text. So
 * sampler, random numbers and reasoning advance as without a draft. */
static weir_status sample_rows(weir__driver *driver, weir__slot *slot, weir_error *error)
{
    for (int32_t i = 0; i <= slot->n_drafted; i++) {
        weir__sampled *sampled = &slot->burst[i];
        int32_t row = slot->row + i;
        weir_status status = choose_token(driver, slot, row, &sampled->token, error);
        sampled->before_call = driver->model->ops->text_before_call(slot->request->sampler->chain);
        sampled->n_reasoning = weir__reasoning_n(&slot->request->reasoning);
        if (status == WEIR_OK && slot->request->scored) status = score_row(driver, slot, row, sampled);
        if (status != WEIR_OK) return status;
        slot->n_burst = i + 1;
        if (i == slot->n_drafted || sampled->token != slot->draft.token[i]) break;
    }
    return WEIR_OK;
}

/* Runs on several threads. Each slot has a sampler of its own. */
static void sample_slot(void *user, int32_t i)
{
    weir__driver *driver = user;
    weir__slot *slot = driver->sampling[i];
    weir_error error = {0};
    int64_t start = weir__clock_now_ns();
    weir_status status = weir__score_rows(slot->request->history.score, driver->model, driver->context,
                                          slot->scored_row, slot->n_scored);
    if (status == WEIR_OK && slot->row >= 0) status = sample_rows(driver, slot, &error);
    slot->sample_ns = weir__clock_now_ns() - start;
    if (status == WEIR_OK) return;
    slot->failed = status; /* the tokens before the failure belong to the answer */
    slot->error = error;
}

/* Helpers save more time than they cost, judged by the slots' last draws. */
static bool is_worth_sharing(const weir__driver *driver, int32_t n)
{
    int64_t ns = 0, longest = 0;
    if (driver->params->n_threads < 2 || driver->model->info.n_vocab < LEAST_VOCABULARY) return false;
    for (int32_t i = 0; i < n; i++) {
        ns += driver->sampling[i]->sample_ns;
        if (driver->sampling[i]->sample_ns > longest) longest = driver->sampling[i]->sample_ns;
    }
    return ns - longest > WORTH_SHARING_NS;
}

/* Starts the helpers when they are first needed. NULL: not possible. */
static weir__thread_pool *sampling_threads(weir__driver *driver)
{
    int32_t n = driver->params->n_threads - 1;
    if (driver->threads == NULL)
        driver->threads = weir__thread_pool_create(n < MOST_HELPERS ? n : MOST_HELPERS);
    return driver->threads;
}

void weir__sample(weir__driver *driver)
{
    int32_t n = 0;
    driver->model->ops->logits_ready(driver->context);
    for (int32_t lane = 0; lane < driver->lanes.n; lane++) {
        weir__slot *slot = driver->lanes.slot[lane];
        if (slot == NULL || slot->reason != WEIR_REASON_NOT_FINISHED) continue;
        if (slot->row < 0 && slot->n_scored == 0) continue;
        driver->sampling[n++] = slot;
    }
    weir__thread_pool *threads = is_worth_sharing(driver, n) ? sampling_threads(driver) : NULL;
    if (threads != NULL) {
        weir__thread_pool_run(threads, sample_slot, driver, n);
        return;
    }
    for (int32_t i = 0; i < n; i++) sample_slot(driver, i);
}

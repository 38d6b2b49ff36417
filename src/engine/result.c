/* result.c: weir_generate: requests whose caller waits, and the best of several answers.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "engine/engine.h"
#include "params/members.h"

#define DRIVE_POLL_MS 5 /* pause before trying again while another thread drives a manual engine */

void weir_result_fini(weir_result *result)
{
    if (result == NULL) return;
    weir__mem_free(result->text);
    weir__mem_free(result->tokens);
    weir__mem_free(result->logprobs);
    weir__mem_free(result->top_logprobs);
    weir__mem_free(result->prompt_tokens);
    weir__mem_free(result->prompt_logprobs);
    weir__mem_free(result->prompt_top_logprobs);
    memset(result, 0, sizeof *result);
}

static void wait_for(weir_engine *engine, weir__ticket *ticket)
{
    bool manual = engine->params.manual;
    pthread_mutex_lock(&ticket->mutex);
    while (ticket->remaining > 0) {
        if (manual) {
            pthread_mutex_unlock(&ticket->mutex);
            weir_status status = weir_engine_step(engine, NULL, 0, NULL, NULL);
            pthread_mutex_lock(&ticket->mutex);
            if (status == WEIR_OK || ticket->remaining == 0) continue;
        }
        weir__clock_cond_wait(&ticket->cond, &ticket->mutex,
                              manual ? weir__clock_deadline_ns(DRIVE_POLL_MS) : WEIR__CLOCK_NEVER);
    }
    pthread_mutex_unlock(&ticket->mutex);
}

static weir_status generate_results(weir_engine *engine, const weir_request *requests, size_t n, bool choices,
                                    weir_stream *const *streams, weir_result *results, weir_error *error)
{
    weir__ticket ticket = {.remaining = n};
    if (results == NULL) return weir__error_null(error, "results");
    memset(results, 0, n * sizeof *results);
    weir_status status = weir__engine_check_caller(engine, error);
    if (status != WEIR_OK) return status;
    if (pthread_mutex_init(&ticket.mutex, NULL) != 0)
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory");
    if (weir__clock_cond_init(&ticket.cond) != 0) {
        pthread_mutex_destroy(&ticket.mutex);
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory");
    }
    status = weir__engine_submit(engine, requests, n, choices, streams, results, &ticket, error);
    if (status == WEIR_OK) wait_for(engine, &ticket);
    pthread_cond_destroy(&ticket.cond);
    pthread_mutex_destroy(&ticket.mutex);
    return status;
}

weir_status weir_generate(weir_engine *engine, const weir_request *requests, size_t n,
                          weir_stream *const *streams, weir_result *results, weir_error *error)
{
    return generate_results(engine, requests, n, false, streams, results, error);
}

/* ---- Best of several ---- */

double weir_usage_score(const weir_usage *usage)
{
    return usage != NULL && usage->n_generated > 0 ? usage->logprob / usage->n_generated : -INFINITY;
}

/* True if result a is better than b. */
static bool is_better(const weir_result *a, const weir_result *b)
{
    bool a_failed = a->reason == WEIR_REASON_ERROR, b_failed = b->reason == WEIR_REASON_ERROR;
    if (a_failed != b_failed) return b_failed;
    return weir_usage_score(&a->usage) > weir_usage_score(&b->usage);
}

/* Moves the prompt's logprobs from one result to another, which has none. */
static void pass_prompt(weir_result *from, weir_result *to)
{
    to->prompt_tokens = from->prompt_tokens;
    to->n_prompt_tokens = from->n_prompt_tokens;
    to->prompt_logprobs = from->prompt_logprobs;
    to->prompt_top_logprobs = from->prompt_top_logprobs;
    to->n_prompt_top_logprobs = from->n_prompt_top_logprobs;
    from->prompt_tokens = NULL;
    from->prompt_logprobs = NULL;
    from->prompt_top_logprobs = NULL;
    from->n_prompt_tokens = 0;
    from->n_prompt_top_logprobs = 0;
}

weir_status weir_generate_best(weir_engine *engine, const weir_request *request, size_t best_of, size_t n,
                               weir_result *results, weir_error *error)
{
    weir_request full = weir_request_default();
    weir_result prompt = {0};
    if (results == NULL) return weir__error_null(error, "results");
    if (n < 1 || n > best_of)
        return weir__error_numbers(error, WEIR_INVALID, "n", (double)n, 1, (double)best_of,
                                   "`n` is %zu; allowed: 1 to %zu, `best_of`", n, best_of);
    memset(results, 0, n * sizeof *results);
    if (request == NULL) return weir__error_null(error, "request");
    if (engine == NULL) return weir__error_null(error, "engine");
    weir_status status = weir__engine_check_exists(engine, error);
    if (status == WEIR_OK) status = weir__sized_take(&full, sizeof full, request, "request", error);
    if (status == WEIR_OK) status = weir__engine_check_count(engine, 0, "best_of", best_of, error);
    if (status != WEIR_OK) return status;
    full.logprobs = true;
    weir_result *all = weir__mem_calloc(best_of, sizeof *all);
    if (all == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for %zu answers", best_of);
    status = generate_results(engine, &full, best_of, true, NULL, all, error);
    pass_prompt(&all[0], &prompt);
    for (size_t i = 0; i < n && status == WEIR_OK; i++) {
        size_t best = i;
        for (size_t k = i + 1; k < best_of; k++)
            if (is_better(&all[k], &all[best])) best = k;
        results[i] = all[best];
        for (size_t k = best; k > i; k--) all[k] = all[k - 1]; /* equal results keep their order */
        memset(&all[i], 0, sizeof all[i]);
    }
    pass_prompt(&prompt, &results[0]);
    for (size_t i = 0; i < best_of; i++) weir_result_fini(&all[i]);
    weir__mem_free(all);
    return status;
}

const char *weir_reason_name(weir_reason reason)
{
    return (size_t)reason <= WEIR_REASON_DEADLINE ? weir__reason_names[reason] : "unknown";
}

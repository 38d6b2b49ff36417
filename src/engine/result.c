/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "engine/engine.h"

#define DRIVE_POLL_MS 5 /* how soon to look again while another thread drives a manual engine */

void weir_result_fini(weir_result *result)
{
    if (result == NULL) return;
    weir__mem_free(result->text);
    weir__mem_free(result->tokens);
    weir__mem_free(result->logprobs);
    weir__mem_free(result->top_logprobs);
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
        weir__cond_timedwait_ns(&ticket->cond, &ticket->mutex,
                                manual ? weir__clock_deadline_ns(DRIVE_POLL_MS) : WEIR__CLOCK_NEVER);
    }
    pthread_mutex_unlock(&ticket->mutex);
}

weir_status weir_generate(weir_engine *engine, const weir_request *requests, size_t n,
                          weir_stream *const *streams, weir_result *results, weir_error *error)
{
    weir__ticket ticket = {.remaining = n};
    if (results == NULL && n > 0) return weir__error_set(error, WEIR_INVALID, "results", "results is NULL");
    if (pthread_mutex_init(&ticket.mutex, NULL) != 0)
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory");
    if (weir__cond_init_monotonic(&ticket.cond) != 0) {
        pthread_mutex_destroy(&ticket.mutex);
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory");
    }
    if (n > 0) memset(results, 0, n * sizeof *results);
    weir_status status = weir__engine_submit(engine, requests, n, streams, results, &ticket, error);
    if (status == WEIR_OK && n > 0) wait_for(engine, &ticket);
    pthread_cond_destroy(&ticket.cond);
    pthread_mutex_destroy(&ticket.mutex);
    return status;
}

const char *weir_reason_name(weir_reason reason)
{
    static const char *const names[] = {"not_finished", "end",        "length",  "cancelled",
                                        "error",        "stop_words", "deadline"};
    size_t n = sizeof names / sizeof *names;
    return (size_t)reason < n ? names[reason] : "unknown";
}

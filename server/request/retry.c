/* retry.c: whether it pays to repeat a refused request, and when. SPDX-License-Identifier: Apache-2.0 */
#include "retry.h"

#include <string.h>

#define STATUS_ANY 0

/* Refusals that clients repeat on their own: 408, 409, 429 and from 500 on. The first row that fits counts.
 * never: the same request will be refused again, until someone changes the request or the server. */
static const struct {
    int status;
    const char *code; /* NULL = any */
    bool never;
    int32_t after_s; /* Retry-After, unless the call has one of its own; 0 = none */
} rules[] = {
    {501, NULL, true, 0},
    {503, "work_timeout", true, 0},
    {503, "model_too_large", true, 0},
    {503, "embeddings_too_large", true, 0},
    {503, "model_load_failed", true, 0},
    {503, "model_not_loaded", true, 0}, /* by a request that loads none */
    {503, "model_lost", true, 0},       /* of several models it is loaded again: see there */
    {503, "model_busy", false, 10},
    {503, "embeddings_busy", false, 10},
    {503, "stopping", false, 5}, /* time for the next server to start */
    {503, NULL, false, 1},
    {429, NULL, false, 1},
    {408, NULL, false, 0},
    {500, "WEIR_BACKEND", false, 0}, /* a pass that failed; a model that cannot compute any more is lost */
    {STATUS_ANY, NULL, true, 0},
};

static bool is_repeated(int status)
{
    return status == 408 || status == 409 || status == 429 || status >= 500;
}

bool serve_retry_after(serve_call *call, int64_t seconds)
{
    bool soon = seconds <= SERVE_RETRY_MOST_S;
    call->retry_s = soon ? (int32_t)(seconds > 0 ? seconds : 1) : SERVE_NEVER;
    return soon;
}

bool serve_retry_decide(serve_call *call, int status)
{
    size_t i = 0;
    if (!is_repeated(status)) {
        call->retry_s = 0;
        return false;
    }
    while (rules[i].status != STATUS_ANY &&
           (rules[i].status != status ||
            (rules[i].code != NULL && (call->code == NULL || strcmp(rules[i].code, call->code) != 0))))
        i++;
    if (call->retry_s == 0) call->retry_s = rules[i].never ? SERVE_NEVER : rules[i].after_s;
    if (call->retry_s > 0) (void)serve_retry_after(call, call->retry_s);
    return true;
}

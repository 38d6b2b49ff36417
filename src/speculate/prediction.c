/* prediction.c: follows the answer through the predicted text, and finds the place again after a difference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "speculate/prediction.h"

#include <string.h>

#include "speculate/lookup.h"

/* Rates that are higher than for texts that are only similar: the caller expects the answer to repeat this
 * one. */
static const double prior_rates[WEIR__ACCEPTANCE_CLASSES] = {0.6, 0.7, 0.8, 0.85, 0.9, 0.95};

void weir__prediction_init(weir__prediction *prediction, const int32_t *tokens, int32_t n)
{
    *prediction = (weir__prediction){.tokens = tokens, .n = n, .length = n > 0 ? WEIR__PREDICTION_LEAST : 0};
    weir__acceptance_init(&prediction->acceptance, prior_rates);
}

/* True if the last tokens of the answer, [n], are those before `at`. */
static bool is_here(const weir__prediction *prediction, const int32_t *answer, int32_t n, int32_t at)
{
    return at >= WEIR__PREDICTION_LEAST && n >= WEIR__PREDICTION_LEAST &&
           memcmp(prediction->tokens + at - WEIR__PREDICTION_LEAST, answer + n - WEIR__PREDICTION_LEAST,
                  WEIR__PREDICTION_LEAST * sizeof *answer) == 0;
}

/* Searches onward from the last place: an answer seldom goes back. */
static void find_place(weir__prediction *prediction, const int32_t *answer, int32_t n)
{
    int32_t most = prediction->n < WEIR__PREDICTION_SOUGHT ? prediction->n : WEIR__PREDICTION_SOUGHT;
    for (int32_t i = 0; i < most; i++) {
        prediction->sought = prediction->sought % prediction->n + 1;
        if (!is_here(prediction, answer, n, prediction->sought)) continue;
        prediction->at = prediction->sought;
        prediction->length = WEIR__PREDICTION_LEAST;
        return;
    }
}

static void follow_token(weir__prediction *prediction, int32_t token)
{
    bool right = prediction->at < prediction->n && prediction->tokens[prediction->at] == token;
    if (prediction->at < prediction->n)
        weir__acceptance_note(&prediction->acceptance, weir__lookup_class(prediction->length), right);
    if (!right) {
        prediction->length = 0;
        prediction->sought = prediction->at;
        return;
    }
    prediction->at++;
    if (prediction->length < WEIR__LOOKUP_MOST) prediction->length++;
}

void weir__prediction_read(weir__prediction *prediction, const int32_t *answer, int32_t n)
{
    bool grows = prediction->n > 0 && prediction->n_read < n;
    for (; prediction->n_read < n; prediction->n_read++)
        if (prediction->length > 0) follow_token(prediction, answer[prediction->n_read]);
    if (grows && prediction->length == 0) find_place(prediction, answer, n);
}

bool weir__prediction_draft(const weir__prediction *prediction, int32_t most, int32_t *draft, double *hope,
                            int32_t *n)
{
    int32_t left = prediction->n - prediction->at;
    if (prediction->length == 0 || left == 0) return false;
    *n = left < most ? left : most;
    memcpy(draft, prediction->tokens + prediction->at, (size_t)*n * sizeof *draft);
    for (int32_t i = 0; i < *n; i++)
        hope[i] = weir__acceptance_rate(&prediction->acceptance, weir__lookup_class(prediction->length + i));
    return true;
}

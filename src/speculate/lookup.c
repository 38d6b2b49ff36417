/* lookup.c: an index of pairs of neighbouring tokens in chains, and the search for the place whose past
 * agrees longest. A prediction is followed with the answer; after a difference, its place is searched onward.
 * SPDX-License-Identifier: Apache-2.0 */
#include "speculate/lookup.h"

#include <string.h>

#include "base/mem.h"

#define CANDIDATES 16 /* looked at for each token: some hundred nanoseconds */
#define SURE       12 /* tokens that match: the search for other places ends */

/* Rates by length. In prose, the token that followed two equal ones before seldom follows again; after ten
 * equal tokens it nearly always does. Measured over prose and code, bench/results/speculate.md. */
static const double prior_rates[WEIR__ACCEPTANCE_CLASSES] = {0.3, 0.4, 0.5, 0.75, 0.85, 0.95};

int weir__lookup_class(int32_t length)
{
    return length <= 2 ? 0 : length == 3 ? 1 : length <= 5 ? 2 : length <= 8 ? 3 : length <= 16 ? 4 : 5;
}

void weir__lookup_init(weir__lookup *lookup)
{
    *lookup = (weir__lookup){.from = -1};
    weir__acceptance_init(&lookup->acceptance, prior_rates);
}

void weir__lookup_fini(weir__lookup *lookup)
{
    weir__mem_free(lookup->head);
    weir__mem_free(lookup->before);
    weir__lookup_init(lookup);
}

void weir__lookup_reset(weir__lookup *lookup)
{
    if (lookup->n_heads > 0) memset(lookup->head, 0, lookup->n_heads * sizeof *lookup->head);
    lookup->n = 0;
    lookup->from = -1;
    lookup->length = 0;
    weir__acceptance_init(&lookup->acceptance, prior_rates);
}

/* ---- Pairs ---- */

static int32_t *head_of(const weir__lookup *lookup, const int32_t *tokens, int32_t at)
{
    uint64_t pair = (uint64_t)(uint32_t)tokens[at - 1] << 32 | (uint32_t)tokens[at];
    uint64_t hash = pair * UINT64_C(0x9e3779b97f4a7c15); /* its upper bits depend on all of the pair's */
    return &lookup->head[(hash >> 32) & (lookup->n_heads - 1)];
}

static void add_pair(weir__lookup *lookup, const int32_t *tokens, int32_t at)
{
    if (at == 0) return;
    int32_t *head = head_of(lookup, tokens, at);
    lookup->before[at] = *head;
    *head = at + 1;
}

/* Reserves memory for the tokens, and as many heads as there is room for tokens: a chain is of one pair,
 * mostly. */
static bool reserve_tokens(weir__lookup *lookup, const int32_t *tokens, int32_t n)
{
    size_t n_heads = lookup->n_heads > 0 ? lookup->n_heads : 1024;
    if (!weir__mem_grow(&lookup->before, &lookup->capacity, (size_t)n, sizeof *lookup->before)) return false;
    while (n_heads < (size_t)n) n_heads *= 2;
    if (n_heads == lookup->n_heads) return true;
    int32_t *head = weir__mem_calloc(n_heads, sizeof *head);
    if (head == NULL) return false;
    weir__mem_free(lookup->head);
    lookup->head = head;
    lookup->n_heads = n_heads;
    for (int32_t at = 0; at < lookup->n; at++) add_pair(lookup, tokens, at);
    return true;
}

/* ---- Matches ---- */

/* The number of tokens up to `a` that are those up to `b`, b < a. */
static int32_t count_equal(const int32_t *tokens, int32_t a, int32_t b)
{
    int32_t n = 0;
    while (n < WEIR__LOOKUP_MOST && n <= b && tokens[a - n] == tokens[b - n]) n++;
    return n;
}

/* The place whose past is most like that of the token at `at`; of several the newest. */
static void find_place(weir__lookup *lookup, const int32_t *tokens, int32_t at)
{
    if (at == 0 || lookup->length >= SURE) return;
    int32_t next = *head_of(lookup, tokens, at);
    for (int i = 0; i < CANDIDATES && next > 0; i++) {
        int32_t candidate = next - 1;
        int32_t length = count_equal(tokens, at, candidate);
        if (length >= WEIR__LOOKUP_LEAST && length > lookup->length) {
            lookup->length = length;
            lookup->from = candidate + 1;
        }
        next = lookup->before[candidate];
    }
}

/* The token at `at` is known now: was it the expected one, and where does that lead? */
static void follow_token(weir__lookup *lookup, const int32_t *tokens, int32_t at)
{
    if (lookup->from < 0) return;
    bool right = tokens[at] == tokens[lookup->from];
    weir__acceptance_note(&lookup->acceptance, weir__lookup_class(lookup->length), right);
    lookup->from = right ? lookup->from + 1 : -1;
    if (!right)
        lookup->length = 0;
    else if (lookup->length < WEIR__LOOKUP_MOST)
        lookup->length++;
}

bool weir__lookup_read(weir__lookup *lookup, const int32_t *tokens, int32_t n)
{
    bool first = lookup->n == 0;
    if (n <= lookup->n) return true;
    if (!reserve_tokens(lookup, tokens, n)) return false;
    for (; lookup->n < n; lookup->n++) {
        int32_t at = lookup->n;
        if (!first) follow_token(lookup, tokens, at);
        if (!first || at == n - 1) find_place(lookup, tokens, at);
        add_pair(lookup, tokens, at);
    }
    return true;
}

int32_t weir__lookup_draft(const weir__lookup *lookup, const int32_t *tokens, int32_t most, int32_t *draft,
                           double *hope)
{
    if (lookup->from < 0) return 0;
    for (int32_t i = 0; i < most; i++) {
        int32_t at = lookup->from + i; /* past the end the text continues with the draft itself */
        draft[i] = at < lookup->n ? tokens[at] : draft[at - lookup->n];
        hope[i] = weir__acceptance_rate(&lookup->acceptance, weir__lookup_class(lookup->length + i));
    }
    return most;
}

/* ---- Predictions ---- */

/* Rates that are higher than for texts that are only similar: the caller expects the answer to repeat this
 * one. */
static const double predicted_rates[WEIR__ACCEPTANCE_CLASSES] = {0.6, 0.7, 0.8, 0.85, 0.9, 0.95};

void weir__prediction_init(weir__prediction *prediction, const int32_t *tokens, int32_t n)
{
    *prediction = (weir__prediction){.tokens = tokens, .n = n, .length = n > 0 ? WEIR__PREDICTION_LEAST : 0};
    weir__acceptance_init(&prediction->acceptance, predicted_rates);
}

/* True if the last tokens of the answer, [n], are those before `at`. */
static bool is_here(const weir__prediction *prediction, const int32_t *answer, int32_t n, int32_t at)
{
    return at >= WEIR__PREDICTION_LEAST && n >= WEIR__PREDICTION_LEAST &&
           memcmp(prediction->tokens + at - WEIR__PREDICTION_LEAST, answer + n - WEIR__PREDICTION_LEAST,
                  WEIR__PREDICTION_LEAST * sizeof *answer) == 0;
}

/* Searches onward from the last place: an answer seldom goes back. */
static void find_predicted(weir__prediction *prediction, const int32_t *answer, int32_t n)
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

static void follow_prediction(weir__prediction *prediction, int32_t token)
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
        if (prediction->length > 0) follow_prediction(prediction, answer[prediction->n_read]);
    if (grows && prediction->length == 0) find_predicted(prediction, answer, n);
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

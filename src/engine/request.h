/* request.h: the engine's form of a weir_request, which submit checks, copies and compiles on the caller's
 * thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_REQUEST_H
#define WEIR_ENGINE_REQUEST_H

#include <pthread.h>

#include "engine/emit.h"
#include "engine/encoder.h"
#include "engine/filter.h"
#include "engine/history.h"
#include "engine/reasoning.h"
#include "engine/waker.h"

typedef struct weir__tenant weir__tenant; /* queue.h */

/* weir_generate waits for this: its requests count down. In the memory of that call. */
typedef struct weir__ticket {
    pthread_mutex_t mutex; /* protects remaining */
    pthread_cond_t cond;
    size_t remaining;
} weir__ticket;

/* The cells of a suspended request. */
typedef struct weir__saved {
    void *state; /* [n_bytes]; NULL = nothing is saved, and its tokens are computed again */
    size_t n_bytes;
    size_t claimed; /* bytes of the cache's budget */
    int32_t n_past; /* tokens that the state holds */
} weir__saved;

/* Owned by its submitter until queued, then by the engine until finished. */
typedef struct weir__request {
    struct weir__request *next; /* the next one in the queue */
    uint64_t serial;            /* order of submit */
    int32_t priority;
    uint64_t tenant_hash; /* of the tenant, or else of the salt; 0 = neither */
    weir__tenant *tenant; /* held from submit to the end */
    bool cache_prompt;
    int32_t cache_keep_ms;
    int32_t itl_target_ms; /* 0 = the engine's */
    int32_t n_cached;      /* tokens of the prompt that were cached when it started; -1 = not started */
    weir_miss_info found;  /* by the look-up; nobody but the driver sees it */
    weir_miss_info miss;   /* what the caller may know of it, once n_cached is known */
    weir__history history;
    weir__adapters_place place; /* its place in the counts of its adapters */
    weir__embedding **ahead; /* [history.n_spans] encoded before a slot needs them; held; NULL = not there */
    int32_t n_ahead;         /* spans that were looked at for that */
    int32_t n_generated;     /* tokens, with the one that ended the answer */
    int32_t n_reasoning;     /* of them, those of reasoning */
    weir__reasoning reasoning;
    weir__filter filter;
    weir__emit emit;
    int64_t admit_ns; /* when it got its first slot; 0 = not yet */
    int64_t first_ns; /* when it got its first token; 0 = not yet */
    int64_t last_ns;  /* of the newest token */
    size_t n_sent;    /* tokens in chunks that the statistics have; 0 = no chunk yet */
    int64_t sent_ns;  /* when the last of those chunks was sent */
    weir__saved saved;
    bool owed;      /* its last pass was abandoned: the next one is not */
    bool scored;    /* logprobs are wanted */
    int32_t n_top;  /* top alternatives per token */
    float *logprob; /* [logprob_capacity], one per generated token */
    size_t logprob_capacity;
    uint64_t *text_at; /* [text_at_capacity] with stop strings: emit.n_made before the token */
    size_t text_at_capacity;
    double logprob_sum; /* of all generated tokens */
    weir_logprob *top;  /* [top_capacity], n_top per generated token */
    size_t top_capacity;
    weir_stream *source; /* of a fork; an internal reference, NULL = none */
    int32_t max_tokens;  /* resolved: prompt and answer fit into n_ctx */
    int32_t n_draft_max; /* -1 = the engine's */
    int32_t n_drafted, n_accepted;
    int32_t *prediction; /* [n_prediction] tokens that the answer may have; owned */
    int32_t n_prediction;
    int32_t n_predicted, n_predicted_accepted; /* of n_drafted and n_accepted, those of the prediction */
    int32_t interval;
    weir_sampler *sampler;
    bool keeps_stop; /* include_stop */
    int32_t n_stops; /* the first of the stop strings are the request's, the others the chat's */
    int64_t submit_ns;
    int64_t ageing_ns;   /* the engine's: waiting for so long raises its level by one; 0 = never */
    int64_t deadline_ns; /* WEIR__CLOCK_NEVER = none */
    weir_stream *stream; /* NULL = not streamed */
    weir_result *result; /* where weir_generate wants the whole output, or NULL */
    weir__ticket *ticket;
} weir__request;

/* Checks and copies *given_request; error fields begin with "requests[index].". Does not attach the
 * stream. limits: of the engine; n_ctx, max_tokens and ageing_ms count. waker: the engine's; a fork's
 * source must have the same. first: NULL, or for another answer to a request the one that was made of
 * *given_request for the first answer and is not queued yet. The other answers' seeds are the first one's
 * plus `index`, and only the first has a score. */
weir_status weir__request_create(weir_model *model, const weir_engine_params *limits,
                                 const weir_request *given_request, size_t index, const weir__waker *waker,
                                 const weir__request *first, weir__request **out, weir_error *error);
/* Moves it to the queue, to a slot, or to neither; its adapters count it there. */
void weir__request_move(weir__request *request, weir__adapters_place to);

void weir__request_destroy(weir__request *request);

/* True if the reader has cancelled. */
bool weir__request_cancelled(const weir__request *request);

/* True if the reader wants its reasoning to end. */
bool weir__request_ends_reasoning(const weir__request *request);

weir_usage weir__request_usage(const weir__request *request, int64_t now);

/* Tokens of the answer. */
static inline size_t weir__request_n_output(const weir__request *request)
{
    return (size_t)(request->history.n_tokens - request->history.n_prompt);
}

/* The most KV cells that the request may need. */
int32_t weir__request_cells(const weir__request *request);

/* Puts the released text and the tokens so far into the request's stream, if a chunk is due. False: out of
 * memory; the text stays, and the next call tries again. */
bool weir__request_emit(weir__request *request, const weir_usage *usage);

/* The tokens and the text that are in no chunk yet. The text is not NUL-terminated. */
weir_chunk weir__request_rest(const weir__request *request);

/* Delivers the end to the reader or to weir_generate, and destroys the request. `rest`: tokens and text that
 * are in no chunk yet, with the reason; n_tokens and text: the whole output, for a result. Takes over
 * `text`. */
typedef struct weir__output {
    weir_chunk rest;
    size_t n_tokens;
    char *text; /* weir__mem block with a NUL at its end; NULL = empty */
    size_t length;
} weir__output;

void weir__request_finish(weir__request *request, const weir__output *output, const weir_error *error,
                          const weir_usage *usage);

/* Removes the details of a divergence, when the miss turns out to have another reason. */
static inline void weir__miss_forget(weir_miss_info *info)
{
    info->prompt[0] = info->cached[0] = info->role[0] = info->line[0] = '\0';
    info->message = -1;
    info->in_message = false;
}

#endif

/* talk.h: prompts of tokens whose answers a test knows from the model alone, without an engine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_ENGINE_TALK_H
#define WEIR_SUPPORT_ENGINE_TALK_H

#include "engine.h"

#define TALK_ANSWER 12
#define TALK_LONG   4000 /* tokens of a prompt, at most */

/* A prompt of n tokens, and behind it its answer. */
typedef struct talk {
    int32_t tokens[TALK_LONG + TALK_ANSWER];
    int32_t n;
    weir_usage usage; /* of the last request */
} talk;

/* Completes the answer to the prompt. */
static inline void talk_answer(rig *r, talk *t)
{
    for (int32_t i = t->n; i < t->n + TALK_ANSWER; i++)
        t->tokens[i] = weir__fake_next(r->model, t->tokens, i);
}

/* Makes a prompt of n tokens that depends on `what`. */
static inline void talk_make(rig *r, talk *t, int what, int32_t n)
{
    *t = (talk){.n = n};
    for (int32_t i = 0; i < n; i++) t->tokens[i] = 'a' + (what * 7 + i * i + i / 26) % 26;
    talk_answer(r, t);
}

/* Asks, and compares the answer. */
static inline void talk_ask(rig *r, weir_engine *engine, talk *t, const char *salt)
{
    weir_request request = weir_request_default();
    weir_result result;
    request.sampler = &r->greedy;
    request.tokens = t->tokens;
    request.n_tokens = (size_t)t->n;
    request.max_tokens = TALK_ANSWER;
    request.cache_salt = salt;
    assert_int_equal(weir_generate(engine, &request, 1, NULL, &result, NULL), WEIR_OK);
    assert_int_equal(result.reason, WEIR_REASON_LENGTH);
    assert_int_equal(result.n_tokens, TALK_ANSWER);
    assert_memory_equal(result.tokens, t->tokens + t->n, TALK_ANSWER * sizeof *t->tokens);
    t->usage = result.usage;
    weir_result_fini(&result);
}

#endif

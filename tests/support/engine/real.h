/* real.h: shared by tests of engines with real models.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_ENGINE_REAL_H
#define WEIR_SUPPORT_ENGINE_REAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <weir/more.h>

#include "kernels/kernels.h"

/* True if none of weir's kernels for attention runs here: then a row depends on the others of its pass. */
static inline bool rows_depend_on_company(void)
{
    const char *kernels = getenv("WEIR_KERNELS");
    return weir__kernels_attention(0) == NULL || (kernels != NULL && strcmp(kernels, "off") == 0);
}

/* Inside the region where stock attention does not depend on the company (docs/adr/0009). */
static inline weir_engine_params small_params(int32_t n_slots, weir_layout layout)
{
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = n_slots;
    params.n_ctx = 128;
    params.n_batch = 60;
    params.chunk_size = 24;
    params.n_threads = 1; /* tests run beside others, and threads that wait for each other then crawl */
    params.layout = layout;
    return params;
}

static inline weir_engine *engine_of(weir_model *model, const weir_engine_params *params)
{
    weir_engine *engine = NULL;
    weir_error error = {0};
    if (weir_engine_create(model, params, &engine, &error) != WEIR_OK) fail_msg("%s", error.message);
    return engine;
}

static inline weir_engine_stats stats_of(const weir_engine *engine)
{
    weir_engine_stats stats = {.size = sizeof stats};
    assert_int_equal(weir_engine_get_stats(engine, &stats), WEIR_OK);
    return stats;
}

/* The sampler lives as long as the program. */
static inline weir_request greedy_request(const int32_t *tokens, size_t n, int32_t max_tokens)
{
    static weir_sampler_params greedy;
    weir_request request = weir_request_default();
    greedy = weir_sampler_params_default();
    greedy.temp = 0;
    request.sampler = &greedy;
    request.tokens = tokens;
    request.n_tokens = n;
    request.max_tokens = max_tokens;
    return request;
}

/* Answer i without drafts, and with them. */
static inline void assert_same_answer(const weir_result *a, const weir_result *b, int i)
{
    if (strcmp(a->text, b->text) != 0) fail_msg("answer %d:\n%s\nwith drafts:\n%s", i, a->text, b->text);
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
    assert_memory_equal(a->logprobs, b->logprobs, a->n_tokens * sizeof *a->logprobs);
    size_t n_top = a->n_tokens * (size_t)a->n_top_logprobs;
    if (n_top > 0) assert_memory_equal(a->top_logprobs, b->top_logprobs, n_top * sizeof *a->top_logprobs);
}

#endif

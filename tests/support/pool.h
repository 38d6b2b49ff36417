/* pool.h: shared by the pool's tests: lists of fake models of a known size.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_POOL_H
#define WEIR_SUPPORT_POOL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pool/lease.h"
#include "pool/room.h"

#define MIB          (UINT64_C(1) << 20)
#define WAIT_MS      120000 /* longer than anything takes */
#define N_ANSWER     8
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A list of n models "m0", "m1", … of `mib` MiB each and a bit for cells and buffers. */
typedef struct rack {
    weir_pool *pool;
    weir_engine_params engine;
    weir_pool_model models[8];
    char names[8][16], paths[8][96];
} rack;

static inline void rack_model(rack *r, size_t i, int mib, const char *options)
{
    snprintf(r->names[i], sizeof r->names[i], "m%zu", i);
    snprintf(r->paths[i], sizeof r->paths[i], "fake:seed=%zu,n_bytes=%llu%s%s", i + 1,
             (unsigned long long)((uint64_t)mib * MIB), *options != '\0' ? "," : "", options);
    r->models[i] = weir_pool_model_default();
    r->models[i].name = r->names[i];
    r->models[i].path = r->paths[i];
    r->models[i].engine = &r->engine;
}

/* Models of 100 MiB in a pool with these parameters. */
static inline void rack_open_with(rack *r, const weir_pool_params *params, size_t n, const char *options)
{
    weir_error error = {0};
    memset(r, 0, sizeof *r);
    r->engine = weir_engine_params_default();
    r->engine.n_slots = 2;
    r->engine.n_ctx = 256;
    r->engine.cache_bytes = 1 << 16;
    r->engine.lookup_bytes = 0;
    for (size_t i = 0; i < n; i++) rack_model(r, i, 100, options);
    if (weir_pool_create(params, &r->pool, &error) != WEIR_OK) fail_msg("%s", error.message);
    assert_int_equal(weir_pool_set(r->pool, r->models, n, &error), WEIR_OK);
}

/* A budget of `budget` MiB. */
static inline void rack_open(rack *r, int budget, size_t n, const char *options)
{
    weir_pool_params params = weir_pool_params_default();
    params.memory_bytes = (uint64_t)budget * MIB;
    rack_open_with(r, &params, n, options);
}

static inline void rack_close(rack *r)
{
    assert_int_equal(weir_pool_destroy(r->pool), WEIR_OK);
}

static inline weir_lease *rack_ask(rack *r, const char *name, int timeout_ms)
{
    weir_lease *lease = NULL;
    weir_error error = {0};
    weir_status status = weir_lease_create(r->pool, name, timeout_ms, &lease, &error);
    if (status != WEIR_OK) fail_msg("%s: %s", weir_status_name(status), error.message);
    return lease;
}

/* A lease that is granted. */
static inline weir_lease *rack_lease(rack *r, const char *name)
{
    weir_error error = {0};
    weir_lease *lease = rack_ask(r, name, WAIT_MS);
    weir_status status = weir_lease_wait(lease, WAIT_MS, &error);
    if (status != WEIR_OK) fail_msg("%s: %s", weir_status_name(status), error.message);
    return lease;
}

/* Loads it and lets it go. */
static inline void rack_touch(rack *r, const char *name)
{
    weir_lease_release(rack_lease(r, name));
}

static inline weir_pool_info rack_info(rack *r, const char *name)
{
    weir_pool_info info = {.size = sizeof info};
    assert_int_equal(weir_pool_find(r->pool, name, &info), WEIR_OK);
    return info;
}

static inline weir_pool_stats rack_stats(rack *r)
{
    weir_pool_stats stats = {.size = sizeof stats};
    assert_int_equal(weir_pool_get_stats(r->pool, &stats), WEIR_OK);
    return stats;
}

/* Waits for a state that nothing announces to callers. */
static inline void rack_await(rack *r, const char *name, weir_pool_state state)
{
    for (int i = 0; i < WAIT_MS; i++) {
        if (rack_info(r, name).state == state) return;
        struct timespec ms = {.tv_nsec = 1000000};
        nanosleep(&ms, NULL);
    }
    fail_msg("%s is %s, not %s", name, weir_pool_state_name(rack_info(r, name).state),
             weir_pool_state_name(state));
}

#define assert_state(r, name, state_)                                                                        \
    assert_string_equal(weir_pool_state_name(rack_info((r), (name)).state), weir_pool_state_name(state_))

/* The answer to a prompt that depends on `what`, greedily; *n_cached of its prompt's tokens were cached. */
static inline void rack_generate(weir_engine *engine, int what, int32_t n_prompt, int32_t *answer,
                                 int32_t *n_cached)
{
    int32_t tokens[256];
    weir_sampler_params greedy = weir_sampler_params_default();
    weir_request request = weir_request_default();
    weir_result result;
    greedy.temp = 0;
    for (int32_t i = 0; i < n_prompt; i++) tokens[i] = 'a' + (what * 7 + i * i + i / 26) % 26;
    request.sampler = &greedy;
    request.tokens = tokens;
    request.n_tokens = (size_t)n_prompt;
    request.max_tokens = N_ANSWER;
    assert_int_equal(weir_generate(engine, &request, 1, NULL, &result, NULL), WEIR_OK);
    assert_int_equal(result.reason, WEIR_REASON_LENGTH);
    assert_int_equal(result.n_tokens, N_ANSWER);
    memcpy(answer, result.tokens, N_ANSWER * sizeof *answer);
    if (n_cached != NULL) *n_cached = result.usage.n_cached;
    weir_result_fini(&result);
}

#endif

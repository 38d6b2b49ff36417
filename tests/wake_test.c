/* wake_test.c: an engine's thread that is stopped within a pass, and woken where it sleeps.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/fake.h"
#include "support/pause.h"

#define PATIENCE_MS 300000 /* nothing takes that long, even on a busy machine */

/* ---- A stop that finds a pass half done ------------------------------------------------------------ */

typedef struct halfway {
    weir_engine *engine;
    atomic_bool armed;
    atomic_bool reached; /* a part of the pass's tokens is in the memory */
} halfway;

static int32_t wait_halfway(void *user, const int32_t *history, int32_t n)
{
    halfway *h = user;
    (void)history;
    (void)n;
    if (atomic_load(&h->armed) && !atomic_exchange(&h->reached, true)) pause_us(50000);
    return 'x';
}

static void *stop_halfway(void *user)
{
    halfway *h = user;
    while (!atomic_load(&h->reached)) pause_us(100);
    weir_engine_stop(h->engine);
    return NULL;
}

static void stop_in_a_pass(bool manual, weir_layout layout)
{
    enum { N = 3 };
    halfway h = {0};
    weir_model *model = NULL;
    weir_stream *streams[N];
    pthread_t stops;
    long live = weir__mem_live();
    assert_int_equal(weir_model_load("fake:tick_us=1000", NULL, &model, NULL), WEIR_OK);
    weir__fake *fake = weir__fake_of(model);
    fake->next = wait_halfway;
    fake->next_user = &h;
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = N;
    params.n_ctx = 20000; /* it does not end by itself before */
    params.manual = manual;
    params.layout = layout;
    params.cache_sequences = 1; /* the fake takes memory for each */
    assert_int_equal(weir_engine_create(model, &params, &h.engine, NULL), WEIR_OK);
    for (int i = 0; i < N; i++) {
        weir_sampler_params greedy = weir_sampler_params_default();
        weir_request request = weir_request_default();
        greedy.temp = 0;
        request.sampler = &greedy;
        request.text = "a few";
        assert_int_equal(weir_stream_create(&streams[i], NULL), WEIR_OK);
        assert_int_equal(weir_engine_submit(h.engine, &request, 1, &streams[i], NULL), WEIR_OK);
    }
    for (int i = 0; i < N; i++) { /* till all of them generate */
        weir_chunk chunk;
        if (manual) assert_int_equal(weir_engine_step(h.engine, NULL, 0, NULL, NULL), WEIR_OK);
        assert_int_equal(weir_stream_next(streams[i], PATIENCE_MS, &chunk), WEIR_OK);
    }
    assert_int_equal(pthread_create(&stops, NULL, stop_halfway, &h), 0);
    atomic_store(&h.armed, true);
    /* The first step is the one that is cut short; the others may come before the stop has its turn. */
    for (int i = 0; manual && i < 1000; i++) weir_engine_step(h.engine, NULL, 0, NULL, NULL);
    assert_int_equal(pthread_join(stops, NULL), 0);
    for (int i = 0; i < N; i++) {
        weir_error error;
        assert_true(weir_stream_finished(streams[i]));
        weir_stream_error(streams[i], &error);
        assert_string_equal(weir_status_name(error.code), "WEIR_STOPPED");
        weir_stream_release(streams[i]);
    }
    assert_int_equal(atomic_load(&fake->faults), 0);
    weir_engine_destroy(h.engine);
    assert_int_equal(atomic_load(&fake->n_cells), 0);
    weir_model_release(model);
    assert_int_equal(weir__mem_live(), live);
}

static void test_a_stop_finds_a_pass_half_done(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) stop_in_a_pass(i & 1, i & 2 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT);
}

/* ---- An engine that sleeps ------------------------------------------------------------------------- */

static void test_a_submit_wakes_an_idle_engine(void **state)
{
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    (void)state;
    assert_int_equal(weir_model_load("fake:", NULL, &model, NULL), WEIR_OK);
    assert_int_equal(weir_engine_create(model, NULL, &engine, NULL), WEIR_OK);
    for (int i = 0; i < 3; i++) {
        weir_stream *stream = NULL;
        weir_chunk chunk = {0};
        weir_request request = weir_request_default();
        request.text = "a few";
        request.max_tokens = 5;
        assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
        pause_us(20000); /* nothing to do: it sleeps */
        assert_int_equal(weir_engine_submit(engine, &request, 1, &stream, NULL), WEIR_OK);
        while (!chunk.finished) assert_int_equal(weir_stream_next(stream, PATIENCE_MS, &chunk), WEIR_OK);
        weir_stream_release(stream);
    }
    weir_engine_destroy(engine);
    weir_model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_submit_wakes_an_idle_engine),
        cmocka_unit_test(test_a_stop_finds_a_pass_half_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

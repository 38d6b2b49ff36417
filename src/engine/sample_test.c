/* Sampling alone and with helpers gives the same. Run under the thread sanitizer (pthread).
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

#define STREAMS 8

/* The tokens of each stream at this number of threads. The vocabulary makes a draw take some 100 us. */
static void draw(rig *r, int32_t n_threads, sink *got)
{
    char prompt[32];
    weir_sampler_params params = weir_sampler_params_default();
    weir_request request = weir_request_default();
    weir_stream *streams[STREAMS];
    rig_load(r, "fake:n_vocab=6000,any=1");
    r->params.n_slots = STREAMS;
    r->params.n_threads = n_threads;
    rig_start(r);
    request.sampler = &params;
    request.text = prompt;
    request.max_tokens = 40;
    for (int i = 0; i < STREAMS; i++) {
        snprintf(prompt, sizeof prompt, "prompt %d", i);
        params.seed = (uint32_t)i + 1;
        params.temp = i == 0 ? 0.0f : 0.2f * (float)i;
        streams[i] = rig_submit(r, &request);
    }
    rig_run(r);
    for (int i = 0; i < STREAMS; i++) {
        got[i] = (sink){0};
        sink_take(&got[i], streams[i]);
        rig_release(r, streams[i]);
    }
    assert_int_equal(r->engine->driver.threads != NULL, n_threads > 1);
    rig_stop(r);
}

static void helpers_change_nothing(void **state)
{
    static sink alone[STREAMS], helped[STREAMS];
    draw(*state, 1, alone);
    draw(*state, 4, helped);
    for (int i = 0; i < STREAMS; i++) {
        assert_true(alone[i].finished && alone[i].n_tokens > 0);
        assert_int_equal(helped[i].reason, alone[i].reason);
        assert_int_equal(helped[i].n_tokens, alone[i].n_tokens);
        assert_memory_equal(helped[i].tokens, alone[i].tokens, alone[i].n_tokens * sizeof *alone[i].tokens);
        assert_string_equal(helped[i].text, alone[i].text);
    }
}

static void a_draw_that_fails_ends_its_own_stream_alone(void **state)
{
    rig *r = *state;
    rig_script(r, 'A', 3, "first");
    rig_script(r, 'B', 3, "second");
    rig_script(r, 'C', 3, "third");
    rig_start(r);
    weir_stream *streams[3];
    for (int i = 0; i < 3; i++) streams[i] = rig_submit_key(r, 'A' + i);
    rig_tick(r);
    atomic_store(&r->fake->fail_sample_at, 1);
    rig_run(r);
    static const char *const texts[] = {"first", "s", "third"};
    for (int i = 0; i < 3; i++) {
        sink got = {0};
        sink_take(&got, streams[i]);
        assert_sink(got, i == 1 ? WEIR_REASON_ERROR : WEIR_REASON_END, texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(helpers_change_nothing),
        RIG_TEST(a_draw_that_fails_ends_its_own_stream_alone),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}

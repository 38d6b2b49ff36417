/* media_encode_test.c: requests with images and sounds while these are encoded, or will be.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/media.h"

#include "base/thread.h"

/* ---- While it is queued ---- */

/* Everything but passes. */
static void look(rig *r)
{
    const weir_view *view;
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    pause_us(50);
}

static void look_until_encoded(rig *r, uint64_t n)
{
    while (n_encodes(r) < n) look(r);
    for (int i = 0; i < 100; i++) look(r); /* no more than these */
    assert_int_equal(n_encodes(r), n);
}

/* The one slot is a text's. */
static void start_busy(rig *r, talk *text)
{
    r->params.n_slots = 1;
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 1);
    write(r, text, "a text alone");
    weir_request request = request_of(r, text);
    request.priority = 5;
    text->stream = rig_submit(r, &request);
    look(r);
}

static void ask_with(rig *r, talk *t, int32_t priority)
{
    weir_request request = request_of(r, t);
    request.priority = priority;
    t->stream = rig_submit(r, &request);
}

static void queued_media_are_encoded(void **state)
{
    rig *r = *state;
    talk text, t[4];
    load(r, "fake:", "fake:cells=6");
    start_busy(r, &text);
    write(r, &t[0], "see @0 and @1 say");
    write(r, &t[1], "@2@0");
    write(r, &t[2], "see @0 again");
    write(r, &t[3], "see @0 of another");
    t[3].salt = "salt";
    uint64_t before = n_encodes(r);
    for (int i = 0; i < 4; i++) ask(r, &t[i]);
    look_until_encoded(r, before + 4); /* 0, 1, 2, and 0 of the salt */
    assert_false(weir_stream_finished(text.stream));
    run(r);
    judge(&text);
    for (int i = 0; i < 4; i++) judge(&t[i]);
    assert_int_equal(n_encodes(r), before + 4);
    assert_int_equal(rig_stats(r).n_encodes, 4);
}

/* The image will not be needed. */
static void a_queued_image_with_cached_cells_is_not_encoded(void **state)
{
    rig *r = *state;
    talk text, first, second, both;
    load(r, "fake:", "fake:cells=6");
    start_busy(r, &text);
    write(r, &first, "look at this: @0 what is it?");
    write(r, &second, "look at this: @0 how old is it?");
    write(r, &both, "look at this: @0 or @1");
    ask(r, &first);
    run(r);
    judge(&first);
    rig_stop(r);
    r->params.cache_bytes = 0; /* no embeddings are kept */
    start_busy(r, &text);
    ask(r, &first);
    run(r);
    ask_with(r, &text, 5);
    look(r);
    uint64_t before = n_encodes(r);
    ask(r, &second);
    ask(r, &both);
    look_until_encoded(r, before + 1);
    run(r);
    judge(&second);
    judge(&both);
    assert_int_equal(n_encodes(r), before + 1);
}

/* Media are encoded in the order of the queue, as far as the budget goes. */
static void media_of_the_next_request_are_encoded_first(void **state)
{
    rig *r = *state;
    enum { N = 4 };
    static const int32_t priorities[N] = {0, 3, 1, 3}, order[N] = {1, 3, 2, 0};
    for (int n = 1; n <= N; n++) {
        talk text, t[N];
        load(r, "fake:", "fake:cells=6");
        r->params = weir_engine_params_default();
        r->params.manual = true;
        r->params.n_slots = 1;
        r->params.cache_bytes = (uint64_t)n * 4 * 6 * WEIR__FAKE_WIDTH * sizeof(float);
        rig_start(r);
        write(r, &text, "a text alone");
        for (int i = 0; i < N; i++) {
            char prompt[] = "see @0";
            prompt[5] = (char)('0' + i);
            write(r, &t[i], prompt);
        }
        ask_with(r, &text, 5);
        look(r);
        uint64_t before = n_encodes(r);
        for (int i = 0; i < N; i++) ask_with(r, &t[i], priorities[i]);
        look_until_encoded(r, before + (uint64_t)n);
        const weir__request *at = r->engine->shared.queue.first;
        for (int i = 0; i < N; i++, at = at->next) {
            int place = 0;
            while (order[place] != i) place++;
            assert_true((at->ahead != NULL && at->ahead[0] != NULL) == (place < n));
        }
        run(r);
        for (int i = 0; i < N; i++) judge(&t[i]);
        rig_stop(r);
        assert_int_equal(n_encodes(r), before + N);
        for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
        r->n_streams = 0;
    }
}

/* A request that gets a slot does not wait for an encode of one that has none. */
static void an_encode_ahead_makes_way(void **state)
{
    rig *r = *state;
    talk text, low, high;
    static const char *const slow[] = {"fake:encode_us=3600000000", "fake:encode_us=5000"};
    for (int i = 0; i < 2; i++) {
        load(r, "fake:", i == 0 ? "fake:" : slow[i]);
        write(r, &low, "see @0"); /* encodes */
        write(r, &high, "see @1");
        load(r, "fake:", slow[i]);
        start_busy(r, &text);
        ask(r, &low);
        while (atomic_load(&r->fake->n_begun) < 1) look(r);
        ask_with(r, &high, 9);
        while (atomic_load(&r->fake->n_begun) < 2) look(r);
        if (i == 0) { /* the first encode has ended, which would have taken a minute */
            assert_int_equal(n_encodes(r), 0);
            weir_stream_cancel(low.stream);
            weir_stream_cancel(high.stream);
            run(r);
        } else {
            run(r);
            judge(&low);
            judge(&high);
            assert_int_equal(n_encodes(r), 2);
        }
        judge(&text);
        rig_stop(r);
        for (int k = 0; k < r->n_streams; k++) weir_stream_release(r->streams[k]);
        r->n_streams = 0;
    }
}

/* ---- While it is encoded ---- */

/* Others run on, and are done before. */
static void streams_do_not_wait_for_an_encode(void **state)
{
    rig *r = *state;
    talk slow, text;
    load(r, "fake:", "fake:encode_us=2000000");
    rig_start(r);
    write(r, &slow, "see @0 and say");
    write(r, &text, "only text");
    int64_t began = weir__clock_now_ns();
    ask(r, &slow);
    ask(r, &text);
    while (!weir_stream_finished(text.stream)) rig_tick(r);
    judge(&text);
    assert_false(weir_stream_finished(slow.stream));
    while (!weir_stream_finished(slow.stream)) {
        rig_tick(r);
        pause_us(1000);
    }
    judge(&slow);
    assert_true(weir__clock_now_ns() - began >= 2000 * WEIR__NS_PER_MS);
}

static void a_cancel_ends_the_encode(void **state)
{
    rig *r = *state;
    talk text, t[3];
    load(r, "fake:", "fake:encode_us=0");
    write(r, &text, "a text alone");
    for (int i = 0; i < 3; i++) write(r, &t[i], i == 0 ? "see @0" : i == 1 ? "see @0 too" : "see @1");
    load(r, "fake:", "fake:encode_us=3600000000");
    for (int32_t n_slots = 1; n_slots <= 2; n_slots++) { /* the others wait in the queue */
        r->params.n_slots = n_slots;
        rig_start(r);
        if (n_slots == 1) ask_with(r, &text, 5); /* all of them */
        for (int i = 0; i < 3; i++) ask(r, &t[i]);
        for (int i = 0; i < 30; i++) look(r);
        for (int i = 0; i < 3; i++) {
            weir_stream_cancel(t[i].stream);
            look(r);
            sink_take(&t[i].got, t[i].stream);
            assert_true(t[i].got.finished && t[i].got.reason == WEIR_REASON_CANCELLED);
        }
        run(r);
        rig_stop(r); /* waits for the thread: an hour, if the cancel did not reach it */
    }
    judge(&text);
}

static void a_stop_ends_the_encode(void **state)
{
    rig *r = *state;
    talk t;
    load(r, "fake:", "fake:");
    write(r, &t, "see @0");
    load(r, "fake:", "fake:encode_us=3600000000");
    r->params.manual = false;
    rig_start(r);
    ask(r, &t);
    pause_us(30000);
    rig_stop(r);
    sink_take(&t.got, t.stream);
    assert_int_equal(t.got.reason, WEIR_REASON_ERROR);
}

/* The engine's thread sleeps meanwhile, until the embeddings are there or a deadline has passed. */
static void a_thread_waits_for_the_encode(void **state)
{
    rig *r = *state;
    talk t, late;
    load(r, "fake:", "fake:encode_us=200000");
    write(r, &t, "see @0");
    r->params.manual = false;
    rig_start(r);
    ask(r, &t);
    sink_wait(&t.got, t.stream);
    assert_null(t.got.wrong);
    judge(&t);
    assert_true(rig_stats(r).n_ticks < 100);
    write(r, &late, "see @1");
    weir_request request = request_of(r, &late);
    request.deadline_ms = 50;
    late.stream = rig_submit(r, &request);
    sink_wait(&late.got, late.stream);
    assert_int_equal(late.got.reason, WEIR_REASON_DEADLINE);
    assert_true(rig_stats(r).n_ticks < 100);
}

static void a_projector_that_fails_ends_its_request_alone(void **state)
{
    rig *r = *state;
    talk bad, good;
    weir_error error = {0};
    load(r, "fake:", "fake:");
    write(r, &bad, "see @0");
    write(r, &good, "only text");
    load(r, "fake:", "fake:broken=1");
    rig_start(r);
    ask(r, &bad);
    ask(r, &good);
    run(r);
    judge(&good);
    sink_take(&bad.got, bad.stream);
    assert_int_equal(bad.got.reason, WEIR_REASON_ERROR);
    weir_stream_error(bad.stream, &error);
    assert_int_equal(error.code, WEIR_BACKEND);
    assert_non_null(strstr(error.message, "not finite"));
}

/* A view shows that the slot waits. */
static void a_view_has_slots_that_wait(void **state)
{
    rig *r = *state;
    talk t;
    const weir_view *view = NULL;
    load(r, "fake:", "fake:encode_us=2000000");
    write(r, &t, "see @0");
    r->params.chunk_size = 3;
    rig_start(r);
    ask(r, &t);
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->n_slots, 1);
    assert_int_equal(view->slots[0].state, WEIR_SLOT_PREFILLING); /* there is text before it */
    while (!rig_tick(r).idle) continue;
    assert_int_equal(weir_engine_view(r->engine, &view, NULL), WEIR_OK);
    assert_int_equal(view->n_slots, 1);
    assert_int_equal(view->slots[0].state, WEIR_SLOT_JOINED);
    while (rig_tick(r).idle) pause_us(1000);
    run(r);
    judge(&t);
    assert_int_equal(rig_stats(r).n_bad_plans, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(queued_media_are_encoded),
        RIG_TEST(a_queued_image_with_cached_cells_is_not_encoded),
        RIG_TEST(media_of_the_next_request_are_encoded_first),
        RIG_TEST(an_encode_ahead_makes_way),
        RIG_TEST(streams_do_not_wait_for_an_encode),
        RIG_TEST(a_cancel_ends_the_encode),
        RIG_TEST(a_stop_ends_the_encode),
        RIG_TEST(a_thread_waits_for_the_encode),
        RIG_TEST(a_projector_that_fails_ends_its_request_alone),
        RIG_TEST(a_view_has_slots_that_wait),
    };
    return cmocka_run_group_tests(tests, make_sounds, release_sounds);
}

/* media_test.c: texts of requests with images and sounds: alone, in company, cached, suspended.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/media.h"

#include "support/dice.h"
#include "support/temp.h"

/* ---- Texts ---- */

static void each_gets_its_own_text(void **state)
{
    rig *r = *state;
    static const char *const prompts[] = {"see @0 and say", "@1", "@2@2twice", "a text alone",
                                          "@0 again @3@4 x"};
    static const int32_t chunks[] = {512, 16, 3, 1};
    for (size_t p = 0; p < COUNT(projectors); p++)
        for (size_t l = 0; l < COUNT(layouts); l++)
            for (size_t c = 0; c < COUNT(chunks); c++) {
                static talk talks[COUNT(prompts)];
                load(r, "fake:", projectors[p]);
                r->params.layout = layouts[l];
                r->params.chunk_size = chunks[c];
                rig_start(r);
                for (size_t i = 0; i < COUNT(prompts); i++) { /* alone */
                    write(r, &talks[i], prompts[i]);
                    ask(r, &talks[i]);
                    run(r);
                    judge(&talks[i]);
                }
                for (size_t i = 0; i < COUNT(prompts); i++) ask(r, &talks[i]); /* in company */
                run(r);
                for (size_t i = 0; i < COUNT(prompts); i++) judge(&talks[i]);
                rig_stop(r);
                for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
                r->n_streams = 0;
            }
}

static void tokens_and_answers_and_forks_have_media(void **state)
{
    rig *r = *state;
    load(r, "fake:", "fake:cells=6,positions=2");
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 4);
    talk t;
    write(r, &t, "see @0 and @1 say");
    /* as tokens */
    int32_t tokens[64], n = 0;
    weir_request request = request_of(r, &t);
    tokens[n++] = WEIR__FAKE_BOS;
    for (const char *c = t.text; *c != '\0'; c++) tokens[n++] = (unsigned char)*c;
    for (size_t i = 0; i < t.n_uses; i++) t.uses[i].at++;
    request.text = NULL;
    request.tokens = tokens;
    request.n_tokens = (size_t)n;
    t.stream = rig_submit(r, &request);
    run(r);
    judge(&t);
    /* several answers */
    weir_stream *streams[3] = {rig_stream(r), rig_stream(r), rig_stream(r)};
    assert_int_equal(weir_engine_submit_n(r->engine, &request, 3, streams, NULL), WEIR_OK);
    run(r);
    for (int i = 0; i < 3; i++) {
        t.got = (sink){0};
        t.stream = streams[i];
        judge(&t);
    }
    /* a fork after five tokens goes on as the source did */
    weir_stream *fork = rig_stream(r);
    request = weir_request_default();
    request.sampler = &r->greedy;
    request.max_tokens = ANSWER - 5;
    assert_int_equal(weir_engine_fork(r->engine, t.stream, 5, &request, fork, NULL), WEIR_OK);
    run(r);
    sink got = {0};
    sink_take(&got, fork);
    assert_int_equal(got.n_tokens, ANSWER - 5);
    assert_memory_equal(got.tokens, t.cells + t.n_prompt + 5, (ANSWER - 5) * sizeof *got.tokens);
}

/* Tokens have them in company and after cache hits, too; media first, last, beside each other and alone. */
static void tokens_beside_media_have_logprobs(void **state)
{
    rig *r = *state;
    static const char *const prompts[] = {"see @0 and say", "see @0 and say @1", "@2@2twice", "a text alone"};
    for (size_t p = 0; p < COUNT(projectors); p++)
        for (size_t l = 0; l < COUNT(layouts); l++)
            for (int32_t chunk = 3; chunk <= 300; chunk *= 10) {
                static talk talks[2 * COUNT(prompts)];
                load(r, "fake:", projectors[p]);
                r->params.layout = layouts[l];
                r->params.chunk_size = chunk;
                rig_start_caching(r, layouts[l], 4);
                for (size_t i = 0; i < COUNT(talks); i++) {
                    write(r, &talks[i], prompts[i % COUNT(prompts)]);
                    weir_request request = request_of(r, &talks[i]);
                    request.n_prompt_logprobs = i < COUNT(prompts);
                    talks[i].stream = rig_submit(r, &request);
                }
                run(r);
                for (size_t i = 0; i < COUNT(talks); i++) judge(&talks[i]);
                for (size_t i = 0; i < COUNT(prompts); i++) judge_prompt(r, &talks[i]);
                rig_stop(r);
                assert_int_equal(atomic_load(&r->fake->faults), 0);
                for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
                r->n_streams = 0;
            }
}

/* ---- The cache ---- */

/* The next question about the same image: nothing is encoded, and only its own text is computed. */
static void a_second_question_reuses_the_image(void **state)
{
    rig *r = *state;
    static const char *const models[] = {"fake:", "fake:recurrent=1"};
    for (size_t m = 0; m < COUNT(models); m++)
        for (size_t l = 0; l < COUNT(layouts); l++)
            for (size_t p = 0; p < COUNT(projectors); p++) {
                talk first, second, other;
                load(r, models[m], projectors[p]);
                rig_start_caching(r, layouts[l], 2);
                write(r, &first, "look at this: @0 what is it?");
                write(r, &second, "look at this: @0 how old is it?");
                write(r, &other, "look at this: @1 how old is it?");
                bool small = strstr(projectors[p], "cells=1,") != NULL;
                ask(r, &first);
                run(r);
                judge(&first);
                uint64_t n = n_encodes(r);
                ask(r, &second);
                run(r);
                judge(&second);
                assert_int_equal(n_encodes(r), n);
                int32_t n_head = second.n_prompt - (int32_t)strlen(" how old is it?");
                int32_t n_cached = weir_stream_usage(second.stream).n_cached;
                /* up to the space behind it; where memory cannot be cut, up to its last cell */
                if (!small) assert_in_range(n_cached, n_head - 1, n_head + 1);
                if (small) assert_true(n_cached < n_head); /* 30 bits do not identify a sound */
                ask(r, &other);
                run(r);
                judge(&other);
                assert_true(n_encodes(r) > n);
                assert_true(weir_stream_usage(other.stream).n_cached <= (int32_t)strlen("<look at this: ["));
                rig_stop(r);
                for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
                r->n_streams = 0;
            }
}

/* Embeddings are kept apart from prefixes: a different text before the same image needs no encode. */
static void embeddings_are_kept_within_the_budget_and_by_salt(void **state)
{
    rig *r = *state;
    talk t;
    load(r, "fake:", "fake:cells=8");
    r->params.cache_bytes =
        8 * 4 * 8 * WEIR__FAKE_WIDTH * sizeof(float) / 2; /* a quarter holds four of eight cells */
    rig_start(r);
    write(r, &t, "one @0");
    ask(r, &t);
    run(r);
    judge(&t);
    assert_int_equal(n_encodes(r), 2); /* write() encodes, too */
    weir_engine_stats first = rig_stats(r);
    assert_int_equal(first.n_encodes, 1);
    assert_int_equal(first.n_encodes_saved, 0);
    assert_true(first.embedding_bytes == 8 * WEIR__FAKE_WIDTH * sizeof(float));
    static const char *const salts[] = {NULL, "a", "b", "a", NULL};
    static const uint64_t more[] = {0, 1, 1, 0, 0};
    for (size_t i = 0; i < COUNT(salts); i++) {
        write(r, &t, "another @0");
        uint64_t before = n_encodes(r);
        t.salt = salts[i];
        ask(r, &t);
        run(r);
        judge(&t);
        assert_int_equal(n_encodes(r) - before, more[i]);
        assert_true(rig_stats(r).cache_bytes <= r->params.cache_bytes / 4);
        assert_int_equal(rig_stats(r).n_encodes_saved, i + 1 - (i > 0) - (i > 1));
    }
    for (int i = 1; i < N_SOUNDS; i++) { /* four more push out the first */
        char text[] = "@0";
        text[1] = (char)('0' + i);
        write(r, &t, text);
        ask(r, &t);
        run(r);
        judge(&t);
        assert_true(rig_stats(r).cache_bytes <= r->params.cache_bytes / 4);
    }
    write(r, &t, "@0 once more");
    uint64_t before = n_encodes(r);
    ask(r, &t);
    run(r);
    judge(&t);
    assert_int_equal(n_encodes(r) - before, 1);
}

/* Files of another engine have its images, too. */
static void a_restart_finds_the_image(void **state)
{
    rig *r = *state;
    char folder[TEMP_PATH_MAX];
    for (size_t p = 0; p < 3; p++) {
        talk first, second;
        temp_path(folder, projectors[p] + strlen("fake:"));
        for (int start = 0; start < 2; start++) {
            load(r, "fake:", projectors[p]);
            r->params.cache_dir = folder;
            rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
            write(r, &first, "look at this: @0 what is it?");
            write(r, &second, "look at this: @0 how old is it?");
            uint64_t before = n_encodes(r);
            ask(r, start == 0 ? &first : &second);
            run(r);
            judge(start == 0 ? &first : &second);
            assert_int_equal(n_encodes(r) - before, start == 0);
            if (start == 1) assert_int_equal(rig_stats(r).n_cache_restored, 1);
            rig_stop(r);
            for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
            r->n_streams = 0;
        }
    }
    r->params.cache_dir = NULL;
}

static void salts_share_no_prefix(void **state)
{
    rig *r = *state;
    talk a, b;
    load(r, "fake:", "fake:");
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    write(r, &a, "look: @0 so?");
    b = a;
    a.salt = "a";
    b.salt = "b";
    ask(r, &a);
    run(r);
    judge(&a);
    ask(r, &b);
    run(r);
    judge(&b);
    assert_int_equal(weir_stream_usage(b.stream).n_cached, 0);
}

/* Many queued requests: their embeddings are within the budget. */
static void queued_media_stay_within_the_budget(void **state)
{
    rig *r = *state;
    enum { N = 80 };
    static talk talks[N];
    load(r, "fake:", "fake:cells=20");
    r->params.n_slots = 2;
    r->params.cache_bytes = 16 << 10;
    rig_start(r);
    long before = weir__mem_live();
    for (int i = 0; i < N; i++) {
        char text[] = "sound @0 ....";
        text[7] = (char)('0' + i % N_SOUNDS);
        text[9] = (char)('A' + i);
        write(r, &talks[i], text);
        ask(r, &talks[i]);
    }
    assert_true(weir__mem_live() > before);
    for (;;) {
        weir_report report = rig_tick(r);
        if (report.idle) pause_us(50);
        assert_true(rig_stats(r).cache_bytes <= r->params.cache_bytes);
        assert_true(rig_stats(r).embedding_bytes <= r->params.cache_bytes / 4);
        if (report.n_active == 0 && report.queue_depth == 0) break;
    }
    run(r);
    for (int i = 0; i < N; i++) judge(&talks[i]);
}

/* ---- Suspension ---- */

static void a_suspended_request_goes_on(void **state)
{
    rig *r = *state;
    for (size_t p = 0; p < COUNT(projectors); p++)
        for (int bytes = 0; bytes < 2; bytes++)
            for (int ticks = 1; ticks < 14; ticks++) {
                talk low, high;
                load(r, "fake:", projectors[p]);
                r->params.n_slots = 1;
                r->params.chunk_size = 4;
                r->params.cache_bytes = bytes == 0 ? 0 : 1 << 20;
                rig_start(r);
                write(r, &low, "see @0 and @1 say");
                write(r, &high, "@2 first");
                ask(r, &low);
                for (int n = 0; n < ticks;) { /* ticks that compute */
                    bool idle = rig_tick(r).idle;
                    if (idle) pause_us(50);
                    n += !idle;
                }
                weir_request request = request_of(r, &high);
                request.priority = 5;
                high.stream = rig_submit(r, &request);
                run(r);
                judge(&high);
                judge(&low);
                rig_stop(r);
                for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
                r->n_streams = 0;
            }
}

/* ---- Limits ---- */

/* Any allocation fails: the submit is refused and leaves nothing, or the request ends with an error, or only
 * a cache is missing. */
static void without_memory(void **state)
{
    rig *r = *state;
    load(r, "fake:", "fake:pieces=2");
    rig_start_caching(r, WEIR_LAYOUT_UNIFIED, 2);
    for (long n = 0, n_good = 0; n_good < 20 && n < 400; n++) {
        talk t;
        write(r, &t, "see @0 and @1");
        weir_request request = request_of(r, &t);
        t.stream = rig_stream(r);
        weir__mem_fail_after(n);
        weir_status status = weir_engine_submit(r->engine, &request, 1, &t.stream, NULL);
        bool failed = !weir__mem_fail_pending();
        if (status == WEIR_OK && !failed) n_good++;
        if (status == WEIR_OK && n_good < 20) /* later ones fail in the engine and its thread */
            while (!weir_stream_finished(t.stream)) {
                rig_tick(r);
                pause_us(10);
            }
        weir__mem_fail_after(-1);
        assert_true(status == WEIR_OK || status == WEIR_NO_MEMORY);
        if (status == WEIR_OK) run(r);
        if (status == WEIR_OK) sink_take(&t.got, t.stream);
        if (status == WEIR_OK && t.got.reason == WEIR_REASON_LENGTH) judge(&t);
        if (status == WEIR_OK && t.got.reason != WEIR_REASON_LENGTH) {
            weir_error error = {0};
            weir_stream_error(t.stream, &error);
            assert_int_equal(error.code, WEIR_NO_MEMORY);
        }
        rig_release(r, t.stream);
        r->n_streams--;
    }
    assert_int_equal(atomic_load(&r->fake->faults), 0);
}

static void media_that_do_not_fit_are_refused(void **state)
{
    rig *r = *state;
    talk t;
    weir_stream *stream = rig_stream(r);
    load(r, "fake:", "fake:causal=0,cells=40");
    write(r, &t, "see @0");
    r->params.n_ubatch = 39;
    rig_start(r);
    weir_request request = request_of(r, &t);
    rig_refuses(r, &request, 1, &stream, WEIR_UNSUPPORTED, "requests[0].media");
    rig_stop(r);
    r->params.n_ubatch = 40;
    r->params.n_ctx = 50;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    rig_start(r);
    request.max_tokens = 2;
    weir_forecast forecast = {.size = sizeof forecast};
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
    assert_true(forecast.fits && forecast.n_prompt == t.n_prompt);
    write(r, &t, "see @0@1");
    request = request_of(r, &t);
    rig_refuses(r, &request, 1, &stream, WEIR_TOO_LONG, "requests[0].media");
    assert_int_equal(weir_engine_plan_request(r->engine, &request, &forecast, NULL), WEIR_OK);
    assert_true(!forecast.fits && forecast.n_prompt == t.n_prompt);
    write(r, &t, "see @0");
    request = request_of(r, &t);
    rig_stop(r);
    load(r, "fake:", "fake:sounds=0");
    rig_start(r);
    rig_refuses(r, &request, 1, &stream, WEIR_UNSUPPORTED, "requests[0].media");
    rig_stop(r);
    load(r, "fake:", "fake:sample_rate=8000");
    rig_start(r);
    rig_refuses(r, &request, 1, &stream, WEIR_UNSUPPORTED, "requests[0].media");
}

/* ---- At random ---- */

static void at_random(void **state)
{
    rig *r = *state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    print_message("media: WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    dice d = {seed};
    for (int round = 0; round < 40; round++) {
        enum { N = 12 };
        static talk talks[N];
        bool cancelled[N] = {false}, asked[N] = {false}, scored[N] = {false};
        load(r, dice_one_in(&d, 4) ? "fake:recurrent=1" : "fake:",
             projectors[dice_in(&d, 0, COUNT(projectors) - 1)]);
        r->params = weir_engine_params_default();
        r->params.manual = true;
        r->params.n_slots = dice_in(&d, 1, 4);
        r->params.n_ctx = 256;
        r->params.n_kv = dice_one_in(&d, 2) ? 512 : 0;
        r->params.layout = layouts[dice_in(&d, 0, 1)];
        r->params.chunk_size = dice_in(&d, 1, 40);
        r->params.cache_sequences = dice_in(&d, -1, 2);
        r->params.cache_bytes = dice_one_in(&d, 3) ? 0 : (uint64_t)dice_in(&d, 100, 100000);
        r->params.n_draft_max = dice_one_in(&d, 2) ? 8 : 0;
        r->params.strategy = weir_strategy_get((size_t)dice_in(&d, 0, 3));
        rig_start(r);
        int n_asked = 0;
        for (int step = 0; step < 3000 && (n_asked < N || step < 400); step++) {
            if (n_asked < N && dice_one_in(&d, 4)) {
                char text[64] = "start ";
                for (int k = dice_in(&d, 0, 3); k > 0; k--) {
                    char part[16];
                    snprintf(part, sizeof part, "@%d%s", dice_in(&d, 0, N_SOUNDS - 1),
                             dice_one_in(&d, 2) ? " and " : "");
                    strcat(text, part);
                }
                if (dice_one_in(&d, 2)) strcat(text, " end");
                talk *t = &talks[n_asked];
                write(r, t, text);
                t->salt = dice_one_in(&d, 3) ? "salt" : NULL;
                weir_request request = request_of(r, t);
                request.priority = dice_in(&d, 0, 2);
                request.cache_prompt = !dice_one_in(&d, 5);
                scored[n_asked] = dice_one_in(&d, 3);
                request.n_prompt_logprobs = scored[n_asked];
                t->stream = rig_submit(r, &request);
                asked[n_asked++] = true;
            }
            int i = dice_in(&d, 0, N - 1);
            if (asked[i] && dice_one_in(&d, 60)) {
                cancelled[i] = true;
                weir_stream_cancel(talks[i].stream);
            }
            rig_tick(r);
        }
        run(r);
        assert_int_equal(rig_stats(r).n_bad_plans, 0);
        for (int i = 0; i < n_asked; i++) {
            sink_take(&talks[i].got, talks[i].stream);
            if (cancelled[i] && talks[i].got.reason == WEIR_REASON_CANCELLED)
                assert_memory_equal(talks[i].got.tokens, talks[i].cells + talks[i].n_prompt,
                                    talks[i].got.n_tokens * sizeof(int32_t));
            else
                judge(&talks[i]);
            if (scored[i] && !cancelled[i]) judge_prompt(r, &talks[i]);
        }
        rig_stop(r);
        assert_int_equal(atomic_load(&r->fake->faults), 0);
        for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
        r->n_streams = 0;
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(each_gets_its_own_text),
        RIG_TEST(tokens_and_answers_and_forks_have_media),
        RIG_TEST(tokens_beside_media_have_logprobs),
        RIG_TEST(a_second_question_reuses_the_image),
        RIG_TEST(embeddings_are_kept_within_the_budget_and_by_salt),
        RIG_TEST(a_restart_finds_the_image),
        RIG_TEST(salts_share_no_prefix),
        RIG_TEST(queued_media_stay_within_the_budget),
        RIG_TEST(a_suspended_request_goes_on),
        RIG_TEST(without_memory),
        RIG_TEST(media_that_do_not_fit_are_refused),
        RIG_TEST(at_random),
    };
    return cmocka_run_group_tests(tests, make_sounds, release_sounds);
}

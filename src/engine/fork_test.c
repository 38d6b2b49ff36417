/* Forks of a stream, in every state that it may be in.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

#define N_PROMPT 60
#define N_ANSWER 40

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

static weir_request ask(rig *r, const int32_t *prompt)
{
    weir_request request = weir_request_default();
    request.tokens = prompt;
    request.n_tokens = N_PROMPT;
    request.sampler = &r->greedy;
    request.max_tokens = N_ANSWER;
    return request;
}

static void fill_prompt(int32_t *prompt, int first)
{
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 'a' + (first + i * i) % 23;
}

static weir_stream *fork_at(rig *r, weir_stream *source, int32_t at, const weir_request *request)
{
    weir_error error = {0};
    weir_stream *stream = rig_stream(r);
    if (weir_engine_fork(r->engine, source, at, request, stream, &error) != WEIR_OK)
        fail_msg("%s: %s", error.field, error.message);
    return stream;
}

/* A fork's cached tokens, by a dry run. */
static int32_t known(rig *r, weir_stream *source, int32_t at)
{
    weir_error error = {0};
    weir_forecast forecast = {.size = sizeof forecast};
    weir_request request = weir_request_default();
    request.source = source;
    request.source_at = at;
    if (weir_engine_plan_request(r->engine, &request, &forecast, &error) != WEIR_OK)
        fail_msg("%s: %s", error.field, error.message);
    return forecast.n_cached;
}

/* A greedy fork has the rest of the source's tokens and text. */
static void judge(weir_stream *stream, const sink *whole, int32_t at)
{
    static sink got;
    char text[sizeof got.text];
    memset(&got, 0, sizeof got);
    sink_take(&got, stream);
    assert_true(got.finished);
    snprintf(text, sizeof text, "%s%s", weir_stream_source_text(stream, NULL), got.text);
    assert_string_equal(text, whole->text);
    assert_int_equal(got.n_tokens + (size_t)at, whole->n_tokens);
    if (got.n_tokens > 0)
        assert_memory_equal(got.tokens, whole->tokens + at, got.n_tokens * sizeof *got.tokens);
    assert_int_equal(got.reason, whole->reason);
    assert_int_equal(weir_stream_usage(stream).n_prompt, N_PROMPT + at);
}

/* Pieces that split characters, so that text is held back at many a token. */
static void load_parts(rig *r)
{
    static const char *const pieces[] = {"\xf0\x9f", "\x98\x80", "\xc3", "\xa9", "ab", "b", "c", ""};
    rig_load(r, "fake:seed=5,eos_every=0");
    r->fake->next = NULL;
    for (int32_t token = 0; token < 256; token++)
        assert_true(weir__fake_set_piece(r->model, token, pieces[token % 8], strlen(pieces[token % 8]),
                                         WEIR__FAKE_TEXT));
}

/* ---- The same text --------------------------------------------------------------------------------- */

static weir_request rest(rig *r, int32_t at, const char *const *stop, size_t n_stop)
{
    weir_request request = weir_request_default();
    request.sampler = &r->greedy;
    request.max_tokens = N_ANSWER - at;
    request.stop = stop;
    request.n_stop = n_stop;
    return request;
}

/* Forks begin at each token, of the running source and of the finished one. */
static void a_greedy_fork_goes_on_as_its_source(void **state)
{
    rig *r = *state;
    static const char *const stops[] = {("\xf0\x9f\x98\x80"
                                         "abababab"),
                                        "bcbcbcbc", "cccc"};
    int32_t prompt[N_PROMPT];
    load_parts(r);
    r->params.n_slots = 2;
    for (int round = 0; round < 8; round++) {
        static sink whole;
        bool cached = round / 2 % 2 == 1, stopping = round / 4 == 1;
        weir_stream *running[N_ANSWER + 1], *finished[N_ANSWER + 1];
        memset(&whole, 0, sizeof whole);
        fill_prompt(prompt, round);
        r->params.layout = layouts[round % 2];
        r->params.cache_sequences = cached ? -1 : 0;
        rig_start(r);
        weir_request request = ask(r, prompt);
        request.stop = stops;
        request.n_stop = stopping ? COUNT(stops) : 0;
        weir_stream *source = rig_submit(r, &request);
        int32_t n = 0, n_running = 0;
        while (!weir_stream_finished(source)) {
            rig_tick(r);
            sink_take(&whole, source);
            for (; n_running <= (int32_t)whole.n_tokens && n > 0 && !weir_stream_finished(source);
                 n_running++) {
                weir_request more = rest(r, n_running, stops, request.n_stop);
                running[n_running] = fork_at(r, source, n_running, &more);
            }
            n = (int32_t)whole.n_tokens;
        }
        rig_run(r);
        assert_true(n_running > N_ANSWER / 2);
        for (int32_t at = 0; at < n_running; at++) judge(running[at], &whole, at);
        for (int32_t at = 0; at < (int32_t)whole.n_tokens; at++) {
            weir_request more = rest(r, at, stops, request.n_stop);
            finished[at] = fork_at(r, source, at, &more);
        }
        rig_run(r);
        for (int32_t at = 0; at < (int32_t)whole.n_tokens; at++) {
            judge(finished[at], &whole, at);
            int32_t n_cached = weir_stream_usage(finished[at]).n_cached;
            assert_int_equal(n_cached, cached ? N_PROMPT + at - 1 : 0);
        }
        assert_true(weir_stream_finished(source));
        for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
        r->n_streams = 0;
        rig_stop(r);
    }
}

/* Runs a source some tokens far in an engine of its own: in the first two of four rounds nothing is cached,
 * and each other one has the other layout. */
static weir_stream *run_source(rig *r, const int32_t *prompt, int round, sink *whole)
{
    memset(whole, 0, sizeof *whole);
    r->params.layout = layouts[round % 2];
    r->params.cache_sequences = round / 2 == 0 ? 0 : -1;
    rig_start(r);
    weir_request request = ask(r, prompt);
    weir_stream *source = rig_submit(r, &request);
    rig_ticks(r, 12);
    sink_take(whole, source);
    return source;
}

/* One token is computed also where prompts are not cached: the source's cells are there. */
static void a_fork_of_a_running_source_computes_one_token(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    fill_prompt(prompt, 0);
    rig_load(r, "fake:seed=5,eos_every=0");
    for (int round = 0; round < 4; round++) {
        static sink whole;
        weir_stream *source = run_source(r, prompt, round, &whole);
        int32_t at = (int32_t)whole.n_tokens;
        assert_true(at > 5);
        assert_int_equal(known(r, source, -1), N_PROMPT + at - 1);
        assert_int_equal(known(r, source, 3), N_PROMPT + 3 - 1);
        weir_request more = rest(r, at, NULL, 0), early = rest(r, 3, NULL, 0);
        weir_stream *newest = fork_at(r, source, -1, &more), *older = fork_at(r, source, 3, &early);
        rig_run(r);
        sink_take(&whole, source);
        judge(newest, &whole, at);
        judge(older, &whole, 3);
        assert_int_equal(weir_stream_usage(newest).n_cached, N_PROMPT + at - 1);
        assert_int_equal(weir_stream_usage(older).n_cached, N_PROMPT + 3 - 1);
        assert_int_equal(rig_stats(r).n_prompt_tokens, N_PROMPT + 2);
        assert_int_equal(known(r, source, 3), round / 2 == 0 ? 0 : N_PROMPT + 3 - 1);
        rig_stop(r);
    }
}

static void a_fork_waits_for_a_source_that_waits(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT], other[N_PROMPT];
    static sink whole;
    fill_prompt(prompt, 0);
    fill_prompt(other, 1);
    memset(&whole, 0, sizeof whole);
    rig_load(r, "fake:seed=5,eos_every=0");
    r->params.n_slots = 1;
    rig_start(r);
    weir_request first = ask(r, other), request = ask(r, prompt), more = rest(r, 0, NULL, 0);
    rig_submit(r, &first);
    rig_ticks(r, 2);
    weir_stream *source = rig_submit(r, &request);
    weir_stream *stream = fork_at(r, source, 0, &more);
    rig_run(r);
    sink_take(&whole, source);
    judge(stream, &whole, 0);
}

/* The source is suspended when it is forked; its state is kept or not. */
static void a_suspended_source_is_forked(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT], other[N_PROMPT];
    fill_prompt(prompt, 0);
    fill_prompt(other, 1);
    rig_load(r, "fake:seed=5,eos_every=0,exact=1");
    r->params.n_slots = 2;
    r->params.n_ctx = 128;
    r->params.n_kv = 128;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    for (int round = 0; round < 2; round++) {
        static sink whole;
        memset(&whole, 0, sizeof whole);
        r->params.cache_bytes = round == 0 ? WEIR_AUTO : 0;
        rig_start(r);
        weir_request request = ask(r, prompt), first = ask(r, other);
        first.priority = 1;
        first.max_tokens = 60;
        weir_stream *source = rig_submit(r, &request);
        rig_ticks(r, 10);
        rig_submit(r, &first);
        for (int i = 0; i < 100 && rig_stats(r).n_suspended == 0; i++) rig_tick(r);
        assert_int_equal(rig_stats(r).n_suspended, 1);
        sink_take(&whole, source);
        int32_t at = (int32_t)whole.n_tokens;
        assert_true(at > 3 && at < N_ANSWER);
        assert_true(known(r, source, at) < N_PROMPT);
        weir_request more = rest(r, at, NULL, 0), early = rest(r, 2, NULL, 0);
        weir_stream *late = fork_at(r, source, at, &more), *soon = fork_at(r, source, 2, &early);
        rig_run(r);
        sink_take(&whole, source);
        judge(late, &whole, at);
        judge(soon, &whole, 2);
        rig_stop(r);
    }
}

/* Forks it behind n tokens while it runs and after its end; both go on as it did. */
static void fork_running_and_finished(rig *r, weir_stream *source, sink *whole, int32_t n, int32_t cached[2])
{
    weir_request more = rest(r, n, NULL, 0);
    weir_stream *running = fork_at(r, source, n, &more);
    rig_run(r);
    sink_take(whole, source);
    weir_stream *finished = fork_at(r, source, n, &more);
    rig_run(r);
    judge(running, whole, n);
    judge(finished, whole, n);
    cached[0] = weir_stream_usage(running).n_cached;
    cached[1] = weir_stream_usage(finished).n_cached;
}

/* Memory that cannot be cut is computed again, or comes from a checkpoint. */
static void a_source_that_cannot_be_cut_is_forked(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    fill_prompt(prompt, 0);
    rig_load(r, "fake:seed=5,eos_every=0,recurrent=1");
    for (int round = 0; round < 4; round++) {
        static sink whole;
        weir_stream *source = run_source(r, prompt, round, &whole);
        assert_true(known(r, source, 4) < N_PROMPT + 4 - 1);
        int32_t cached[2];
        fork_running_and_finished(r, source, &whole, 4, cached);
        assert_true(round / 2 == 0 ? cached[1] == 0 : cached[1] >= N_PROMPT - 1);
        rig_stop(r);
    }
}

/* A window that still holds what the next token needs is cut there, also in a running source. A small one
 * is not, and a hybrid model's states are not: a checkpoint serves, beside the source's other cells. */
static void a_source_that_can_be_cut_in_places_is_forked(void **state)
{
    static const char *const models[] = {"fake:seed=5,eos_every=0,n_swa=1000",
                                         "fake:seed=5,eos_every=0,n_swa=8",
                                         "fake:seed=5,eos_every=0,hybrid=1"};
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    fill_prompt(prompt, 0);
    for (int i = 0; i < 12; i++) {
        static sink whole;
        rig_load(r, models[i / 4]);
        int round = i % 4;
        weir_stream *source = run_source(r, prompt, round, &whole);
        int32_t cached[2];
        fork_running_and_finished(r, source, &whole, 4, cached);
        bool caches = round / 2 > 0;
        assert_int_equal(cached[0], i / 4 == 0 ? N_PROMPT + 3 : caches ? N_PROMPT - 1 : 0);
        assert_true(cached[1] == cached[0] || !caches || cached[1] == N_PROMPT + 3);
        rig_stop(r);
    }
}

static void a_fork_is_forked(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    static sink whole, part;
    fill_prompt(prompt, 0);
    memset(&whole, 0, sizeof whole);
    load_parts(r);
    rig_start(r);
    weir_request request = ask(r, prompt);
    weir_stream *source = rig_submit(r, &request);
    rig_run(r);
    sink_take(&whole, source);
    for (int32_t first = 0; first < 12; first++) {
        weir_request more = rest(r, first, NULL, 0);
        weir_stream *stream = fork_at(r, source, first, &more);
        rig_run(r);
        memset(&part, 0, sizeof part);
        sink_take(&part, stream);
        for (int32_t then = 0; then < 3; then++) {
            more.max_tokens = N_ANSWER - first - then;
            weir_stream *second = fork_at(r, stream, then, &more);
            rig_run(r);
            judge(second, &whole, first + then);
            rig_release(r, second);
        }
        rig_release(r, stream);
        r->n_streams -= 4;
    }
}

/* ---- Its own ways ---------------------------------------------------------------------------------- */

/* The answer of a request with the same tokens and the same seed. */
static void a_fork_draws_by_its_own_seed(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT + N_ANSWER];
    static sink whole, got[2], want[2];
    fill_prompt(prompt, 0);
    memset(&whole, 0, sizeof whole);
    memset(got, 0, sizeof got);
    memset(want, 0, sizeof want);
    rig_load(r, "fake:seed=5,eos_every=0");
    rig_start(r);
    weir_request request = ask(r, prompt);
    weir_stream *source = rig_submit(r, &request);
    rig_ticks(r, 15);
    sink_take(&whole, source);
    memcpy(prompt + N_PROMPT, whole.tokens, 7 * sizeof *prompt);
    for (int i = 0; i < 2; i++) {
        weir_sampler_params hot = weir_sampler_params_default();
        weir_request more = rest(r, 7, NULL, 0);
        hot.temp = 2;
        hot.seed = 100 + (uint32_t)i;
        hot.ignore_eos = true;
        more.sampler = &hot;
        weir_stream *stream = fork_at(r, source, 7, &more);
        more.tokens = prompt;
        more.n_tokens = N_PROMPT + 7;
        weir_stream *plain = rig_submit(r, &more);
        rig_run(r);
        sink_take(&got[i], stream);
        sink_take(&want[i], plain);
        assert_int_equal(got[i].n_tokens, N_ANSWER - 7);
        assert_memory_equal(got[i].tokens, want[i].tokens, got[i].n_tokens * sizeof(int32_t));
    }
    assert_string_not_equal(got[0].text, got[1].text);
    /* several at once: source is a kind of prompt like others */
    weir_stream *streams[3] = {rig_stream(r), rig_stream(r), rig_stream(r)};
    weir_request more = rest(r, 7, NULL, 0);
    more.source = source;
    more.source_at = 7;
    assert_int_equal(weir_engine_submit_n(r->engine, &more, 3, streams, NULL), WEIR_OK);
    rig_run(r);
    sink_take(&whole, source);
    for (int i = 0; i < 3; i++) judge(streams[i], &whole, 7);
    weir_forecast forecast = {.size = sizeof forecast};
    assert_int_equal(weir_engine_plan_request(r->engine, &more, &forecast, NULL), WEIR_OK);
    assert_int_equal(forecast.n_prompt, N_PROMPT + 7);
}

static void a_grammar_sees_the_answer_from_its_beginning(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    static sink got;
    weir_error error = {0};
    weir_sampler_params first = r->greedy, second = r->greedy;
    fill_prompt(prompt, 0);
    memset(&got, 0, sizeof got);
    rig_load(r, "fake:seed=5,eos_every=0");
    rig_start(r);
    first.grammar = "root ::= \"abcd\"";
    second.grammar = "root ::= \"xyz\" | \"abxy\"";
    weir_request request = ask(r, prompt);
    request.sampler = &first;
    weir_stream *source = rig_submit(r, &request);
    rig_run(r);
    weir_request more = rest(r, 0, NULL, 0);
    more.sampler = &second;
    weir_stream *stream = fork_at(r, source, 2, &more);
    rig_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "xy");
    assert_string_equal(weir_stream_source_text(stream, NULL), "ab");
    stream = rig_stream(r);
    assert_int_equal(weir_engine_fork(r->engine, source, 3, &more, stream, &error), WEIR_REFUSED);
    assert_string_equal(error.field, "requests[0].sampler");
    assert_int_equal(weir_stream_index(stream), -1);
}

/* The salt is the source's, so that no other request finds a fork's prefix. */
static void a_fork_has_its_sources_salt(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    fill_prompt(prompt, 0);
    rig_load(r, "fake:seed=5,eos_every=0");
    r->params.cache_sequences = -1;
    rig_start(r);
    weir_request request = ask(r, prompt);
    request.cache_salt = "alice";
    weir_stream *source = rig_submit(r, &request);
    rig_run(r);
    weir_request more = rest(r, 5, NULL, 0);
    more.cache_salt = "bob";
    weir_stream *stream = fork_at(r, source, 5, &more);
    rig_run(r);
    assert_int_equal(weir_stream_usage(stream).n_cached, N_PROMPT + 5 - 1);
    request.cache_salt = "bob";
    weir_stream *other = rig_submit(r, &request);
    rig_run(r);
    assert_int_equal(weir_stream_usage(other).n_cached, 0);
}

/* ---- Refusals -------------------------------------------------------------------------------------- */

#define REFUSES(status_, field_, engine_, source_, at_, request_)                                            \
    do {                                                                                                     \
        weir_error error_ = {0};                                                                             \
        weir_stream *stream_ = rig_stream(r);                                                                \
        assert_int_equal(weir_engine_fork(engine_, source_, at_, request_, stream_, &error_), status_);      \
        assert_string_equal(error_.field, field_);                                                           \
        assert_int_equal(weir_stream_index(stream_), -1);                                                    \
    } while (0)

static void impossible_forks_are_refused(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    weir_engine *other = NULL;
    fill_prompt(prompt, 0);
    rig_load(r, "fake:seed=5,eos_every=0");
    r->params.n_ctx = N_PROMPT + N_ANSWER;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    rig_start(r);
    assert_int_equal(weir_engine_create(r->model, &r->params, &other, NULL), WEIR_OK);
    weir_request request = ask(r, prompt), more = rest(r, 0, NULL, 0);
    weir_stream *source = rig_submit(r, &request);
    REFUSES(WEIR_INVALID, "requests[0].source_at", r->engine, source, 1, NULL); /* nothing has come */
    rig_run(r);
    REFUSES(WEIR_INVALID, "source", r->engine, NULL, 0, NULL);
    REFUSES(WEIR_INVALID, "engine", NULL, source, 0, NULL);
    REFUSES(WEIR_STATE, "requests[0].source", r->engine, rig_stream(r), 0, NULL);
    REFUSES(WEIR_INVALID, "requests[0].source", other, source, 0, NULL);
    REFUSES(WEIR_INVALID, "requests[0].source_at", r->engine, source, N_ANSWER + 1, NULL);
    REFUSES(WEIR_INVALID, "requests[0].source_at", r->engine, source, INT32_MAX, NULL);
    REFUSES(WEIR_INVALID, "requests[0].source_at", r->engine, source, -2, NULL);
    REFUSES(WEIR_TOO_LONG, "requests[0].source_at", r->engine, source, -1, NULL);
    more.text = "two prompts";
    REFUSES(WEIR_INVALID, "requests[0].text", r->engine, source, 0, &more);
    weir_error error = {0};
    assert_int_equal(weir_engine_fork(r->engine, source, 0, NULL, source, &error), WEIR_STATE);
    assert_int_equal(weir_engine_fork(r->engine, source, 3, NULL, NULL, &error),
                     WEIR_OK); /* nobody reads it */
    rig_run(r);
    weir_engine_stop(r->engine);
    REFUSES(WEIR_STOPPED, "", r->engine, source, 0, NULL);
    weir_engine_destroy(other);
    size_t length = 9;
    assert_string_equal(weir_stream_source_text(NULL, &length), "");
    assert_int_equal(length, 0);
}

static void every_allocation_of_a_fork_may_fail(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    static sink whole;
    fill_prompt(prompt, 0);
    memset(&whole, 0, sizeof whole);
    load_parts(r);
    r->params.cache_sequences = -1;
    rig_start(r);
    weir_request request = ask(r, prompt), more = rest(r, 5, NULL, 0);
    request.cache_salt = "some salt";
    weir_stream *source = rig_submit(r, &request);
    rig_run(r);
    sink_take(&whole, source);
    for (long n = 0;; n++) {
        static sink got;
        weir_stream *stream = NULL;
        weir_error error = {0};
        memset(&got, 0, sizeof got);
        assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
        weir__mem_fail_after(n);
        weir_status status = weir_engine_fork(r->engine, source, 5, &more, stream, &error);
        if (status == WEIR_OK) rig_run(r);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status != WEIR_OK) assert_int_equal(status, WEIR_NO_MEMORY);
        if (pending)
            judge(stream, &whole, 5);
        else if (status == WEIR_OK)
            sink_take(&got, stream);
        weir_stream_release(stream);
        if (pending) break;
    }
}

/* ---- Threads --------------------------------------------------------------------------------------- */

typedef struct forker {
    rig *r;
    weir_stream *source;
    const sink *whole;
    const char *wrong;
} forker;

/* Forks while the source runs, and after. */
static void *run_forker(void *user)
{
    forker *f = user;
    for (int i = 0; i < 12 && f->wrong == NULL; i++) {
        weir_stream *stream = NULL;
        weir_chunk chunk;
        weir_request more = weir_request_default();
        size_t n = 0;
        more.sampler = &f->r->greedy;
        more.max_tokens = 5;
        if (weir_stream_create(&stream, NULL) != WEIR_OK) return NULL;
        if (weir_engine_fork(f->r->engine, f->source, -1, &more, stream, NULL) != WEIR_OK) {
            f->wrong = "refused";
            weir_stream_release(stream);
            break;
        }
        int32_t at = weir_stream_usage(stream).n_prompt - N_PROMPT;
        while (weir_stream_next(stream, 120000, &chunk) == WEIR_OK) {
            for (size_t k = 0; k < chunk.n_tokens; k++, n++)
                if ((size_t)at + n < f->whole->n_tokens &&
                    chunk.tokens[k] != f->whole->tokens[(size_t)at + n])
                    f->wrong = "another token";
        }
        if (n != 5) f->wrong = "another length";
        weir_stream_release(stream);
    }
    return NULL;
}

static void threads_fork_one_source(void **state)
{
    rig *r = *state;
    int32_t prompt[N_PROMPT];
    static sink whole;
    pthread_t threads[2];
    fill_prompt(prompt, 0);
    memset(&whole, 0, sizeof whole);
    rig_load(r, "fake:seed=5,eos_every=0,tick_us=200");
    r->params.manual = false;
    rig_start(r);
    weir_request request = ask(r, prompt);
    sink_wait(&whole, rig_submit(r, &request));
    weir_stream *source = rig_submit(r, &request);
    forker forkers[2] = {{r, source, &whole, NULL}, {r, source, &whole, NULL}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_forker, &forkers[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (forkers[i].wrong != NULL) fail_msg("%s", forkers[i].wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_greedy_fork_goes_on_as_its_source),
        RIG_TEST(a_fork_of_a_running_source_computes_one_token),
        RIG_TEST(a_fork_waits_for_a_source_that_waits),
        RIG_TEST(a_suspended_source_is_forked),
        RIG_TEST(a_source_that_cannot_be_cut_is_forked),
        RIG_TEST(a_source_that_can_be_cut_in_places_is_forked),
        RIG_TEST(a_fork_is_forked),
        RIG_TEST(a_fork_draws_by_its_own_seed),
        RIG_TEST(a_grammar_sees_the_answer_from_its_beginning),
        RIG_TEST(a_fork_has_its_sources_salt),
        RIG_TEST(impossible_forks_are_refused),
        RIG_TEST(every_allocation_of_a_fork_may_fail),
        RIG_TEST(threads_fork_one_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

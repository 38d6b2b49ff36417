/* engine.h: shared by the engine's tests: a fake model that answers from scripts, an engine with it, and a
 * sink that checks every chunk it receives.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_ENGINE_ENGINE_H
#define WEIR_SUPPORT_ENGINE_ENGINE_H

#include <poll.h>
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
#include "base/utf8.h"
#include "engine/chunks.h"
#include "engine/engine.h"
#include "engine/stream.h"
#include "model/fake.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

#define REPLACEMENT "\xef\xbf\xbd" /* replaces bytes that are no UTF-8 */

/* ---- Sink ----------------------------------------------------------------------------------------- */

/* Everything that a reader got. The first thing that a stream must never do is noted in `wrong`, so that
 * threads can fill sinks and the test's own thread judge them. */
typedef struct sink {
    const char *wrong;
    char text[8192];
    size_t n_text;
    int32_t tokens[4096];
    size_t n_tokens;
    size_t last_tokens; /* of the newest chunk */
    char last[4096];    /* text of the newest chunk */
    int n_chunks;
    int32_t n_generated; /* as the newest chunk has it */
    bool finished;
    weir_reason reason;
} sink;

static inline void sink_add(sink *to, const weir_chunk *chunk)
{
    to->n_chunks++;
    if (to->finished) to->wrong = "a chunk after the terminal one";
    if (chunk->text == NULL || chunk->text[chunk->length] != '\0') to->wrong = "text without its NUL";
    if (!chunk->finished && chunk->length == 0) to->wrong = "a chunk without text that is not the last";
    if (!weir__utf8_valid(chunk->text, chunk->length)) to->wrong = "ill-formed text";
    if (chunk->finished != (chunk->reason != WEIR_REASON_NOT_FINISHED)) to->wrong = "reason and end differ";
    if (to->n_text + chunk->length >= sizeof to->text ||
        to->n_tokens + chunk->n_tokens >= COUNT(to->tokens) || chunk->length >= sizeof to->last)
        to->wrong = "more than a test's sink holds";
    if (to->wrong != NULL) return;
    memcpy(to->text + to->n_text, chunk->text, chunk->length + 1);
    memcpy(to->last, chunk->text, chunk->length + 1);
    to->n_text += chunk->length;
    if (chunk->n_tokens > 0)
        memcpy(to->tokens + to->n_tokens, chunk->tokens, chunk->n_tokens * sizeof *chunk->tokens);
    to->n_tokens += chunk->n_tokens;
    to->last_tokens = chunk->n_tokens;
    to->n_generated = chunk->n_generated;
    to->finished = chunk->finished;
    to->reason = chunk->reason;
}

/* Takes all chunks that are ready; returns their number. */
static inline int sink_take(sink *to, weir_stream *stream)
{
    weir_chunk chunk;
    int n = 0;
    weir_status status;
    while ((status = weir_stream_try_next(stream, &chunk)) == WEIR_OK) {
        sink_add(to, &chunk);
        n++;
    }
    if (status != WEIR_TIMEOUT && status != WEIR_END) to->wrong = weir_status_name(status);
    if ((status == WEIR_END) != to->finished) to->wrong = "the end without a terminal chunk";
    if (to->wrong != NULL) fail_msg("%s", to->wrong);
    return n;
}

/* Waits for the terminal chunk of an engine that has a thread. */
static inline void sink_wait(sink *to, weir_stream *stream)
{
    weir_chunk chunk;
    weir_status status = WEIR_OK;
    while (!to->finished && to->wrong == NULL) {
        status = weir_stream_next(stream, 120000, &chunk);
        if (status == WEIR_OK)
            sink_add(to, &chunk);
        else
            to->wrong = weir_status_name(status);
    }
    if (to->wrong == NULL && weir_stream_try_next(stream, &chunk) != WEIR_END)
        to->wrong = "no end after the terminal chunk";
}

#define assert_sink(sink_, reason_, text_)                                                                   \
    do {                                                                                                     \
        assert_null((sink_).wrong);                                                                          \
        assert_true((sink_).finished);                                                                       \
        assert_int_equal((sink_).reason, (reason_));                                                         \
        assert_string_equal((sink_).text, (text_));                                                          \
    } while (0)

/* ---- Rig ------------------------------------------------------------------------------------------ */

#define RIG_SCRIPTS 64
#define RIG_PROMPT  512
#define RIG_ANSWER  2048
#define RIG_STREAMS 160
#define RIG_WRONG   '#' /* the model's token after anything but the script */

typedef struct rig_script_t {
    int32_t key; /* the prompt's first token; 0 = none */
    int32_t n_prompt;
    int32_t prompt[RIG_PROMPT];
    int32_t n_answer;
    int32_t answer[RIG_ANSWER];
} rig_script_t;

typedef struct rig {
    weir_model *model;
    weir__fake *fake;
    weir_engine *engine;
    weir_engine_params params;
    weir_sampler_params greedy;
    rig_script_t scripts[RIG_SCRIPTS];
    weir_stream *streams[RIG_STREAMS];
    int n_streams;
    long live;  /* blocks before the rig */
    bool dirty; /* the test expects faults or leaves cells behind */
} rig;

/* The scripted answer, then the end. A history that is not exactly prompt and answer so far is a mistake of
 * the engine: it becomes visible in the text. Without a script for the first token the fake's hash decides.
 */
static inline int32_t rig_next(void *user, const int32_t *history, int32_t n)
{
    const rig *r = user;
    for (int i = 0; i < RIG_SCRIPTS; i++) {
        const rig_script_t *s = &r->scripts[i];
        if (s->key == 0 || s->key != history[0]) continue;
        int32_t at = n - s->n_prompt;
        if (at < 0 || at > s->n_answer) return RIG_WRONG;
        if (memcmp(history, s->prompt, (size_t)s->n_prompt * sizeof *history) != 0) return RIG_WRONG;
        if (memcmp(history + s->n_prompt, s->answer, (size_t)at * sizeof *history) != 0) return RIG_WRONG;
        return at < s->n_answer ? s->answer[at] : WEIR__FAKE_EOS;
    }
    return -1;
}

static inline void rig_load(rig *r, const char *path)
{
    weir_model_release(r->model);
    assert_int_equal(weir_model_load(path, NULL, &r->model, NULL), WEIR_OK);
    r->fake = weir__fake_of(r->model);
    assert_non_null(r->fake);
    r->fake->next = rig_next;
    r->fake->next_user = r;
}

static inline int rig_setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    if (r == NULL) return -1;
    r->live = weir__mem_live();
    r->greedy = weir_sampler_params_default();
    r->greedy.temp = 0;
    r->params = weir_engine_params_default();
    r->params.manual = true;
    r->params.n_slots = 4;
    r->params.n_ctx = 256;
    r->params.cache_sequences = 0; /* tests that cache prefixes say so */
    r->params.n_draft_max = 0;     /* and drafts, which depend on the time of ticks */
    *state = r;
    rig_load(r, "fake:");
    return 0;
}

/* Whatever a test did: no fault in the use of the backend, no cell and no block left. */
static inline int rig_teardown(void **state)
{
    rig *r = *state;
    weir__mem_fail_after(-1);
    weir_engine_destroy(r->engine);
    for (int i = 0; i < r->n_streams; i++) weir_stream_release(r->streams[i]);
    uint32_t faults = atomic_load(&r->fake->faults);
    int64_t cells = atomic_load(&r->fake->n_cells);
    int32_t contexts = atomic_load(&r->fake->n_contexts), samplers = atomic_load(&r->fake->n_samplers);
    weir_model_release(r->model);
    long left = weir__mem_live() - r->live;
    bool dirty = r->dirty;
    free(r);
    if (!dirty && (faults != 0 || cells != 0 || contexts != 0 || samplers != 0 || left != 0)) {
        print_error("left behind: faults %x, %lld cells, %d contexts, %d samplers, %ld blocks\n", faults,
                    (long long)cells, contexts, samplers, left);
        return -1;
    }
    return 0;
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

/* Starts the engine with r->params. */
static inline void rig_start(rig *r)
{
    weir_error error = {0};
    if (weir_engine_create(r->model, &r->params, &r->engine, &error) != WEIR_OK)
        fail_msg("%s", error.message);
}

/* With prefixes cached in sequences and in host memory, and short chunks. */
static inline void rig_start_caching(rig *r, weir_layout layout, int32_t n_slots)
{
    r->params.n_slots = n_slots;
    r->params.chunk_size = 16;
    r->params.layout = layout;
    r->params.cache_sequences = -1;
    r->params.cache_bytes = 100000;
    rig_start(r);
}

/* Ends the engine before the rig does. */
static inline void rig_stop(rig *r)
{
    weir_engine_destroy(r->engine);
    r->engine = NULL;
}

/* The prompt that begins with `key` and has n_prompt tokens is answered with these tokens. */
static inline void rig_script_ids(rig *r, int32_t key, int32_t n_prompt, const int32_t *answer, size_t n)
{
    int i = 0;
    while (i < RIG_SCRIPTS && r->scripts[i].key != 0 && r->scripts[i].key != key) i++;
    assert_true(i < RIG_SCRIPTS && n_prompt >= 1 && n_prompt <= RIG_PROMPT && n <= RIG_ANSWER);
    rig_script_t *s = &r->scripts[i];
    s->key = key;
    s->n_prompt = n_prompt;
    s->prompt[0] = key;
    for (int32_t at = 1; at < n_prompt; at++) s->prompt[at] = 'a' + (key + at) % 26;
    s->n_answer = (int32_t)n;
    if (n > 0) memcpy(s->answer, answer, n * sizeof *answer);
}

/* The same, one token for each byte of the text. */
static inline void rig_script(rig *r, int32_t key, int32_t n_prompt, const char *answer)
{
    int32_t ids[RIG_ANSWER];
    size_t n = strlen(answer);
    assert_true(n <= RIG_ANSWER);
    for (size_t i = 0; i < n; i++) ids[i] = (unsigned char)answer[i];
    rig_script_ids(r, key, n_prompt, ids, n);
}

/* A greedy request for that prompt. */
static inline weir_request rig_ask(rig *r, int32_t key)
{
    weir_request request = weir_request_default();
    request.sampler = &r->greedy;
    for (int i = 0; i < RIG_SCRIPTS; i++) {
        if (r->scripts[i].key != key) continue;
        request.tokens = r->scripts[i].prompt;
        request.n_tokens = (size_t)r->scripts[i].n_prompt;
        return request;
    }
    fail_msg("no script for '%c'", key);
    return request;
}

static inline weir_request rig_ask_stop(rig *r, int32_t key, const char *const *stop)
{
    weir_request request = rig_ask(r, key);
    request.stop = stop;
    request.n_stop = 1;
    return request;
}

static inline weir_request rig_ask_interval(rig *r, int32_t key, int32_t interval)
{
    weir_request request = rig_ask(r, key);
    request.interval = interval;
    return request;
}

/* A greedy request for any prompt. */
static inline weir_request rig_ask_text(rig *r, const char *prompt, int32_t max_tokens)
{
    weir_request request = weir_request_default();
    request.text = prompt;
    request.sampler = &r->greedy;
    request.max_tokens = max_tokens;
    return request;
}

/* A sampler that gives another answer for each seed. */
static inline weir_sampler_params rig_hot(uint32_t seed)
{
    weir_sampler_params params = weir_sampler_params_default();
    params.temp = 2;
    params.seed = seed;
    params.ignore_eos = true;
    return params;
}

/* A fresh stream, released when the test ends. */
static inline weir_stream *rig_stream(rig *r)
{
    assert_true(r->n_streams < RIG_STREAMS);
    weir_stream *stream = NULL;
    assert_int_equal(weir_stream_create(&stream, NULL), WEIR_OK);
    r->streams[r->n_streams++] = stream;
    return stream;
}

/* Releases it now. */
static inline void rig_release(rig *r, weir_stream *stream)
{
    for (int i = 0; i < r->n_streams; i++)
        if (r->streams[i] == stream) r->streams[i] = NULL;
    weir_stream_release(stream);
}

static inline weir_stream *rig_submit(rig *r, const weir_request *request)
{
    weir_error error = {0};
    weir_stream *stream = rig_stream(r);
    if (weir_engine_submit(r->engine, request, 1, &stream, &error) != WEIR_OK) fail_msg("%s", error.message);
    return stream;
}

/* Submits the scripted prompt of that key as it is. */
static inline weir_stream *rig_submit_key(rig *r, int32_t key)
{
    weir_request request = rig_ask(r, key);
    return rig_submit(r, &request);
}

static inline weir_report rig_tick(rig *r)
{
    weir_report report = {.size = sizeof report};
    assert_int_equal(weir_engine_step(r->engine, NULL, 0, &report, NULL), WEIR_OK);
    return report;
}

static inline void rig_ticks(rig *r, int n)
{
    while (n-- > 0) rig_tick(r);
}

static inline weir_engine_stats rig_stats(rig *r)
{
    weir_engine_stats stats = {.size = sizeof stats};
    assert_int_equal(weir_engine_get_stats(r->engine, &stats), WEIR_OK);
    return stats;
}

/* Ticks until nothing is left to do; how many ticks did something. */
static inline int rig_run(rig *r)
{
    for (int n = 0; n < 100000; n++) {
        weir_report report = rig_tick(r);
        if (report.idle && report.n_active == 0 && report.queue_depth == 0) return n;
        if (report.idle && report.n_active > 0) poll(NULL, 0, 1); /* for a file or an encode */
    }
    fail_msg("the engine does not come to rest");
    return 0;
}

/* Runs to the end and takes everything. */
static inline void rig_run_out(rig *r, weir_stream *stream, sink *got)
{
    rig_run(r);
    sink_take(got, stream);
    assert_true(got->finished);
    assert_int_equal(weir_stream_reason(stream), got->reason);
}

/* Refused with this status and field, and nothing has changed: neither engine nor stream nor memory. */
static inline void rig_refuses(rig *r, const weir_request *requests, size_t n, weir_stream *const *streams,
                               weir_status status, const char *field)
{
    weir_error error = {0};
    uint64_t n_submitted = rig_stats(r).n_submitted;
    int32_t depth = rig_stats(r).queue_depth;
    long live = weir__mem_live();
    assert_int_equal(weir_engine_submit(r->engine, requests, n, streams, &error), status);
    assert_int_equal(error.code, status);
    assert_string_equal(error.field, field);
    assert_string_not_equal(error.message, "");
    assert_int_equal(rig_stats(r).n_submitted, n_submitted);
    assert_int_equal(rig_stats(r).queue_depth, depth);
    assert_int_equal(weir__mem_live(), live);
}

/* ---- A producer without an engine ----------------------------------------------------------------- */

typedef struct bench {
    weir__waker *waker;
    weir_stream *stream;
    bool attached; /* and not yet finished */
    long live;
} bench;

static inline int bench_setup(void **state)
{
    bench *b = calloc(1, sizeof *b);
    if (b == NULL) return -1;
    b->live = weir__mem_live();
    *state = b;
    if (weir__waker_create(&b->waker) != WEIR_OK) return -1;
    return weir_stream_create(&b->stream, NULL) == WEIR_OK ? 0 : -1;
}

static inline void bench_attach(bench *b)
{
    assert_int_equal(weir__stream_attach(b->stream, 0, 1, 6, b->waker), WEIR_OK);
    b->attached = true;
}

static inline int bench_setup_attached(void **state)
{
    if (bench_setup(state) != 0) return -1;
    bench_attach(*state);
    return 0;
}

static inline void bench_end(bench *b, weir_reason reason, const char *text)
{
    static const weir_usage usage = {.n_generated = 99};
    assert_true(b->attached);
    b->attached = false;
    const weir_chunk end = {.text = text, .length = strlen(text), .reason = reason};
    weir__stream_finish(b->stream, &end, NULL, &usage);
}

static inline int bench_teardown(void **state)
{
    bench *b = *state;
    weir__mem_fail_after(-1);
    weir_stream_set_ready(b->stream, NULL, NULL); /* its user data may be gone with the test */
    if (b->attached) bench_end(b, WEIR_REASON_END, "");
    weir_stream_release(b->stream);
    weir__waker_release(b->waker);
    long left = weir__mem_live() - b->live;
    free(b);
    if (left != 0) print_error("%ld blocks left behind\n", left);
    return left == 0 ? 0 : -1;
}

#define BENCH_FRESH(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)
#define BENCH_TEST(name)  cmocka_unit_test_setup_teardown(name, bench_setup_attached, bench_teardown)

/* One token with its text. */
static inline bool bench_put(bench *b, int32_t token, const char *text)
{
    weir_usage usage = {.n_generated = token, .total_ns = token * WEIR__NS_PER_MS};
    const weir_chunk chunk = {.tokens = &token, .n_tokens = 1, .text = text, .length = strlen(text)};
    return weir__stream_push(b->stream, &chunk, &usage);
}

static inline void bench_push(bench *b, const char *text)
{
    assert_true(bench_put(b, 7, text));
}

/* Asks the descriptor alone: getting one from the stream would set it right. */
static inline bool readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    assert_in_range(poll(&entry, 1, 0), 0, 1);
    return (entry.revents & POLLIN) != 0;
}

static inline int descriptor_of(weir_stream *stream)
{
    int fd = -1;
    assert_int_equal(weir_stream_descriptor(stream, &fd, NULL), WEIR_OK);
    return fd;
}

#endif

/* slow_folder_test.c: a cache_dir whose files cannot be read for a while.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/folder.h"

#include <pthread.h>

#include "cache/cache_entry.h"
#include "cache/folder.h"
#include "support/dice.h"

#define LENGTH 100

/* ---- A folder that stalls ---- */

static struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool closed;
    int n_opens; /* files that the reader has begun with */
    int n_finds; /* the same of files' times */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set_gate(bool closed)
{
    pthread_mutex_lock(&gate.mutex);
    gate.closed = closed;
    if (closed) gate.n_opens = gate.n_finds = 0;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static int opens(void)
{
    pthread_mutex_lock(&gate.mutex);
    int n = gate.n_opens;
    pthread_mutex_unlock(&gate.mutex);
    return n;
}

/* Counts a call, and waits until the gate is open. */
static void pass_gate(int *n_calls)
{
    pthread_mutex_lock(&gate.mutex);
    (*n_calls)++;
    pthread_cond_broadcast(&gate.changed);
    while (gate.closed) pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

static weir_status open_slowly(int folder, const char *name, int *fd, weir_error *error)
{
    pass_gate(&gate.n_opens);
    return weir__folder_open_file(folder, name, fd, error);
}

static bool find_slowly(int folder, const char *name, weir__folder_file *file)
{
    pass_gate(&gate.n_finds);
    return weir__folder_find(folder, name, file);
}

static void await_open(void)
{
    pthread_mutex_lock(&gate.mutex);
    while (gate.n_opens == 0) pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

/* ---- The engine ---- */

static weir__reader *reader_of(const rig *r)
{
    return weir__archive_reader(r->engine->driver.prefix.cache->params.archive);
}

static void start(rig *r, weir_layout layout)
{
    folder_start(r, layout, 4, 300);
    reader_of(r)->open_file = open_slowly;
    reader_of(r)->find_file = find_slowly;
}

/* Starts an engine whose folder has the texts 1 … n, and stalls. */
static void start_stalled(rig *r, weir_layout layout, int n)
{
    static talk t;
    bool manual = r->params.manual;
    folder_renew();
    set_gate(false);
    r->params.manual = true;
    start(r, layout);
    for (int i = 1; i <= n; i++) {
        talk_make(r, &t, i, LENGTH);
        talk_ask(r, r->engine, &t, NULL);
    }
    rig_stop(r);
    r->params.manual = manual;
    start(r, layout);
    assert_true(rig_stats(r).n_cache_files >= n); /* checkpoints are files of their own */
    set_gate(true);
}

/* Opens the folder, and waits for the file that is being read. */
static void end_stall(rig *r)
{
    set_gate(false);
    weir__reader_wait(reader_of(r));
}

static weir_stream *submit(rig *r, const talk *t, int32_t max_tokens)
{
    weir_request request = weir_request_default();
    request.sampler = &r->greedy;
    request.tokens = t->tokens;
    request.n_tokens = (size_t)t->n;
    request.max_tokens = max_tokens;
    return rig_submit(r, &request);
}

static const weir__slot *slot_of(const rig *r, const weir_stream *stream)
{
    for (int32_t i = 0; i < r->engine->params.n_slots; i++) {
        const weir__slot *slot = &r->engine->driver.slots.first[i];
        if (slot->state != WEIR_SLOT_IDLE && slot->request->stream == stream) return slot;
    }
    return NULL;
}

/* The slot waits for a file, and goes on doing so until `due`. */
static void set_wait(rig *r, const weir_stream *stream, int64_t due)
{
    const weir__slot *slot = slot_of(r, stream);
    assert_non_null(slot);
    assert_int_equal(slot->state, WEIR_SLOT_JOINED);
    assert_int_equal(slot->lane, -1);
    r->engine->driver.slots.first[slot->index].wait.due_ns = due;
}

/* The reader has had its file for longer than anybody waits. */
static void age_read(rig *r)
{
    reader_of(r)->asked_ns = weir__clock_now_ns() - 61 * WEIR__NS_PER_S;
}

static void assert_answer(rig *r, weir_stream *stream, const talk *t, int32_t n_cached)
{
    static sink got;
    memset(&got, 0, sizeof got);
    rig_run_out(r, stream, &got);
    assert_int_equal(got.reason, WEIR_REASON_LENGTH);
    assert_int_equal(got.n_tokens, TALK_ANSWER);
    assert_memory_equal(got.tokens, t->tokens + t->n, TALK_ANSWER * sizeof *t->tokens);
    assert_int_equal(weir_stream_usage(stream).n_cached, n_cached);
}

static int teardown(void **state)
{
    set_gate(false); /* a test that fails ends, too */
    return rig_teardown(state);
}

/* ---- Tests ---- */

static void test_other_streams_go_on(void **state)
{
    rig *r = *state;
    static talk kept, second, third, other;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        start_stalled(r, layouts[l], 3);
        talk_make(r, &kept, 1, LENGTH);
        talk_make(r, &second, 2, LENGTH);
        talk_make(r, &third, 3, LENGTH);
        talk_make(r, &other, 4, LENGTH);
        weir_stream *waits = submit(r, &kept, TALK_ANSWER);
        rig_tick(r);
        set_wait(r, waits, WEIR__CLOCK_NEVER);
        weir_stream *runs = submit(r, &other, TALK_ANSWER);
        while (!weir_stream_finished(runs)) rig_tick(r);
        assert_non_null(slot_of(r, waits));
        await_open();
        set_wait(r, waits, 1); /* the end of its patience */
        assert_answer(r, waits, &kept, 0);

        age_read(r);
        weir_stream *next = submit(r, &second, TALK_ANSWER); /* nobody waits for a reader that hangs */
        rig_tick(r);
        assert_int_not_equal(slot_of(r, next)->state, WEIR_SLOT_JOINED);
        assert_answer(r, next, &second, 0);
        assert_int_equal(opens(), 1);
        end_stall(r);
        rig_tick(r);
        assert_answer(r, submit(r, &third, TALK_ANSWER), &third, LENGTH - 1);
        assert_int_equal(rig_stats(r).n_cache_restored, 1);
        rig_stop(r);
    }
}

static void test_one_file_for_many(void **state)
{
    rig *r = *state;
    static const char *const kinds[] = {"fake:", "fake:recurrent=1"};
    static talk t;
    weir_stream *streams[3];
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t l = 0; l < COUNT(layouts); l++) {
            rig_load(r, kinds[k]);
            start_stalled(r, layouts[l], 1);
            talk_make(r, &t, 1, LENGTH);
            for (size_t i = 0; i < COUNT(streams); i++) {
                streams[i] = submit(r, &t, TALK_ANSWER);
                rig_tick(r);
                set_wait(r, streams[i], WEIR__CLOCK_NEVER);
            }
            end_stall(r);
            rig_tick(r);
            for (size_t i = 0; i < COUNT(streams); i++) /* in the same tick */
                assert_int_not_equal(slot_of(r, streams[i])->state, WEIR_SLOT_JOINED);
            for (size_t i = 0; i < COUNT(streams); i++) assert_answer(r, streams[i], &t, LENGTH - 1);
            assert_int_equal(opens(), 1);
            rig_stop(r);
        }
}

/* The reader has one file at a time; the others' turn comes without any event from outside. */
static void test_several_files(void **state)
{
    rig *r = *state;
    static talk t[3];
    weir_stream *streams[3];
    r->params.manual = false;
    start_stalled(r, WEIR_LAYOUT_PER_SLOT, 3);
    for (int i = 0; i < 3; i++) {
        talk_make(r, &t[i], i + 1, LENGTH);
        streams[i] = submit(r, &t[i], TALK_ANSWER);
    }
    await_open();
    set_gate(false);
    for (int i = 0; i < 3; i++) {
        static sink got;
        memset(&got, 0, sizeof got);
        sink_wait(&got, streams[i]);
        assert_int_equal(got.reason, WEIR_REASON_LENGTH);
        assert_memory_equal(got.tokens, t[i].tokens + LENGTH, TALK_ANSWER * sizeof *t[i].tokens);
    }
    rig_stop(r);
}

static void test_a_cancel_while_it_is_read(void **state)
{
    rig *r = *state;
    static talk t;
    static sink got;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        memset(&got, 0, sizeof got);
        start_stalled(r, layouts[l], 1);
        talk_make(r, &t, 1, LENGTH);
        weir_stream *stream = submit(r, &t, TALK_ANSWER);
        rig_tick(r);
        set_wait(r, stream, WEIR__CLOCK_NEVER);
        weir_stream_cancel(stream);
        rig_run_out(r, stream, &got);
        assert_int_equal(got.reason, WEIR_REASON_CANCELLED);
        end_stall(r);
        rig_tick(r);
        assert_int_equal(weir__cache_count(r->engine->driver.prefix.cache).n_host,
                         1); /* it came late, and is kept */
        assert_answer(r, submit(r, &t, TALK_ANSWER), &t, LENGTH - 1);
        assert_int_equal(opens(), 1);
        rig_stop(r);
    }
}

/* A late state takes no other state's place. */
static void test_a_late_file_without_room(void **state)
{
    rig *r = *state;
    static talk t;
    static sink got;
    memset(&got, 0, sizeof got);
    start_stalled(r, WEIR_LAYOUT_UNIFIED, 1);
    talk_make(r, &t, 1, LENGTH);
    weir_stream *stream = submit(r, &t, TALK_ANSWER);
    rig_tick(r);
    set_wait(r, stream, WEIR__CLOCK_NEVER);
    weir_stream_cancel(stream);
    rig_run_out(r, stream, &got);
    uint64_t most = r->engine->driver.prefix.cache->params.n_bytes;
    assert_true(weir__cache_claim(r->engine->driver.prefix.cache, most - 1));
    end_stall(r);
    rig_tick(r);
    assert_int_equal(weir__cache_count(r->engine->driver.prefix.cache).n_host, 0);
    weir__cache_unclaim(r->engine->driver.prefix.cache, most - 1);
    assert_answer(r, submit(r, &t, TALK_ANSWER), &t, LENGTH - 1);
    assert_int_equal(opens(), 2);
    rig_stop(r);
}

/* ---- How long ---- */

/* An engine that does not know the cost of a token yet waits as long as it ever does. */
static void test_the_first_wait_is_the_longest(void **state)
{
    rig *r = *state;
    static talk first, second;
    start_stalled(r, WEIR_LAYOUT_UNIFIED, 2);
    talk_make(r, &first, 1, LENGTH);
    talk_make(r, &second, 2, LENGTH);
    for (int measured = 0; measured < 2; measured++) {
        r->engine->driver.cost.n_ticks = measured;
        int64_t before = weir__clock_now_ns();
        weir_stream *stream = submit(r, measured ? &second : &first, TALK_ANSWER);
        rig_tick(r);
        const weir__slot *slot = slot_of(r, stream);
        assert_int_equal(slot->state, WEIR_SLOT_JOINED);
        int64_t due = slot->wait.due_ns;
        if (measured)
            assert_true(due < before + 60 * WEIR__NS_PER_S);
        else
            assert_true(due >= before + 60 * WEIR__NS_PER_S);
    }
    end_stall(r);
    rig_run(r);
    rig_stop(r);
}

/* Each of two that wait for a file has its own patience; that of a third began when the reader did. */
static void test_each_has_its_own_patience(void **state)
{
    rig *r = *state;
    static talk t, other;
    start_stalled(r, WEIR_LAYOUT_UNIFIED, 2);
    talk_make(r, &t, 1, LENGTH);
    talk_make(r, &other, 2, LENGTH);
    weir_stream *streams[2];
    for (size_t i = 0; i < COUNT(streams); i++) {
        streams[i] = submit(r, &t, TALK_ANSWER);
        rig_tick(r);
        set_wait(r, streams[i], WEIR__CLOCK_NEVER);
    }
    set_wait(r, streams[0], 1);
    rig_tick(r);
    assert_int_not_equal(slot_of(r, streams[0])->state, WEIR_SLOT_JOINED);
    assert_int_equal(slot_of(r, streams[1])->state, WEIR_SLOT_JOINED);
    assert_int_equal(slot_of(r, streams[1])->leader, -1);
    age_read(r);
    weir_stream *third = submit(r, &other, TALK_ANSWER);
    rig_tick(r);
    assert_int_not_equal(slot_of(r, third)->state, WEIR_SLOT_JOINED);
    end_stall(r);
    assert_answer(r, streams[1], &t, LENGTH - 1);
    assert_answer(r, third, &other, 0);
    rig_run(r);
    rig_stop(r);
}

/* ---- Evictions ---- */

static void await_find(void)
{
    pthread_mutex_lock(&gate.mutex);
    while (gate.n_finds == 0) pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

/* Ticks, in which the cache gives the writer an entry that lacks a file if it can. */
static void tick_archive(rig *r)
{
    r->engine->driver.prefix.cache->kept_ns = 0;
    rig_tick(r);
}

/* The oldest files are asked for before one is removed for a new one; streams go on meanwhile. */
static void test_times_that_do_not_come(void **state)
{
    rig *r = *state;
    static talk kept, fresh, other;
    start_stalled(r, WEIR_LAYOUT_UNIFIED, 2);
    uint64_t full = rig_stats(r).cache_disk_bytes;
    rig_stop(r);
    set_gate(false);
    r->params.cache_disk_bytes = full;
    start(r, WEIR_LAYOUT_UNIFIED);
    set_gate(true);
    weir__cache *cache = r->engine->driver.prefix.cache;
    talk_make(r, &kept, 2, LENGTH);
    talk_make(r, &fresh, 3, LENGTH);
    talk_make(r, &other, 4, LENGTH);
    assert_answer(r, submit(r, &fresh, TALK_ANSWER), &fresh, 0);
    tick_archive(r);
    await_find();
    assert_true(cache->lacks_times);
    assert_answer(r, submit(r, &other, TALK_ANSWER), &other, 0);
    tick_archive(r);
    assert_int_equal(rig_stats(r).n_cache_files, 2);
    weir_stream *waits = submit(r, &kept, TALK_ANSWER); /* the reader is there for both */
    rig_tick(r);
    set_wait(r, waits, WEIR__CLOCK_NEVER);
    assert_int_equal(opens(), 0);
    end_stall(r);
    rig_run(r);
    assert_answer(r, waits, &kept, LENGTH - 1);
    for (int i = 0; i < 1000 && cache->unsaved; i++) {
        weir__reader_wait(reader_of(r));
        weir__archive_wait(cache->params.archive);
        tick_archive(r);
    }
    assert_false(cache->unsaved);
    assert_int_equal(rig_stats(r).n_cache_files, 2);
    rig_stop(r);
    start(r, WEIR_LAYOUT_UNIFIED);
    assert_answer(r, submit(r, &other, TALK_ANSWER), &other, LENGTH - 1);
    rig_stop(r);
}

/* ---- Priorities ---- */

/* A prompt of lower priority, here or in another engine, does not stand back for requests that wait for a
 * file, or for the one that joined such a request. */
static void test_nobody_stands_back_for_a_waiter(void **state)
{
    rig *r = *state;
    static talk high, low;
    weir__peer other = {0};
    weir__request theirs = {0};
    r->params.ageing_ms = 0;
    r->params.chunk_size = 16;
    start_stalled(r, WEIR_LAYOUT_UNIFIED, 1);
    weir__driver *driver = &r->engine->driver;
    weir__peers_join(&driver->peer, r->engine->waker);
    weir__peers_join(&other, r->engine->waker);
    talk_make(r, &high, 1, LENGTH);
    for (int i = 0; i < 20; i++) high.tokens[high.n++] = 'a'; /* the second joins the first */
    talk_answer(r, &high);
    talk_make(r, &low, 2, LENGTH);
    weir_stream *streams[2];
    for (size_t i = 0; i < COUNT(streams); i++) {
        weir_request request = weir_request_default();
        request.sampler = &r->greedy;
        request.tokens = high.tokens;
        request.n_tokens = (size_t)high.n;
        request.max_tokens = TALK_ANSWER;
        request.priority = 5;
        streams[i] = rig_submit(r, &request);
        rig_tick(r);
        set_wait(r, streams[i], WEIR__CLOCK_NEVER);
    }
    assert_int_equal(slot_of(r, streams[1])->leader, slot_of(r, streams[0])->index);
    weir_stream *runs = submit(r, &low, TALK_ANSWER);
    weir_report report = rig_tick(r);
    assert_int_equal(report.n_prefill, 16);
    assert_false(weir__peers_outrank(&other, &theirs, weir__clock_now_ns()));
    assert_int_equal(driver->peer.priority, 0);
    end_stall(r);
    rig_tick(r);
    assert_int_equal(slot_of(r, streams[0])->state, WEIR_SLOT_PREFILLING);
    assert_int_equal(driver->peer.priority, 5);
    assert_true(weir__peers_outrank(&other, &theirs, weir__clock_now_ns()));
    assert_true(slot_of(r, runs)->pace.limit < 16);
    for (size_t i = 0; i < COUNT(streams); i++)
        assert_answer(r, streams[i], &high, i == 0 ? LENGTH : high.n - 1);
    assert_answer(r, runs, &low, 0);
    weir__peers_leave(&other);
    weir__peers_leave(&driver->peer);
    rig_stop(r);
}

/* An engine stops beside a file that is still being read, and waits for it when it is destroyed. */
static void test_the_end_while_it_is_read(void **state)
{
    rig *r = *state;
    static talk t;
    static sink got;
    for (int manual = 0; manual < 2; manual++) {
        memset(&got, 0, sizeof got);
        r->params.manual = manual;
        start_stalled(r, WEIR_LAYOUT_PER_SLOT, 1);
        talk_make(r, &t, 1, LENGTH);
        weir_stream *stream = submit(r, &t, 1000000);
        if (manual) rig_tick(r);
        await_open();
        weir_engine_stop(r->engine);
        sink_wait(&got, stream);
        assert_int_equal(got.reason, WEIR_REASON_ERROR);
        assert_int_equal(opens(), 1);
        set_gate(false);
        rig_stop(r);
    }
}

static void test_a_file_that_is_gone(void **state)
{
    rig *r = *state;
    static talk t;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        start_stalled(r, layouts[l], 1);
        talk_make(r, &t, 1, LENGTH);
        weir_stream *streams[2];
        for (size_t i = 0; i < COUNT(streams); i++) {
            streams[i] = submit(r, &t, TALK_ANSWER);
            rig_tick(r);
            set_wait(r, streams[i], WEIR__CLOCK_NEVER);
        }
        each_file(forget);
        end_stall(r);
        assert_answer(r, streams[0], &t, 0);
        assert_answer(r, streams[1], &t, LENGTH - 1); /* of the other one */
        rig_stop(r);
    }
}

/* Somebody who takes a prefix out of the engine waits as a request does. */
static void test_transfers_wait(void **state)
{
    rig *r = *state;
    static talk t;
    for (int hangs = 0; hangs < 2; hangs++) {
        weir_error error = {0};
        start_stalled(r, WEIR_LAYOUT_PER_SLOT, 1);
        talk_make(r, &t, 1, LENGTH);
        weir__kv_transfers *transfers = &r->engine->shared.transfers;
        weir__kv_transfer transfer = {.tokens = t.tokens, .n = t.n, .most = 1 << 20};
        assert_int_equal(weir__kv_transfers_post(transfers, &transfer, NULL), WEIR_OK);
        rig_tick(r);
        assert_false(transfer.done || transfer.taken);
        assert_int_equal(weir__kv_transfers_wait(transfers, &transfer, 0, &error), WEIR_TIMEOUT);
        assert_int_equal(weir__kv_transfers_post(transfers, &transfer, NULL), WEIR_OK);
        transfer.wait = (weir__cache_wait){.due_ns = hangs ? 1 : WEIR__CLOCK_NEVER};
        if (!hangs) {
            rig_tick(r);
            assert_false(transfer.done || transfer.taken);
            end_stall(r);
        }
        rig_tick(r);
        assert_int_equal(weir__kv_transfers_wait(transfers, &transfer, 0, &error),
                         hangs ? WEIR_NOT_FOUND : WEIR_OK);
        if (!hangs) assert_int_equal(transfer.n, LENGTH);
        weir__mem_free(transfer.state);
        set_gate(false);
        rig_stop(r);
    }
}

/* Requests of all kinds while the folder comes and goes: each gets its text, or the beginning of it. */

typedef struct one {
    weir_stream *stream; /* NULL: has ended */
    talk t;
    sink got;
} one;

static void check_one(one *o)
{
    sink_take(&o->got, o->stream);
    if (!o->got.finished) return;
    assert_true(o->got.reason == WEIR_REASON_LENGTH || o->got.reason == WEIR_REASON_CANCELLED);
    if (o->got.reason == WEIR_REASON_LENGTH) assert_int_equal(o->got.n_tokens, TALK_ANSWER);
    assert_memory_equal(o->got.tokens, o->t.tokens + o->t.n, o->got.n_tokens * sizeof *o->t.tokens);
    o->stream = NULL;
}

/* Text 1 … 4, or part of it, and tokens of its own. */
static void begin_one(rig *r, one *o, dice *d)
{
    memset(o, 0, sizeof *o);
    talk_make(r, &o->t, dice_in(d, 1, 4), LENGTH);
    o->t.n = dice_in(d, 10, LENGTH);
    for (int i = dice_one_in(d, 2) ? 0 : dice_in(d, 1, 20); i > 0; i--)
        o->t.tokens[o->t.n++] = 'a' + dice_in(d, 0, 25);
    talk_answer(r, &o->t);
    o->stream = submit(r, &o->t, TALK_ANSWER);
}

static void step_world(rig *r, one *ones, int n, dice *d)
{
    one *o = &ones[dice_in(d, 0, n - 1)];
    int event = dice_in(d, 0, 19);
    if (event < 4 && o->stream == NULL && r->n_streams < RIG_STREAMS)
        begin_one(r, o, d);
    else if (event == 4 && o->stream != NULL)
        weir_stream_cancel(o->stream);
    else if (event == 5)
        set_gate(dice_one_in(d, 2));
    else if (event == 6 && !gate.closed)
        end_stall(r);
    else if (event == 7) { /* the end of all patience */
        age_read(r);
        for (int32_t i = 0; i < r->engine->params.n_slots; i++)
            if (r->engine->driver.slots.first[i].wait.due_ns > 0)
                r->engine->driver.slots.first[i].wait.due_ns = 1;
    }
    rig_tick(r);
    for (int i = 0; i < n; i++)
        if (ones[i].stream != NULL) check_one(&ones[i]);
}

static void test_random_stalls(void **state)
{
    static const char *const kinds[] = {"fake:", "fake:", "fake:recurrent=1"};
    static one ones[6];
    rig *r = *state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    uint64_t n_restored = 0;
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 40; i++) {
        dice d = {.state = seed + i};
        rig_load(r, kinds[dice_in(&d, 0, 2)]);
        r->params.n_kv = dice_one_in(&d, 2) ? 0 : dice_in(&d, 300, 500);
        start_stalled(r, layouts[dice_in(&d, 0, 1)], 4);
        memset(ones, 0, sizeof ones);
        for (int k = 0; k < 300; k++) step_world(r, ones, COUNT(ones), &d);
        set_gate(false);
        rig_run(r);
        for (size_t k = 0; k < COUNT(ones); k++)
            if (ones[k].stream != NULL) check_one(&ones[k]);
        for (size_t k = 0; k < COUNT(ones); k++) assert_null(ones[k].stream);
        n_restored += rig_stats(r).n_cache_restored;
        rig_stop(r);
        for (; r->n_streams > 0; r->n_streams--) weir_stream_release(r->streams[r->n_streams - 1]);
    }
    print_message("%llu files were read\n", (unsigned long long)n_restored);
    assert_true(n_restored > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_streams_go_on, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_file_for_many, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_several_files, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_cancel_while_it_is_read, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_late_file_without_room, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_first_wait_is_the_longest, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_has_its_own_patience, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_times_that_do_not_come, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_nobody_stands_back_for_a_waiter, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_end_while_it_is_read, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_that_is_gone, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_transfers_wait, rig_setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_stalls, rig_setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

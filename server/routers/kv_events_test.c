/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kv_events.h"
#include "server/request/serve.h"

#ifdef WEIR_ZMQ

#include <zmq.h>

#define FRAMES 8

typedef struct message {
    unsigned char bytes[FRAMES][65536];
    int n[FRAMES];
    int n_frames;
} message;

typedef struct rig {
    char address[128], replay[128];
    serve_kv_events *events;
    weir_model *model;
    weir_engine *engine;
    void *context, *subscriber, *dealer;
} rig;

static message got;

static bool receive_in(void *socket, int wait)
{
    int more = 1;
    size_t n = sizeof more;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    memset(&got, 0, sizeof got);
    while (more != 0) {
        int i = got.n_frames++;
        assert_true(i < FRAMES);
        got.n[i] = zmq_recv(socket, got.bytes[i], sizeof got.bytes[i], 0);
        if (got.n[i] < 0) return false;
        assert_int_equal(zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &n), 0);
    }
    return true;
}

static bool receive(void *socket)
{
    return receive_in(socket, 10000);
}

static uint64_t number_of(int frame)
{
    uint64_t number = 0;
    assert_int_equal(got.n[frame], 8);
    for (int i = 0; i < 8; i++) number = number << 8 | got.bytes[frame][i];
    return number;
}

static bool says(int frame, const char *word)
{
    size_t n = strlen(word);
    for (int at = 0; at + (int)n <= got.n[frame]; at++)
        if (memcmp(got.bytes[frame] + at, word, n) == 0) return true;
    return false;
}

static void assert_text(int frame, const char *text)
{
    assert_int_equal(got.n[frame], strlen(text));
    assert_memory_equal(got.bytes[frame], text, strlen(text));
}

static void open_engine(rig *r)
{
    weir_error error;
    weir_engine_params params = weir_engine_params_default();
    params.n_ctx = 512;
    params.n_slots = 2;
    params.cache_block = SERVE_KV_BLOCK;
    if (weir_engine_create(r->model, &params, &r->engine, &error) != WEIR_OK) fail_msg("%s", error.message);
}

static int setup(void **state)
{
    static rig r;
    static const char prefix[] = "kv@";
    weir_error error;
    memset(&r, 0, sizeof r);
    snprintf(r.address, sizeof r.address, "ipc:///tmp/weir-kv-%ld", (long)getpid());
    snprintf(r.replay, sizeof r.replay, "ipc:///tmp/weir-kv-replay-%ld", (long)getpid());
    if (weir_model_load("fake:", NULL, &r.model, &error) != WEIR_OK) fail_msg("%s", error.message);
    if (serve_kv_events_create(r.address, r.replay, "10.0.0.1:8080", &r.events, &error) != WEIR_OK)
        fail_msg("%s", error.message);
    r.context = zmq_ctx_new();
    r.subscriber = zmq_socket(r.context, ZMQ_SUB);
    r.dealer = zmq_socket(r.context, ZMQ_DEALER);
    zmq_setsockopt(r.subscriber, ZMQ_SUBSCRIBE, prefix, sizeof prefix - 1);
    assert_int_equal(zmq_connect(r.subscriber, r.address), 0);
    assert_int_equal(zmq_connect(r.dealer, r.replay), 0);
    open_engine(&r);
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    rig *r = *state;
    int linger = 0;
    zmq_setsockopt(r->dealer, ZMQ_LINGER, &linger, sizeof linger);
    zmq_close(r->subscriber);
    zmq_close(r->dealer);
    zmq_ctx_term(r->context);
    serve_kv_events_destroy(r->events);
    weir_engine_destroy(r->engine);
    weir_model_release(r->model);
    return 0;
}

/* Token i of a prompt; one byte in MessagePack. */
static int32_t token_of(int32_t first, int32_t i)
{
    return 10 + (first + i * i) % 100;
}

static bool tells_tokens(int frame, int32_t first)
{
    char block[SERVE_KV_BLOCK + 1] = "";
    for (int32_t i = 0; i < SERVE_KV_BLOCK; i++) block[i] = (char)token_of(first, i);
    return says(frame, block);
}

/* Runs a prompt of n tokens to its end. */
static void ask_with(rig *r, int32_t first, int32_t n, const char *salt, weir_adapter *adapter)
{
    int32_t tokens[256];
    weir_error error;
    weir_result result;
    weir_request request = weir_request_default();
    const weir_adapter_use use = {adapter, 1};
    for (int32_t i = 0; i < n; i++) tokens[i] = token_of(first, i);
    request.tokens = tokens;
    request.n_tokens = (size_t)n;
    request.max_tokens = 1;
    request.cache_salt = salt;
    request.adapters = &use;
    request.n_adapters = adapter != NULL;
    if (weir_generate(r->engine, &request, 1, NULL, &result, &error) != WEIR_OK)
        fail_msg("%s", error.message);
    weir_result_fini(&result);
}

static void ask(rig *r, int32_t first, int32_t n)
{
    ask_with(r, first, n, NULL, NULL);
}

static void ask_replay(rig *r, uint64_t from)
{
    unsigned char number[8];
    for (int i = 0; i < 8; i++) number[i] = (unsigned char)(from >> 8 * (7 - i));
    zmq_send(r->dealer, "", 0, ZMQ_SNDMORE);
    zmq_send(r->dealer, number, sizeof number, 0);
}

/* ---- Tests ---- */

static void test_batches_have_topic_and_number(void **state)
{
    rig *r = *state;
    assert_true(serve_kv_events_join(r->events, "a model", r->engine));
    ask(r, 100, 40);
    ask_replay(r, 0); /* also events that were published before anybody had subscribed */
    assert_true(receive(r->dealer));
    assert_int_equal(got.n_frames, 4);
    assert_text(0, "");
    assert_text(1, "kv@10.0.0.1:8080@a model");
    assert_int_equal(number_of(2), 0);
    assert_true(says(3, "AllBlocksCleared"));

    bool told = false;
    for (int i = 0; i < 6000 && !told;
         i++) { /* a subscription takes a moment; before, batches are lost to it */
        ask(r, 7 * i, 40);
        if (!receive_in(r->subscriber, 100)) continue;
        assert_int_equal(got.n_frames, 3);
        assert_text(0, "kv@10.0.0.1:8080@a model");
        assert_true(number_of(1) <= 1000);
        told = says(2, "BlockStored") && says(2, "GPU");
    }
    assert_true(told);
}

/* The end of a replay has the number -1 and nothing else. */
static uint64_t count_replayed(rig *r, uint64_t from)
{
    ask_replay(r, from);
    for (uint64_t i = from;; i++) {
        assert_true(receive(r->dealer));
        assert_int_equal(got.n_frames, 4);
        if (number_of(2) == UINT64_MAX) {
            assert_true(got.n[1] == 0 && got.n[3] == 0);
            return i - from;
        }
        assert_int_equal(number_of(2), i);
    }
}

static uint64_t wait_replayed(rig *r, uint64_t from, uint64_t least)
{
    uint64_t n = 0;
    for (int i = 0; i < 2400 && n < least; i++) {
        n = count_replayed(r, from);
        if (n < least) usleep(50000);
    }
    return n;
}

static void test_replays(void **state)
{
    rig *r = *state;
    assert_int_equal(count_replayed(r, 0), 0); /* nothing is published before there is a model */
    assert_true(serve_kv_events_join(r->events, "m", r->engine));
    ask(r, 100, 40);
    uint64_t n = wait_replayed(r, 0, 2);
    assert_true(n >= 2);
    assert_int_equal(count_replayed(r, 1), n - 1);
    assert_int_equal(count_replayed(r, n), 0);
    assert_int_equal(count_replayed(r, UINT64_MAX - 1), 0);
}

/* The sequence starts again when an engine has gone, with the blocks of the others. */
static void test_an_engine_leaves(void **state)
{
    rig *r = *state;
    weir_engine *first = r->engine;
    open_engine(r);
    assert_true(serve_kv_events_join(r->events, "first", first));
    assert_true(serve_kv_events_join(r->events, "second", r->engine));
    rig other = {.engine = first};
    ask(&other, 100, 40);
    ask(r, 300, 40);
    assert_true(wait_replayed(r, 0, 3) >= 3);
    serve_kv_events_leave(r->events, first);
    weir_engine_destroy(first);
    ask(r, 400, 40);
    bool told = false;
    for (int i = 0; i < 6000 && !told; i++) {
        ask_replay(r, 1);
        while (receive(r->dealer) && number_of(2) != UINT64_MAX) {
            told |= says(1, "@second");
            assert_true(i < 50 || !says(1, "@first"));
        }
        usleep(20000);
    }
    assert_true(told);
}

/* Blocks of a prompt with a salt or an adapter say nothing about the model alone. */
static void test_salts_and_adapters_are_not_told(void **state)
{
    enum { SALTED = 1, ADAPTED = 20, PLAIN = 50, LAST = 70 };
    rig *r = *state;
    weir_error error;
    weir_adapter *adapter;
    assert_true(serve_kv_events_join(r->events, "m", r->engine));
    if (weir_adapter_load(r->model, "fake:3", &adapter, &error) != WEIR_OK) fail_msg("%s", error.message);
    ask(r, PLAIN, 40);
    ask_with(r, SALTED, 40, "tenant", NULL);
    ask_with(r, ADAPTED, 40, NULL, adapter);
    ask_with(r, PLAIN, 60, "tenant", adapter);
    ask(r, LAST, 40); /* would be reported after all of the others */
    bool plain = false, last = false;
    for (int i = 0; i < 6000 && !last; i++) {
        ask_replay(r, 0);
        while (receive(r->dealer) && number_of(2) != UINT64_MAX) {
            plain |= tells_tokens(3, PLAIN);
            last |= tells_tokens(3, LAST);
            assert_false(tells_tokens(3, SALTED));
            assert_false(tells_tokens(3, ADAPTED));
        }
        usleep(20000);
    }
    assert_true(plain && last);
    weir_adapter_release(adapter);
}

/* Bytes from outside, whatever they are, change nothing. */
static void test_garbage(void **state)
{
    rig *r = *state;
    static char large[65536];
    assert_true(serve_kv_events_join(r->events, "m", r->engine));
    zmq_send(r->dealer, "", 0, 0);
    zmq_send(r->dealer, "x", 1, 0);
    zmq_send(r->dealer, "", 0, ZMQ_SNDMORE);
    zmq_send(r->dealer, "1234567", 7, 0);
    for (int i = 0; i < 100; i++) zmq_send(r->dealer, "12345678", 8, i < 99 ? ZMQ_SNDMORE : 0);
    void *hostile = zmq_socket(r->context, ZMQ_DEALER);
    int linger = 0;
    zmq_setsockopt(hostile, ZMQ_LINGER, &linger, sizeof linger);
    assert_int_equal(zmq_connect(hostile, r->replay), 0);
    zmq_send(hostile, large, sizeof large, 0);
    ask(r, 100, 40);
    assert_true(wait_replayed(r, 0, 2) >= 2);
    zmq_close(hostile);
}

static void test_addresses(void **state)
{
    rig *r = *state;
    static const char *const bad[] = {
        "", "5557", "udp://127.0.0.1:1", "tcp://", "tcp://127.0.0.1:99999", "tcp://256.0.0.1:5557"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        serve_kv_events *events = NULL;
        weir_error error = {0};
        weir_status status = serve_kv_events_create(bad[i], NULL, "e", &events, &error);
        assert_true(status == WEIR_INVALID || status == WEIR_IO);
        assert_string_equal(error.field, "kv_events");
        assert_null(events);
        status = serve_kv_events_create("ipc:///tmp/weir-kv-other", bad[i], "e", &events, &error);
        assert_true(status == WEIR_INVALID || status == WEIR_IO);
        assert_string_equal(error.field, "kv_events_replay");
    }
    unlink("/tmp/weir-kv-other");
    (void)r;
}

#define RIG(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG(test_batches_have_topic_and_number),   RIG(test_replays), RIG(test_an_engine_leaves),
        RIG(test_salts_and_adapters_are_not_told), RIG(test_garbage), RIG(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("skipped: this build has no ZeroMQ\n");
    return 0;
}

#endif

/* python_inbox_test.c: the inbox of the Python package (python/native): threads that submit and close
 * streams, an engine that puts their numbers in, and a reader that takes them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "native/inbox.h"

#define SUBMITTERS 4
#define STREAMS    200 /* of each; every second one is closed at once */
#define TOKENS     3

typedef struct scene {
    weir_model *model;
    weir_engine *engine;
    py_inbox *inbox;
    pthread_mutex_t mutex;
    py_stream *streams[SUBMITTERS * STREAMS]; /* under the mutex: those that the reader reads, by number */
    atomic_int n_failed;
} scene;

typedef struct submitter {
    scene *s;
    uint64_t first;
} submitter;

static void begin(scene *s, const char *model)
{
    weir_engine_params params = weir_engine_params_default();
    weir_error error;
    params.n_slots = 4;
    params.queue_limit = 0;
    params.n_ctx = 256;
    assert_int_equal(weir_model_load(model, NULL, &s->model, &error), WEIR_OK);
    assert_int_equal(weir_engine_create(s->model, &params, &s->engine, &error), WEIR_OK);
    assert_int_equal(py_inbox_create(&s->inbox), WEIR_OK);
    assert_int_equal(pthread_mutex_init(&s->mutex, NULL), 0);
}

static void end(scene *s)
{
    weir_engine_destroy(s->engine);
    weir_model_release(s->model);
    pthread_mutex_destroy(&s->mutex);
}

static weir_status open_one(scene *s, uint64_t number, int32_t n_tokens, py_stream **stream)
{
    weir_request request = weir_request_default();
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_error error;
    sampler.ignore_eos = true;
    request.text = "abc";
    request.text_length = 3;
    request.max_tokens = n_tokens;
    request.sampler = &sampler;
    return py_stream_open(s->engine, &request, s->inbox, number, stream, &error);
}

static bool readable(const scene *s)
{
    struct pollfd entry = {.fd = py_inbox_descriptor(s->inbox), .events = POLLIN};
    return poll(&entry, 1, 0) == 1;
}

static void *submit(void *user)
{
    const submitter *me = user;
    scene *s = me->s;
    for (uint64_t i = 0; i < STREAMS; i++) {
        py_stream *stream = NULL;
        /* The reader may see the number before the call returns. */
        pthread_mutex_lock(&s->mutex);
        weir_status status = open_one(s, me->first + i, TOKENS, &stream);
        if (status == WEIR_OK && i % 2 == 0) s->streams[me->first + i] = stream;
        pthread_mutex_unlock(&s->mutex);
        if (status != WEIR_OK) {
            atomic_fetch_add(&s->n_failed, 1);
            return NULL;
        }
        if (i % 2 == 1) py_stream_close(stream);
    }
    return NULL;
}

/* Takes the chunks that are there; true at the end. */
static bool read_one(py_stream *stream, size_t *n_tokens)
{
    weir_chunk chunk;
    weir_status status;
    while ((status = weir_stream_try_next(py_stream_handle(stream), &chunk)) == WEIR_OK)
        *n_tokens += chunk.n_tokens;
    return status == WEIR_END;
}

static void threads_put_take_and_close(void **state)
{
    scene s = {0};
    submitter submitters[SUBMITTERS];
    pthread_t threads[SUBMITTERS];
    uint64_t numbers[7];
    size_t n_ended = 0, n_tokens = 0;
    (void)state;
    begin(&s, "fake:");
    for (uint64_t i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (submitter){&s, i * STREAMS};
        assert_int_equal(pthread_create(&threads[i], NULL, submit, &submitters[i]), 0);
    }
    while (n_ended < (size_t)SUBMITTERS * STREAMS / 2 && atomic_load(&s.n_failed) == 0) {
        py_inbox_wait(s.inbox, 100);
        size_t n = py_inbox_take(s.inbox, numbers, 7);
        for (size_t i = 0; i < n; i++) {
            assert_true(numbers[i] < (uint64_t)SUBMITTERS * STREAMS);
            pthread_mutex_lock(&s.mutex);
            py_stream *stream = s.streams[numbers[i]];
            pthread_mutex_unlock(&s.mutex);
            if (!stream || !read_one(stream, &n_tokens)) continue;
            pthread_mutex_lock(&s.mutex);
            s.streams[numbers[i]] = NULL;
            pthread_mutex_unlock(&s.mutex);
            py_stream_close(stream);
            n_ended++;
        }
    }
    for (size_t i = 0; i < SUBMITTERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&s.n_failed), 0);
    assert_int_equal(n_tokens, SUBMITTERS * STREAMS / 2 * TOKENS);
    assert_int_equal(py_inbox_take(s.inbox, numbers, 7), 0);
    assert_false(readable(&s));
    py_inbox_release(s.inbox);
    end(&s);
}

/* A stream with many unread chunks is in the inbox once, and the descriptor says so until it is taken. */
static void a_number_is_there_once(void **state)
{
    scene s = {0};
    py_stream *stream;
    uint64_t numbers[7];
    weir_error error;
    (void)state;
    begin(&s, "fake:");
    assert_false(readable(&s));
    assert_int_equal(open_one(&s, 5, 20, &stream), WEIR_OK);
    assert_int_equal(weir_engine_drain(s.engine, -1), WEIR_OK);
    assert_true(readable(&s));
    assert_int_equal(py_inbox_take(s.inbox, numbers, 7), 1);
    assert_int_equal(numbers[0], 5);
    assert_false(readable(&s));
    py_stream_close(stream);
    assert_int_equal(open_one(&s, 6, 20, &stream), WEIR_STOPPED); /* and nothing is left of it */
    assert_int_equal(py_stream_open(s.engine, &(weir_request){0}, s.inbox, 7, &stream, &error), WEIR_INVALID);
    assert_false(readable(&s));
    py_inbox_release(s.inbox);
    end(&s);
}

/* A stream holds its inbox, and closing one takes its number out. */
static void streams_outlive_the_inbox_of_their_reader(void **state)
{
    scene s = {0};
    py_stream *streams[3];
    (void)state;
    begin(&s, "fake:");
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(open_one(&s, i, 20, &streams[i]), WEIR_OK);
    assert_int_equal(weir_engine_drain(s.engine, -1), WEIR_OK);
    py_stream_close(streams[1]);
    assert_true(readable(&s));
    py_inbox_release(s.inbox);
    py_stream_close(streams[0]);
    end(&s);
    py_stream_close(streams[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_put_take_and_close),
        cmocka_unit_test(a_number_is_there_once),
        cmocka_unit_test(streams_outlive_the_inbox_of_their_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

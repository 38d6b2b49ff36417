/* The loops that README.md and the first guide show, run as they stand there, against a thread that cancels:
 * they see the terminal chunk, with the text that was held back.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "model/fake.h"
#include "weir/weir.h"

#define TRIES 5

/* The loop's arguments. */
static struct {
    weir_stream *stream;
    atomic_int n_taken;
    atomic_int n_returned; /* calls of weir_stream_next */
    atomic_int n_passes;
    atomic_bool open; /* the passes from the third one on may run */
    char text[64];
    int n_terminal;
    weir_reason reason;
    pthread_t canceller;
} seen;

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 100000};
    nanosleep(&pause, NULL);
}

/* 'a', then a byte that begins a character and is held back, and so on. */
static int32_t say(void *user, const int32_t *history, int32_t n)
{
    (void)user;
    return history[n - 1] == 'a' ? 0xC3 : history[n - 1] == 0xC3 ? 'b' : 'a';
}

static void wait_at_third(void *user, const weir__batch *batch)
{
    (void)user, (void)batch;
    if (atomic_fetch_add(&seen.n_passes, 1) < 2) return;
    while (!atomic_load(&seen.open)) nap();
}

/* Cancels while the loop waits for a chunk, and holds the pass up until the loop has been woken, or for long
 * enough for one that would be. */
static void *cancel(void *user)
{
    weir_chunk chunk;
    (void)user;
    while (atomic_load(&seen.n_taken) < 1 || atomic_load(&seen.n_passes) < 3) nap();
    while (weir_stream_try_next(seen.stream, &chunk) != WEIR_STATE) sched_yield();
    int before = atomic_load(&seen.n_returned);
    weir_stream_cancel(seen.stream);
    for (int i = 0; i < 500 && atomic_load(&seen.n_returned) == before; i++) nap();
    atomic_store(&seen.open, true);
    return NULL;
}

static weir_status load_fake(const char *path, const weir_model_params *params, weir_model **model,
                             weir_error *error)
{
    weir_status status = weir_model_load(path, params, model, error);
    assert_int_equal(status, WEIR_OK);
    weir__fake *fake = weir__fake_of(*model);
    fake->next = say;
    fake->before_decode = wait_at_third;
    return status;
}

static weir_status submit_and_cancel(weir_engine *engine, const weir_request *request, size_t n,
                                     weir_stream *const *streams, weir_error *error)
{
    weir_sampler_params greedy = weir_sampler_params_default();
    weir_request ask = *request;
    greedy.temp = 0;
    ask.sampler = &greedy;
    ask.n_draft_max = 0;
    seen.stream = *streams;
    weir_status status = weir_engine_submit(engine, &ask, n, streams, error);
    assert_int_equal(pthread_create(&seen.canceller, NULL, cancel, NULL), 0);
    return status;
}

static weir_status look_at_next(weir_stream *stream, int timeout_ms, weir_chunk *chunk)
{
    weir_status status = weir_stream_next(stream, timeout_ms, chunk);
    if (status == WEIR_OK) {
        strncat(seen.text, chunk->text, sizeof seen.text - strlen(seen.text) - 1);
        seen.n_terminal += chunk->finished;
        if (chunk->finished) seen.reason = chunk->reason;
        atomic_fetch_add(&seen.n_taken, 1);
    }
    atomic_fetch_add(&seen.n_returned, 1);
    return status;
}

/* The programs, with eyes. */
#define weir_model_load    load_fake
#define weir_engine_submit submit_and_cancel
#define weir_stream_next   look_at_next
int readme_main(int argc, char **argv);
int guide_main(int argc, char **argv);
#define main readme_main
#include "docs/hello.c"
#undef main
#define main guide_main
#include "docs/streaming_next.c"
#undef main

static void check(int (*program)(int, char **))
{
    char name[] = "loop", model[] = "fake:";
    char *arguments[] = {name, model, NULL};
    for (int i = 0; i < TRIES; i++) {
        memset(&seen, 0, sizeof seen);
        program(2, arguments); /* README's relies on main's implicit return value */
        pthread_join(seen.canceller, NULL);
        assert_int_equal(seen.n_terminal, 1);
        assert_int_equal(seen.reason, WEIR_REASON_CANCELLED);
        assert_string_equal(seen.text, "a\xEF\xBF\xBD");
    }
}

static void the_loop_of_the_readme_sees_the_end(void **state)
{
    (void)state;
    check(readme_main);
}

static void the_loop_of_the_guide_sees_the_end(void **state)
{
    (void)state;
    check(guide_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loop_of_the_readme_sees_the_end),
        cmocka_unit_test(the_loop_of_the_guide_sees_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

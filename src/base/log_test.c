/* log_test.c: lines come whole, one at a time, and to the present sink only.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

struct sink {
    int n_lines;
    int n_inside; /* of calls that run now; the log promises at most one */
    bool overlapped;
    weir_log_level level;
    char lines[8][WEIR__LOG_CAPACITY]; /* the first of them */
};

static void collect(weir_log_level level, const char *message, void *user)
{
    struct sink *sink = user;
    if (++sink->n_inside != 1) sink->overlapped = true;
    sink->level = level;
    if (sink->n_lines < 8) snprintf(sink->lines[sink->n_lines], WEIR__LOG_CAPACITY, "%s", message);
    sink->n_lines++;
    sink->n_inside--;
}

static void collect_and_log(weir_log_level level, const char *message, void *user)
{
    collect(level, message, user);
    weir__log(WEIR_LOG_ERROR, "from inside");
    weir_log_set(NULL, NULL);
}

static int restore(void **test)
{
    (void)test;
    weir_log_set(NULL, NULL);
    return 0;
}

static void sink_gets_every_level(void **test)
{
    (void)test;
    struct sink sink = {0};
    weir_log_set(collect, &sink);
    for (int level = WEIR_LOG_DEBUG; level <= WEIR_LOG_ERROR; level++) {
        assert_true(weir__log_wants((weir_log_level)level));
        weir__log((weir_log_level)level, "level %d", level);
        assert_int_equal(sink.level, level);
    }
    assert_int_equal(sink.n_lines, 4);
    assert_string_equal(sink.lines[2], "level 2");
}

static void lines_come_apart(void **test)
{
    (void)test;
    struct sink sink = {0};
    weir_log_set(collect, &sink);
    weir__log(WEIR_LOG_INFO, "one\n\ntwo\r\nthree\n");
    weir__log(WEIR_LOG_INFO, "\n");
    weir__log(WEIR_LOG_INFO, "%s", "");
    assert_int_equal(sink.n_lines, 3);
    assert_string_equal(sink.lines[0], "one");
    assert_string_equal(sink.lines[1], "two");
    assert_string_equal(sink.lines[2], "three");
}

static void messages_are_cut_and_sanitized(void **test)
{
    (void)test;
    struct sink sink = {0};
    char text[3 * WEIR__LOG_CAPACITY + 1];
    for (size_t i = 0; i < WEIR__LOG_CAPACITY; i++) memcpy(text + 3 * i, "\xe2\x82\xac", 3);
    text[sizeof text - 1] = '\0';
    weir_log_set(collect, &sink);
    weir__log(WEIR_LOG_WARN, "%s", text);
    weir__log(WEIR_LOG_WARN, "x%s", text);
    weir__log(WEIR_LOG_WARN, "a\xff"
                             "b");
    assert_int_equal(sink.n_lines, 3);
    assert_int_equal(strlen(sink.lines[0]), (WEIR__LOG_CAPACITY - 1) / 3 * 3);
    assert_true(weir__utf8_valid(sink.lines[0], strlen(sink.lines[0])));
    assert_true(weir__utf8_valid(sink.lines[1], strlen(sink.lines[1])));
    assert_string_equal(sink.lines[2], "a\xef\xbf\xbd"
                                       "b");
}

static void sink_that_logs_does_not_hang(void **test)
{
    (void)test;
    struct sink sink = {0};
    weir_log_set(collect_and_log, &sink);
    weir__log(WEIR_LOG_ERROR, "outside");
    weir__log(WEIR_LOG_ERROR, "outside again");
    assert_int_equal(sink.n_lines, 2);
}

static void default_is_warnings_to_stderr(void **test)
{
    (void)test;
    char text[256];
    int saved = dup(STDERR_FILENO);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(stderr);
    dup2(pipes[1], STDERR_FILENO);
    close(pipes[1]);

    weir_log_set(NULL, NULL);
    weir__log(WEIR_LOG_DEBUG, "debug");
    weir__log(WEIR_LOG_INFO, "info");
    weir__log(WEIR_LOG_WARN, "careful");
    weir__log(WEIR_LOG_ERROR, "broken");
    bool wants_info = weir__log_wants(WEIR_LOG_INFO);

    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t n = read(pipes[0], text, sizeof text - 1);
    close(pipes[0]);
    assert_true(n > 0);
    text[n] = '\0';
    assert_string_equal(text, "weir: careful\nweir: error: broken\n");
    assert_false(wants_info);
}

static void allocates_nothing(void **test)
{
    (void)test;
    struct sink sink = {0};
    weir_log_set(collect, &sink);
    weir__mem_fail_after(0);
    weir__log(WEIR_LOG_INFO, "%d", 1);
    assert_true(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    assert_int_equal(sink.n_lines, 1);
}

/* ---- Threads -------------------------------------------------------------------------------------- */

#define N_THREADS 4
#define N_ROUNDS  2000

static void *log_much(void *unused)
{
    (void)unused;
    for (int i = 0; i < N_ROUNDS; i++) weir__log(WEIR_LOG_DEBUG, "line %d", i);
    return NULL;
}

static void calls_never_overlap(void **test)
{
    (void)test;
    struct sink sink = {0};
    pthread_t threads[N_THREADS];
    weir_log_set(collect, &sink);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_much, NULL), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(sink.n_lines, N_THREADS * N_ROUNDS);
    assert_false(sink.overlapped);
}

/* The former sink's memory may go after weir_log_set returns: the sanitizers would see a late call. */
static void former_sink_has_ended(void **test)
{
    (void)test;
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_much, NULL), 0);
    for (int i = 0; i < 200; i++) {
        struct sink *sink = weir__mem_calloc(1, sizeof *sink);
        assert_non_null(sink);
        weir_log_set(collect, sink);
        weir_log_set(NULL, NULL);
        weir__mem_free(sink);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
}

static void public_messages_reach_the_sink(void **state)
{
    (void)state;
    struct sink sink = {0};
    weir_log_set(collect, &sink);
    weir_log_message(WEIR_LOG_INFO, "100 %s of it\n\nb\xff");
    assert_int_equal(sink.n_lines, 2);
    assert_int_equal(sink.level, WEIR_LOG_INFO);
    assert_string_equal(sink.lines[0], "100 %s of it");
    assert_string_equal(sink.lines[1], "b\xef\xbf\xbd");
    weir_log_message(WEIR_LOG_ERROR, NULL);
    assert_int_equal(sink.n_lines, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(sink_gets_every_level, restore),
        cmocka_unit_test_teardown(lines_come_apart, restore),
        cmocka_unit_test_teardown(messages_are_cut_and_sanitized, restore),
        cmocka_unit_test_teardown(public_messages_reach_the_sink, restore),
        cmocka_unit_test_teardown(sink_that_logs_does_not_hang, restore),
        cmocka_unit_test_teardown(default_is_warnings_to_stderr, restore),
        cmocka_unit_test_teardown(allocates_nothing, restore),
        cmocka_unit_test_teardown(calls_never_overlap, restore),
        cmocka_unit_test_teardown(former_sink_has_ended, restore),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}

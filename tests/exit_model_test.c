/* A process may end in the middle of anything: exit() while other threads make and free contexts, tokenize,
 * and while an engine runs, ends it with the status that it names. Each round is a process of its own, which
 * ends after a time drawn from the printed seed. SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/more.h>

#include "support/dice.h"

extern char **environ;
static const char *self;

enum { STATUS = 7, CONTEXTS = 0, STREAMS = 1, TOKENS = 2, KINDS = 3 };

static weir_model *model;

static void *work(void *kind)
{
    const char text[] = "The capital of France is Paris, and the capital of Italy is";
    int32_t tokens[60];
    size_t n = 0;
    switch (*(int *)kind) {
    case CONTEXTS:
        for (;;) {
            weir_context *context = NULL;
            weir_context_params params = weir_context_params_default();
            params.n_ctx = 256;
            params.n_threads = 1;
            params.layout = WEIR_LAYOUT_PER_SLOT;
            params.n_seq_max = 2;
            if (weir_context_create(model, &params, &context, NULL) != WEIR_OK) _exit(1);
            weir_context_destroy(context);
        }
    case TOKENS:
        for (;;)
            if (weir_tokenize(model, text, WEIR_NUL, true, false, tokens, 60, &n, NULL) != WEIR_OK) _exit(1);
    default: break;
    }
    weir_engine *engine = NULL;
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = 2;
    params.n_ctx = 256;
    params.n_threads = 2;
    if (weir_engine_create(model, &params, &engine, NULL) != WEIR_OK) _exit(1);
    weir_sampler_params endless = weir_sampler_params_default();
    endless.ignore_eos = true;
    for (;;) {
        weir_stream *stream = NULL;
        weir_request request = weir_request_default();
        request.text = text;
        request.max_tokens = 16;
        request.sampler = &endless;
        if (weir_stream_create(&stream, NULL) != WEIR_OK ||
            weir_engine_submit(engine, &request, 1, &stream, NULL) != WEIR_OK)
            _exit(1);
        weir_chunk chunk;
        while (weir_stream_next(stream, -1, &chunk) == WEIR_OK) {
        }
        weir_stream_release(stream);
    }
}

/* A process of a round. */
static int end_amid(int kind, long us)
{
    if (weir_model_load(getenv("WEIR_TEST_MODEL"), NULL, &model, NULL) != WEIR_OK) return 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, &kind) != 0) return 1;
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
    exit(STATUS);
}

static void ends_amid(void **state)
{
    int kind = *(int *)*state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    dice d = {seed};
    int n = (int)dice_environment("WEIR_TEST_ROUNDS", 6);
    for (int i = 0; i < n; i++) {
        char kind_text[12], us[24];
        snprintf(kind_text, sizeof kind_text, "%d", kind);
        snprintf(us, sizeof us, "%ld", (long)dice_in(&d, 20000, 100000));
        char *words[] = {(char *)self, kind_text, us, NULL};
        pid_t pid = 0;
        int status = 0;
        assert_int_equal(posix_spawn(&pid, self, NULL, NULL, words, environ), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS)
            fail_msg("seed %llu, round %d, after %s us: status %#x", (unsigned long long)seed, i, us, status);
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3) return end_amid(atoi(argv[1]), atol(argv[2]));
    static int kinds[KINDS] = {CONTEXTS, STREAMS, TOKENS};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(ends_amid, &kinds[CONTEXTS]),
        cmocka_unit_test_prestate(ends_amid, &kinds[STREAMS]),
        cmocka_unit_test_prestate(ends_amid, &kinds[TOKENS]),
    };
    return cmocka_run_group_tests_name("exit", tests, NULL, NULL);
}

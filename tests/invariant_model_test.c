/* Where a context says that it is batch-invariant, rows computed together are those computed one by one, and
 * a text cut into other passes gives the same rows, bit by bit. Runs itself again without weir's kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "weir/more.h"

#define N_PREFIX 600 /* from 512 cells on ggml's attention takes another way */
#define N_ROWS   4   /* as many as a token and a short draft */

static const char *self;

static weir_model *load(void)
{
    weir_model *model = NULL;
    weir_error error = {0};
    if (weir_model_load(getenv("WEIR_TEST_MODEL"), NULL, &model, &error) != WEIR_OK)
        fail_msg("%s", error.message);
    return model;
}

static weir_context *open_context(weir_model *model, weir_kv_type type, weir_context_info *info)
{
    weir_context *context = NULL;
    weir_error error = {0};
    weir_context_params params = weir_context_params_default();
    params.n_ctx = 1024;
    params.type_k = params.type_v = type;
    if (weir_context_create(model, &params, &context, &error) != WEIR_OK) fail_msg("%s", error.message);
    *info = (weir_context_info){.size = sizeof *info};
    assert_int_equal(weir_context_describe(context, info), WEIR_OK);
    return context;
}

static int32_t token_at(int i)
{
    return 100 + i * 37 % 5000;
}

static void eval(weir_context *context, int from, int n, int32_t first_row, float *rows, size_t width)
{
    weir_batch_entry entries[N_PREFIX];
    const float *logits;
    for (int i = 0; i < n; i++)
        entries[i] = (weir_batch_entry){.token = token_at(from + i), .pos = from + i, .logits = rows != NULL};
    assert_int_equal(weir_batch_eval(context, entries, (size_t)n, NULL), WEIR_OK);
    for (int i = 0; rows != NULL && i < n; i++) {
        assert_int_equal(weir_logits(context, i, &logits, NULL), WEIR_OK);
        memcpy(rows + (size_t)(first_row + i) * width, logits, width * sizeof *rows);
    }
}

/* Rows after a prefix: all in one pass behind one of the whole prefix, or each alone behind a prefix in
 * pieces. */
static void compute(weir_context *context, bool together, float *rows, size_t width)
{
    int piece = together ? N_PREFIX : 150;
    assert_int_equal(weir_context_clear(context, NULL), WEIR_OK);
    for (int at = 0; at < N_PREFIX; at += piece) eval(context, at, piece, 0, NULL, width);
    if (together)
        eval(context, N_PREFIX, N_ROWS, 0, rows, width);
    else
        for (int i = 0; i < N_ROWS; i++) eval(context, N_PREFIX + i, 1, i, rows, width);
}

static void compare(weir_context *context, size_t width)
{
    size_t n = N_ROWS * width;
    float *together = malloc(n * sizeof *together), *alone = malloc(n * sizeof *alone);
    assert_non_null(together);
    assert_non_null(alone);
    compute(context, true, together, width);
    compute(context, false, alone, width);
    assert_memory_equal(together, alone, n * sizeof *alone);
    free(together);
    free(alone);
}

/* Whether the flag is true; then it is held to its word. */
static bool check(weir_model *model, weir_kv_type type)
{
    weir_context_info info;
    weir_model_info about = {.size = sizeof about};
    weir_context *context = open_context(model, type, &info);
    weir_model_describe(model, &about);
    if (info.batch_invariant) compare(context, (size_t)about.n_vocab);
    weir_context_destroy(context);
    return info.batch_invariant;
}

static void reported_batch_invariance_holds(void **state)
{
    (void)state;
    weir_model *model = load();
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    bool kernels = info.kernels[0] != '\0';
    static const weir_kv_type types[] = {WEIR_KV_F16, WEIR_KV_Q8_0,
#ifndef WEIR_SANITIZED /* where each takes half a minute; attention_test has them all */
                                         WEIR_KV_F32, WEIR_KV_BF16, WEIR_KV_Q4_0
#endif
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_int_equal(check(model, types[i]), kernels);
    weir_model_release(model);
}

static void so_it_does_without_the_kernels(void **state)
{
    (void)state;
    int status = -1;
    if (getenv("WEIR_KERNELS") != NULL) return; /* this is it */
    pid_t child = fork();                       /* before anything is loaded here */
    if (child == 0) {
        setenv("WEIR_KERNELS", "off", 1);
        execl(self, self, (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_it_does_without_the_kernels),
        cmocka_unit_test(reported_batch_invariance_holds),
    };
    (void)argc;
    self = argv[0];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

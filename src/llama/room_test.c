/* room_test.c: too little memory for a model, a context, its passes and an adapter: what did not fit
 * and what to lower, without llama.cpp's chain of messages. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/effort.h"
#include "support/llama.h"

#define MIB ((rlim_t)1 << 20)

static weir_error why;

/* The address space that the process has, plus so many MiB. */
static struct rlimit limit_memory(rlim_t more)
{
    struct rlimit before, limit;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || EFFORT(false, true)) skip(); /* sanitizers reserve all addresses */
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    return before;
}

/* A sentence about what is too large, with its size if mib > 0, and each of the words. */
static void expect_advice(const char *what, unsigned mib, const char *const *words)
{
    char size[32];
    snprintf(size, sizeof size, "%u MiB", mib);
    bool good = strstr(why.message, what) != NULL && (mib == 0 || strstr(why.message, size) != NULL);
    for (; good && *words != NULL; words++) good = strstr(why.message, *words) != NULL;
    if (!good || strstr(why.message, "failed to") != NULL || strstr(why.message, "CPU buffer") != NULL)
        fail_msg("%s", why.message);
}

static void weights_do_not_fit(void **state)
{
    (void)state;
    static const char *const words[] = {"smaller", NULL};
    weir_model_params params = weir_model_params_default();
    weir__bmodel *made = NULL;
    params.use_mmap = false;
    struct rlimit before = limit_memory(32 * MIB);
    weir_status status = ops->model_load(model_path(), &params, false, &made, &why);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, WEIR_NO_MEMORY);
    assert_string_equal(why.field, "path");
    expect_advice("no memory for the model's weights", 0, words);
}

static weir_status create(weir_context_params params, rlim_t room)
{
    weir__bcontext *context = NULL;
    weir_context_info info;
    params.n_threads = params.n_threads_batch = 1;
    struct rlimit before = limit_memory(room);
    weir_status status = ops->context_create(model, &params, &context, &info, &why);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    if (context != NULL) ops->context_free(context);
    return status;
}

/* 30 layers of 3 heads of 64 in 16 bits, K and V: 23,040 bytes for a cell, 720 MiB for 32,768. */
static void cells_do_not_fit(void **state)
{
    (void)state;
    static const char *const words[] = {"32768 KV cells", "context", "slots", "KV type", "batch", NULL};
    assert_int_equal(create(rig_params(32768, 1, WEIR_LAYOUT_UNIFIED), 256 * MIB), WEIR_NO_MEMORY);
    assert_string_equal(why.field, "n_ctx");
    expect_advice("no memory for a context", 720, words);
}

static void passes_do_not_fit(void **state)
{
    (void)state;
    static const char *const words[] = {"passes of 2048 tokens", "batch", NULL};
    weir_context_params params = rig_params(2048, 1, WEIR_LAYOUT_UNIFIED);
    params.n_batch = params.n_ubatch = 2048; /* logits of 49,152 tokens for each: 384 MiB */
    assert_int_equal(create(params, 128 * MIB), WEIR_NO_MEMORY);
    assert_string_equal(why.field, "n_ctx");
    expect_advice("no memory for a context", 0, words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_do_not_fit),
        cmocka_unit_test(cells_do_not_fit),
        cmocka_unit_test(passes_do_not_fit),
    };
    return RUN_MODEL_TESTS(tests);
}

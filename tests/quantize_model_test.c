/* Quantizing the real model (WEIR_TEST_MODEL), and the estimates for its engines.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <weir/more.h>

static char folder[256], out[300];

static const char *model_path(void)
{
    const char *path = getenv("WEIR_TEST_MODEL");
    assert_non_null(path);
    return path;
}

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

struct seen {
    int n;
    float last, stop_at;
    bool fell;
};

static bool on_progress(float progress, void *user)
{
    struct seen *seen = user;
    seen->n++;
    if (progress < seen->last) seen->fell = true;
    seen->last = progress;
    return progress < seen->stop_at;
}

static void test_quantize(void **state)
{
    (void)state;
    weir_quantize_params params = weir_quantize_params_default();
    struct seen seen = {.stop_at = 2};
    weir_error error = {0};
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_model_weights weights = {.size = sizeof weights};
    weir_result result;
    params.type = "q4_0";
    params.progress = on_progress;
    params.progress_user = &seen;

    assert_int_equal(weir_model_quantize(model_path(), out, &params, &error), WEIR_UNSUPPORTED);
    assert_string_equal(error.field, "requantize");
    assert_int_equal(size_of(out), -1);

    params.requantize = true;
    seen = (struct seen){.stop_at = 2};
    assert_int_equal(weir_model_quantize(model_path(), out, &params, &error), WEIR_OK);
    assert_true(seen.n > 100 && !seen.fell && seen.last < 1);
    int64_t size = size_of(out);
    assert_true(size > 0 && size < size_of(model_path()));

    /* It is a model of that type, and it answers. */
    assert_int_equal(weir_model_load(out, NULL, &model, &error), WEIR_OK);
    assert_int_equal(weir_model_weights_get(model, 0, &weights), WEIR_OK);
    assert_string_equal(weights.type, "q4_0");
    assert_int_equal(weir_engine_create(model, NULL, &engine, &error), WEIR_OK);
    weir_request request = weir_request_default();
    request.text = "The capital of France is";
    request.max_tokens = 8;
    assert_int_equal(weir_generate(engine, &request, 1, NULL, &result, &error), WEIR_OK);
    assert_true(result.n_tokens > 0);
    weir_result_fini(&result);
    weir_engine_destroy(engine);
    weir_model_release(model);

    /* An end half way leaves the old file. */
    seen = (struct seen){.stop_at = 0.3f};
    assert_int_equal(weir_model_quantize(model_path(), out, &params, &error), WEIR_ABORTED);
    assert_true(seen.last < 0.5f);
    assert_int_equal(size_of(out), size);
}

/* Nothing but the file that was written before is in the folder. */
static void check_clean(void)
{
    char command[400];
    snprintf(command, sizeof command, "test \"$(ls %s)\" = out.gguf", folder);
    assert_int_equal(system(command), 0);
}

static void test_failures(void **state)
{
    (void)state;
    weir_quantize_params params = weir_quantize_params_default();
    weir_error error = {0};
    char path[512];
    params.requantize = true;
    assert_int_equal(weir_model_quantize(out, out, &params, &error), WEIR_INVALID);
    assert_string_equal(error.field, "out");
    snprintf(path, sizeof path, "%s/none/out.gguf", folder);
    assert_int_equal(weir_model_quantize(model_path(), path, &params, &error), WEIR_IO);
    assert_int_equal(weir_model_quantize(path, out, &params, &error), WEIR_NOT_FOUND);
    assert_int_equal(weir_model_quantize("/bin/sh", out, &params, &error), WEIR_FORMAT);

    /* A disk that is full after some megabytes. */
    struct rlimit before, small;
    int64_t size = size_of(out);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 8 << 20;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    weir_status status = weir_model_quantize(model_path(), out, &params, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, WEIR_IO);
    assert_int_equal(size_of(out), size);
    check_clean();
}

static int64_t resident_kb(void)
{
    long pages = 0, ignored = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &ignored, &pages) != 2) pages = 0;
    if (file != NULL) fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE) / 1024;
}

static void compare(weir_engine_params params)
{
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_error error = {0};
    weir_model_info info = {.size = sizeof info};
    weir_engine_memory memory = {.size = sizeof memory};
    weir_engine_stats stats = {.size = sizeof stats};
    params.manual = true;
    assert_int_equal(weir_engine_estimate(model_path(), NULL, &params, &memory, &error), WEIR_OK);
    assert_int_equal(weir_model_load(model_path(), NULL, &model, &error), WEIR_OK);
    assert_int_equal(weir_engine_create(model, &params, &engine, &error), WEIR_OK);
    weir_model_describe(model, &info);
    assert_int_equal(weir_engine_get_stats(engine, &stats), WEIR_OK);
    assert_int_equal(memory.n_slots, stats.n_slots);
    assert_int_equal(memory.n_ctx, stats.n_ctx);
    assert_int_equal(memory.n_kv, stats.n_kv);
    assert_int_equal(memory.layout, stats.layout);
    assert_true(memory.kv_bytes == stats.kv_bytes);
    assert_true(memory.model_bytes == info.n_bytes);
    assert_true(memory.compute_bytes > 1 << 20 && memory.compute_bytes < (uint64_t)4 << 30);
    weir_engine_destroy(engine);
    weir_model_release(model);
}

static void test_estimate(void **state)
{
    (void)state;
    weir_engine_params params = weir_engine_params_default();
    weir_engine_memory memory = {.size = sizeof memory};
    weir_error error = {0};
    params.n_slots = 2;
    params.n_ctx = 1000;
    compare(params);
    params.layout = WEIR_LAYOUT_PER_SLOT;
    params.type_k = params.type_v = WEIR_KV_Q8_0;
    compare(params);

    /* Two gigabytes of cells are estimated and not taken; a larger batch needs larger buffers. */
    int64_t before = resident_kb();
    params = weir_engine_params_default();
    params.n_kv = 100000;
    assert_int_equal(weir_engine_estimate(model_path(), NULL, &params, &memory, &error), WEIR_OK);
    assert_true(memory.kv_bytes > (uint64_t)2 << 30);
    assert_true(resident_kb() - before < 200000);
    uint64_t compute = memory.compute_bytes;
    params.n_ubatch = 2048;
    assert_int_equal(weir_engine_estimate(model_path(), NULL, &params, &memory, &error), WEIR_OK);
    assert_true(memory.compute_bytes > compute);
    assert_int_equal(weir_engine_estimate("/none.gguf", NULL, &params, &memory, &error), WEIR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_estimate),
    };
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/weir-quantize-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(out);
    rmdir(folder);
    return failed;
}

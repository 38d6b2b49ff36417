/* optimized_test.c: loads that map packed weights compute the same as loads that pack them, and a bad
 * file never prevents a load.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/hash.h"
#include "base/log.h"
#include "hook/hook.h"
#include "support/llama.h"
#include "support/temp.h"

/* Places in the file. */
enum { N_TENSORS_AT = 12, CHECKSUM_AT = 80, TABLE_AT = 88 };

static char gguf[TEMP_PATH_MAX], optimized[TEMP_PATH_MAX];
static float *want; /* the logits after some tokens, with weights that were packed at the load */
static int32_t n_vocab;
static int n_warnings;
static char warning[WEIR__LOG_CAPACITY];

static void on_log(weir_log_level level, const char *message, void *user)
{
    (void)user;
    if (level < WEIR_LOG_WARN) return;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

static float *logits_of_model(void)
{
    static const int32_t ids[] = {20, 57, 94, 131, 168, 205};
    rig r;
    rig_init(&r, 64, 1, WEIR_LAYOUT_UNIFIED);
    assert_ok(feed(&r, 0, ids, N_ELEMENTS(ids), error));
    float *row = row_copy(&r, -1);
    rig_fini(&r);
    return row;
}

/* Loads with these parameters, compares the logits, and reports how much was mapped. */
static uint64_t mapped(const weir_model_params *params)
{
    n_warnings = 0;
    assert_ok(ops->model_load(gguf, params, false, &model, error));
    ops->model_describe(model, &model_is);
    float *row = logits_of_model();
    assert_memory_equal(row, want, (size_t)n_vocab * sizeof *row);
    free(row);
    ops->model_free(model);
    assert_true(model_is.n_bytes_kernels > 0);
    return model_is.n_bytes_mapped;
}

static uint64_t mapped_by_default(void)
{
    weir_model_params params = weir_model_params_default();
    return mapped(&params);
}

static int begin(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    temp_model(gguf, "m.gguf", "llama --type q8_0");
    temp_path(optimized, "m.gguf.weir");
    assert_ok(ops->model_load(gguf, &params, false, &model, error));
    ops->model_describe(model, &model_is);
    n_vocab = model_is.n_vocab;
    want = logits_of_model();
    ops->model_free(model);
    weir_log_set(on_log, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    weir_log_set(NULL, NULL);
    free(want);
    return weir__mem_live() != 0;
}

static unsigned char *read_optimized(size_t *n)
{
    struct stat st;
    assert_int_equal(stat(optimized, &st), 0);
    *n = (size_t)st.st_size;
    unsigned char *bytes = malloc(*n);
    FILE *file = fopen(optimized, "rb");
    assert_true(bytes != NULL && file != NULL);
    assert_int_equal(fread(bytes, 1, *n, file), *n);
    fclose(file);
    return bytes;
}

static void write_optimized(const unsigned char *bytes, size_t n)
{
    FILE *file = fopen(optimized, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static int optimize(void **state)
{
    (void)state;
    assert_ok(ops->model_optimize(gguf, NULL, NULL, NULL, error));
    return 0;
}

static int forget(void **state)
{
    (void)state;
    assert_int_equal(unlink(optimized), 0);
    assert_int_equal(temp_count(), 1);
    return 0;
}

static void loads_map_what_was_packed(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    assert_ok(ops->model_optimize_check(gguf, NULL, NULL, NULL, error));
    assert_true(mapped_by_default() > 0);
    assert_int_equal(model_is.n_bytes_mapped, model_is.n_bytes_kernels);
    params.optimized = optimized;
    assert_true(mapped(&params) > 0);
    params.optimized = "";
    assert_int_equal(mapped(&params), 0);
    params.optimized = NULL;
    params.use_mmap = false;
    assert_int_equal(mapped(&params), 0);
    assert_int_equal(n_warnings, 0);
}

static void layers_that_guess_are_packed_too(void **state)
{
    (void)state;
    static const char *const kinds[] = {"glm", "hy", "mla"};
    for (size_t i = 0; i < N_ELEMENTS(kinds); i++) {
        char path[TEMP_PATH_MAX], beside[TEMP_PATH_MAX], options[64];
        weir__bmodel *m = NULL;
        weir_model_params params = weir_model_params_default();
        weir_model_info is = {.size = sizeof is};
        snprintf(options, sizeof options, "%s --type q8_0", kinds[i]);
        temp_model(path, "guesses.gguf", options);
        temp_path(beside, "guesses.gguf.weir");
        assert_ok(ops->model_optimize(path, NULL, NULL, NULL, error));
        assert_ok(ops->model_load(path, &params, false, &m, error));
        ops->model_describe(m, &is);
        assert_true(is.n_bytes_kernels > 0);
        assert_int_equal(is.n_bytes_mapped, is.n_bytes_kernels);
        ops->model_free(m);
        assert_int_equal(unlink(beside), 0);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(n_warnings, 0);
}

/* Bytes that the system keeps in memory for this process; -1 where this is unknown. */
static int64_t locked_bytes(void)
{
    long long kb = -1;
    char line[128];
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "VmLck: %lld", &kb) == 1) break;
    if (f != NULL) fclose(f);
    return kb < 0 ? -1 : (int64_t)kb * 1024;
}

static void packed_weights_are_locked_too(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    int64_t before = locked_bytes();
    params.use_mlock = true;
    params.use_mmap = false; /* else the model's file is locked, too */
    assert_ok(ops->model_load(gguf, &params, false, &model, error));
    ops->model_describe(model, &model_is);
    int64_t weights = (int64_t)model_is.n_bytes_kernels, now = locked_bytes();
    bool tells = before >= 0;
#ifdef WEIR_SANITIZED
    tells = false; /* sanitizers make mlock do nothing */
#endif
    if (tells) assert_true(now - before >= weights);
    ops->model_free(model);
    if (tells) assert_true(now - locked_bytes() >= weights);
}

/* Tells if a part of the model's mapping is marked as read here and there (rr), and if a part is not. */
static void look_at_mappings(bool *random, bool *ahead)
{
    char line[1024];
    bool ours = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    *random = *ahead = false;
    while (fgets(line, sizeof line, maps) != NULL) {
        bool flags = strncmp(line, "VmFlags:", 8) == 0;
        if (flags && ours) *(strstr(line, " rr ") != NULL ? random : ahead) = true;
        if (strchr(line, '/') != NULL) ours = strstr(line, ".gguf\n") != NULL;
        if (flags) ours = false;
    }
    fclose(maps);
}

/* The weights that choose a model's experts are multiplied where they lie. */
static void unpacked_weights_are_read_ahead(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    bool random, ahead;
    weir_model_params params = weir_model_params_default();
    temp_model(path, "experts.gguf", "moe --wide --type q8_0");
    assert_ok(ops->model_optimize(path, NULL, NULL, NULL, error));
    assert_ok(ops->model_load(path, &params, false, &model, error));
    look_at_mappings(&random, &ahead);
    ops->model_free(model);
    assert_true(random);
    assert_true(ahead);
    assert_int_equal(unlink(path), 0);
    temp_path(path, "experts.gguf.weir");
    assert_int_equal(unlink(path), 0);
}

/* Cells alone would fit. */
static void memory_for_attention_is_counted(void **state)
{
    (void)state;
    weir_context_info info;
    weir__bcontext *context = NULL;
    weir_context_params params = rig_params(0, 1, WEIR_LAYOUT_UNIFIED);
    uint64_t cell = ops->cell_bytes(model, params.type_k, params.type_v) + 64;
    uint64_t scratch = weir__hook_scratch(1 << 20, model_is.n_head / model_is.n_head_kv, model_is.n_head_kv,
                                          model_is.n_embd / model_is.n_head, WEIR__CPU_MAX) >>
                       20;
    assert_true(scratch > 2 * cell);
    params.n_ctx = (int32_t)(weir__cpu_memory_available() / (cell + scratch / 2));
    params.n_threads = WEIR__CPU_MAX;
    weir_error error = {0};
    assert_int_equal(ops->context_create(model, &params, &context, &info, &error), WEIR_NO_MEMORY);
    assert_string_equal(error.field, "n_ctx");
    assert_non_null(strstr(error.message, "attention by 512 threads"));
}

static int load_tiny(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    assert_ok(ops->model_load(gguf, &params, false, &model, error));
    ops->model_describe(model, &model_is);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    ops->model_free(model);
    return 0;
}

static void a_file_that_is_named_and_missing(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    params.optimized = "/nonexistent.weir";
    assert_int_equal(mapped(&params), 0);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "/nonexistent.weir"));
    assert_refused(ops->model_optimize_check(gguf, "/nonexistent.weir", NULL, NULL, error), WEIR_NOT_FOUND,
                   "optimized");
}

static void assert_packed_with_a_warning(void)
{
    assert_int_equal(mapped_by_default(), 0);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, gguf));
    assert_non_null(strstr(warning, "packed anew"));
}

static void damaged_files_are_not_used(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = read_optimized(&n);
    for (size_t at = 0; at < TABLE_AT + 2 * 120; at += 11) {
        bytes[at] ^= 4;
        write_optimized(bytes, n);
        assert_packed_with_a_warning();
        bytes[at] ^= 4;
    }
    for (size_t length = 0; length < n; length += n / 7) {
        write_optimized(bytes, length);
        assert_packed_with_a_warning();
    }
    free(bytes);
}

/* A file as another build of weir or of llama.cpp would have written it is not used: all sums are right. */
static void other_tables_are_not_used(void **state)
{
    (void)state;
    size_t n;
    uint32_t n_tensors;
    unsigned char *bytes = read_optimized(&n);
    memcpy(&n_tensors, bytes + N_TENSORS_AT, sizeof n_tensors);
    assert_true(n_tensors > 4);
    size_t table_bytes = n_tensors * sizeof(weir__optimized_tensor);
    for (size_t i = 0; i < n_tensors; i += i + 2 < n_tensors ? n_tensors / 3 : 1)
        for (size_t member = 0; member < 2; member++) {
            unsigned char *byte = bytes + TABLE_AT + i * sizeof(weir__optimized_tensor) +
                                  (member == 0 ? offsetof(weir__optimized_tensor, name)
                                               : offsetof(weir__optimized_tensor, at) + 1);
            *byte ^= 1;
            uint64_t sum = weir__hash(weir__hash(0, bytes, CHECKSUM_AT), bytes + TABLE_AT, table_bytes);
            memcpy(bytes + CHECKSUM_AT, &sum, sizeof sum);
            write_optimized(bytes, n);
            assert_packed_with_a_warning();
            *byte ^= 1;
        }
    free(bytes);
}

static void damaged_weights_are_found_by_the_check(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = read_optimized(&n);
    bytes[n / 2] ^= 1;
    write_optimized(bytes, n);
    assert_refused(ops->model_optimize_check(gguf, NULL, NULL, NULL, error), WEIR_FORMAT, "optimized");
    free(bytes);
}

static void a_model_that_was_written_since(void **state)
{
    (void)state;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000, .tv_nsec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, gguf, times, 0), 0);
    assert_packed_with_a_warning();
    assert_refused(ops->model_optimize_check(gguf, NULL, NULL, NULL, error), WEIR_UNSUPPORTED, "optimized");
    assert_ok(ops->model_optimize(gguf, NULL, NULL, NULL, error)); /* takes its place */
    assert_true(mapped_by_default() > 0);
    assert_int_equal(temp_count(), 2);
}

static void unsuitable_models_are_not_optimized(void **state)
{
    (void)state;
    char plain[TEMP_PATH_MAX];
    assert_refused(ops->model_optimize(gguf, gguf, NULL, NULL, error), WEIR_INVALID, "optimized");
    assert_refused(ops->model_optimize(gguf, "/nonexistent/m.weir", NULL, NULL, error), WEIR_IO, "optimized");
    assert_refused(ops->model_optimize("/nonexistent", NULL, NULL, NULL, error), WEIR_NOT_FOUND, "path");
    temp_model(plain, "plain.gguf", "llama --type f32");
    assert_refused(ops->model_optimize(plain, NULL, NULL, NULL, error), WEIR_UNSUPPORTED, "");
    assert_int_equal(unlink(plain), 0);
    assert_int_equal(temp_count(), 1);
}

typedef struct watcher {
    float last;
    int n, stop_at;
} watcher;

static bool watch(float progress, void *user)
{
    watcher *w = user;
    assert_true(progress >= w->last && progress <= 1.0f);
    w->last = progress;
    return ++w->n != w->stop_at;
}

static void optimizing_is_watched_and_aborted(void **state)
{
    (void)state;
    watcher seen = {0};
    assert_ok(ops->model_optimize(gguf, NULL, watch, &seen, error));
    assert_true(seen.last == 1.0f);
    assert_int_equal(unlink(optimized), 0);
    for (int at = 1; at < seen.n; at += 5) {
        watcher w = {.stop_at = at};
        assert_refused(ops->model_optimize(gguf, NULL, watch, &w, error), WEIR_ABORTED, "progress");
        assert_int_equal(w.n, at);
        assert_int_equal(temp_count(), 1);
    }
}

static void optimizing_survives_failing_allocations(void **state)
{
    (void)state;
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir__mem_fail_after(n);
        weir_status status = ops->model_optimize(gguf, NULL, NULL, NULL, NULL);
        bool reached = !weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(weir__mem_live(), live);
        assert_int_equal(status, reached ? WEIR_NO_MEMORY : WEIR_OK);
        if (!reached) break;
        assert_int_equal(temp_count(), 1);
    }
    assert_int_equal(unlink(optimized), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(loads_map_what_was_packed, optimize, forget),
        cmocka_unit_test(layers_that_guess_are_packed_too),
        cmocka_unit_test(packed_weights_are_locked_too),
        cmocka_unit_test_setup_teardown(unpacked_weights_are_read_ahead, optimize, forget),
        cmocka_unit_test_setup_teardown(memory_for_attention_is_counted, load_tiny, unload),
        cmocka_unit_test_setup_teardown(a_file_that_is_named_and_missing, optimize, forget),
        cmocka_unit_test_setup_teardown(damaged_files_are_not_used, optimize, forget),
        cmocka_unit_test_setup_teardown(other_tables_are_not_used, optimize, forget),
        cmocka_unit_test_setup_teardown(damaged_weights_are_found_by_the_check, optimize, forget),
        cmocka_unit_test_setup_teardown(a_model_that_was_written_since, optimize, forget),
        cmocka_unit_test(unsuitable_models_are_not_optimized),
        cmocka_unit_test(optimizing_is_watched_and_aborted),
        cmocka_unit_test(optimizing_survives_failing_allocations),
    };
    if (weir__llama_start(NULL) != WEIR_OK) return 77;
    if (weir__hook_kernels()[0] == '\0') return 77; /* no kernels here */
    return cmocka_run_group_tests_name("llama_optimized", tests, begin, end);
}

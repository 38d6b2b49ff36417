/* llama_test.c: models and vocabularies, with the real model.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>
#include <unistd.h>

#include <ggml-cpu.h>

#include "base/cpu.h"
#include "gguf/gguf.h"
#include "support/effort.h"
#include "support/llama.h"
#include "support/temp.h"

/* ---- Load ----------------------------------------------------------------------------------------- */

static weir_status load(const char *path, weir_error *error)
{
    weir_model_params params = weir_model_params_default();
    weir__bmodel *made = NULL;
    weir_status status = ops->model_load(path, &params, false, &made, error);
    if (status == WEIR_OK) ops->model_free(made);
    return status;
}

static void write_file(char path[TEMP_PATH_MAX], const void *bytes, size_t n)
{
    temp_path(path, "model.gguf");
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

static void no_such_file(void **state)
{
    (void)state;
    assert_refused(load("/nonexistent/model.gguf", error), WEIR_NOT_FOUND, "path");
}

static void a_processor_that_llama_is_not_compiled_for(void **state)
{
    (void)state;
    static const struct {
        uint32_t feature;
        int (*compiled)(void);
        const char *name;
    } cases[] = {
        {WEIR__CPU_AVX2, ggml_cpu_has_avx2, "AVX2"},
        {WEIR__CPU_FMA, ggml_cpu_has_fma, "FMA"},
        {WEIR__CPU_F16C, ggml_cpu_has_f16c, "F16C"},
        {WEIR__CPU_BMI2, ggml_cpu_has_bmi2, "BMI2"},
        {WEIR__CPU_AVX512, ggml_cpu_has_avx512, "AVX-512,"},
        {WEIR__CPU_AVX512_VBMI, ggml_cpu_has_avx512_vbmi, "VBMI"},
        {WEIR__CPU_AVX512_VNNI, ggml_cpu_has_avx512_vnni, "VNNI"},
        {WEIR__CPU_AVX512_BF16, ggml_cpu_has_avx512_bf16, "BF16"},
        {WEIR__CPU_DOTPROD, ggml_cpu_has_dotprod, "dotprod"},
        {WEIR__CPU_I8MM, ggml_cpu_has_matmul_int8, "i8mm"},
    };
    weir_error error;
    weir_device device = {.size = sizeof device};
    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        bool needed = cases[i].compiled() != 0;
        weir__cpu_hide(cases[i].feature);
        weir_status status = load("/nonexistent/model.gguf", &error), found = weir_device_get(0, &device);
        weir_status optimized =
            weir_model_optimize("/nonexistent/model.gguf", NULL, NULL, NULL, needed ? &error : NULL);
        weir__cpu_hide(0);
        assert_int_equal(status, needed ? WEIR_UNSUPPORTED : WEIR_NOT_FOUND);
        assert_int_equal(found, needed ? WEIR_UNSUPPORTED : WEIR_OK);
        if (!needed) continue;
        assert_int_equal(optimized, WEIR_UNSUPPORTED);
        assert_non_null(strstr(error.message, cases[i].name));
    }
}

static void directory_is_no_model(void **state)
{
    (void)state;
    weir_error error = {0};
    assert_true(load("/tmp", &error) < 0);
    assert_true(strlen(error.message) > 10);
}

static void bytes_that_are_no_model(void **state)
{
    (void)state;
    unsigned char bytes[4096];
    uint32_t random = 12345;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)((random = random * 1664525u + 1013904223u) >> 24);
    for (size_t n = 0; n <= sizeof bytes; n += sizeof bytes) {
        char path[TEMP_PATH_MAX];
        weir_error error = {0};
        write_file(path, bytes, n);
        assert_int_equal(load(path, &error), WEIR_FORMAT);
        assert_true(strlen(error.message) > 10);
    }
}

static void truncated_model(void **state)
{
    (void)state;
    static unsigned char bytes[4 << 20];
    FILE *file = fopen(model_path(), "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t length = n; length > 64; length /= 4) {
        char path[TEMP_PATH_MAX];
        weir_error error = {0};
        write_file(path, bytes, length);
        assert_int_equal(load(path, &error), WEIR_FORMAT);
    }
}

static void unknown_architecture(void **state)
{
    (void)state;
    static const char file[] = "GGUF\3\0\0\0"
                               "\0\0\0\0\0\0\0\0"
                               "\1\0\0\0\0\0\0\0"
                               "\24\0\0\0\0\0\0\0general.architecture"
                               "\10\0\0\0"
                               "\6\0\0\0\0\0\0\0nobody"
                               "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    char path[TEMP_PATH_MAX];
    weir_error error = {0};
    write_file(path, file, sizeof file - 1);
    assert_int_equal(load(path, &error), WEIR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "nobody"));
}

static void put_number(unsigned char **at, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) *(*at)++ = (unsigned char)(value >> 8 * i);
}

/* A file without keys, with two tensors of a type; how long it is. */
static size_t file_of_type(unsigned char *bytes, uint32_t type, uint64_t n_elements, uint64_t n_bytes)
{
    static const char *const names[] = {"blk.0.attn_k.weight", "blk.0.attn_q.weight"};
    unsigned char *at = bytes;
    memcpy(at, "GGUF", 4);
    at += 4;
    put_number(&at, 3, 4);
    put_number(&at, 2, 8);
    put_number(&at, 0, 8);
    for (uint64_t i = 0; i < 2; i++) {
        put_number(&at, strlen(names[i]), 8);
        memcpy(at, names[i], strlen(names[i]));
        at += strlen(names[i]);
        put_number(&at, 2, 4);
        put_number(&at, n_elements, 8);
        put_number(&at, 1, 8);
        put_number(&at, type, 4);
        put_number(&at, i * n_bytes, 8);
    }
    size_t begin = ((size_t)(at - bytes) + 31) / 32 * 32;
    return begin + 2 * n_bytes;
}

/* The sizes of ggml's types in the check of files are ggml's. */
static void types_are_as_large_as_ggml_says(void **state)
{
    (void)state;
    static unsigned char bytes[1 << 20];
    int n_known = 0;
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        weir_error right = {0}, wrong = {0};
        uint64_t block = (uint64_t)ggml_blck_size((enum ggml_type)type),
                 size = ggml_type_size((enum ggml_type)type);
        size_t n = file_of_type(bytes, (uint32_t)type, 32 * block, 32 * size);
        weir__gguf_check_memory(bytes, n, NULL, &right);
        n = file_of_type(bytes, (uint32_t)type, 32 * block, 32 * size + 32);
        weir__gguf_check_memory(bytes, n, NULL, &wrong);
        if (type != GGML_TYPE_F32 && ggml_get_type_traits((enum ggml_type)type)->to_float == NULL) continue;
        if (strstr(right.message, "architecture") == NULL || strstr(wrong.message, "was expected") == NULL)
            fail_msg("%s: %s; %s", ggml_type_name((enum ggml_type)type), right.message, wrong.message);
        n_known++;
    }
    assert_true(n_known > 20);
}

typedef struct seen_progress {
    float last;
    int n;
    int stop_at;
} seen_progress;

static bool see_progress(float progress, void *user)
{
    seen_progress *seen = user;
    assert_true(progress >= seen->last && progress <= 1.0f);
    seen->last = progress;
    return ++seen->n != seen->stop_at;
}

static void load_is_watched_and_aborted(void **state)
{
    (void)state;
    seen_progress seen = {0};
    weir_model_params params = weir_model_params_default();
    weir__bmodel *made = NULL;
    params.progress = see_progress;
    params.progress_user = &seen;
    assert_ok(ops->model_load(model_path(), &params, false, &made, error));
    ops->model_free(made);
    assert_true(seen.last == 1.0f);
    int n = seen.n;
    for (int at = 1; at < n; at += n / 3 + 1) {
        seen = (seen_progress){.stop_at = at};
        weir_error error = {0};
        assert_int_equal(ops->model_load(model_path(), &params, false, &made, &error), WEIR_ABORTED);
        assert_string_equal(error.field, "progress");
        assert_int_equal(seen.n, at);
    }
}

static void load_survives_failing_allocations(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    float split[1] = {1};
    params.vocab_only = true;
    params.tensor_split = split;
    params.n_tensor_split = 1;
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir__bmodel *made = NULL;
        weir__mem_fail_after(n);
        weir_status status = ops->model_load(model_path(), &params, false, &made, NULL);
        bool reached = !weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status == WEIR_OK) ops->model_free(made);
        assert_int_equal(weir__mem_live(), live);
        assert_int_equal(status, reached ? WEIR_NO_MEMORY : WEIR_OK);
        if (!reached) break;
    }
    params.n_tensor_split = 1000;
    assert_refused(ops->model_load(model_path(), &params, false, &model, error), WEIR_INVALID,
                   "n_tensor_split");
}

static void describe_agrees_with_llama(void **state)
{
    (void)state;
    const struct llama_model *m = model->model;
    const struct llama_vocab *v = model->vocab;
    assert_int_equal(model_is.n_vocab, llama_vocab_n_tokens(v));
    assert_int_equal(model_is.n_ctx_train, llama_model_n_ctx_train(m));
    assert_int_equal(model_is.n_layer, llama_model_n_layer(m));
    assert_int_equal(model_is.n_embd, llama_model_n_embd(m));
    assert_int_equal(model_is.n_embd_out, llama_model_n_embd_out(m));
    assert_int_equal(model_is.n_head, llama_model_n_head(m));
    assert_int_equal(model_is.n_head_kv, llama_model_n_head_kv(m));
    assert_int_equal(model_is.token_bos, llama_vocab_bos(v));
    assert_int_equal(model_is.token_eos, llama_vocab_eos(v));
    assert_int_equal(model_is.token_fim_prefix, llama_vocab_fim_pre(v));
    assert_int_equal(model_is.token_fim_suffix, llama_vocab_fim_suf(v));
    assert_int_equal(model_is.token_fim_middle, llama_vocab_fim_mid(v));
    assert_int_equal(model_is.token_fim_repo, llama_vocab_fim_rep(v));
    assert_int_equal(model_is.token_fim_file, llama_vocab_fim_sep(v));
    assert_int_equal(model_is.token_sep, llama_vocab_sep(v));
    assert_int_equal(model_is.add_sep, llama_vocab_get_add_sep(v));
    assert_int_equal(model_is.token_nl, llama_vocab_nl(v));
    assert_int_equal(model_is.n_params, llama_model_n_params(m));
    assert_int_equal(model_is.n_bytes, llama_model_size(m));
    assert_string_equal(model_is.architecture, "llama");
    assert_non_null(strstr(model_is.description, "llama"));
    assert_non_null(strstr(model_is.chat_template, "im_start"));
    assert_true(model_is.has_decoder && !model_is.has_encoder && !model_is.is_recurrent &&
                !model_is.is_hybrid);
    assert_true(ops->is_eog(model, model_is.token_eos));
    assert_false(ops->is_eog(model, 1000));
    assert_false(ops->is_eog(model, -1));
}

static void metadata(void **state)
{
    (void)state;
    char text[64];
    assert_int_equal(ops->model_meta(model, "general.architecture", text, sizeof text), 5);
    assert_string_equal(text, "llama");
    assert_int_equal(ops->model_meta(model, "general.architecture", text, 3), 5);
    assert_string_equal(text, "ll");
    assert_int_equal(ops->model_meta(model, "no.such.key", text, sizeof text), -1);
    size_t n = 0;
    while (ops->model_meta_key(model, n, text, sizeof text) >= 0) n++;
    assert_true(n > 10);
    assert_int_equal(ops->model_meta_key(model, SIZE_MAX, text, sizeof text), -1);
}

static void vocabulary_without_weights(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    weir__bmodel *made = NULL;
    params.vocab_only = true;
    assert_ok(ops->model_load(model_path(), &params, false, &made, error));
    weir_model_info info = {0};
    ops->model_describe(made, &info);
    assert_int_equal(info.n_vocab, model_is.n_vocab);
    int32_t ids[8];
    size_t n;
    assert_ok(ops->tokenize(made, "hello", 5, false, false, ids, 8, &n, error));
    weir_context_params want = rig_params(256, 1, WEIR_LAYOUT_AUTO);
    weir__bcontext *context = NULL;
    weir_context_info got;
    assert_refused(ops->context_create(made, &want, &context, &got, error), WEIR_UNSUPPORTED, "vocab_only");
    ops->model_free(made);
}

/* Each tensor is of one kind, and weir's kernels multiply exactly those that were packed. */
static void weights_by_kind(void **state)
{
    (void)state;
    weir_model_weights w = {.size = sizeof w};
    uint64_t all = 0, served = 0, last = UINT64_MAX;
    size_t n = 0;
    for (; ops->model_weights(model, n, &w) == WEIR_OK; n++) {
        assert_int_equal(w.size, sizeof w);
        assert_true(w.type[0] != '\0' && w.n_tensors > 0 && w.n_bytes <= last);
        assert_int_equal(w.kernels, w.reason[0] == '\0');
        last = w.n_bytes;
        all += w.n_bytes;
        if (w.kernels) served += w.n_bytes;
    }
    assert_true(n > 1 && all >= model_is.n_bytes);
    assert_int_equal(served, model_is.n_bytes_kernels);
    assert_int_equal(ops->model_weights(model, SIZE_MAX, &w), WEIR_END);
}

static void a_device_computes(void **state)
{
    (void)state;
    weir_device device = {.size = sizeof device};
    size_t n = 0;
    bool cpu = false;
    for (; ops->device_get(n, &device) == WEIR_OK; n++) {
        assert_true(device.name[0] != '\0');
        cpu |= strcmp(device.type, "cpu") == 0 && device.memory_total > 0;
    }
    assert_true(cpu);
    assert_int_equal(ops->device_get(SIZE_MAX, &device), WEIR_END);
}

/* ---- Vocabulary ----------------------------------------------------------------------------------- */

static void check_round_trip(const char *text, size_t length)
{
    size_t capacity = length + 8;
    int32_t *ids = calloc(capacity, sizeof *ids), *plain = calloc(capacity, sizeof *plain);
    char *back = malloc(length + 256);
    size_t n = 0, at = 0;
    assert_ok(ops->tokenize(model, text, length, false, false, ids, capacity, &n, error));
    int32_t n_plain =
        llama_tokenize(model->vocab, text, (int32_t)length, plain, (int32_t)capacity, false, false);
    assert_int_equal(n, n_plain);
    assert_memory_equal(ids, plain, n * sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        int32_t size = ops->piece(model, ids[i], true, back + at, (int32_t)(length + 256 - at));
        assert_true(size >= 0);
        at += (size_t)size;
    }
    assert_int_equal(at, length);
    assert_memory_equal(back, text, length);
    if (n > 0) {
        size_t need = 0;
        assert_refused(ops->tokenize(model, text, length, false, false, ids, n - 1, &need, error),
                       WEIR_TOO_LONG, "capacity");
        assert_int_equal(need, n);
    }
    free(back);
    free(plain);
    free(ids);
}

static void tokens_and_back(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "a",
                                        "Hello, world!",
                                        "  two  spaces\n\ttab",
                                        "naïve façade — 東京 🦀",
                                        "<|im_start|>",
                                        "don't 12345 x_y"};
    for (size_t i = 0; i < N_ELEMENTS(texts); i++) check_round_trip(texts[i], strlen(texts[i]));
    check_round_trip("a\0b\0\0", 5);
    char *many = malloc(100000);
    memset(many, 'a', 100000);
    check_round_trip(many, 100000);
    memset(many, ' ', 100000);
    check_round_trip(many, 100000);
    free(many);
}

/* No text may do harm; invalid UTF-8 comes back as U+FFFD if the vocabulary has no bytes for it. */
static void bytes_that_are_no_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"\xff\xfe", "\xe2\x82", "a\xc0\x80z", "\xed\xa0\x80",
                                        "\xf4\x90\x80\x80"};
    int32_t ids[64];
    size_t n;
    for (size_t i = 0; i < N_ELEMENTS(texts); i++)
        assert_ok(ops->tokenize(model, texts[i], strlen(texts[i]), true, true, ids, 64, &n, error));
}

static void special_tokens(void **state)
{
    (void)state;
    int32_t ids[16];
    size_t n;
    assert_ok(ops->tokenize(model, "<|im_end|>", 10, false, true, ids, 16, &n, error));
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], model_is.token_eos);
    assert_ok(ops->tokenize(model, "<|im_end|>", 10, false, false, ids, 16, &n, error));
    assert_true(n > 1);
    char bytes[32];
    assert_int_equal(ops->piece(model, model_is.token_eos, false, bytes, 32), 0);
    assert_int_equal(ops->piece(model, model_is.token_eos, true, bytes, 32), 10);
    assert_memory_equal(bytes, "<|im_end|>", 10);
    assert_int_equal(ops->piece(model, model_is.token_eos, true, bytes, 4), -10);
}

/* A vocabulary whose regular expressions go through libstdc++, which recurses over each byte of a run: on the
 * caller's stack this would end the process. */
static void long_runs_in_any_vocabulary(void **state)
{
    (void)state;
    const char *source = getenv("WEIR_LLAMA_SOURCE");
    static const char *const names[] = {"deepseek-llm", "falcon"};
    if (source == NULL) skip();
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/models/ggml-vocab-%s.gguf", source, names[i]);
        if (access(path, R_OK) != 0) skip();
        weir_model_params params = weir_model_params_default();
        weir__bmodel *made = NULL;
        params.vocab_only = true;
        assert_ok(ops->model_load(path, &params, false, &made, error));
        size_t length = EFFORT(60000, 20000), n = 0; /* frames are larger there */
        char *text = malloc(length);
        for (const char *c = "a= "; *c != '\0'; c++) {
            memset(text, *c, length);
            assert_int_equal(ops->tokenize(made, text, length, true, true, NULL, 0, &n, NULL), WEIR_TOO_LONG);
            assert_true(n > 100 && n <= length + 2);
        }
        free(text);
        ops->model_free(made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_such_file),
        cmocka_unit_test(a_processor_that_llama_is_not_compiled_for),
        cmocka_unit_test(directory_is_no_model),
        cmocka_unit_test(bytes_that_are_no_model),
        cmocka_unit_test(truncated_model),
        cmocka_unit_test(unknown_architecture),
        cmocka_unit_test(types_are_as_large_as_ggml_says),
        cmocka_unit_test(load_is_watched_and_aborted),
        cmocka_unit_test(load_survives_failing_allocations),
        cmocka_unit_test(describe_agrees_with_llama),
        cmocka_unit_test(metadata),
        cmocka_unit_test(vocabulary_without_weights),
        cmocka_unit_test(weights_by_kind),
        cmocka_unit_test(a_device_computes),
        cmocka_unit_test(tokens_and_back),
        cmocka_unit_test(bytes_that_are_no_text),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(long_runs_in_any_vocabulary),
    };
    return RUN_MODEL_TESTS(tests);
}

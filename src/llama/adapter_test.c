/* adapter_test.c: adapters against plain llama.h and against merged weights, and files that nobody
 * should use; made by scripts/tiny_lora.py.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "gguf/gguf.h"
#include "hook/hook.h"
#include "support/dice.h"
#include "support/llama.h"
#include "support/temp.h"

#define N_PROMPT 24
#define N_ANSWER 24

static char base[TEMP_PATH_MAX];

/* kind: the generator's arguments. */
static void make(const char *kind)
{
    temp_model(base, "base.gguf", kind);
    use_model(base);
}

static weir__badapter *adapter_of(const char *path)
{
    weir__badapter *adapter = NULL;
    assert_ok(ops->adapter_load(model, path, &adapter, error));
    return adapter;
}

/* ---- Logits ---- */

/* The logits after the prompt, and the greedy text after it. */
typedef struct answer {
    float *logits; /* [n_vocab] */
    int32_t tokens[N_ANSWER];
} answer;

static void answer_fini(answer *a)
{
    free(a->logits);
}

static answer say(weir__badapter *const *adapters, const float *scales, int32_t n)
{
    rig r;
    answer a;
    int32_t ids[N_PROMPT];
    some_tokens(ids, 0, N_PROMPT);
    rig_init(&r, 512, 2, WEIR_LAYOUT_UNIFIED);
    assert_ok(ops->set_adapters(r.context, adapters, scales, n, error));
    assert_ok(feed(&r, 0, ids, N_PROMPT, error));
    a.logits = row_copy(&r, -1);
    for (int i = 0; i < N_ANSWER; i++) {
        a.tokens[i] = chosen(&r);
        assert_ok(feed(&r, 0, &a.tokens[i], 1, error));
    }
    rig_fini(&r);
    return a;
}

/* The answer by llama.h alone, without weir's treatment of adapters. */
static answer say_plainly(const char *const *paths, float *scales, size_t n)
{
    answer a;
    int32_t ids[N_PROMPT];
    struct llama_adapter_lora *adapters[2];
    some_tokens(ids, 0, N_PROMPT);
    for (size_t i = 0; i < n; i++) {
        adapters[i] = llama_adapter_lora_init(model->model, paths[i]);
        assert_non_null(adapters[i]);
    }
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = 512;
    params.n_seq_max = 2;
    params.kv_unified = true;
    params.n_threads = params.n_threads_batch = 1;
    struct llama_context *context = llama_init_from_model(model->model, params);
    assert_non_null(context);
    assert_int_equal(llama_set_adapters_lora(context, adapters, n, scales), 0);
    assert_int_equal(llama_decode(context, llama_batch_get_one(ids, N_PROMPT)), 0);
    a.logits = malloc((size_t)model_is.n_vocab * sizeof *a.logits);
    assert_non_null(a.logits);
    memcpy(a.logits, llama_get_logits_ith(context, -1), (size_t)model_is.n_vocab * sizeof *a.logits);
    for (int i = 0; i < N_ANSWER; i++) {
        a.tokens[i] = plain_argmax(llama_get_logits_ith(context, -1));
        assert_int_equal(llama_decode(context, llama_batch_get_one(&a.tokens[i], 1)), 0);
    }
    llama_free(context);
    for (size_t i = 0; i < n; i++) llama_adapter_lora_free(adapters[i]);
    return a;
}

/* The largest difference beside the spread of all logits. */
static double distance(const answer *a, const answer *b)
{
    double most = 0, sum = 0, squares = 0;
    int32_t n = model_is.n_vocab;
    for (int32_t i = 0; i < n; i++) {
        double d = fabs((double)a->logits[i] - (double)b->logits[i]);
        most = d > most ? d : most;
        sum += (double)b->logits[i];
        squares += (double)b->logits[i] * (double)b->logits[i];
    }
    return most / sqrt(squares / n - sum / n * (sum / n));
}

static void assert_same(const answer *a, const answer *b)
{
    assert_memory_equal(a->logits, b->logits, (size_t)model_is.n_vocab * sizeof *a->logits);
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
}

/* ---- Against plain llama.h ---- */

static void logits_are_llama_cpps(void **state)
{
    (void)state;
    static const char *const models[] = {"llama",      "llama --type f16",       "llama --type q8_0",
                                         "moe --wide", "moe --wide --type q8_0", "swa --type q8_0"};
    static const char *const kinds[] = {"", "--type f16 --rank 7 --alpha 0", "--type q8_0 --rank 32",
                                        "--rank 40"};
    for (size_t m = 0; m < N_ELEMENTS(models); m++) {
        make(models[m]);
        answer none = say(NULL, NULL, 0);
        for (size_t k = 0; k < N_ELEMENTS(kinds); k++) {
            char path[TEMP_PATH_MAX];
            const char *paths[] = {path};
            float scale = 0.75f;
            temp_adapter(path, "adapter.gguf", base, kinds[k]);
            weir__badapter *adapter = adapter_of(path);
            answer got = say(&adapter, &scale, 1), want = say_plainly(paths, &scale, 1);
            double off = distance(&got, &want), changed = distance(&none, &want);
            print_message("%s, %s: off by %.5f, changed by %.2f\n", models[m], kinds[k], off, changed);
            assert_true(changed > 0.1);
            if (strstr(models[m], "type") == NULL)
                assert_same(&got, &want); /* no panels: the same code */
            else
                assert_true(off < 0.1); /* a rounding to eight bits may fall to the other side */
            answer_fini(&want);
            answer_fini(&got);
            ops->adapter_free(adapter);
        }
        answer_fini(&none);
    }
}

static void two_add_up(void **state)
{
    (void)state;
    make("llama");
    char a[TEMP_PATH_MAX], b[TEMP_PATH_MAX];
    temp_adapter(a, "a.gguf", base, "--seed 2");
    temp_adapter(b, "b.gguf", base, "--seed 3 --only attn --strength 1");
    weir__badapter *adapters[] = {adapter_of(a), adapter_of(b)};
    const char *paths[] = {a, b};
    float scales[] = {1.0f, -0.5f};
    answer got = say(adapters, scales, 2), want = say_plainly(paths, scales, 2),
           one = say(adapters, scales, 1);
    assert_true(distance(&got, &want) < 1e-4); /* in which order they are added, llama.cpp does not say */
    assert_true(distance(&got, &one) > 0.1);
    answer_fini(&got);
    answer_fini(&want);
    answer_fini(&one);
    for (int i = 0; i < 2; i++) ops->adapter_free(adapters[i]);
}

/* ---- Against merged weights ---- */

static void it_is_what_merging_gives(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "moe"};
    for (size_t m = 0; m < 2; m++) {
        char path[TEMP_PATH_MAX], merged[TEMP_PATH_MAX], arguments[2 * TEMP_PATH_MAX];
        const float one = 1.0f;
        make(models[m]);
        temp_path(merged, "merged.gguf");
        snprintf(arguments, sizeof arguments, "--rank 3 --alpha 5 --merged '%s'", merged);
        temp_adapter(path, "adapter.gguf", base, arguments);
        weir__badapter *adapter = adapter_of(path);
        answer got = say(&adapter, &one, 1), without = say(NULL, NULL, 0);
        ops->adapter_free(adapter);
        use_model(merged);
        answer want = say(NULL, NULL, 0);
        print_message("%s: off by %.6f\n", models[m], distance(&got, &want));
        assert_true(distance(&got, &want) < 1e-3);
        assert_true(distance(&without, &want) > 0.2);
        assert_memory_equal(got.tokens, want.tokens, sizeof got.tokens);
        answer_fini(&got);
        answer_fini(&want);
        answer_fini(&without);
    }
}

/* ---- Setting ---- */

/* A pass uses the adapters that were set last, with others in between, and with another at the same
 * address. */
static void a_pass_has_what_was_set_last(void **state)
{
    (void)state;
    static const char *const kinds[] = {"llama", "llama --type q8_0"};
    for (size_t k = 0; k < 2; k++) {
        char paths[2][TEMP_PATH_MAX];
        const float scales[] = {1.0f, 0.5f};
        answer want[4], alone;
        make(kinds[k]);
        temp_adapter(paths[0], "a.gguf", base, "--seed 2");
        temp_adapter(paths[1], "b.gguf", base, "--seed 3");
        for (int i = 0; i < 4; i++) {
            weir__badapter *adapter = adapter_of(paths[i % 2]);
            want[i] = say(&adapter, &scales[i / 2], 1);
            ops->adapter_free(adapter);
        }
        alone = say(NULL, NULL, 0);
        rig r;
        int32_t ids[N_PROMPT];
        some_tokens(ids, 0, N_PROMPT);
        rig_init(&r, 512, 2, WEIR_LAYOUT_UNIFIED);
        for (int round = 0; round < 24; round++) {
            int i = round * 7 % 5;
            weir__badapter *adapter = i < 4 ? adapter_of(paths[i % 2]) : NULL;
            assert_ok(ops->set_adapters(r.context, &adapter, &scales[i / 2 % 2], i < 4, error));
            ops->clear(r.context);
            assert_ok(feed(&r, 0, ids, N_PROMPT, error));
            assert_row_is(&r, -1, i < 4 ? want[i].logits : alone.logits);
            for (int n = 0; n < 3; n++) {
                int32_t token = chosen(&r);
                assert_int_equal(token, i < 4 ? want[i].tokens[n] : alone.tokens[n]);
                assert_ok(feed(&r, 0, &token, 1, error));
            }
            assert_ok(ops->set_adapters(r.context, NULL, NULL, 0, error));
            if (adapter != NULL) ops->adapter_free(adapter);
        }
        rig_fini(&r);
        for (int i = 0; i < 4; i++) answer_fini(&want[i]);
        answer_fini(&alone);
    }
}

/* One thread loads and frees others while this one computes with its own. */
static atomic_bool enough;

static void *load_and_free(void *user)
{
    const char *path = user;
    while (!atomic_load(&enough)) ops->adapter_free(adapter_of(path));
    return NULL;
}

static void others_come_and_go_meanwhile(void **state)
{
    (void)state;
    char mine[TEMP_PATH_MAX], others[TEMP_PATH_MAX];
    pthread_t thread;
    const float one = 1.0f;
    make("llama --type q8_0");
    temp_adapter(mine, "a.gguf", base, "--seed 2");
    temp_adapter(others, "b.gguf", base, "--seed 3");
    weir__badapter *adapter = adapter_of(mine);
    answer with = say(&adapter, &one, 1), without = say(NULL, NULL, 0);
    atomic_store(&enough, false);
    assert_int_equal(pthread_create(&thread, NULL, load_and_free, others), 0);
    for (int round = 0; round < 6; round++) {
        answer got = say(&adapter, &one, round % 2);
        assert_same(&got, round % 2 != 0 ? &with : &without);
        answer_fini(&got);
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    answer_fini(&with);
    answer_fini(&without);
    ops->adapter_free(adapter);
}

static void it_tells_what_it_is(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX], other[TEMP_PATH_MAX];
    weir_adapter_info info = {.size = sizeof info}, again = {.size = sizeof again},
                      differs = {.size = sizeof differs};
    make("llama --type q8_0");
    temp_adapter(path, "adapter.gguf", base, "--seed 9 --rank 6 --alpha 3");
    temp_adapter(other, "other.gguf", base, "--seed 10 --rank 6 --alpha 3");
    weir__badapter *a = adapter_of(path), *b = adapter_of(path), *c = adapter_of(other);
    ops->adapter_describe(a, &info);
    ops->adapter_describe(b, &again);
    ops->adapter_describe(c, &differs);
    assert_string_equal(info.name, "tiny adapter 9");
    assert_int_equal(info.n_weights, 14);
    assert_int_equal(info.rank, 6);
    assert_true(info.alpha == 3.0f && info.n_bytes > 0);
    assert_int_equal(info.identity, again.identity);
    assert_true(info.identity != differs.identity); /* only the matrices differ in more than the name */
    ops->adapter_free(a);
    ops->adapter_free(b);
    ops->adapter_free(c);
}

/* ---- Errors ---- */

static void refused(const char *path, weir_status status, const char *part)
{
    weir__badapter *adapter = NULL;
    weir_error error = {0};
    weir_status got = ops->adapter_load(model, path, &adapter, &error);
    if (got != status || strstr(error.message, part) == NULL)
        fail_msg("%s: %s, \"%s\"", path, weir_status_name(got), error.message);
    assert_int_equal(error.code, status);
}

static void unsuitable_adapters_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *base, *but, *says;
        weir_status status;
    } cases[] = {
        {"llama", "arch", "'gemma'", WEIR_UNSUPPORTED},
        {"llama", "general", "not an adapter", WEIR_UNSUPPORTED},
        {"llama", "kind", "'dora'", WEIR_UNSUPPORTED},
        {"llama", "alpha", "adapter.lora.alpha", WEIR_FORMAT},
        {"llama", "alora", "activated", WEIR_UNSUPPORTED},
        {"llama", "empty", "no matrices", WEIR_FORMAT},
        {"llama", "rows", "another shape", WEIR_UNSUPPORTED},
        {"llama", "half", "only one of the matrices", WEIR_FORMAT},
        {"llama", "name", "belong to no weights", WEIR_UNSUPPORTED},
        {"llama", "stack", "not as many", WEIR_UNSUPPORTED},
        {"moe", "stack", "not as many", WEIR_UNSUPPORTED},
        {"llama", "ranks", "cannot be used", WEIR_UNSUPPORTED},
        {"llama --wide", "type --rank 32", "neither F32", WEIR_UNSUPPORTED},
        {"swa", "embd", "would change its output", WEIR_UNSUPPORTED},
        {"llama", "order", "another shape", WEIR_UNSUPPORTED},
        {"llama", "nan", "not finite", WEIR_FORMAT},
        {"llama --type q8_0", "inf --type f16", "not finite", WEIR_FORMAT},
    };
    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        char path[TEMP_PATH_MAX], arguments[64];
        snprintf(arguments, sizeof arguments, "--but %s", cases[i].but);
        make(cases[i].base);
        temp_adapter(path, cases[i].but, base, arguments);
        refused(path, cases[i].status, cases[i].says);
    }
    refused("/no/such/file", WEIR_NOT_FOUND, "cannot be opened");
    refused("/", WEIR_FORMAT, "directory");
    refused(base, WEIR_UNSUPPORTED, "not an adapter");
    char other[TEMP_PATH_MAX], path[TEMP_PATH_MAX];
    temp_model(other, "other.gguf", "llama --wide");
    temp_adapter(path, "adapter.gguf", other, "");
    refused(path, WEIR_UNSUPPORTED, "another shape");
}

/* The embeddings are another matter where the output is not tied to them. */
static void embeddings_may_change(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    const char *paths[] = {path};
    float one = 1.0f;
    make("llama");
    temp_adapter(path, "adapter.gguf", base, "--but embd");
    weir__badapter *adapter = adapter_of(path);
    answer got = say(&adapter, &one, 1), want = say_plainly(paths, &one, 1);
    assert_same(&got, &want);
    answer_fini(&got);
    answer_fini(&want);
    ops->adapter_free(adapter);
}

static size_t read_all(const char *path, unsigned char *bytes, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, capacity, file);
    assert_true(n < capacity);
    fclose(file);
    return n;
}

static void write_all(const char *path, const unsigned char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* A damaged file is refused, or computed with, whatever it says: nothing ends the process. */
static void damaged_files_end_nothing(void **state)
{
    (void)state;
    static unsigned char whole[200000], bytes[sizeof whole];
    char path[TEMP_PATH_MAX], damaged[TEMP_PATH_MAX];
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    dice d = {seed};
    int n_loaded = 0;
    const float one = 1.0f;
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    make("llama --small");
    temp_adapter(path, "adapter.gguf", base, "--rank 2");
    temp_path(damaged, "damaged.gguf");
    size_t n = read_all(path, whole, sizeof whole);
    weir__gguf_info info;
    assert_ok(weir__gguf_check_adapter(path, &info, error));
    /* Other numbers in the matrices are an adapter's right; ggml asserts, where it does, that sums are
     * finite. */
    int32_t n_head = (int32_t)(n - info.tensor_bytes - 32 * info.n_tensors);
    assert_true(n_head > 400);
    for (size_t length = 0; length < n; length += 1 + length / 40) {
        write_all(damaged, whole, length);
        weir__badapter *adapter = NULL;
        assert_refused(ops->adapter_load(model, damaged, &adapter, error), WEIR_FORMAT, "path");
    }
    for (int i = 0; i < 1500; i++) {
        memcpy(bytes, whole, n);
        for (int k = dice_in(&d, 1, 3); k > 0; k--)
            bytes[dice_in(&d, 0, n_head - 1)] ^= (unsigned char)(1 << dice_in(&d, 0, 7));
        write_all(damaged, bytes, n);
        weir__badapter *adapter = NULL;
        if (ops->adapter_load(model, damaged, &adapter, NULL) != WEIR_OK) continue;
        rig r;
        int32_t ids[] = {3, 4};
        rig_init(&r, 256, 1, WEIR_LAYOUT_UNIFIED);
        assert_ok(ops->set_adapters(r.context, &adapter, &one, 1, error));
#ifndef WEIR_SANITIZED /* there ggml asserts that sums are finite, and types or places may be other ones */
        assert_ok(feed(&r, 0, ids, 2, error));
#else
        (void)ids;
#endif
        rig_fini(&r);
        ops->adapter_free(adapter);
        n_loaded++;
    }
    print_message("%d of 1500 could be used\n", n_loaded);
    assert_true(n_loaded > 5 && n_loaded < 1500);
}

static void quiet(weir_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
}

int main(void)
{
    weir_log_set(quiet, NULL); /* llama.cpp is loud about where it puts matrices */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(logits_are_llama_cpps, free_model),
        cmocka_unit_test_teardown(two_add_up, free_model),
        cmocka_unit_test_teardown(it_is_what_merging_gives, free_model),
        cmocka_unit_test_teardown(a_pass_has_what_was_set_last, free_model),
        cmocka_unit_test_teardown(others_come_and_go_meanwhile, free_model),
        cmocka_unit_test_teardown(it_tells_what_it_is, free_model),
        cmocka_unit_test_teardown(unsuitable_adapters_are_refused, free_model),
        cmocka_unit_test_teardown(embeddings_may_change, free_model),
        cmocka_unit_test_teardown(damaged_files_end_nothing, free_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

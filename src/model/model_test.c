/* model_test.c: the arguments of a load, and what a loaded model says of itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>

#include "base/cpu.h"
#include "support/model.h"

static void test_versions_say_something(void **state)
{
    (void)state;
    assert_string_equal(weir_version(), WEIR_VERSION);
#ifdef WEIR_NO_LLAMA
    assert_string_equal(weir_backend_version(), "none");
#else
    assert_true(weir_backend_version()[0] == 'v');
#endif
}

static void test_defaults_of_a_load(void **state)
{
    (void)state;
    weir_model_params params = weir_model_params_default();
    assert_int_equal(params.size, sizeof params);
    assert_int_equal(params.n_gpu_layers, -1);
    assert_int_equal(params.split_mode, WEIR_SPLIT_LAYER);
    assert_true(params.use_mmap);
    assert_false(params.vocab_only);
    assert_null(params.progress);
}

static void test_bad_arguments_of_a_load_are_named(void **state)
{
    (void)state;
    weir_model *model = NULL;
    static const float nan_split[] = {1.0f, NAN}, negative[] = {-1.0f}, infinite[] = {INFINITY};
    weir_model_params p = weir_model_params_default();
    assert_refused(weir_model_load(NULL, NULL, &model, error), WEIR_INVALID, "path");
    assert_refused(weir_model_load("", NULL, &model, error), WEIR_INVALID, "path");
    assert_refused(weir_model_load("fake:", NULL, NULL, error), WEIR_INVALID, "model");

#define REFUSE(member, value, name)                                                                          \
    do {                                                                                                     \
        p = weir_model_params_default();                                                                     \
        p.member = (value);                                                                                  \
        assert_refused(weir_model_load("fake:", &p, &model, error), WEIR_INVALID, name);                     \
    } while (0)
    REFUSE(size, 0, "params");
    REFUSE(size, sizeof p + 1, "params");
    REFUSE(n_gpu_layers, -2, "n_gpu_layers");
    REFUSE(main_gpu, -1, "main_gpu");
    REFUSE(main_gpu, 16, "main_gpu");
    REFUSE(split_mode, (weir_split_mode)3, "split_mode");
    REFUSE(split_mode, (weir_split_mode)-1, "split_mode");
    REFUSE(n_tensor_split, 1, "tensor_split");
    REFUSE(n_tensor_split, 17, "n_tensor_split");
#undef REFUSE
    weir_error why = {0};
    p = weir_model_params_default();
    p.tensor_split = nan_split;
    p.n_tensor_split = 17;
    assert_int_equal(weir_model_load("fake:", &p, &model, &why), WEIR_INVALID);
    assert_non_null(strstr(why.message, "`n_tensor_split` is 17; allowed: 0 to 16"));
    p.n_tensor_split = 2;
    assert_refused(weir_model_load("fake:", &p, &model, error), WEIR_INVALID, "tensor_split");
    p.n_tensor_split = 1;
    assert_ok(weir_model_load("fake:", &p, &model, error));
    weir_model_release(model);
    p.tensor_split = negative;
    assert_refused(weir_model_load("fake:", &p, &model, error), WEIR_INVALID, "tensor_split");
    p.tensor_split = infinite;
    assert_refused(weir_model_load("fake:", &p, &model, error), WEIR_INVALID, "tensor_split");
    /* no error struct is fine */
    assert_int_equal(weir_model_load("fake:", &p, &model, NULL), WEIR_INVALID);
}

static void test_workers_are_named_with_ports(void **state)
{
    static const char *const bad[] = {"foo",
                                      "host:",
                                      ":50052",
                                      "host:0",
                                      "host:65536",
                                      "host:1x",
                                      "host:1,",
                                      ",host:1",
                                      "a:1,,b:2",
                                      "a:1 ,b:2",
                                      "a:99999999999999999999",
                                      "host: 1"};
    static const char *const good[] = {"", "host:1", "10.0.0.1:50052,10.0.0.2:65535"};
    (void)state;
    weir_model_params p = weir_model_params_default();
    if (weir__rpc_check(NULL) != WEIR_OK) { /* a build without: any name is refused */
        p.rpc = good[1];
        assert_refused(weir__model_params_check(&p, error), WEIR_UNSUPPORTED, "rpc");
        return;
    }
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        p.rpc = bad[i];
        assert_refused(weir__model_params_check(&p, error), WEIR_INVALID, "rpc");
    }
    for (size_t i = 0; i < N_ELEMENTS(good); i++) {
        p.rpc = good[i];
        assert_int_equal(weir__model_params_check(&p, NULL), WEIR_OK);
    }
}

static void test_an_older_callers_params_are_completed(void **state)
{
    (void)state;
    weir_model *model = NULL;
    weir_model_params params = weir_model_params_default();
    params.size = offsetof(weir_model_params, use_mmap);
    params.vocab_only = true; /* a member beyond this caller's struct */
    assert_ok(weir_model_load("fake:", &params, &model, error));
    weir_context *context = fake_context(model, 16, 1, WEIR_LAYOUT_UNIFIED);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_bad_arguments_of_an_optimize_are_named(void **state)
{
    (void)state;
    assert_refused(weir_model_optimize(NULL, NULL, NULL, NULL, error), WEIR_INVALID, "path");
    assert_refused(weir_model_optimize("", NULL, NULL, NULL, error), WEIR_INVALID, "path");
    assert_refused(weir_model_optimize("fake:", "", NULL, NULL, error), WEIR_INVALID, "optimized");
    assert_refused(weir_model_optimize("fake:", NULL, NULL, NULL, error), WEIR_UNSUPPORTED, "");
    assert_refused(weir_model_optimize_check("", NULL, NULL, NULL, error), WEIR_INVALID, "path");
    assert_refused(weir_model_optimize_check("fake:", "", NULL, NULL, error), WEIR_INVALID, "optimized");
    assert_refused(weir_model_optimize_check("fake:", NULL, NULL, NULL, error), WEIR_UNSUPPORTED, "");
    assert_int_equal(weir_model_optimize("fake:", NULL, NULL, NULL, NULL), WEIR_UNSUPPORTED);
}

#ifdef WEIR_NO_LLAMA
static void test_files_need_llama_cpp(void **state)
{
    (void)state;
    weir_model *model = NULL;
    assert_refused(weir_model_load("model.gguf", NULL, &model, error), WEIR_UNSUPPORTED, "path");
}
#endif

typedef struct progress {
    int calls;
    float last;
    int stop_at;
} progress;

static bool on_progress(float value, void *user)
{
    progress *p = user;
    assert_true(value >= p->last && value <= 1.0f);
    p->last = value;
    return ++p->calls != p->stop_at;
}

static void test_projectors(void **state)
{
    (void)state;
    weir_model *model = NULL;
    weir_model_info info = {.size = sizeof info};
    weir_model_params params = weir_model_params_default();
    params.projector = "projector.gguf";
    assert_refused(weir_model_load("fake:", &params, &model, error), WEIR_NOT_FOUND, "projector");
    params.projector = "fake:nonsense=1";
    assert_refused(weir_model_load("fake:", &params, &model, error), WEIR_INVALID, "projector");
    params.projector = "";
    assert_ok(weir_model_load("fake:", &params, &model, error));
    assert_int_equal(weir_model_describe(model, &info), WEIR_OK);
    assert_false(info.reads_images || info.reads_sounds || info.sample_rate != 0);
    weir_model_release(model);
    params.projector = "fake:images=0,sample_rate=8000";
    assert_ok(weir_model_load("fake:", &params, &model, error));
    assert_int_equal(weir_model_describe(model, &info), WEIR_OK);
    assert_true(!info.reads_images && info.reads_sounds && info.sample_rate == 8000);
    weir_model_release(model);
}

static void test_progress_can_end_a_load(void **state)
{
    (void)state;
    weir_model *model = NULL;
    progress p = {0};
    weir_model_params params = weir_model_params_default();
    params.progress = on_progress;
    params.progress_user = &p;
    assert_ok(weir_model_load("fake:", &params, &model, error));
    assert_true(p.calls >= 2);
    assert_true(p.last >= 1.0f);
    weir_model_release(model);
    model = NULL;
    for (int stop = p.calls; stop >= 1; stop--) {
        p = (progress){.stop_at = stop};
        assert_refused(weir_model_load("fake:", &params, &model, error), WEIR_ABORTED, "progress");
        assert_int_equal(p.calls, stop);
        assert_null(model);
    }
}

static void test_a_vocabulary_without_weights(void **state)
{
    (void)state;
    weir_model *model = NULL;
    weir_context *context = NULL;
    int32_t tokens[8];
    size_t n;
    weir_model_params params = weir_model_params_default();
    params.vocab_only = true;
    assert_ok(weir_model_load("fake:", &params, &model, error));
    assert_ok(weir_tokenize(model, "hi", WEIR_NUL, false, false, tokens, 8, &n, error));
    assert_int_equal(n, 2);
    assert_refused(weir_context_create(model, NULL, &context, error), WEIR_UNSUPPORTED, "vocab_only");
    fake_release(model);
}

static void test_describe(void **state)
{
    (void)state;
    weir_model *model = fake_load("n_vocab=333,n_ctx_train=99");
    weir_model_info info = {.size = sizeof info};
    assert_int_equal(weir_model_describe(model, &info), WEIR_OK);
    assert_int_equal(info.size, sizeof info);
    assert_string_equal(info.backend, "fake");
    assert_string_equal(info.architecture, "fake");
    assert_non_null(info.description);
    assert_non_null(strstr(info.chat_template, "<|im_start|>"));
    assert_int_equal(info.n_vocab, 333);
    assert_int_equal(info.n_ctx_train, 99);
    assert_int_equal(info.n_embd, WEIR__FAKE_WIDTH);
    assert_int_equal(info.token_bos, WEIR__FAKE_BOS);
    assert_int_equal(info.token_eos, WEIR__FAKE_EOS);
    assert_int_equal(info.token_eot, WEIR__FAKE_EOT);
    assert_true(info.has_decoder);

    weir_model_weights weights = {.size = sizeof weights};
    assert_int_equal(weir_model_weights_get(model, 0, &weights), WEIR_END);
    assert_int_equal(weir_model_weights_get(NULL, 0, &weights), WEIR_INVALID);
    assert_int_equal(weir_model_weights_get(model, 0, NULL), WEIR_INVALID);

    /* an older caller's struct is not written beyond its end */
    memset(&info, 0x55, sizeof info);
    info.size = offsetof(weir_model_info, architecture);
    assert_int_equal(weir_model_describe(model, &info), WEIR_OK);
    assert_string_equal(info.description, "fake, no weights");
    assert_int_equal(info.n_vocab, 0x55555555);

    info.size = 0;
    assert_int_equal(weir_model_describe(model, &info), WEIR_INVALID);
    info.size = sizeof info + 1;
    assert_int_equal(weir_model_describe(model, &info), WEIR_INVALID);
    assert_int_equal(weir_model_describe(model, NULL), WEIR_INVALID);
    assert_int_equal(weir_model_describe(NULL, &info), WEIR_INVALID);
    weir_model_release(model);
}

static void test_metadata(void **state)
{
    (void)state;
    char key[64], text[64];
    size_t length, n = 0;
    weir_model *model = fake_load("seed=42");
    assert_int_equal(weir_model_meta(model, "fake.seed", text, sizeof text, &length), WEIR_OK);
    assert_string_equal(text, "42");
    assert_int_equal(length, 2);
    /* cut to the room */
    assert_int_equal(weir_model_meta(model, "general.architecture", text, 3, &length), WEIR_OK);
    assert_string_equal(text, "fa");
    assert_int_equal(length, 4);
    assert_int_equal(weir_model_meta(model, "general.architecture", NULL, 0, &length), WEIR_OK);
    assert_int_equal(weir_model_meta(model, "general.architecture", text, 8, NULL), WEIR_OK);
    assert_int_equal(weir_model_meta(model, "no.such", text, sizeof text, &length), WEIR_NOT_FOUND);
    assert_int_equal(weir_model_meta(model, NULL, text, sizeof text, &length), WEIR_INVALID);
    assert_int_equal(weir_model_meta(model, "fake.seed", NULL, 4, &length), WEIR_INVALID);
    assert_int_equal(weir_model_meta(NULL, "fake.seed", text, 4, &length), WEIR_INVALID);

    while (weir_model_meta_key(model, n, key, sizeof key, &length) == WEIR_OK) {
        assert_int_equal(length, strlen(key));
        assert_int_equal(weir_model_meta(model, key, text, sizeof text, NULL), WEIR_OK);
        n++;
    }
    assert_true(n >= 5);
    assert_int_equal(weir_model_meta_key(model, n, key, sizeof key, &length), WEIR_END);
    assert_int_equal(weir_model_meta_key(model, SIZE_MAX, key, sizeof key, &length), WEIR_END);
    assert_int_equal(weir_model_meta_key(model, 0, NULL, 4, &length), WEIR_INVALID);
    assert_int_equal(weir_model_meta_key(NULL, 0, key, 4, &length), WEIR_INVALID);
    weir_model_release(model);
}

static void test_devices(void **state)
{
    (void)state;
    size_t n = 0;
    weir_device device = {.size = sizeof device};
    while (weir_device_get(n, &device) == WEIR_OK) {
        assert_true(strlen(device.name) > 0);
        assert_true(strlen(device.type) > 0);
        assert_int_equal(device.size, sizeof device);
        bool cpu = strcmp(device.type, "cpu") == 0; /* its limits are the cgroup's, too */
        uint64_t available = weir__cpu_memory_available();
        assert_int_equal(device.n_processors, cpu ? weir__cpu_count() : 0);
        assert_true(!cpu || device.memory_free <= available + available / 2);
        n++;
    }
    assert_true(n >= 1);
    assert_int_equal(weir_device_get(n, &device), WEIR_END);
    device.size = 1;
    assert_int_equal(weir_device_get(0, &device), WEIR_INVALID);
    assert_int_equal(weir_device_get(0, NULL), WEIR_INVALID);
}

static void *hold_and_release(void *user)
{
    for (int i = 0; i < 10000; i++) weir_model_release(weir_model_hold(user));
    weir_model_release(user);
    return NULL;
}

static void test_the_last_release_frees(void **state)
{
    (void)state;
    pthread_t threads[4];
    weir_model *model = fake_load("");
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_release, weir_model_hold(model)), 0);
    weir_model_release(model);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(weir__mem_live(), 0);
    assert_null(weir_model_hold(NULL));
    weir_model_release(NULL);
}

static void test_contexts_and_samplers_hold_their_model(void **state)
{
    (void)state;
    int32_t token = 'a';
    weir_model *model = fake_load("");
    weir_context *context = fake_context(model, 256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    weir_model_release(model);
    assert_ok(weir_prefill(context, &token, 1, 0, NULL, error));
    assert_ok(weir_sample(sampler, context, &token, error));
    weir_context_destroy(context);
    weir_sampler_destroy(sampler);
    assert_int_equal(weir__mem_live(), 0);
}

static void test_a_load_survives_each_failing_allocation(void **state)
{
    (void)state;
    bool pending = false;
    for (long n = 0; !pending; n++) {
        weir_error error = {0};
        weir_model *model = NULL;
        weir__mem_fail_after(n);
        weir_status status = weir_model_load("fake:", NULL, &model, &error);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        assert_int_equal(error.code, status);
        weir_model_release(model);
        assert_int_equal(weir__mem_live(), 0);
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_versions_say_something, nothing_left),
        cmocka_unit_test_teardown(test_defaults_of_a_load, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_of_a_load_are_named, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_of_an_optimize_are_named, nothing_left),
        cmocka_unit_test_teardown(test_workers_are_named_with_ports, nothing_left),
        cmocka_unit_test_teardown(test_an_older_callers_params_are_completed, nothing_left),
#ifdef WEIR_NO_LLAMA
        cmocka_unit_test_teardown(test_files_need_llama_cpp, nothing_left),
#endif
        cmocka_unit_test_teardown(test_projectors, nothing_left),
        cmocka_unit_test_teardown(test_progress_can_end_a_load, nothing_left),
        cmocka_unit_test_teardown(test_a_vocabulary_without_weights, nothing_left),
        cmocka_unit_test_teardown(test_describe, nothing_left),
        cmocka_unit_test_teardown(test_metadata, nothing_left),
        cmocka_unit_test_teardown(test_devices, nothing_left),
        cmocka_unit_test_teardown(test_the_last_release_frees, nothing_left),
        cmocka_unit_test_teardown(test_contexts_and_samplers_hold_their_model, nothing_left),
        cmocka_unit_test_teardown(test_a_load_survives_each_failing_allocation, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

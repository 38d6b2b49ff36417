/* hub_test.c: names and a cache folder on disk, without a network.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "name.h"
#include "support/model.h"
#include "support/temp.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define SHA_2  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ---- Names ---- */

static void test_quantizations_are_read_from_names(void **state)
{
    static const struct {
        const char *file, *quantization;
        int shard, n_shards;
    } cases[] = {
        {"SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1", 1, 1},
        {"m-q4_k_m.gguf", "Q4_K_M", 1, 1},
        {"m-UD-IQ2_XXS.gguf", "IQ2_XXS", 1, 1},
        {"m-BF16-00002-of-00003.gguf", "BF16", 2, 3},
        {"Q8_0/m-00001-of-00002.gguf", "Q8_0", 1, 2},
        {"m-F16.GGUF", "F16", 1, 1},
        {"m-mxfp4.gguf", "MXFP4", 1, 1},
        {"Qwen3-8B.gguf", "", 1, 1},
        {"m-f32-final.gguf", "F32", 1, 1},
        {"quite-plain.gguf", "", 1, 1},
        {"m-Q4_K_M_that_is_far_too_long.gguf", "", 1, 1},
        {"m-00000-of-00003.gguf", "", 1, 1},
        {"m-00004-of-00003.gguf", "", 1, 1},
        {"x", "", 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        char quantization[16];
        int32_t shard, n_shards;
        weir__name_quantization(cases[i].file, quantization);
        weir__name_shard(cases[i].file, &shard, &n_shards);
        if (strcmp(quantization, cases[i].quantization) != 0 || shard != cases[i].shard ||
            n_shards != cases[i].n_shards)
            fail_msg("%s: %s %d/%d", cases[i].file, quantization, (int)shard, (int)n_shards);
    }
}

static const char *chosen(const char *text, const char *const *names, weir_status *status)
{
    static char file[WEIR__NAME_FILE_MAX];
    weir__name name;
    weir__name_files files = {0};
    size_t i;
    assert_int_equal(weir__name_parse(text, &name, NULL), WEIR_OK);
    for (; *names != NULL; names++) assert_non_null(weir__name_files_add(&files, name.repo, *names));
    weir__name_files_sort(&files);
    *status = weir__name_choose(&name, &files, &i, NULL);
    snprintf(file, sizeof file, "%s", *status == WEIR_OK ? files.items[i].name : "");
    weir__name_files_fini(&files);
    return file;
}

static void test_a_name_means_one_file(void **state)
{
    static const char *const many[] = {"m-Q8_0.gguf",
                                       "m-Q4_K_S.gguf",
                                       "m-UD-Q4_K_M.gguf",
                                       "m-Q4_K_M.gguf",
                                       "m-F16-00002-of-00002.gguf",
                                       "m-F16-00001-of-00002.gguf",
                                       "mmproj-F32.gguf",
                                       "m.imatrix.gguf",
                                       "IQ1_S/x-00001-of-00001.gguf",
                                       NULL};
    static const char *const few[] = {"b-Q6_K.gguf", "a-Q8_0.gguf", NULL};
    static const char *const odd[] = {"mmproj-Q4_K_M.gguf", "plain.gguf", NULL};
    weir_status status;
    (void)state;
    assert_string_equal(chosen("hf:o/r", many, &status), "m-Q4_K_M.gguf");
    assert_string_equal(chosen("hf:o/r", few, &status), "b-Q6_K.gguf");
    assert_string_equal(chosen("hf:o/r", odd, &status), "plain.gguf");
    assert_string_equal(chosen("hf:o/r:q4_k_m", many, &status), "m-Q4_K_M.gguf");
    assert_string_equal(chosen("hf:o/r:ud-q4_k_m", many, &status), "m-UD-Q4_K_M.gguf");
    assert_string_equal(chosen("hf:o/r:f16", many, &status), "m-F16-00001-of-00002.gguf");
    assert_string_equal(chosen("hf:o/r:IQ1_S", many, &status), "IQ1_S/x-00001-of-00001.gguf");
    assert_string_equal(chosen("hf:o/r:m-Q8_0.gguf", many, &status), "m-Q8_0.gguf");
    chosen("hf:o/r:F32", many, &status); /* a projector's */
    assert_int_equal(status, WEIR_NOT_FOUND);
    chosen("hf:o/r:_K_M", many, &status); /* no word's end */
    assert_int_equal(status, WEIR_NOT_FOUND);
    chosen("hf:o/r:Q8_0.gguf", many, &status);
    assert_int_equal(status, WEIR_NOT_FOUND);
}

/* ---- A cache as other clients leave it ---- */

static char cache[TEMP_PATH_MAX];

static void write_file(const char *name, const char *text)
{
    char path[2 * TEMP_PATH_MAX];
    snprintf(path, sizeof path, "%s/models--o--r/%s", cache, name);
    assert_int_equal(weir__cache_make_parents(path, NULL), WEIR_OK);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void link_file(const char *name, const char *blob)
{
    assert_int_equal(weir__cache_link(cache, "o/r", COMMIT, name, blob, NULL), WEIR_OK);
}

static int set_up(void **state)
{
    (void)state;
    static const char *const variables[] = {"HF_HUB_CACHE", "HF_HOME",       "HF_TOKEN",      "HF_TOKEN_PATH",
                                            "HF_ENDPOINT",  "LLAMA_OFFLINE", "HF_HUB_OFFLINE"};
    for (size_t i = 0; i < N_ELEMENTS(variables); i++) unsetenv(variables[i]);
    temp_path(cache, "hub");
    setenv("HOME", temp_folder(), 1);
    write_file("blobs/" SHA, "abc");
    write_file("blobs/" SHA_2, "");
    write_file("refs/main", COMMIT "\n");
    link_file("m-Q4_0.gguf", SHA);
    link_file("deep/er/m-Q8_0.gguf", SHA_2);
    write_file("snapshots/" COMMIT "/README.md", "text");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_remove();
    return 0;
}

/* Parameters with which nothing asks the network: at the endpoint nobody listens. */
static weir_hub_params offline(void)
{
    weir_hub_params params = weir_hub_params_default();
    params.cache_dir = cache;
    params.endpoint = "http://127.0.0.1:1";
    params.offline = true;
    return params;
}

static void test_a_cached_model_has_a_path(void **state)
{
    weir_hub_params params = offline();
    char *path, *file, expected[2 * TEMP_PATH_MAX];
    (void)state;
    assert_ok(weir_hub_download("hf:o/r", &params, &path, error));
    snprintf(expected, sizeof expected, "%s/models--o--r/snapshots/" COMMIT "/m-Q4_0.gguf", cache);
    assert_string_equal(path, expected);
    weir_free(path);
    assert_ok(weir_hub_resolve("hf:o/r:Q8_0", &params, &file, error));
    assert_string_equal(file, "deep/er/m-Q8_0.gguf");
    weir_free(file);
    assert_refused(weir_hub_download("hf:o/r:Q2_K", &params, &path, error), WEIR_NOT_FOUND, "name");
    assert_refused(weir_hub_download("hf:o/other", &params, &path, error), WEIR_NOT_FOUND, "name");
    params.revision = "v2";
    assert_refused(weir_hub_resolve("hf:o/r", &params, &file, error), WEIR_NOT_FOUND, "name");
    params.revision = COMMIT;
    assert_ok(weir_hub_resolve("hf:o/r", &params, &file, error));
    weir_free(file);
}

static void test_the_cache_is_listed(void **state)
{
    weir_hub_params params = offline();
    weir_hub_files *files;
    weir_hub_file file = {.size = sizeof file};
    (void)state;
    for (int named = 0; named < 2; named++) {
        assert_ok(weir_hub_list(named ? "hf:o/r" : NULL, &params, &files, error));
        assert_int_equal(weir_hub_files_get(files, 0, &file), WEIR_OK);
        assert_string_equal(file.repo, "o/r");
        assert_string_equal(file.name, "deep/er/m-Q8_0.gguf");
        assert_string_equal(file.quantization, "Q8_0");
        assert_int_equal(weir_hub_files_get(files, 1, &file), WEIR_OK);
        assert_string_equal(file.sha256, SHA);
        assert_true(file.n_bytes == 3 && file.shard == 1 && file.n_shards == 1 && file.path != NULL);
        assert_int_equal(weir_hub_files_get(files, 2, &file), WEIR_END);
        weir_hub_file small = {.size = 3};
        assert_int_equal(weir_hub_files_get(files, 0, &small), WEIR_INVALID);
        weir_hub_files_destroy(files);
    }
    weir_hub_files_destroy(NULL);
}

static void test_removing(void **state)
{
    weir_hub_params params = offline();
    uint64_t n_bytes;
    char path[2 * TEMP_PATH_MAX];
    (void)state;
    /* A blob stays if another name has the same contents. */
    link_file("copy-Q5_0.gguf", SHA);
    assert_ok(weir_hub_remove("hf:o/r:Q5_0", &params, &n_bytes, error));
    assert_true(n_bytes == 0);
    assert_ok(weir_hub_remove("hf:o/r:m-Q4_0.gguf", &params, &n_bytes, error));
    assert_true(n_bytes == 3);
    assert_refused(weir_hub_remove("hf:o/r:Q4_0", &params, NULL, error), WEIR_NOT_FOUND, "name");
    assert_ok(weir_hub_remove("hf:o/r", &params, NULL, error));
    snprintf(path, sizeof path, "%s/models--o--r", cache);
    assert_int_equal(access(path, F_OK), -1);
    assert_refused(weir_hub_remove("hf:o/r", &params, NULL, error), WEIR_NOT_FOUND, "name");
}

static void test_bad_arguments_are_refused(void **state)
{
    weir_hub_params params = offline();
    weir_hub_files *files;
    char *out;
    (void)state;
    assert_refused(weir_hub_download(NULL, &params, &out, error), WEIR_INVALID, "name");
    assert_refused(weir_hub_download("hf:o/r.", &params, &out, error), WEIR_INVALID, "name");
    assert_refused(weir_hub_download("hf:o/r.1", &params, &out, error), WEIR_NOT_FOUND, "name");
    assert_refused(weir_hub_download("hf:o/r1", &params, &out, error), WEIR_NOT_FOUND, "name");
    assert_refused(weir_hub_download("hf:o/r", &params, NULL, error), WEIR_INVALID, "path");
    assert_refused(weir_hub_resolve(NULL, &params, &out, error), WEIR_INVALID, "name");
    assert_refused(weir_hub_resolve("hf:o/r", &params, NULL, error), WEIR_INVALID, "file");
    assert_refused(weir_hub_remove(NULL, &params, NULL, error), WEIR_INVALID, "name");
    assert_refused(weir_hub_list(NULL, &params, NULL, error), WEIR_INVALID, "files");
    assert_refused(weir_hub_get(NULL, &params, &out, NULL, error), WEIR_INVALID, "path");
    assert_refused(weir_hub_get("//elsewhere/x", &params, &out, NULL, error), WEIR_INVALID, "path");
    assert_refused(weir_hub_get("/a b", &params, &out, NULL, error), WEIR_INVALID, "path");
    assert_refused(weir_hub_get("/api", &params, NULL, NULL, error), WEIR_INVALID, "json");
    assert_refused(weir_hub_get("/api", &params, &out, NULL, error), WEIR_NOT_FOUND, "path");
#define REFUSED(member, value, field)                                                                        \
    do {                                                                                                     \
        weir_hub_params p = offline();                                                                       \
        p.member = (value);                                                                                  \
        assert_refused(weir_hub_list(NULL, &p, &files, error), WEIR_INVALID, field);                         \
    } while (0)
    REFUSED(size, 3, "params");
    REFUSED(endpoint, "file:///etc", "endpoint");
    REFUSED(revision, "../main", "revision");
    REFUSED(revision, "", "revision");
    REFUSED(revision, "a b", "revision");
    REFUSED(token, "a\nb: c", "token");
    REFUSED(n_retries, -1, "n_retries");
    REFUSED(n_retries, 101, "n_retries");
    REFUSED(timeout_ms, 0, "timeout_ms");
    REFUSED(cache_dir, "", "cache_dir");
}

/* A server passes such messages on to its clients. */
static void test_a_password_is_in_no_message(void **state)
{
    static const char *const endpoints[] = {"http://user:passw0rd@127.0.0.1:1", "http://passw0rd@127.0.0.1:1",
                                            "user:passw0rd@127.0.0.1:1", "ftp://user:p@passw0rd@host"};
    char *out;
    (void)state;
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        weir_hub_params params = offline();
        weir_error problem = {0};
        params.offline = false;
        params.n_retries = 0;
        params.endpoint = endpoints[i];
        weir_status status = weir_hub_download("hf:o/none", &params, &out, &problem);
        if (status == WEIR_UNSUPPORTED) return; /* without libcurl */
        assert_true(status == WEIR_IO || status == WEIR_INVALID);
        assert_non_null(strstr(problem.message, i < 3 ? "127.0.0.1:1" : "host"));
        assert_null(strstr(problem.message, "passw0rd"));
    }
}

static void test_a_hub_that_nobody_runs(void **state)
{
    weir_hub_params params = offline();
    char *out;
    weir_error problem = {0};
    (void)state;
    assert_int_equal(weir_hub_get("/api/models", &params, &out, NULL, &problem), WEIR_NOT_FOUND);
    assert_string_equal(problem.message, "weir is offline (the parameter offline)");
    params.offline = false;
    setenv("HF_HUB_OFFLINE", "1", 1);
    assert_int_equal(weir_hub_get("/api/models", &params, &out, NULL, &problem), WEIR_NOT_FOUND);
    assert_string_equal(problem.message, "weir is offline (HF_HUB_OFFLINE)");
    unsetenv("HF_HUB_OFFLINE");
    params.n_retries = 0;
    weir_status status = weir_hub_get("/api/models?limit=1", &params, &out, NULL, &problem);
    if (status == WEIR_UNSUPPORTED) return; /* without libcurl */
    assert_int_equal(status, WEIR_IO);
    assert_string_equal(problem.field, "path");
    assert_true(strlen(problem.message) > 10);
    assert_int_equal(weir_hub_resolve("hf:o/r", &params, &out, &problem), WEIR_IO);
    /* Cached files are used. */
    assert_ok(weir_hub_download("hf:o/r", &params, &out, error));
    weir_free(out);
}

/* Every allocation fails once: nothing is lost, and nothing but NO_MEMORY is said. */
static void test_without_memory(void **state)
{
    weir_hub_params params = offline();
    (void)state;
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        char *path = NULL;
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = weir_hub_download("hf:o/r:Q8_0", &params, &path, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status == WEIR_OK) weir_free(path);
        if (status != WEIR_OK && (status != WEIR_NO_MEMORY || error.code != WEIR_NO_MEMORY))
            fail_msg("after %ld: %s, %s", n, weir_status_name(status), error.message);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
    for (long n = 0;; n++) {
        weir_hub_files *files = NULL;
        weir__mem_fail_after(n);
        weir_status status = weir_hub_list(NULL, &params, &files, NULL);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(status == WEIR_NO_MEMORY || status == WEIR_OK);
        weir_hub_files_destroy(files);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantizations_are_read_from_names),
        cmocka_unit_test(test_a_name_means_one_file),
        cmocka_unit_test_setup_teardown(test_a_cached_model_has_a_path, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_cache_is_listed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_removing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_arguments_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_password_is_in_no_message, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_hub_that_nobody_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

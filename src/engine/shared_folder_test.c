/* shared_folder_test.c: processes that write to one cache_dir at the same time.
 * SPDX-License-Identifier: Apache-2.0
 *
 * WEIR_SHARED_SECONDS: how long they do it; 3 unless set. */
#include "support/engine/engine.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/temp.h"

#define PROCESSES  4
#define PROMPTS    40
#define PROMPT_MAX 500
#define ANSWER     8
#define DISK_BYTES 60000 /* room for a third of all prompts */

static char path[TEMP_PATH_MAX];

static int64_t test_ns(void)
{
    const char *seconds = getenv("WEIR_SHARED_SECONDS");
    return (seconds != NULL ? atoi(seconds) : 3) * WEIR__NS_PER_S;
}

/* Each prompt begins as half of the others do. */
static int32_t make_prompt(int32_t tokens[PROMPT_MAX], int which)
{
    int32_t n = 100 + which * (PROMPT_MAX - 100) / PROMPTS;
    for (int32_t i = 0; i < n; i++)
        tokens[i] = 'a' + ((i < 60 ? which % 2 : which) * 7 + i * i + i / 26) % 26;
    return n;
}

/* True if the answer is the one that the model gives from the prompt alone. */
static bool ask_prompt(weir_model *model, weir_engine *engine, int which, weir_usage *usage)
{
    int32_t tokens[PROMPT_MAX + ANSWER];
    int32_t n = make_prompt(tokens, which);
    weir_sampler_params greedy = weir_sampler_params_default();
    weir_request request = weir_request_default();
    weir_result result;
    greedy.temp = 0;
    request.sampler = &greedy;
    request.tokens = tokens;
    request.n_tokens = (size_t)n;
    request.max_tokens = ANSWER;
    if (weir_generate(engine, &request, 1, NULL, &result, NULL) != WEIR_OK) return false;
    bool right = result.n_tokens == ANSWER;
    for (int32_t i = 0; i < ANSWER && right; i++) {
        tokens[n + i] = weir__fake_next(model, tokens, n + i);
        right = result.tokens[i] == tokens[n + i];
    }
    *usage = result.usage;
    weir_result_fini(&result);
    return right;
}

/* One process. Its engine is destroyed and created again now and then. 0, or the reason as an exit status. */
static int run_process(int number, int64_t until)
{
    weir_model *model = NULL;
    weir_engine_params params = weir_engine_params_default();
    uint32_t random = 17 * (uint32_t)number + 1;
    int64_t n_restored = 0, n_evicted = 0;
    params.n_slots = 2;
    params.n_ctx = 600;
    params.layout = WEIR_LAYOUT_UNIFIED;
    params.cache_sequences = 2;
    params.cache_bytes = 4000; /* most prefixes leave it at once */
    params.cache_dir = path;
    params.cache_disk_bytes = DISK_BYTES;
    params.n_draft_max = 0;
    if (weir_model_load("fake:", NULL, &model, NULL) != WEIR_OK) return 1;
    while (weir__clock_now_ns() < until) {
        weir_engine *engine = NULL;
        weir_engine_stats stats = {.size = sizeof stats};
        if (weir_engine_create(model, &params, &engine, NULL) != WEIR_OK) return 2;
        for (int i = 0; i < 200 && weir__clock_now_ns() < until; i++) {
            weir_usage usage;
            random = random * 1664525 + 1013904223;
            if (!ask_prompt(model, engine, (int)(random >> 16) % PROMPTS, &usage)) return 3;
        }
        if (weir_engine_get_stats(engine, &stats) != WEIR_OK) return 4;
        n_restored += (int64_t)stats.n_cache_restored;
        n_evicted += (int64_t)stats.n_evicted;
        weir_engine_destroy(engine);
    }
    weir_model_release(model);
    return n_restored > 0 && n_evicted > 0 ? 0 : 5;
}

/* Bytes of all files; every one of them is complete and belongs to weir. */
static uint64_t folder_bytes(void)
{
    uint64_t n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        struct stat is;
        if (e->d_name[0] == '.') continue;
        assert_non_null(strstr(e->d_name, ".weirkv"));
        assert_int_equal(fstatat(dirfd(dir), e->d_name, &is, 0), 0);
        n += (uint64_t)is.st_size;
    }
    closedir(dir);
    return n;
}

static void processes_share_a_folder(void **state)
{
    pid_t all[PROCESSES];
    int64_t until = weir__clock_now_ns() + test_ns();
    (void)state;
    temp_path(path, "shared");
    for (int i = 0; i < PROCESSES; i++) {
        all[i] = fork();
        assert_true(all[i] >= 0);
        if (all[i] == 0) _exit(run_process(i, until));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(all[i], &status, 0), all[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    /* Each may have written one more while others did not know of it. */
    assert_in_range(folder_bytes(), 1, 2 * DISK_BYTES);
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_engine_params params = weir_engine_params_default();
    params.manual = true;
    params.n_ctx = 600;
    params.cache_dir = path;
    params.cache_disk_bytes = DISK_BYTES;
    assert_int_equal(weir_model_load("fake:", NULL, &model, NULL), WEIR_OK);
    assert_int_equal(weir_engine_create(model, &params, &engine, NULL), WEIR_OK);
    weir_engine_destroy(engine);
    weir_model_release(model);
    assert_in_range(folder_bytes(), 1, DISK_BYTES);
}

int main(void)
{
    weir_log_set(NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_share_a_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

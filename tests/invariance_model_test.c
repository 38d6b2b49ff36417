/* With weir's kernels a request's greedy tokens are the same to the last one whatever it is computed with: chunk
 * sizes, batches, threads, layouts, company; with keys and values in half precision or in Q8_0, and with experts.
 * Random engines from WEIR_TEST_SEED, for WEIR_TEST_SECONDS (20) with each model; what they give is compared with
 * what each request gives alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/weir.h>

#include "backend/kernels/kernels.h"
#include "support/dice.h"

#define N_REQUESTS 32
#define N_ANSWER   16
#define MOST       900 /* tokens of a prompt */

static const char text[] =
    "A weir is a low dam built across a river to raise the level of water upstream or to regulate its flow. "
    "Water usually passes over the top of it, and that is how it differs from a dam, which holds it back. "
    "Millers used weirs to lead water to their wheels; fishers set traps in the gaps. Today they keep rivers "
    "deep enough for boats, tell how much water flows by, and let it take up oxygen as it falls. In 1830 "
    "there "
    "were 47 of them between two towns, in 1900 only 12, and the 3 that are left are 2.5 to 4.25 metres "
    "high. "
    "int weir_height(const weir *w) { return w->crest - w->bed; } // both in millimetres above the sea. ";

typedef struct job {
    int32_t *tokens; /* [n] in all */
    size_t n;
    int32_t alone[N_ANSWER];
    size_t n_alone;
    bool ran; /* alone */
} job;

static weir_model *model;
static int32_t *all; /* the text's tokens, three times */
static size_t n_all;
static job jobs[N_REQUESTS];
static weir_kv_type type_k, type_v;
static weir_sampler_params greedy;

static void load(const char *path)
{
    weir_error error = {0};
    if (weir_model_load(path, NULL, &model, &error) != WEIR_OK) fail_msg("%s", error.message);
    char *thrice = malloc(3 * sizeof text);
    snprintf(thrice, 3 * sizeof text, "%s%s%s", text, text, text);
    all = calloc(2000, sizeof *all);
    assert_int_equal(weir_tokenize(model, thrice, WEIR_NUL, false, false, all, 2000, &n_all, NULL), WEIR_OK);
    free(thrice);
    assert_true(n_all > 300);
    greedy = weir_sampler_params_default();
    greedy.temp = 0;
}

static int load_given(void **state)
{
    (void)state;
    load(getenv("WEIR_TEST_MODEL"));
    return 0;
}

static int load_experts(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-experts-XXXXXX", command[1024];
    const char *source = getenv("WEIR_SOURCE_DIR");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof command, "python3 '%s/scripts/tiny_gguf.py' moe %s --wide --type q8_0",
             source != NULL ? source : ".", path);
    assert_int_equal(system(command), 0);
    load(path);
    unlink(path);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    for (int i = 0; i < N_REQUESTS; i++) free(jobs[i].tokens);
    memset(jobs, 0, sizeof jobs);
    free(all);
    weir_model_release(model);
    return 0;
}

static void make_jobs(dice *d)
{
    type_k = dice_one_in(d, 2) ? WEIR_KV_F16 : WEIR_KV_Q8_0;
    type_v = dice_one_in(d, 2) ? WEIR_KV_F16 : WEIR_KV_Q8_0;
    for (int i = 0; i < N_REQUESTS; i++) {
        job *j = &jobs[i];
        size_t most = n_all - 1 < MOST ? n_all - 1 : MOST;
        free(j->tokens);
        j->n = (size_t)dice_in(d, 1, dice_one_in(d, 3) ? (int32_t)most : 60);
        j->tokens = malloc(j->n * sizeof *j->tokens);
        memcpy(j->tokens, all + dice_in(d, 0, (int32_t)(n_all - j->n)), j->n * sizeof *j->tokens);
        j->ran = false;
    }
}

/* Runs n jobs together; their answers. */
static void run(const weir_engine_params *params, job *const *some, size_t n, int32_t (*answers)[N_ANSWER],
                size_t *lengths)
{
    weir_error error = {0};
    weir_engine *engine = NULL;
    weir_request requests[N_REQUESTS];
    weir_result results[N_REQUESTS];
    if (weir_engine_create(model, params, &engine, &error) != WEIR_OK) fail_msg("%s", error.message);
    for (size_t i = 0; i < n; i++) {
        requests[i] = weir_request_default();
        requests[i].tokens = some[i]->tokens;
        requests[i].n_tokens = some[i]->n;
        requests[i].sampler = &greedy;
        requests[i].max_tokens = N_ANSWER;
    }
    if (weir_generate(engine, requests, n, NULL, results, &error) != WEIR_OK) fail_msg("%s", error.message);
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(results[i].reason, WEIR_REASON_ERROR);
        lengths[i] = results[i].n_tokens;
        if (lengths[i] > 0) memcpy(answers[i], results[i].tokens, lengths[i] * sizeof(int32_t));
        weir_result_fini(&results[i]);
    }
    weir_engine_destroy(engine);
}

static void run_alone(job *j)
{
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = 1;
    params.n_ctx = 1024;
    params.n_threads = 1;
    params.type_k = type_k;
    params.type_v = type_v;
    if (!j->ran) run(&params, &j, 1, &j->alone, &j->n_alone);
    j->ran = true;
}

static void company(dice *d)
{
    static const int32_t slots[] = {2, 3, 4, 8, 16, 32}, chunks[] = {16, 30, 64, 100, 128, 256, 512};
    weir_engine_params params = weir_engine_params_default();
    job *some[N_REQUESTS];
    static int32_t answers[N_REQUESTS][N_ANSWER];
    size_t lengths[N_REQUESTS], n = (size_t)dice_in(d, 1, N_REQUESTS);
    params.n_slots = slots[dice_in(d, 0, 5)];
    params.n_ctx = 1024;
    params.n_kv = params.n_slots * 1024;
    params.chunk_size = chunks[dice_in(d, 0, 6)];
    params.n_batch = params.n_slots + dice_in(d, 0, 600);
    params.n_ubatch = dice_one_in(d, 2) ? 512 : dice_in(d, 32, 200);
    params.n_threads = dice_in(d, 1, 2); /* more than processors wait for each other without end */
    params.layout = dice_one_in(d, 2) ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
    params.type_k = type_k;
    params.type_v = type_v;
    for (size_t i = 0; i < n; i++) some[i] = &jobs[dice_in(d, 0, N_REQUESTS - 1)];
    for (size_t i = 0; i < n; i++) run_alone(some[i]);
    run(&params, some, n, answers, lengths);
    for (size_t i = 0; i < n; i++) {
        const job *j = some[i];
        if (lengths[i] == j->n_alone && memcmp(answers[i], j->alone, lengths[i] * sizeof(int32_t)) == 0)
            continue;
        fail_msg("request %zu of %zu (%zu tokens) differs from itself alone: %d slots, chunks of %d, batch "
                 "%d (%d), "
                 "%d threads, layout %d, keys %d, values %d",
                 i, n, j->n, params.n_slots, params.chunk_size, params.n_batch, params.n_ubatch,
                 params.n_threads, (int)params.layout, (int)type_k, (int)type_v);
    }
}

static void greedy_tokens_do_not_depend_on_the_company(void **state)
{
    (void)state;
    dice d;
    time_t begin = time(NULL);
    uint64_t seed = dice_environment("WEIR_TEST_SEED", (uint64_t)begin % 1000000), rounds = 0;
    uint64_t seconds = dice_environment("WEIR_TEST_SECONDS", 20);
    printf("from WEIR_TEST_SEED=%llu for WEIR_TEST_SECONDS=%llu\n", (unsigned long long)seed,
           (unsigned long long)seconds);
    d.state = seed;
    do {
        if (rounds++ % 5 == 0) make_jobs(&d);
        company(&d);
    } while ((uint64_t)(time(NULL) - begin) < seconds);
    printf("%llu engines\n", (unsigned long long)rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(greedy_tokens_do_not_depend_on_the_company, load_given, unload),
        {"with_experts", greedy_tokens_do_not_depend_on_the_company, load_experts, unload, NULL},
    };
    if (getenv("WEIR_TEST_MODEL") == NULL || *getenv("WEIR_TEST_MODEL") == '\0') return 77;
    if (weir__kernels_attention(0) == NULL ||
        (getenv("WEIR_KERNELS") != NULL && strcmp(getenv("WEIR_KERNELS"), "off") == 0)) {
        puts("skipped: no kernels of weir's run here");
        return 77;
    }
    return cmocka_run_group_tests_name("invariance", tests, NULL, NULL);
}

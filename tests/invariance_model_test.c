/* With weir's kernels a request's greedy tokens and their logprobs are the same to the last bit whatever it
 * is computed with: chunk sizes, batches, threads, layouts, company. Answers of engines are compared with the
 * answer to each prompt alone.
 *
 * Without more said, random engines from WEIR_TEST_SEED for WEIR_TEST_SECONDS (8), with keys and values in
 * half precision or in Q8_0; the same with small random models that have experts or recurrent layers. With
 * WEIR_TEST_MATRIX=FILE, all prompts in each combination of layout, chunk size and company from
 * WEIR_TEST_SEED (1): a line of FILE for each that is done, and those that it already holds are left out.
 * bench/invariance.py runs that.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <weir/more.h>

#include "support/dice.h"
#include "support/effort.h"
#include "support/engine/real.h"
#include "support/temp.h"

#define N_PROMPTS 64
#define N_SHORT   53 /* of them, those up to some 600 tokens */
#define N_LONGEST 3  /* of them, those that fill a context */
#define N_ANSWER  16
/* The part: a few prompts of up to 60 tokens. */
#define N_TRIED     EFFORT(N_SHORT, 36)
#define MOST        EFFORT(33, 6)
#define ONE_LONG_IN EFFORT(4, 0) /* engines; 0 = none */
#define N_SECONDS   EFFORT(8, 5)
#define N_ENGINES   EFFORT(4, 1) /* at the least, however slow they are */
#define N_TEXT      2000         /* room for the text's tokens */

static const char text[] =
    "A weir is a low dam built across a river to raise the level of water upstream or to regulate its flow. "
    "Water usually passes over the top of it, and that is how it differs from a dam, which holds it back. "
    "Millers used weirs to lead water to their wheels; fishers set traps in the gaps. Today they keep rivers "
    "deep enough for boats, tell how much water flows by, and let it take up oxygen as it falls. In 1830 "
    "there "
    "were 47 of them between two towns, in 1900 only 12, and the 3 that are left are 2.5 to 4.25 metres "
    "high. "
    "int weir_height(const weir *w) { return w->crest - w->bed; } // both in millimetres above the sea. ";

typedef struct answer {
    size_t n;
    int32_t tokens[N_ANSWER];
    float logprobs[N_ANSWER]; /* each depends on a whole row of logits */
} answer;

/* A prompt, and the answer to it alone. */
typedef struct job {
    int32_t *tokens; /* [n] */
    size_t n;
    answer alone;
    bool ran;
} job;

static weir_model *model;
static int32_t all[N_TEXT]; /* the text's tokens */
static size_t n_all;
static job jobs[N_PROMPTS];
static weir_sampler_params greedy;
static weir_kv_type type_k = WEIR_KV_F16, type_v = WEIR_KV_F16;
static int32_t n_context = 4096; /* of a lane; the matrix has twice as many */

/* What is compared here is what is reported. */
static void assert_reported(void)
{
    weir_error error = {0};
    weir_engine *engine = NULL;
    weir_engine_params params = weir_engine_params_default();
    weir_engine_stats stats = {.size = sizeof stats};
    params.n_slots = 1;
    params.n_ctx = 256;
    if (weir_engine_create(model, &params, &engine, &error) != WEIR_OK) fail_msg("%s", error.message);
    assert_int_equal(weir_engine_get_stats(engine, &stats), WEIR_OK);
    assert_true(stats.batch_invariant);
    weir_engine_destroy(engine);
}

static void load(const char *path)
{
    weir_error error = {0};
    if (weir_model_load(path, NULL, &model, &error) != WEIR_OK) fail_msg("%s", error.message);
    assert_int_equal(weir_tokenize(model, text, WEIR_NUL, false, false, all, N_TEXT, &n_all, NULL), WEIR_OK);
    assert_true(n_all > 150);
    greedy = weir_sampler_params_default();
    greedy.temp = 0;
    assert_reported();
}

static int load_given(void **state)
{
    (void)state;
    load(getenv("WEIR_TEST_MODEL"));
    return 0;
}

/* state: the arguments of scripts/tiny_gguf.py. */
static int load_random(void **state)
{
    char path[TEMP_PATH_MAX];
    temp_model(path, "random.gguf", *state);
    load(path);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) free(jobs[i].tokens);
    memset(jobs, 0, sizeof jobs);
    weir_model_release(model);
    return 0;
}

/* Prompts of 1 token up to all that fit into a context, most of them short, made of pieces of the text. */
static void make_jobs(dice *d)
{
    double longest = n_context - N_ANSWER;
    for (int i = 0; i < N_PROMPTS; i++) {
        job *j = &jobs[i];
        double x = (double)i / (N_PROMPTS - 1);
        j->n = i < 4                        ? (size_t)i + 1
               : i >= N_PROMPTS - N_LONGEST ? (size_t)longest
                                            : (size_t)lround(8 * pow(longest / 8, x * x));
        free(j->tokens);
        j->tokens = malloc(j->n * sizeof *j->tokens);
        for (size_t at = 0, n; at < j->n; at += n) {
            n = (size_t)dice_in(d, 5, 60);
            if (n > j->n - at) n = j->n - at;
            memcpy(j->tokens + at, all + dice_in(d, 0, (int32_t)(n_all - n)), n * sizeof *j->tokens);
        }
        j->ran = false;
    }
}

/* Runs n jobs together, at most n_slots at once; their answers. */
static void run(const weir_engine_params *params, job *const *some, size_t n, answer *answers)
{
    weir_error error = {0};
    weir_engine *engine = NULL;
    weir_request requests[N_PROMPTS];
    weir_result results[N_PROMPTS];
    if (weir_engine_create(model, params, &engine, &error) != WEIR_OK) fail_msg("%s", error.message);
    for (size_t i = 0; i < n; i++) {
        requests[i] = weir_request_default();
        requests[i].tokens = some[i]->tokens;
        requests[i].n_tokens = some[i]->n;
        requests[i].sampler = &greedy;
        requests[i].max_tokens = N_ANSWER;
        requests[i].logprobs = true;
    }
    if (weir_generate(engine, requests, n, NULL, results, &error) != WEIR_OK) fail_msg("%s", error.message);
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(results[i].reason, WEIR_REASON_ERROR);
        answers[i].n = results[i].n_tokens;
        if (answers[i].n > 0) {
            memcpy(answers[i].tokens, results[i].tokens, answers[i].n * sizeof *answers[i].tokens);
            memcpy(answers[i].logprobs, results[i].logprobs, answers[i].n * sizeof *answers[i].logprobs);
        }
        weir_result_fini(&results[i]);
    }
    weir_engine_destroy(engine);
}

static void run_alone(job *j)
{
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = 1;
    params.n_ctx = n_context;
    params.n_threads = 1;
    params.type_k = type_k;
    params.type_v = type_v;
    if (!j->ran) run(&params, &j, 1, &j->alone);
    j->ran = true;
}

static bool is_same(const answer *a, const answer *b)
{
    return a->n == b->n && memcmp(a->tokens, b->tokens, a->n * sizeof *a->tokens) == 0 &&
           memcmp(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs) == 0;
}

/* How many of the jobs have another answer in this engine than alone; prints the first. */
static int count_different(const weir_engine_params *params, job *const *some, size_t n)
{
    static answer answers[N_PROMPTS];
    int different = 0;
    for (size_t i = 0; i < n; i++) run_alone(some[i]);
    run(params, some, n, answers);
    for (size_t i = 0; i < n; i++) {
        const job *j = some[i];
        if (is_same(&answers[i], &j->alone)) continue;
        if (different++ == 0)
            printf("request %zu of %zu (%zu tokens) differs from itself alone: %d slots, chunks of %d, batch "
                   "%d (%d), %d threads, layout %d, keys %d, values %d\n",
                   i, n, j->n, params->n_slots, params->chunk_size, params->n_batch, params->n_ubatch,
                   params->n_threads, (int)params->layout, (int)params->type_k, (int)params->type_v);
    }
    return different;
}

/* Mostly many short prompts, else a few of the long ones. */
static void random_engine(dice *d)
{
    static const int32_t slots[] = {2, 3, 4, 8, 16, 33}, chunks[] = {16, 30, 64, 100, 128, 256, 512};
    weir_engine_params params = weir_engine_params_default();
    job *some[N_PROMPTS] = {0};
    bool is_long = ONE_LONG_IN > 0 && dice_one_in(d, ONE_LONG_IN);
    size_t n = (size_t)dice_in(d, 1, is_long ? 3 : MOST);
    params.n_slots = slots[dice_in(d, 0, is_long ? 1 : 5)];
    params.n_ctx = is_long ? n_context : 1024;
    params.n_kv = params.n_slots * params.n_ctx;
    params.chunk_size = chunks[dice_in(d, 0, 6)];
    params.n_batch = params.n_slots + dice_in(d, 0, 600);
    params.n_ubatch = dice_one_in(d, 2) ? 512 : dice_in(d, 32, 200);
    params.n_threads = dice_in(d, 1, 3);
    params.type_k = type_k;
    params.type_v = type_v;
    params.layout = dice_one_in(d, 2) ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT;
    for (size_t i = 0; i < n; i++)
        some[i] = &jobs[is_long ? dice_in(d, N_SHORT, N_PROMPTS - 1) : dice_in(d, 0, N_TRIED - 1)];
    assert_int_equal(count_different(&params, some, n), 0);
}

static void answers_do_not_depend_on_the_company(void **state)
{
    (void)state;
    dice d;
    time_t begin = time(NULL);
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1), rounds = 0;
    uint64_t seconds = dice_environment("WEIR_TEST_SECONDS", N_SECONDS);
    printf("from WEIR_TEST_SEED=%llu for WEIR_TEST_SECONDS=%llu\n", (unsigned long long)seed,
           (unsigned long long)seconds);
    d.state = seed;
    do {
        if (rounds++ % 2 == 0) { /* within four engines each type of keys, and of values */
            bool other = rounds % 4 == 3;
            make_jobs(&d);
            type_k = (other ? type_k != WEIR_KV_F16 : dice_one_in(&d, 2)) ? WEIR_KV_F16 : WEIR_KV_Q8_0;
            type_v = (other ? type_v != WEIR_KV_F16 : dice_one_in(&d, 2)) ? WEIR_KV_F16 : WEIR_KV_Q8_0;
        }
        random_engine(&d);
    } while (rounds < N_ENGINES || (uint64_t)(time(NULL) - begin) < seconds);
    printf("%llu engines\n", (unsigned long long)rounds);
}

/* ---- All of it ------------------------------------------------------------------------------------- */

/* One combination: all prompts in an order of its own through one engine, in company of n_others as long as
 * that many are left. */
static int run_cell(dice *d, weir_layout layout, int32_t chunk, int32_t n_others, int32_t n_threads)
{
    weir_engine_params params = weir_engine_params_default();
    job *some[N_PROMPTS] = {0};
    params.n_slots = n_others + 1;
    params.n_ctx = n_context;
    params.n_kv = params.n_slots * n_context;
    params.chunk_size = chunk;
    params.n_threads = n_threads;
    params.layout = layout;
    for (int i = 0; i < N_PROMPTS; i++) {
        int other = dice_in(d, 0, i);
        some[i] = some[other];
        some[other] = &jobs[i];
    }
    return count_different(&params, some, N_PROMPTS);
}

static bool holds_line(FILE *file, const char *begin)
{
    char line[200];
    bool found = false;
    rewind(file);
    while (!found && fgets(line, sizeof line, file) != NULL) found = strncmp(line, begin, strlen(begin)) == 0;
    fseek(file, 0, SEEK_END);
    return found;
}

static void the_whole_matrix(void **state)
{
    (void)state;
    static const int32_t chunks[] = {16, 32, 64, 128, 256, 512}, others[] = {0, 1, 2, 4, 8, 16, 32};
    enum { N_CHUNKS = 6, N_OTHERS = 7, N_CELLS = 2 * N_CHUNKS * N_OTHERS };
    FILE *file = fopen(getenv("WEIR_TEST_MATRIX"), "a+");
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    dice d = {seed};
    int different = 0;
    assert_non_null(file);
    n_context = 8192;
    make_jobs(&d);
    for (int i = 0; i < N_CELLS; i++) {
        char cell[100];
        int at = i * 37 % N_CELLS; /* so that the first ones have a bit of everything */
        int chunk = at / 2 % N_CHUNKS, company = at / 2 / N_CHUNKS;
        bool lanes = at % 2 != 0;
        int32_t n_threads = 1 + (chunk + company + at) % 2; /* each with each */
        time_t begin = time(NULL);
        snprintf(cell, sizeof cell, "%s,%d,%d,%d,", lanes ? "per_slot" : "unified", chunks[chunk],
                 others[company], n_threads);
        if (holds_line(file, cell)) continue;
        d.state = seed + (uint64_t)at;
        int n = run_cell(&d, lanes ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED, chunks[chunk],
                         others[company], n_threads);
        different += n;
        fprintf(file, "%s%d,%d,%lld\n", cell, N_PROMPTS, n, (long long)(time(NULL) - begin));
        fflush(file);
        printf("%d of %d: %s%d prompts, %d differ, %lld s\n", i + 1, N_CELLS, cell, N_PROMPTS, n,
               (long long)(time(NULL) - begin));
        fflush(stdout);
    }
    fclose(file);
    assert_int_equal(different, 0);
}

int main(void)
{
    const struct CMUnitTest samples[] = {
        cmocka_unit_test_setup_teardown(answers_do_not_depend_on_the_company, load_given, unload),
        {"with_experts", answers_do_not_depend_on_the_company, load_random, unload, "moe --wide --type q8_0"},
        {"with_delta_nets", answers_do_not_depend_on_the_company, load_random, unload,
         "delta --wide --type q8_0"},
        {"with_short_convolutions", answers_do_not_depend_on_the_company, load_random, unload,
         "lfm --wide --type q8_0"},
        {"with_scans", answers_do_not_depend_on_the_company, load_random, unload,
         "mamba2 --wide --type q8_0"},
        {"with_scans_and_attention", answers_do_not_depend_on_the_company, load_random, unload,
         "jamba --wide --type q8_0"},
    };
    const struct CMUnitTest matrix[] = {
        cmocka_unit_test_setup_teardown(the_whole_matrix, load_given, unload)};
    if (getenv("WEIR_TEST_MODEL") == NULL || *getenv("WEIR_TEST_MODEL") == '\0') return 77;
    if (getenv("WEIR_TEST_MATRIX") != NULL && *getenv("WEIR_TEST_MATRIX") != '\0')
        return cmocka_run_group_tests_name("invariance", matrix, NULL, NULL);
    if (rows_depend_on_company()) {
        puts("skipped: no kernels of weir's run here");
        return 77;
    }
    return cmocka_run_group_tests_name("invariance", samples, NULL, NULL);
}

/* On a real model texts, tokens and logprobs with drafts are those without, computed alone, to the bit:
 * greedy and drawn, with a grammar and penalties, alone and together, in both layouts, guessed by lookup and
 * by a draft model.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "support/effort.h"
#include "support/engine/real.h"

#define N        4
#define N_ANSWER EFFORT(48, 24)

static const char *const prompts[N] = {
    "int sum(const int *v, int n)\n{\n    int s = 0;\n    for (int i = 0; i < n; i++) s += v[i];\n    return "
    "s;\n}\n\n"
    "int sum(const int *v, int n)\n{\n    int s = 0;\n    for (",
    "Once upon a time, in a small village by the sea,",
    "1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4,",
    "Name: Ann, age: 31, town: Ulm. Name: Bob, age: 42, town: Bonn. Name:",
};

static weir_model *model;
static weir_result expected[N]; /* alone, without drafts */

/* How the i-th answer is sampled. */
static weir_sampler_params sampler_of(int i)
{
    weir_sampler_params sampler = weir_sampler_params_default();
    sampler.seed = 7 + (uint32_t)i;
    sampler.temp = i % 2 ? 0.7F : 0;
    if (i == 2) sampler.grammar = "root ::= (\" \"? [0-9]+ \",\")+";
    if (i == 3) {
        sampler.penalty_repeat = 1.1F;
        sampler.dry_multiplier = 0.4F;
    }
    return sampler;
}

static weir_engine_stats run(const weir_engine_params *params, bool together, weir_result results[N])
{
    weir_engine *engine = engine_of(model, params);
    weir_request requests[N];
    weir_sampler_params samplers[N];
    weir_error error = {0};
    for (int i = 0; i < N; i++) {
        samplers[i] = sampler_of(i);
        requests[i] = weir_request_default();
        requests[i].text = prompts[i];
        requests[i].sampler = &samplers[i];
        requests[i].max_tokens = N_ANSWER;
        requests[i].logprobs = true;
        requests[i].n_logprobs = i;
    }
    for (int i = 0; i < N; i += together ? N : 1)
        if (weir_generate(engine, &requests[i], together ? N : 1, NULL, &results[i], &error) != WEIR_OK)
            fail_msg("%s", error.message);
    weir_engine_stats stats = stats_of(engine);
    weir_engine_destroy(engine);
    return stats;
}

static weir_engine_params params_of(weir_layout layout, int32_t n_draft_max)
{
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = N;
    params.n_ctx = 512;
    params.layout = layout;
    params.n_threads = 1; /* two that wait for each other take far longer beside other tests */
    params.n_draft_max = n_draft_max;
    return params;
}

static void compare(weir_layout layout, bool together, bool by_model)
{
    weir_result with[N];
    weir_engine_params params = params_of(layout, 12);
    params.prompt_lookup = !by_model;
    params.draft_model = by_model ? model : NULL; /* always right where the answer is the likeliest one */
    weir_engine_stats stats = run(&params, together, with);
    printf("layout %d, %s, by %s: %llu drafted, %llu right\n", (int)layout, together ? "together" : "alone",
           by_model ? "model" : "lookup", (unsigned long long)stats.n_drafted,
           (unsigned long long)stats.n_accepted);
    for (int i = 0; i < N; i++) {
        assert_same_answer(&expected[i], &with[i], i);
        weir_result_fini(&with[i]);
    }
    if (!by_model && !together) assert_true(stats.n_accepted > 0);
}

static void drafts_change_nothing(void **state)
{
    (void)state;
    weir_engine_params params = params_of(WEIR_LAYOUT_UNIFIED, 0);
    assert_int_equal(run(&params, false, expected).n_drafted, 0);
    for (int by_model = 0; by_model < 2; by_model++)
        for (int together = 0; together < 2; together++)
            for (int layout = WEIR_LAYOUT_UNIFIED; layout <= WEIR_LAYOUT_PER_SLOT; layout++) {
                if (EFFORT(false, (by_model + together + layout) % 2 != 0)) continue; /* each pair of them */
                compare((weir_layout)layout, together != 0, by_model != 0);
            }
    for (int i = 0; i < N; i++) weir_result_fini(&expected[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_change_nothing)};
    const char *path = getenv("WEIR_TEST_MODEL");
    if (path == NULL || *path == '\0') return 77;
    if (rows_depend_on_company()) {
        puts("skipped: no kernels of weir's run here, so rows depend on their company");
        return 77;
    }
    if (weir_model_load(path, NULL, &model, NULL) != WEIR_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weir_model_release(model);
    return failed;
}

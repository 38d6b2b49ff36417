/* kinds_draft_test.c: models with sliding windows, recurrent and hybrid ones answer with drafts as without,
 * computed alone: texts of several windows, in a pool so small that requests are suspended and cells
 * overwritten. To the bit where sums do not depend on the company.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "engine/engine.h"
#include "support/effort.h"
#include "support/engine/real.h"
#include "support/temp.h"

#define N        EFFORT(5, 3)
#define N_ANSWER 150
#define NEAR     0.01
#define N_TIMES  2 /* each prompt is asked so often, the second time with its prefix cached */

static weir_model *model, *other; /* other: drafts for those that cannot be cut; it is seldom right */
static bool whole;                /* memory cannot be cut */
static char prompts[N][1600];
static weir_result expected[N_TIMES * N]; /* alone, without drafts */

/* Prompts of 250 to 580 tokens. */
static void write_prompts(void)
{
    for (int i = 0; i < N; i++) {
        size_t n = 0;
        for (int k = 0; n < (size_t)(500 + 170 * i); k++)
            n += (size_t)snprintf(prompts[i] + n, sizeof prompts[i] - n,
                                  "The %d ships of %d came at %d in the morning. ", k % 7, i, 3 * k + i);
    }
}

/* A drafter that knows the answers by the lengths of their prompts, and is wrong now and then. */
static void draft_known(weir__drafter *drafter, weir__draft *const *drafts, size_t n,
                        weir__drafting *drafting)
{
    (void)drafter;
    for (size_t k = 0; k < n; k++) {
        weir__draft *draft = drafts[k];
        const weir_result *known = NULL;
        for (int i = 0; i < N; i++)
            if (expected[i].usage.n_prompt == draft->n_prompt) known = &expected[i];
        assert_non_null(known);
        for (int32_t at = draft->n_tokens - draft->n_prompt;
             at < (int32_t)known->n_tokens && draft->n < draft->most && drafting->room > 0; at++) {
            uint32_t dice = (uint32_t)(draft->n_tokens * 31 + at) * 2654435761U;
            draft->token[draft->n++] = dice >> 30 == 0 ? (known->tokens[at] + 1) % 256 : known->tokens[at];
            drafting->room--;
            drafting->throughput.tokens += 100; /* it is worth it, even if lanes then need more passes */
        }
    }
}

static void keep_drafter(weir__drafter *drafter)
{
    (void)drafter;
}

static const weir__drafter_ops known_ops = {.name = "known", .draft = draft_known, .destroy = keep_drafter};
static weir__drafter known = {.ops = &known_ops};

/* What drafts are measured by, instead of the time that ticks take here: a pass costs, its rows hardly do. It
 * costs so much that the time the draft model takes here, which is measured, never counts. */
static weir__cost same_everywhere(void)
{
    weir__cost cost;
    weir__cost_init(&cost);
    cost.ns[WEIR__COST_PASS] = 1e15;
    cost.ns[WEIR__COST_DECODE] = cost.ns[WEIR__COST_PREFILL] = 1;
    cost.ns[WEIR__COST_CONTEXT] = 0;
    return cost;
}

/* The copies of states that the engine has made are as large as its estimate says, but for their book. */
static void check_marks(const weir__rollback *rollback)
{
    uint64_t each = weir__rollback_bytes(model, 1), n_made = 0;
    for (int32_t i = 0; rollback->marks != NULL && i < rollback->n_slots; i++) {
        uint64_t length = rollback->marks[i].length;
        n_made += length > 0;
        if (length > 0) assert_true(length >= each && length < each + 4096);
    }
    assert_true((n_made > 0) == whole);
}

/* knows: drafts come from the drafter that knows the answers. */
static weir_engine_stats run(const weir_engine_params *params, bool together, bool knows,
                             weir_result results[N_TIMES * N])
{
    const weir__cost cost = same_everywhere();
    weir_engine *engine = engine_of(model, params);
    engine->driver.speculate.cost = &cost;
    if (knows) assert_true(weir__speculate_use(&engine->driver.speculate, &known));
    weir_request requests[N_TIMES * N];
    weir_sampler_params samplers[N];
    weir_error error = {0};
    for (int i = 0; i < N; i++) {
        samplers[i] = weir_sampler_params_default();
        samplers[i].seed = 3 + (uint32_t)i;
        samplers[i].temp = i == N - 1 ? 0.8F : 0;
        samplers[i].ignore_eos = true;
        requests[i] = weir_request_default();
        requests[i].text = prompts[i];
        requests[i].sampler = &samplers[i];
        requests[i].max_tokens = N_ANSWER;
        requests[i].logprobs = true;
        requests[i].n_logprobs = 2;
    }
    for (int i = N; i < N_TIMES * N; i++) requests[i] = requests[i - N];
    for (int i = 0, n = together ? N_TIMES * N : 1; i < N_TIMES * N; i += n)
        if (weir_generate(engine, &requests[i], (size_t)n, NULL, &results[i], &error) != WEIR_OK)
            fail_msg("%s", error.message);
    weir_engine_stats stats = stats_of(engine);
    assert_true(stats.batch_invariant || whole);
    if (stats.n_drafted > 0) check_marks(&engine->driver.speculate.rollback);
    weir_engine_destroy(engine);
    return stats;
}

static weir_engine_params params_of(weir_layout layout, int32_t n_draft_max)
{
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = N;
    params.n_ctx = 768;
    params.layout = layout;
    params.n_threads = 1; /* two that wait for each other take far longer beside other tests */
    params.chunk_size = 40;
    params.n_draft_max = n_draft_max;
    return params;
}

/* Where sums depend on the company a little: the same answer up to a near-tie. drawn: a token may also be
 * another one because the number drawn is near the bounds of both. */
static void assert_near_answer(const weir_result *a, const weir_result *b, int i, bool drawn)
{
    for (size_t at = 0; at < a->n_tokens && at < b->n_tokens; at++) {
        bool same = a->tokens[at] == b->tokens[at];
        if (!same && drawn) return;
        double off = fabs((double)a->logprobs[at] - (double)b->logprobs[at]);
        if (!(off < NEAR)) fail_msg("answer %d, token %zu: the logprob is off by %g", i, at, off);
        if (!same) return;
    }
    assert_int_equal(a->n_tokens, b->n_tokens);
}

enum { BY_KNOWN, BY_LOOKUP, BY_MODEL };

/* few: so few cells that requests are suspended. */
static void compare(weir_layout layout, bool together, int by, bool few)
{
    static const char *const names[] = {"known", "lookup", "model"};
    weir_result with[N_TIMES * N];
    weir_engine_params params = params_of(layout, 9);
    params.prompt_lookup = by != BY_MODEL;
    params.draft_model = by == BY_MODEL ? other : NULL; /* a window slides in both */
    if (few) params.n_kv = 768;
    weir_engine_stats stats = run(&params, together, by == BY_KNOWN, with);
    printf("layout %d, %s, by %s: %llu drafted, %llu right, %llu suspensions\n", (int)layout,
           together ? "together" : "alone", names[by], (unsigned long long)stats.n_drafted,
           (unsigned long long)stats.n_accepted, (unsigned long long)stats.n_suspensions);
    for (int i = 0; i < N_TIMES * N; i++) {
        if (stats.batch_invariant)
            assert_same_answer(&expected[i % N], &with[i], i);
        else
            assert_near_answer(&expected[i % N], &with[i], i, i % N == N - 1);
        weir_result_fini(&with[i]);
    }
    if (by == BY_KNOWN) assert_true(stats.n_accepted > 100 && stats.n_drafted - stats.n_accepted > 100);
    if (by == BY_LOOKUP && !together) assert_true(stats.n_accepted > 0);
    if (by == BY_MODEL) assert_true(stats.n_drafted > 0 && (stats.n_accepted > 0 || whole));
    if (few) assert_true(stats.n_suspensions > 0);
}

static void drafts_change_nothing(void **state)
{
    char path[TEMP_PATH_MAX];
    const char *kind = *state;
    temp_model(path, "kind.gguf", kind);
    assert_int_equal(weir_model_load(path, NULL, &model, NULL), WEIR_OK);
    whole = strcmp(kind, "swa") != 0;
    if (whole) temp_model(path, "other.gguf", "llama");
    assert_int_equal(weir_model_load(path, NULL, &other, NULL), WEIR_OK);
    weir_engine_params params = params_of(WEIR_LAYOUT_UNIFIED, 0);
    write_prompts();
    assert_int_equal(run(&params, false, false, expected).n_drafted, 0);
    for (int by = BY_KNOWN; by <= BY_MODEL; by++)
        for (int together = 0; together < 2; together++)
            for (int layout = WEIR_LAYOUT_UNIFIED; layout <= WEIR_LAYOUT_PER_SLOT; layout++)
                compare((weir_layout)layout, together != 0, by, false);
    compare(WEIR_LAYOUT_UNIFIED, true, BY_KNOWN, true);
    for (int i = 0; i < N_TIMES * N; i++) weir_result_fini(&expected[i]);
    weir_model_release(other);
    weir_model_release(model);
}

#define KIND(kind)                                                                                           \
    {                                                                                                        \
        .name = #kind, .test_func = drafts_change_nothing, .initial_state = #kind                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {KIND(swa),   KIND(mamba), KIND(mamba2),
                                       KIND(jamba), KIND(delta), KIND(lfm)};
    if (rows_depend_on_company()) {
        puts("skipped: no kernels of weir's run here, so rows depend on their company");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

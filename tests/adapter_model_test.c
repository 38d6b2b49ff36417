/* Requests with two adapters and with none in one engine, on the model of WEIR_TEST_MODEL: each gets the
 * greedy tokens, and their logprobs, that it gets alone, with weir's kernels, in both layouts, with chunks,
 * cached prefixes and drafts.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/effort.h"
#include "support/engine/real.h"
#include "support/temp.h"

#define SETS   4
#define EACH   3 /* requests of a set */
#define ANSWER 12

static weir_model *model;
static weir_adapter *adapters[2];
static weir_adapter_use uses[SETS][2];
static size_t n_uses[SETS] = {0, 1, 1, 2};
static weir_sampler_params greedy;

static const char *const prompts[EACH] = {
    ("A weir is a low dam built across a river to raise the level of water upstream or to regulate its flow. "
     "Water usually passes over the top of it, and that is how it differs from a dam, which holds it back. "
     "Millers used weirs to lead water to their wheels; fishers set traps in the gaps. Today they"),
    "Once upon a time there was a king who had three daughters, and each of them",
    ("int weir_height(const weir *w) { return w->crest - w->bed; } // both in millimetres above the sea. int "
     "weir_width(const weir *w) {"),
};

static weir_adapter *load(const char *name, const char *arguments)
{
    char path[TEMP_PATH_MAX];
    weir_adapter *adapter = NULL;
    weir_error error = {0};
    temp_adapter(path, name, getenv("WEIR_TEST_MODEL"), arguments);
    if (weir_adapter_load(model, path, &adapter, &error) != WEIR_OK) fail_msg("%s", error.message);
    return adapter;
}

static int begin(void **state)
{
    (void)state;
    weir_error error = {0};
    if (weir_model_load(getenv("WEIR_TEST_MODEL"), NULL, &model, &error) != WEIR_OK)
        fail_msg("%s", error.message);
    greedy = weir_sampler_params_default();
    greedy.temp = 0;
    adapters[0] = load("a.gguf", "--seed 2 --rank 8 --only 'attn_(q|v)' --strength 0.4");
    adapters[1] =
        load("b.gguf", "--seed 3 --rank 5 --type f16 --only 'blk.[0-9].ffn_(up|down)' --strength 0.4");
    uses[1][0] = (weir_adapter_use){adapters[0], 1.0f};
    uses[2][0] = (weir_adapter_use){adapters[1], 0.5f};
    uses[3][0] = (weir_adapter_use){adapters[1], 1.0f};
    uses[3][1] = (weir_adapter_use){adapters[0], -0.5f};
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) weir_adapter_release(adapters[i]);
    weir_model_release(model);
    return 0;
}

static weir_engine *start(weir_layout layout, int32_t chunk_size)
{
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = SETS * EACH;
    params.n_ctx = 512;
    params.layout = layout;
    params.chunk_size = chunk_size;
    params.n_threads = 1; /* two that wait for each other take far longer beside other tests */
    return engine_of(model, &params);
}

static weir_request ask(int set, int i)
{
    weir_request request = weir_request_default();
    request.text = prompts[i];
    request.sampler = &greedy;
    request.max_tokens = ANSWER;
    request.logprobs = true;
    request.adapters = uses[set];
    request.n_adapters = n_uses[set];
    return request;
}

static void assert_same(const weir_result *a, const weir_result *b)
{
    assert_true(a->reason != WEIR_REASON_ERROR && a->reason == b->reason);
    if (strcmp(a->text, b->text) != 0) print_error("\"%s\" is not \"%s\"\n", a->text, b->text);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
    assert_memory_equal(a->logprobs, b->logprobs, a->n_tokens * sizeof *a->logprobs); /* to the last bit */
}

static void in_company_as_alone(void **state)
{
    (void)state;
    static weir_result alone[SETS][EACH];
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    if (*info.kernels == '\0') skip(); /* then texts depend on their company anyway */
    for (int set = 0; set < SETS; set++) {
        weir_engine *engine = start(WEIR_LAYOUT_UNIFIED, 512);
        for (int i = 0; i < EACH; i++) {
            weir_request request = ask(set, i);
            request.cache_prompt = false;
            request.n_draft_max = 0;
            assert_int_equal(weir_generate(engine, &request, 1, NULL, &alone[set][i], NULL), WEIR_OK);
        }
        weir_engine_destroy(engine);
    }
    /* The adapters make a difference, and so do their scales; a text may be the same by chance. */
    int n_other = 0;
    for (int set = 1; set < SETS; set++)
        for (int i = 0; i < EACH; i++)
            for (int before = 0; before < set; before++)
                n_other += strcmp(alone[set][i].text, alone[before][i].text) != 0;
    assert_in_range(n_other, EACH * SETS * (SETS - 1) / 2 - 3, EACH * SETS * (SETS - 1) / 2);

    for (int round = 0; round < 4; round += EFFORT(1, 3)) {
        weir_engine *engine =
            start(round % 2 == 0 ? WEIR_LAYOUT_UNIFIED : WEIR_LAYOUT_PER_SLOT, 7 + 50 * (round / 2));
        for (int again = 0; again < 2; again++) { /* the second time prompts are cached */
            weir_request requests[SETS * EACH];
            weir_result results[SETS * EACH];
            for (int k = 0; k < SETS * EACH; k++) requests[k] = ask(k % SETS, k / SETS);
            assert_int_equal(weir_generate(engine, requests, SETS * EACH, NULL, results, NULL), WEIR_OK);
            for (int k = 0; k < SETS * EACH; k++) {
                assert_same(&results[k], &alone[k % SETS][k / SETS]);
                assert_int_equal(results[k].usage.n_cached, again * (results[k].usage.n_prompt - 1));
                weir_result_fini(&results[k]);
            }
        }
        weir_engine_destroy(engine);
    }
    for (int k = 0; k < SETS * EACH; k++) weir_result_fini(&alone[k % SETS][k / SETS]);
}

/* Numbers that become infinite on the way are in the cells of the request that has them, and in no other row:
 * it fails, and requests beside it and after it have the texts that they have alone. */
static void a_request_that_overflows_fails_alone(void **state)
{
    (void)state;
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    if (*info.kernels == '\0') skip(); /* ggml's attention does not keep them apart (docs/adr/0042) */
    weir_adapter_use huge = {load("huge.gguf", "--strength 1e37"), 100.0f};
    for (int l = WEIR_LAYOUT_UNIFIED; l <= WEIR_LAYOUT_PER_SLOT; l++) {
        weir_engine *engine = start((weir_layout)l, 24); /* prompts in parts, with cells of others between */
        weir_request requests[2 * EACH];
        weir_result alone[EACH], results[2 * EACH];
        for (int i = 0; i < 2 * EACH; i++) {
            requests[i] = ask(0, i / 2);
            requests[i].cache_prompt = false;
            requests[i].n_adapters = (size_t)(i % 2);
            requests[i].adapters = &huge;
        }
        for (int i = 0; i < EACH; i++)
            assert_int_equal(weir_generate(engine, &requests[2 * i], 1, NULL, &alone[i], NULL), WEIR_OK);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(weir_generate(engine, requests, 2 * EACH, NULL, results, NULL), WEIR_OK);
            for (int i = 0; i < 2 * EACH; i++) {
                if (i % 2 == 0) {
                    assert_same(&results[i], &alone[i / 2]);
                } else {
                    assert_int_equal(results[i].reason, WEIR_REASON_ERROR);
                    assert_int_equal(results[i].error.code, WEIR_BACKEND);
                    assert_non_null(strstr(results[i].error.message, "NaN"));
                }
                weir_result_fini(&results[i]);
            }
        }
        for (int i = 0; i < EACH; i++) weir_result_fini(&alone[i]);
        weir_engine_destroy(engine);
    }
    weir_adapter_release(huge.adapter);
}

int main(void)
{
    const char *path = getenv("WEIR_TEST_MODEL");
    if (path == NULL || *path == '\0') {
        puts("skipped: WEIR_TEST_MODEL is not set");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_company_as_alone),
                                       cmocka_unit_test(a_request_that_overflows_fails_alone)};
    return cmocka_run_group_tests(tests, begin, end);
}

/* logprobs_numpy_helper.c: weir's side of logprobs_numpy.py: logprobs_numpy_helper MODEL ROWS.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two answers of an engine, greedy and drawn, with logprobs, and a prompt of a third. For each of their
 * tokens, but for the prompt's first, a line comes out: the answer, the token, its logprob, then the
 * likeliest tokens and theirs. To the file ROWS go, as native floats and in the same order, the rows of
 * logits that a context of its own computes at these places. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <weir/more.h>

#define N_ANSWERS 2
#define N_TOKENS  24
#define PROMPT    "Once upon a time there was a river, and by the river"
/* More tokens than a tick scores. */
#define SCORED                                                                                               \
    "A weir is a low wall across a river. Water flows over its crest, and above it the level stays the "     \
    "same "                                                                                                  \
    "for most of the year: mills used that, and so do boats, which pass through a lock beside it. Who "      \
    "counts "                                                                                                \
    "1, 2, 3, 5, 8, 13 gates will find the next two without help; the millers of the 19th century could "    \
    "not."

static void need(weir_status status, const weir_error *error)
{
    if (status == WEIR_OK) return;
    fprintf(stderr, "logprobs_numpy_helper: %s: %s\n", weir_status_name(status), error->message);
    exit(2);
}

static void print(int answer, const weir_result *result)
{
    for (size_t i = 0; i < result->n_tokens; i++) {
        printf("%d %" PRId32 " %.9g", answer, result->tokens[i], (double)result->logprobs[i]);
        const weir_logprob *top = result->top_logprobs + i * (size_t)result->n_top_logprobs;
        for (int32_t k = 0; k < result->n_top_logprobs; k++)
            printf(" %" PRId32 " %.9g", top[k].token, (double)top[k].logprob);
        putchar('\n');
    }
}

/* The rows before each token of the prompt but the first. */
static void write_prompt_rows(weir_model *model, weir_context *context, const weir_result *result, FILE *file)
{
    weir_model_info info = {.size = sizeof info};
    weir_error error = {0};
    const float *logits = NULL;
    int32_t n_past = 0;
    weir_model_describe(model, &info);
    need(weir_context_clear(context, &error), &error);
    for (size_t i = 0; i + 1 < result->n_prompt_tokens; i++) {
        need(weir_prefill(context, &result->prompt_tokens[i], 1, 0, &n_past, &error), &error);
        need(weir_logits(context, -1, &logits, &error), &error);
        fwrite(logits, sizeof *logits, (size_t)info.n_vocab, file);
    }
}

/* The rows after the prompt, and after each of the tokens but the last. */
static void write_rows(weir_model *model, weir_context *context, const weir_result *result, FILE *file)
{
    weir_model_info info = {.size = sizeof info};
    weir_error error = {0};
    int32_t prompt[256], n_past = 0;
    size_t n_prompt = 0;
    const float *logits = NULL;
    weir_model_describe(model, &info);
    need(weir_context_clear(context, &error), &error);
    need(weir_tokenize(model, PROMPT, WEIR_NUL, true, true, prompt, 256, &n_prompt, &error), &error);
    for (size_t i = 0; i < result->n_tokens; i++) {
        const int32_t *tokens = i == 0 ? prompt : &result->tokens[i - 1];
        need(weir_prefill(context, tokens, i == 0 ? n_prompt : 1, 0, &n_past, &error), &error);
        need(weir_logits(context, -1, &logits, &error), &error);
        fwrite(logits, sizeof *logits, (size_t)info.n_vocab, file);
    }
}

int main(int argc, char **argv)
{
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_context *context = NULL;
    weir_error error = {0};
    weir_request requests[N_ANSWERS];
    weir_sampler_params samplers[N_ANSWERS];
    weir_result results[N_ANSWERS], scored;
    if (argc != 3) return 2;
    FILE *file = fopen(argv[2], "wb");
    if (file == NULL) return 2;
    need(weir_model_load(argv[1], NULL, &model, &error), &error);
    weir_engine_params params = weir_engine_params_default();
    params.n_ctx = 256;
    need(weir_engine_create(model, &params, &engine, &error), &error);
    for (int i = 0; i < N_ANSWERS; i++) {
        samplers[i] = weir_sampler_params_default();
        samplers[i].temp = i == 0 ? 0.0f : 1.5f;
        samplers[i].seed = 7;
        samplers[i].top_k = 0;
        samplers[i].min_p = 0;
        samplers[i].penalty_repeat = 1.3f; /* none of which shows in logprobs */
        samplers[i].ignore_eos = true;
        requests[i] = weir_request_default();
        requests[i].text = PROMPT;
        requests[i].sampler = &samplers[i];
        requests[i].max_tokens = N_TOKENS;
        requests[i].n_logprobs = 20;
    }
    need(weir_generate(engine, requests, N_ANSWERS, NULL, results, &error), &error);
    weir_request score = weir_request_default();
    score.text = SCORED;
    score.max_tokens = 0;
    score.n_prompt_logprobs = 20;
    need(weir_generate(engine, &score, 1, NULL, &scored, &error), &error);
    weir_engine_destroy(engine);
    need(weir_context_create(model, NULL, &context, &error), &error);
    for (int i = 0; i < N_ANSWERS; i++) {
        print(i, &results[i]);
        write_rows(model, context, &results[i], file);
        weir_result_fini(&results[i]);
    }
    weir_result prompt = {.tokens = scored.prompt_tokens + 1,
                          .n_tokens = scored.n_prompt_tokens - 1,
                          .logprobs = scored.prompt_logprobs + 1,
                          .top_logprobs = scored.prompt_top_logprobs + 20,
                          .n_top_logprobs = scored.n_prompt_top_logprobs};
    print(N_ANSWERS, &prompt);
    write_prompt_rows(model, context, &scored, file);
    weir_result_fini(&scored);
    weir_context_destroy(context);
    weir_model_release(model);
    return fclose(file) == 0 && fflush(stdout) == 0 ? 0 : 2;
}

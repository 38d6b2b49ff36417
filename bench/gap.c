/* gap.c: how much likelier one token is than another after a text.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: gap MODEL; each line of standard input is A B N, N token ids, a space and a prompt; for each comes a line with
 * the logit of A less that of B behind the prompt and these tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#define N_CONTEXT 4096

/* The tokens of a line, the prompt's first. 0: the line is wrong. */
static size_t read_line(const weir_model *model, char *line, long ids[3], int32_t *tokens)
{
    int32_t answer[N_CONTEXT];
    size_t n_prompt, n = 0;
    for (int i = 0; i < 3; i++) ids[i] = strtol(line, &line, 10);
    for (; ids[2] >= 0 && n < (size_t)ids[2] && n < N_CONTEXT; n++)
        answer[n] = (int32_t)strtol(line, &line, 10);
    if (*line != ' ' || n != (size_t)ids[2]) return 0;
    if (weir_tokenize(model, line + 1, strcspn(line + 1, "\n"), true, true, tokens, N_CONTEXT - n, &n_prompt,
                      NULL) != WEIR_OK)
        return 0;
    memcpy(tokens + n_prompt, answer, n * sizeof *answer);
    return n_prompt + n;
}

int main(int argc, char **argv)
{
    static int32_t tokens[N_CONTEXT];
    weir_model *model = NULL;
    weir_context *context = NULL;
    weir_error error = {.message = "a line is wrong"};
    weir_model_info info = {.size = sizeof info};
    weir_context_params params = weir_context_params_default();
    char *line = NULL;
    size_t capacity = 0, n;
    long ids[3];
    int status = 1;

    if (argc != 2) {
        fputs("usage: gap MODEL\n", stderr);
        return 2;
    }
    params.n_ctx = N_CONTEXT;
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK) goto done;
    if (weir_context_create(model, &params, &context, &error) != WEIR_OK) goto done;
    weir_model_describe(model, &info);
    while (getline(&line, &capacity, stdin) > 0) {
        const float *logits;
        if ((n = read_line(model, line, ids, tokens)) == 0) goto done;
        if (ids[0] < 0 || ids[0] >= info.n_vocab || ids[1] < 0 || ids[1] >= info.n_vocab) goto done;
        if (weir_context_clear(context, &error) != WEIR_OK) goto done;
        if (weir_prefill(context, tokens, n, 0, NULL, &error) != WEIR_OK) goto done;
        if (weir_logits(context, -1, &logits, &error) != WEIR_OK) goto done;
        printf("%.6f\n", (double)(logits[ids[0]] - logits[ids[1]]));
    }
    status = 0;
done:
    if (status != 0) fprintf(stderr, "gap: %s\n", error.message);
    free(line);
    weir_context_destroy(context);
    weir_model_release(model);
    return status;
}

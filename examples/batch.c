/* Several prompts at once, answers when all are there. batch MODEL.gguf
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <weir/weir.h>

enum { N = 4 };

int main(int argc, char **argv)
{
    static const char *const prompts[N] = {"A river is", "A lake is", "A weir is", "The sea is"};
    weir_error error = {0};
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_request requests[N];
    weir_result results[N];
    int failed = 1;
    if (argc < 2) {
        fputs("usage: batch MODEL.gguf\n", stderr);
        return 2;
    }
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = N;
    params.n_ctx = 512;
    weir_sampler_params sampler = weir_sampler_params_default();
    sampler.temp = 0; /* the same answers each time */
    static const char *const stops[] = {"\n"};
    for (int i = 0; i < N; i++) {
        requests[i] = weir_request_default();
        requests[i].text = prompts[i];
        requests[i].sampler = &sampler;
        requests[i].max_tokens = 24;
        requests[i].stop = stops;
        requests[i].n_stop = 1;
    }
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK) goto done;
    if (weir_engine_create(model, &params, &engine, &error) != WEIR_OK) goto done;
    if (weir_generate(engine, requests, N, NULL, results, &error) != WEIR_OK) goto done;
    failed = 0;
    for (int i = 0; i < N; i++) {
        printf("%s%s [%s, %d tokens]\n", prompts[i], results[i].text, weir_reason_name(results[i].reason),
               results[i].usage.n_generated);
        if (results[i].reason == WEIR_REASON_ERROR) failed = 1;
        weir_result_fini(&results[i]);
    }
done:
    if (error.code != WEIR_OK) fprintf(stderr, "%s: %s\n", weir_status_name(error.code), error.message);
    weir_engine_destroy(engine);
    weir_model_release(model);
    return failed;
}

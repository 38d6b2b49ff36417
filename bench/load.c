/* load.c: how long a model takes until its first token, and the memory that it takes.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: load MODEL [vocab]. WEIR_KERNELS=off loads as llama.cpp does. One line of JSON: seconds of the load
 * and until the first token since the load began; resident bytes that the load added, and that there were
 * more than before it once the first token had come. vocab: only the bytes that a load without weights
 * adds. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <weir/more.h>

/* Bytes, pages of mapped files included. */
static long long resident(void)
{
    long long kb = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "VmRSS: %lld", &kb) == 1) break;
    if (f != NULL) fclose(f);
    return kb * 1024;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_result result = {0};
    weir_error error;
    int status = 1;

    if (argc != 2 && (argc != 3 || strcmp(argv[2], "vocab") != 0)) {
        fputs("usage: load MODEL [vocab]\n", stderr);
        return 2;
    }
    weir_model_params how = weir_model_params_default();
    how.vocab_only = argc == 3;
    long long before = resident();
    double start = seconds();
    if (weir_model_load(argv[1], &how, &model, &error) != WEIR_OK) goto done;
    double load = seconds() - start;
    long long loaded = resident() - before;
    if (how.vocab_only) {
        printf("{\"loaded\": %lld}\n", loaded);
        status = 0;
        goto done;
    }

    weir_engine_params params = weir_engine_params_default();
    params.n_slots = 1;
    params.n_draft_max = 0; /* each token is to be computed for itself */
    params.n_ctx = 256;
    if (weir_engine_create(model, &params, &engine, &error) != WEIR_OK) goto done;
    weir_sampler_params greedy = weir_sampler_params_default();
    greedy.temp = 0;
    weir_request request = weir_request_default();
    request.text = "Once";
    request.max_tokens = 1;
    request.sampler = &greedy;
    if (weir_generate(engine, &request, 1, NULL, &result, &error) != WEIR_OK) goto done;
    double first = seconds() - start;
    long long used = resident() - before;
    weir_engine_stats stats = {.size = sizeof stats};
    weir_engine_get_stats(engine, &stats);
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    printf("{\"kernels\": \"%s\", \"mapped\": %llu, \"load_s\": %.4f, \"first_s\": %.4f, \"loaded\": %lld, "
           "\"used\": %lld, "
           "\"kv\": %llu}\n",
           info.kernels, (unsigned long long)info.n_bytes_mapped, load, first, loaded, used,
           (unsigned long long)stats.kv_bytes);
    status = 0;
done:
    if (status != 0) fprintf(stderr, "load: %s\n", error.message);
    weir_result_fini(&result);
    weir_engine_destroy(engine);
    weir_model_release(model);
    return status;
}

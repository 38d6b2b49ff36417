/* weir_engine_estimate beside the memory of engines on the real model (WEIR_TEST_MODEL): the sizes that
 * llama.cpp logs for its buffers, and the resident memory once every cell and a whole batch were used. Each
 * case runs in a process of its own, whose memory nothing else was in.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weir/more.h>

#include "support/effort.h"

#define MB 1e6

/* Tokens; under sanitizers resident memory is not checked. */
#define PROMPT_MOST EFFORT(4096, 40)

/* llama.cpp logs hundredths of a MiB; the kernels' own room, which is estimated too, is in none of its
 * buffers. */
#define WORDS_PART 0.01
#define WORDS_MB   0.2
/* The most memory that two threads need for attention, which llama.cpp's log does not have. */
#define ATTENTION_MB 6.0
/* Memory of a process that is not estimated: threads, queues, texts, the allocator's reserves. */
#define BESIDE_MB 16
/* The part of the estimate that is touched at least. Two thirds of a pass's buffers are logits of a whole
 * batch, which llama.cpp reserves and of which a pass fills the rows that are asked for. */
#define TOUCHED_PART  0.35
#define TOUCHED_CELLS 0.85

static const struct a_case {
    const char *name;
    int32_t n_slots, n_ctx, n_kv, n_batch;
    weir_layout layout;
    weir_kv_type type;
    bool draft; /* by the model itself, as if it were a smaller one */
} cases[] = {
    {"one slot", 1, 512, 0, 512, WEIR_LAYOUT_AUTO, WEIR_KV_F16, false},
    {"four slots", 4, 256, 0, 512, WEIR_LAYOUT_UNIFIED, WEIR_KV_F16, false},
    {"lanes", 4, 256, 0, 512, WEIR_LAYOUT_PER_SLOT, WEIR_KV_F16, false},
    {"cells of 8 bits", 2, 512, 0, 256, WEIR_LAYOUT_UNIFIED, WEIR_KV_Q8_0, false},
    {"fewer cells than slots want", 8, 512, 1024, 128, WEIR_LAYOUT_UNIFIED, WEIR_KV_F16, false},
    {"a large batch", 2, 512, 0, 1024, WEIR_LAYOUT_UNIFIED, WEIR_KV_F32, false},
    {"a draft model", 2, 512, 0, 256, WEIR_LAYOUT_PER_SLOT, WEIR_KV_F16, true},
};

#define N_CASES (sizeof cases / sizeof *cases)

static const char *self;

static const char *model_path(void)
{
    return getenv("WEIR_TEST_MODEL");
}

/* ---- In the process of a case ---- */

static struct told {
    double kv, compute, output; /* MiB, by llama.cpp's log */
} told;

/* "llama_kv_cache:        CPU KV buffer size =    22.50 MiB" */
static void on_log(weir_log_level level, const char *message, void *user)
{
    const char *size = strstr(message, "buffer size =");
    (void)level, (void)user;
    if (size == NULL) return;
    double mib = strtod(size + strlen("buffer size ="), NULL);
    if (strstr(message, " KV buffer") != NULL) told.kv += mib;
    if (strstr(message, "compute buffer") != NULL) told.compute += mib;
    if (strstr(message, "output buffer") != NULL) told.output += mib;
}

/* A line of /proc/self/status, in bytes; 0 = there is none. */
static double status_bytes(const char *key)
{
    char line[256];
    double bytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) bytes = strtod(line + strlen(key), NULL) * 1024;
    fclose(file);
    return bytes;
}

/* Fills the cells: prompts as long as they may be, at once, each of other tokens. */
static int use(weir_model *model, weir_engine *engine, const weir_engine_stats *stats)
{
    weir_error error = {0};
    weir_model_info info = {.size = sizeof info};
    weir_request requests[16];
    weir_result results[16];
    static int32_t tokens[16][PROMPT_MOST];
    int32_t share = stats->n_kv / stats->n_slots;
    int32_t n = (share < stats->n_ctx ? share : stats->n_ctx) - 8;
    if (n > PROMPT_MOST) n = PROMPT_MOST;
    weir_model_describe(model, &info);
    for (int32_t i = 0; i < stats->n_slots; i++) {
        for (int32_t k = 0; k < n; k++) tokens[i][k] = 100 + (k * 7919 + i * 104729) % (info.n_vocab - 200);
        requests[i] = weir_request_default();
        requests[i].tokens = tokens[i];
        requests[i].n_tokens = (size_t)n;
        requests[i].max_tokens = 4;
    }
    if (weir_generate(engine, requests, (size_t)stats->n_slots, NULL, results, &error) != WEIR_OK) {
        printf("failed: %s\n", error.message);
        return 1;
    }
    for (int32_t i = 0; i < stats->n_slots; i++) weir_result_fini(&results[i]);
    return 0;
}

static int run_case(const struct a_case *c)
{
    weir_engine_params params = weir_engine_params_default();
    weir_engine_memory memory = {.size = sizeof memory};
    weir_engine_stats stats = {.size = sizeof stats};
    weir_error error = {0};
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    double started = status_bytes("VmRSS:");
    params.n_slots = c->n_slots;
    params.n_ctx = c->n_ctx;
    params.n_kv = c->n_kv;
    params.n_batch = params.n_ubatch = params.chunk_size = c->n_batch;
    params.layout = c->layout;
    params.type_k = params.type_v = c->type;
    params.n_threads = params.n_threads_batch = 2;
    params.cache_bytes = 0; /* not estimated */
    params.cache_sequences = 0;
    if (weir_engine_estimate(model_path(), NULL, &params, &memory, &error) != WEIR_OK) goto failed;
    if (weir_model_load(model_path(), NULL, &model, &error) != WEIR_OK) goto failed;
    if (c->draft) {
        params.draft_model = model;
        if (weir_engine_estimate(model_path(), NULL, &params, &memory, &error) != WEIR_OK) goto failed;
    }
    double loaded = status_bytes("VmRSS:");
    told = (struct told){0};
    weir_log_set(on_log, NULL);
    if (weir_engine_create(model, &params, &engine, &error) != WEIR_OK) goto failed;
    weir_engine_get_stats(engine, &stats);
    double made = status_bytes("VmRSS:");
    if (use(model, engine, &stats) != 0) return 1;
    double used = status_bytes("VmHWM:");
    weir_log_set(NULL, NULL);
    printf("%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f\n", (double)memory.kv_bytes,
           (double)memory.compute_bytes, (double)memory.model_bytes, told.kv * 1048576,
           told.compute * 1048576, told.output * 1048576, started, loaded, made, used);
    weir_engine_destroy(engine);
    weir_model_release(model);
    return 0;
failed:
    printf("failed: %s\n", error.message);
    return 1;
}

/* ---- The comparison ---- */

static void compare(const struct a_case *c)
{
    char command[1024], line[512] = "";
    double kv, compute, model, told_kv, told_compute, told_output, started, loaded, made, used;
    snprintf(command, sizeof command, "'%s' '%s'", self, c->name);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *read = fgets(line, sizeof line, pipe);
    int status = pclose(pipe);
    if (read == NULL || status != 0) fail_msg("%s: %s", c->name, line);
    assert_int_equal(sscanf(line, "%lf %lf %lf %lf %lf %lf %lf %lf %lf %lf", &kv, &compute, &model, &told_kv,
                            &told_compute, &told_output, &started, &loaded, &made, &used),
                     10);
    print_message(
        "%s: estimated %.1f MB of cells and %.1f to compute in; llama.cpp says %.1f, %.1f and %.1f for "
        "logits; resident: %.1f at the start, %.1f before, %.1f more when made, %.1f more when used\n",
        c->name, kv / MB, compute / MB, told_kv / MB, told_compute / MB, told_output / MB, started / MB,
        loaded / MB, (made - loaded) / MB, (used - loaded) / MB);
    assert_true(fabs(kv - told_kv) <= kv * WORDS_PART + WORDS_MB * MB);
    double more = compute - told_compute - told_output, slack = compute * WORDS_PART + WORDS_MB * MB;
    assert_true(more >= -slack);
    assert_true(more <= slack + (c->draft ? 2 : 1) * ATTENTION_MB * MB);
#ifndef WEIR_SANITIZED /* which keeps freed memory, and more */
    assert_true(loaded - started <= model + 2 * BESIDE_MB * MB);
    assert_true(made - loaded <= BESIDE_MB * MB);
    assert_true(used - loaded <= kv + compute + BESIDE_MB * MB);
    if (c->draft) return; /* of whose cells those of the texts that it has guessed at are touched */
    assert_true(used - loaded >= (kv + compute) * TOUCHED_PART);
    assert_true(used - loaded >= kv * TOUCHED_CELLS);
#else
    (void)model;
#endif
}

static void test_estimates(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) compare(&cases[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_estimates)};
    self = argv[0];
    if (model_path() == NULL || *model_path() == '\0') return 77;
    for (size_t i = 0; argc > 1 && i < N_CASES; i++)
        if (strcmp(argv[1], cases[i].name) == 0) return run_case(&cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* weir bench engine --emit: what weir itself adds to each token, where the model costs next to nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/clock.h"
#include "cli/figures.h"
#include "cli/out.h"
#include "cli/term.h"
#include "commands.h"
#include "measure.h"

#define MODEL    "fake:n_vocab=32000,n_ctx_train=65536"
#define N_SLOTS  8
#define N_PROMPT 64
#define N_ANSWER 20000
#define N_TICKS  128 /* half of them are run */

/* Bytes that the process has from malloc, 0 = this C library does not tell. */
static size_t allocated(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* Starts a request with stop strings in each slot. */
static weir_status submit(weir_model *model, weir_engine *engine, weir_stream **streams, int32_t n_answer,
                          weir_error *error)
{
    static const char *const stops[] = {"\n\n\n\n", "<|never|>"};
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request requests[N_SLOTS];
    int32_t prompt[N_PROMPT];
    weir_status status = WEIR_OK;
    sampler.temp = 0;
    sampler.ignore_eos = true;
    cli_measure_prompts(model, 1, prompt, N_PROMPT);
    for (size_t i = 0; i < N_SLOTS && status == WEIR_OK; i++) {
        requests[i] = weir_request_default();
        requests[i].tokens = prompt;
        requests[i].n_tokens = N_PROMPT;
        requests[i].sampler = &sampler;
        requests[i].max_tokens = n_answer;
        requests[i].stop = stops;
        requests[i].n_stop = sizeof stops / sizeof *stops;
        status = weir_stream_create(&streams[i], error);
    }
    return status == WEIR_OK ? weir_engine_submit(engine, requests, N_SLOTS, streams, error) : status;
}

static weir_status start(weir_model *model, bool manual, int32_t n_ctx, weir_engine **engine,
                         weir_error *error)
{
    weir_engine_params params = weir_engine_params_default();
    params.n_slots = N_SLOTS;
    params.n_draft_max = 0;
    params.n_ctx = n_ctx;
    params.manual = manual;
    return weir_engine_create(model, &params, engine, error);
}

/* The engine's thread: ticks less passes, for each token. The streams are read while it runs. */
static weir_status measure_time(weir_model *model, double *us_per_token, weir_error *error)
{
    weir_engine_stats stats = {.size = sizeof stats};
    weir_engine *engine = NULL;
    weir_stream *streams[N_SLOTS] = {0};
    weir_status status = start(model, false, N_PROMPT + N_ANSWER + 1, &engine, error);
    if (status == WEIR_OK) status = submit(model, engine, streams, N_ANSWER, error);
    for (size_t i = 0; i < N_SLOTS && status == WEIR_OK; i++) {
        weir_chunk chunk;
        while (weir_stream_next(streams[i], -1, &chunk) == WEIR_OK) continue;
        weir_stream_error(streams[i], error);
        status = error->code;
    }
    if (status == WEIR_OK && weir_engine_get_stats(engine, &stats) == WEIR_OK)
        *us_per_token = (double)(stats.busy_ns - stats.decode_ns) / 1e3 / (double)stats.n_generated_tokens;
    weir_engine_destroy(engine);
    for (size_t i = 0; i < N_SLOTS; i++) weir_stream_release(streams[i]);
    return status;
}

/* What engine, requests and streams have allocated once every slot generates. Driven by hand, so that it is
 * the same each time, and no longer than its ticks: the fake model's cells stand for a model's, which are not
 * weir's own. */
static weir_status measure_memory(weir_model *model, size_t *bytes, weir_error *error)
{
    weir_engine *engine = NULL;
    weir_stream *streams[N_SLOTS] = {0};
    size_t before = allocated();
    weir_status status = start(model, true, N_PROMPT + N_TICKS + 1, &engine, error);
    if (status == WEIR_OK) status = submit(model, engine, streams, N_TICKS, error);
    for (int tick = 0; tick < N_TICKS / 2 && status == WEIR_OK; tick++)
        status = weir_engine_step(engine, NULL, 0, NULL, error);
    *bytes = allocated() - before;
    weir_engine_destroy(engine);
    for (size_t i = 0; i < N_SLOTS; i++) weir_stream_release(streams[i]);
    return status;
}

cli_exit bench_emit(cli_args *args)
{
    weir_model *model = NULL;
    weir_error error = {0};
    cli_text text = {0};
    double us[64];
    size_t memory = 0;
    weir_status status = weir_model_load(MODEL, NULL, &model, &error);
    if (!args->quiet) cli_term_progress("measuring on a model without weights");
    if (status == WEIR_OK) status = measure_memory(model, &memory, &error);
    for (int32_t i = 0; i < args->repeat && status == WEIR_OK; i++)
        status = measure_time(model, &us[i], &error);
    cli_term_progress_end();
    weir_model_release(model);
    if (status != WEIR_OK) return cli_fail_error(args, CLI_FAILED, "the measurement failed", &error);
    double each = cli_measure_part(us, (size_t)args->repeat, 0.5), least = us[0]; /* sorted now */
    if (args->json) {
        cli_out_json(json_pack("{s:i, s:i, s:i, s:f, s:f, s:I}", "slots", N_SLOTS, "gen", N_ANSWER,
                               "repetitions", args->repeat, "us_per_token", each, "us_per_token_least", least,
                               "bytes", (json_int_t)memory));
        return CLI_OK;
    }
    cli_text_printf(
        &text,
        "weir's own time: %.3f µs per token, median of %d (fastest %.3f): plan, text, stop strings, "
        "stream, a fake sampler; %d slots\n",
        each, args->repeat, least, N_SLOTS);
    cli_text_puts(&text, "weir's memory:   ");
    if (memory > 0)
        cli_text_add_bytes(&text, memory);
    else
        cli_text_puts(&text, "this C library does not tell");
    cli_text_printf(&text, " (%d slots at work, without the cells of a model)\n", N_SLOTS);
    cli_out(text.bytes, text.length);
    cli_text_fini(&text);
    return CLI_OK;
}

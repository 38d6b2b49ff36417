/* weir bench engine --emit: what weir itself adds to each token, where the model costs next to nothing. */
#include <string.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/clock.h"
#include "bench_engine.h"
#include "figures.h"
#include "measure.h"
#include "out.h"
#include "term.h"

#define MODEL    "fake:n_vocab=32000,n_ctx_train=65536"
#define N_SLOTS  8
#define N_PROMPT 64
#define N_ANSWER 20000

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

struct emission {
    double us_per_token; /* of the engine's thread, passes and nothing else taken off */
    size_t bytes;        /* with all slots at work */
};

/* One repetition: an engine, eight requests with stop strings, streams that are read. */
static weir_status measure(weir_model *model, struct emission *emission, weir_error *error)
{
    static const char *const stops[] = {"\n\n\n\n", "<|never|>"};
    weir_engine_params params = weir_engine_params_default();
    weir_engine_stats stats = {.size = sizeof stats};
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_engine *engine = NULL;
    weir_stream *streams[N_SLOTS] = {0};
    weir_request requests[N_SLOTS];
    int32_t prompt[N_PROMPT];
    size_t before = allocated(), n_chunks = 0;
    sampler.temp = 0;
    sampler.ignore_eos = true;
    params.n_slots = N_SLOTS;
    params.n_ctx = N_PROMPT + N_ANSWER + 1;
    cli_measure_prompts(model, 1, prompt, N_PROMPT);
    weir_status status = weir_engine_create(model, &params, &engine, error);
    for (size_t i = 0; i < N_SLOTS && status == WEIR_OK; i++) {
        prompt[0] = (int32_t)i;
        requests[i] = weir_request_default();
        requests[i].tokens = prompt;
        requests[i].n_tokens = N_PROMPT;
        requests[i].sampler = &sampler;
        requests[i].max_tokens = N_ANSWER;
        requests[i].stop = stops;
        requests[i].n_stop = sizeof stops / sizeof *stops;
        status = weir_stream_create(&streams[i], error);
    }
    if (status == WEIR_OK) status = weir_engine_submit(engine, requests, N_SLOTS, streams, error);
    for (size_t i = 0; i < N_SLOTS && status == WEIR_OK; i++) {
        weir_chunk chunk;
        /* Once, while all slots work and before much waits unread: counting takes longer than a token. */
        while (weir_stream_next(streams[i], -1, &chunk) == WEIR_OK)
            if (++n_chunks == 8) emission->bytes = allocated() - before;
        weir_stream_error(streams[i], error);
        status = error->code;
    }
    if (status == WEIR_OK) {
        weir_engine_get_stats(engine, &stats);
        emission->us_per_token =
            (double)(stats.busy_ns - stats.decode_ns) / 1e3 / (double)stats.n_generated_tokens;
    }
    weir_engine_destroy(engine);
    for (size_t i = 0; i < N_SLOTS; i++) weir_stream_release(streams[i]);
    return status;
}

cli_exit cli_bench_emit(cli_args *args)
{
    weir_model *model = NULL;
    weir_error error = {0};
    cli_text text = {0};
    double us[64], bytes[64];
    weir_status status = weir_model_load(MODEL, NULL, &model, &error);
    for (int32_t i = 0; i < args->repeat && status == WEIR_OK; i++) {
        struct emission emission = {0};
        if (!args->quiet) cli_term_progress("measuring on a model without weights");
        status = measure(model, &emission, &error);
        us[i] = emission.us_per_token;
        bytes[i] = (double)emission.bytes;
    }
    cli_term_progress_end();
    weir_model_release(model);
    if (status != WEIR_OK) return cli_fail_error(args, CLI_FAILED, "the measurement failed", &error);
    double each = cli_measure_part(us, (size_t)args->repeat, 0.5),
           memory = cli_measure_part(bytes, (size_t)args->repeat, 1);
    if (args->json) {
        cli_out_json(json_pack("{s:i, s:i, s:i, s:f, s:I}", "slots", N_SLOTS, "gen", N_ANSWER, "repetitions",
                               args->repeat, "us_per_token", each, "bytes", (json_int_t)memory));
        return CLI_OK;
    }
    cli_text_printf(
        &text,
        "weir's own time: %.3f µs per token (plan, sampling by a fake sampler, text, stop strings, "
        "stream; %d slots, median of %d)\n",
        each, N_SLOTS, args->repeat);
    cli_text_puts(&text, "weir's memory:   ");
    if (memory > 0)
        cli_text_add_bytes(&text, (uint64_t)memory);
    else
        cli_text_puts(&text, "this C library does not tell");
    cli_text_printf(&text, " (%d slots at work; the fake model's context is in it)\n", N_SLOTS);
    cli_out(text.bytes, text.length);
    cli_text_fini(&text);
    return CLI_OK;
}

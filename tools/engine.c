/* weir bench engine: weir's engine and a plain llama.h loop, turn by turn.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each row is a number of streams and a length of prompt and answer; engine and context are made for it. Both
 * sides run in pairs on the same random prompts, new ones for each pair, and take turns in running
 * first; a pair before them only warms up. Other programs disturb both runs of a pair, so the median of the
 * pairs' ratios is the result. The loop gets the sizes of batches and the layout that the engine has
 * chosen. */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/progress.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "measure.h"
#include "tools/plain/llama_loop.h"

#define LANE_CELLS                                                                                           \
    256 /* llama.cpp rounds lanes up to this: ask for whole ones, so that both get the same                  \
         */

enum { WEIR_SIDE, PLAIN_SIDE, N_SIDES };

/* One shape's figures. */
struct row {
    cli_shape shape;
    int32_t n_runs;
    cli_figures *runs[N_SIDES]; /* [n_runs] */
    int32_t n_same;             /* streams with the same tokens on both sides, in the last repetition */
    weir_layout layout;
};

struct bench {
    cli_args *args;
    const char *path;
    weir_model *model;
    llama_loop_model *plain; /* NULL: not compared */
    int32_t n_threads, n_threads_batch;
    FILE *csv;
    json_t *rows;
};

/* Stands for the plain loop in builds without llama.cpp, which have nothing to compare with and do not link
 * tools/plain. */
#ifdef WEIR_NO_LLAMA
#define llama_loop_load(path, n_gpu_layers, use_mmap) NULL
#define llama_loop_unload(model)                      ((void)(model))
#define llama_loop_create(model, shape)               ((void)(model), (void)(shape), NULL)
#define llama_loop_destroy(loop)                      ((void)(loop))
#define llama_loop_run(loop, prompts, n_prompt, n_answer, at, tokens, go_on)                                 \
    ((void)(loop), (void)(prompts), (void)(at), (void)(tokens), (void)(go_on), false)
#endif

static bool go_on(void)
{
    return cli_signals_ended() == 0;
}

/* ---- Output ---- */

/* The median over the repetitions of one figure; `member` is its offset in cli_figures. */
static double median_of(const cli_figures *runs, int32_t n, size_t member)
{
    double values[64];
    for (int32_t i = 0; i < n; i++) memcpy(&values[i], (const char *)&runs[i] + member, sizeof *values);
    return cli_measure_part(values, (size_t)n, 0.5);
}

/* The median of the pairs' ratios: other programs disturb both runs of a pair. 0 = none. */
static double ratio_of(const struct row *row, size_t member)
{
    double values[64];
    if (row->runs[PLAIN_SIDE] == NULL || row->n_runs == 0) return 0;
    for (int32_t i = 0; i < row->n_runs; i++) {
        double pair[N_SIDES];
        for (int side = 0; side < N_SIDES; side++)
            memcpy(&pair[side], (const char *)&row->runs[side][i] + member, sizeof *pair);
        values[i] = pair[PLAIN_SIDE] > 0 ? pair[WEIR_SIDE] / pair[PLAIN_SIDE] : 0;
    }
    return cli_measure_part(values, (size_t)row->n_runs, 0.5);
}

static json_t *side_json(const struct row *row, int side)
{
    const cli_figures *runs = row->runs[side];
    int32_t n = row->n_runs;
    if (runs == NULL) return json_null();
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "prefill_per_second",
                     median_of(runs, n, offsetof(cli_figures, prefill_rate)), "decode_per_second",
                     median_of(runs, n, offsetof(cli_figures, decode_rate)), "ttft_p50_ms",
                     median_of(runs, n, offsetof(cli_figures, ttft_p50_ms)), "itl_p50_ms",
                     median_of(runs, n, offsetof(cli_figures, itl_p50_ms)), "itl_p99_ms",
                     median_of(runs, n, offsetof(cli_figures, itl_p99_ms)), "worst_gap_ms",
                     median_of(runs, n, offsetof(cli_figures, worst_gap_ms)), "total_s",
                     median_of(runs, n, offsetof(cli_figures, total_s)));
}

static void keep_json(struct bench *bench, const struct row *row)
{
    json_t *json =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:o}", "streams", row->shape.n_streams, "prompt",
                  row->shape.n_prompt, "shared_prefix", bench->args->n_shared, "gen", row->shape.n_answer,
                  "repetitions", row->n_runs, "layout", cli_engine_choice("layout", row->layout), "weir",
                  side_json(row, WEIR_SIDE), "plain", side_json(row, PLAIN_SIDE));
    if (json != NULL && row->runs[PLAIN_SIDE] != NULL) {
        json_object_set_new(json, "ratio",
                            json_pack("{s:f, s:f}", "prefill",
                                      ratio_of(row, offsetof(cli_figures, prefill_rate)), "decode",
                                      ratio_of(row, offsetof(cli_figures, decode_rate))));
        json_object_set_new(json, "same_text", json_integer(row->n_same));
    }
    if (json_array_append_new(bench->rows, json) != 0) cli_no_memory();
}

static void write_csv(struct bench *bench, const struct row *row)
{
    static const char *const names[] = {"weir", "plain"};
    if (bench->csv == NULL) return;
    for (int32_t i = 0; i < row->n_runs; i++) {
        for (int side = 0; side < N_SIDES; side++) {
            if (row->runs[side] == NULL) continue;
            const cli_figures *run = &row->runs[side][i];
            fprintf(bench->csv, "%s,%s,%s,%d,%d,%d,%d,%d,%.2f,%.2f,%.3f,%.3f,%.3f,%.3f,%.4f\n", names[side],
                    cli_file_name(bench->path), cli_engine_choice("layout", row->layout), bench->n_threads,
                    row->shape.n_streams, row->shape.n_prompt, row->shape.n_answer, i + 1, run->prefill_rate,
                    run->decode_rate, run->ttft_p50_ms, run->itl_p50_ms, run->itl_p99_ms, run->worst_gap_ms,
                    run->total_s);
        }
    }
    fflush(bench->csv);
}

/* ---- Measuring ---- */

static void show_progress(const struct bench *bench, const struct row *row, int32_t repetition,
                          const char *side)
{
    char line[128];
    if (bench->args->quiet) return;
    snprintf(line, sizeof line, "%d × %d + %d tokens: %d of %d, %s", row->shape.n_streams,
             row->shape.n_prompt, row->shape.n_answer, repetition + 1, bench->args->repeat, side);
    cli_progress_line(line);
}

/* One side once, and its figures unless it only warms up. */
static weir_status measure_side(struct bench *bench, struct row *row, int side, weir_engine *engine,
                                llama_loop *loop, const cli_shape *shape, const int32_t *prompts, int64_t *at,
                                int32_t *tokens, int32_t repetition, weir_error *error)
{
    static const char *const names[] = {"weir", "plain llama.h"};
    weir_status status = WEIR_OK;
    if (side == PLAIN_SIDE && loop == NULL) return WEIR_OK;
    show_progress(bench, row, repetition < 0 ? 0 : repetition, repetition < 0 ? "warming up" : names[side]);
    if (side == WEIR_SIDE) {
        status = cli_measure_run(engine, shape, prompts, at, tokens, error);
    } else if (!llama_loop_run(loop, prompts, shape->n_prompt, shape->n_answer, at, tokens, go_on)) {
        status = error->code = cli_signals_ended() != 0 ? WEIR_ABORTED : WEIR_BACKEND;
        snprintf(error->message, sizeof error->message, "a pass of the plain loop failed");
    }
    if (status == WEIR_OK && repetition >= 0) row->runs[side][repetition] = cli_measure_figures(shape, at);
    return status;
}

/* Measures both sides once, each first in turn; the first time, repetition -1, only warms up. */
static weir_status measure_pair(struct bench *bench, struct row *row, weir_engine *engine, llama_loop *loop,
                                int32_t repetition, weir_error *error)
{
    const cli_shape *shape = &row->shape;
    size_t n_prompts = (size_t)shape->n_streams * (size_t)shape->n_prompt;
    size_t n_answers = (size_t)shape->n_streams * (size_t)shape->n_answer;
    int32_t *prompts = cli_alloc(n_prompts, sizeof *prompts);
    int32_t *tokens[N_SIDES] = {cli_alloc(n_answers, sizeof(int32_t)), cli_alloc(n_answers, sizeof(int32_t))};
    int64_t *at = cli_alloc(n_answers, sizeof *at);
    cli_shape brief = *shape;
    if (repetition < 0) brief.n_answer = brief.n_answer < 4 ? brief.n_answer : 4;
    /* Other prompts each time, so that nothing that was computed serves again. */
    cli_measure_prompts(bench->model, (uint64_t)repetition + 2, prompts, n_prompts);
    for (int32_t i = 1; i < shape->n_streams; i++)
        memcpy(prompts + (size_t)i * (size_t)shape->n_prompt, prompts,
               (size_t)bench->args->n_shared * sizeof *prompts);
    weir_status status = WEIR_OK;
    for (int i = 0; i < N_SIDES && status == WEIR_OK; i++) {
        int side = repetition % 2 == 1 ? N_SIDES - 1 - i : i;
        status = measure_side(bench, row, side, engine, loop, &brief, prompts, at, tokens[side], repetition,
                              error);
    }
    row->n_same = 0;
    for (size_t i = 0; i < (size_t)shape->n_streams; i++) {
        size_t each = (size_t)brief.n_answer;
        row->n_same += memcmp(tokens[0] + i * each, tokens[1] + i * each, each * sizeof(int32_t)) == 0;
    }
    cli_free(at);
    for (int side = 0; side < N_SIDES; side++) cli_free(tokens[side]);
    cli_free(prompts);
    return status;
}

static weir_status start_row(struct bench *bench, struct row *row, weir_engine **engine, llama_loop **loop,
                             weir_error *error)
{
    weir_engine_params params = bench->args->engine;
    weir_engine_stats stats = {.size = sizeof stats};
    params.n_slots = row->shape.n_streams;
    if (bench->args->n_shared == 0) params.cache_sequences = 0; /* each prompt is to be computed */
    params.n_draft_max = 0; /* and each token of the answers: random texts go round, others do not */
    params.n_ctx = (row->shape.n_prompt + row->shape.n_answer + LANE_CELLS) / LANE_CELLS * LANE_CELLS;
    params.n_kv = 0;
    if (params.n_batch < params.n_slots) params.n_batch = params.n_slots;
    weir_status status = weir_engine_create(bench->model, &params, engine, error);
    if (status != WEIR_OK) return status;
    weir_engine_get_stats(*engine, &stats);
    row->layout = stats.layout;
    if (bench->plain == NULL) return WEIR_OK;
    const llama_loop_shape shape = {
        .n_streams = params.n_slots,
        .n_ctx = stats.n_kv,
        .n_batch = stats.n_batch,
        .n_ubatch = stats.n_ubatch,
        .n_threads = bench->n_threads,
        .n_threads_batch = bench->n_threads_batch,
        .unified = stats.layout == WEIR_LAYOUT_UNIFIED,
        .type_k = (int)params.type_k,
        .type_v = (int)params.type_v,
    };
    *loop = llama_loop_create(bench->plain, &shape);
    if (*loop != NULL) return WEIR_OK;
    snprintf(error->message, sizeof error->message,
             "llama.cpp gives the plain loop no context of this shape");
    return error->code = WEIR_BACKEND;
}

static cli_exit measure_row(struct bench *bench, const cli_shape *shape)
{
    struct row row = {.shape = *shape};
    weir_engine *engine = NULL;
    llama_loop *loop = NULL;
    weir_error error = {0};
    for (int side = 0; side < (bench->plain != NULL ? N_SIDES : 1); side++)
        row.runs[side] = cli_alloc((size_t)bench->args->repeat, sizeof *row.runs[side]);
    weir_status status = start_row(bench, &row, &engine, &loop, &error);
    if (status == WEIR_OK) status = measure_pair(bench, &row, engine, loop, -1, &error);
    while (status == WEIR_OK && row.n_runs < bench->args->repeat) {
        status = measure_pair(bench, &row, engine, loop, row.n_runs, &error);
        row.n_runs += status == WEIR_OK;
    }
    llama_loop_destroy(loop);
    weir_engine_destroy(engine);
    cli_term_progress_end();
    if (row.n_runs > 0) { /* interrupted: the runs so far */
        keep_json(bench, &row);
        write_csv(bench, &row);
    }
    for (int side = 0; side < N_SIDES; side++) cli_free(row.runs[side]);
    if (status == WEIR_OK) return CLI_OK;
    return cli_fail_error(bench->args, CLI_FAILED, "the measurement failed", &error);
}

static cli_exit measure_all(struct bench *bench)
{
    const cli_args *args = bench->args;
    cli_exit code = CLI_OK;
    for (size_t p = 0; p < args->prompt_lengths.n; p++)
        for (size_t a = 0; a < args->answer_lengths.n; a++)
            for (size_t s = 0; s < args->streams.n && code == CLI_OK && !cli_out_closed(); s++) {
                const cli_shape shape = {args->streams.items[s], args->prompt_lengths.items[p],
                                         args->answer_lengths.items[a]};
                code = measure_row(bench, &shape);
            }
    return code;
}

/* ---- The command ---- */

static cli_exit check_args(cli_args *args)
{
    static const int32_t streams[] = {1, 2, 4, 8, 16, 32}, prompt[] = {128}, answer[] = {32};
    if (args->words.n > 0) return cli_fail(CLI_USAGE, "weir bench engine takes no %s", args->words.items[0]);
    cli_numbers_default(&args->streams, streams, sizeof streams / sizeof *streams);
    cli_numbers_default(&args->prompt_lengths, prompt, 1);
    cli_numbers_default(&args->answer_lengths, answer, 1);
    if (args->repeat < 1 || args->repeat > 64)
        return cli_fail(CLI_USAGE, "--repeat is %d; allowed: 1 to 64", args->repeat);
    for (size_t i = 0; i < args->streams.n; i++)
        if (args->streams.items[i] > 256)
            return cli_fail(CLI_USAGE, "--streams has %d; allowed: 1 to 256", args->streams.items[i]);
    for (size_t i = 0; i < args->prompt_lengths.n; i++)
        if (args->n_shared < 0 || args->n_shared > args->prompt_lengths.items[i])
            return cli_fail(CLI_USAGE, "--shared-prefix is %d; allowed: 0 to %d, the tokens of a prompt",
                            args->n_shared, args->prompt_lengths.items[i]);
    return CLI_OK;
}

static const bench_column columns[] = {
    {"streams", "streams"},
    {"prompt", "prompt"},
    {"gen", "gen"},
    {"prefill tok/s", "weir.prefill_per_second"},
    {"plain", "plain.prefill_per_second"},
    {"ratio", "ratio.prefill"},
    {"decode tok/s", "weir.decode_per_second"},
    {"plain", "plain.decode_per_second"},
    {"ratio", "ratio.decode"},
    {"TTFT ms", "weir.ttft_p50_ms"},
    {"ITL p50", "weir.itl_p50_ms"},
    {"p99", "weir.itl_p99_ms"},
    {"worst", "weir.worst_gap_ms"},
};

static const char csv_head[] =
    "program,model,layout,threads,streams,prompt,gen,repetition,prefill_per_second,decode_per_second,"
    "ttft_p50_ms,itl_p50_ms,itl_p99_ms,worst_gap_ms,total_s\n";

cli_exit bench_engine(cli_args *args)
{
    struct bench bench = {.args = args};
    char *path = NULL;
    cli_exit code = check_args(args);
    if (code != CLI_OK) return code;
    cli_load_log(args);
    code = CLI_NO_MODEL;
    if ((path = cli_load_path(args)) == NULL) goto done;
    if ((code = cli_file_csv_open(args->csv_path, csv_head, &bench.csv)) != CLI_OK) goto done;
    if ((code = cli_load_model(args, path, &bench.model)) != CLI_OK) goto done;
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(bench.model, &info);
    if (!args->no_plain && strcmp(info.backend, "llama") == 0)
        bench.plain = llama_loop_load(path, args->model.n_gpu_layers, args->model.use_mmap);
    bench.path = path;
    bench.rows = json_array();
    bench.n_threads = args->engine.n_threads > 0 ? args->engine.n_threads : weir__cpu_count();
    bench.n_threads_batch = args->engine.n_threads_batch > 0 ? args->engine.n_threads_batch : bench.n_threads;
    code = measure_all(&bench);
    bench_report(args,
                 json_pack("{s:o, s:s, s:s, s:i, s:O}", "model", cli_figures_string(cli_file_name(path)),
                           "weir", weir_version(), "backend", weir_backend_version(), "threads",
                           bench.n_threads, "rows", bench.rows),
                 columns, sizeof columns / sizeof *columns);
done:
    code = cli_file_csv_close(args->csv_path, bench.csv, code);
    json_decref(bench.rows);
    llama_loop_unload(bench.plain);
    weir_model_release(bench.model);
    cli_load_log_flush();
    cli_free(path);
    return code;
}

/* weir bench kernels: weir's kernels and ggml's, turn by turn, beside the machine's limits.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each row is an operation of one format and shape on a number of threads. All sides compute it in turn,
 * several times, and the fastest run counts. The limits of the machine (limits.h) are measured beside it, and
 * speeds are shown as parts of them. */
#include "cli/lib/file.h"
#include "cli/lib/options.h"
#include "cli/lib/out.h"
#include "commands.h"

#ifdef WEIR_NO_LLAMA

cli_exit bench_kernels(cli_args *args)
{
    (void)args;
    return cli_fail(CLI_FAILED, "this weir was built without llama.cpp: it has no kernels");
}

#else

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cpu.h"
#include "cli/lib/load.h"
#include "cli/lib/progress.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "hook/hook.h"
#include "kernels/panel.h"
#include "limits.h"
#include "tools/plain/trial.h"

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

#define MB          ((size_t)1000000)
#define LIMIT_BYTES (512 * MB) /* read for memory's limit */
#define MOST_REPEAT 1000
#define MOST_ROWS   4096  /* as many as attention's cells */
#define MOST_SIDE   32768 /* of a matrix of weights */

/* The formats of models' weights, then attention. Panels in F32, the last format, are those of encoders. */
enum { ATTENTION = WEIR__PANEL_F32, N_KERNELS };

/* One operation on a number of threads. Arrays are by side. */
struct row {
    int kernel;
    char shape[48];
    int32_t m;
    size_t on;                   /* which of bench.threads */
    double *runs[TRIAL_N_SIDES]; /* [repeat] seconds; NULL: this side does not compute it */
    double best[TRIAL_N_SIDES];
    size_t bytes[TRIAL_N_SIDES]; /* of weights, or of keys and values */
    double macs;
    double difference; /* of weir's results from ggml's, as a part of them; 0 = not known */
};

struct bench {
    cli_args *args;
    trial_threads **threads; /* [args->thread_counts.n] */
    cli_limits *limits;      /* likewise */
    bool wanted[N_KERNELS];
    trial_shape *shapes; /* [n_shapes]: of weights */
    size_t n_shapes;
    char *memory; /* [memory_size]: read for its limit */
    size_t memory_size;
    FILE *csv;
    struct row *done; /* [n_done], without their runs */
    size_t n_done, done_capacity;
};

static const char *const sides[TRIAL_N_SIDES] = {"weir", "ggml", "repacked"};

static const char *kernel_name(int i)
{
    return i < ATTENTION ? weir__panel_layouts[i].name : "attention";
}

/* ---- Figures; 0 = there is none ---- */

static double gmacs(const struct row *row, int side)
{
    return row->best[side] > 0 ? row->macs / row->best[side] / 1e9 : 0;
}

static double gigabytes(const struct row *row, int side)
{
    return row->best[side] > 0 ? (double)row->bytes[side] / row->best[side] / 1e9 : 0;
}

/* weir's speed by that of the faster one of ggml's. */
static double ratio(const struct row *row)
{
    double ggml = gmacs(row, TRIAL_GGML), repacked = gmacs(row, TRIAL_REPACKED);
    double best = repacked > ggml ? repacked : ggml;
    return best > 0 ? gmacs(row, TRIAL_WEIR) / best : 0;
}

/* The peak is one of bytes: floating-point weights and attention have none. */
static double of_peak(const struct bench *bench, const struct row *row)
{
    double most = bench->limits[row->on].macs / 1e9;
    return row->kernel < WEIR__PANEL_BF16 && most > 0 ? gmacs(row, TRIAL_WEIR) / most : 0;
}

static double of_bandwidth(const struct bench *bench, const struct row *row)
{
    double most = bench->limits[row->on].bytes / 1e9;
    return bench->args->memory_mb > 0 && most > 0 ? gigabytes(row, TRIAL_WEIR) / most : 0;
}

/* ---- Output ---- */

static const char *processor(weir_device *device)
{
    for (size_t i = 0; weir_device_get(i, device) == WEIR_OK; i++)
        if (strcmp(device->type, "cpu") == 0) return device->description;
    return "";
}

/* A JSON number; null for a missing figure. */
static json_t *number(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *side_json(const struct row *row, int side)
{
    if (row->best[side] == 0) return json_null();
    return json_pack("{s:f, s:f}", "gmac_per_second", gmacs(row, side), "gb_per_second",
                     gigabytes(row, side));
}

static json_t *row_json(const struct bench *bench, const struct row *row)
{
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kernel", kernel_name(row->kernel),
        "shape", row->shape, "rows", row->m, "threads", bench->limits[row->on].n_threads, sides[TRIAL_WEIR],
        side_json(row, TRIAL_WEIR), sides[TRIAL_GGML], side_json(row, TRIAL_GGML), sides[TRIAL_REPACKED],
        side_json(row, TRIAL_REPACKED), "ratio", number(ratio(row)), "of_peak", number(of_peak(bench, row)),
        "of_bandwidth", number(of_bandwidth(bench, row)), "difference", number(row->difference));
}

static json_t *limits_json(const cli_limits *limits)
{
    return json_pack("{s:i, s:s, s:o, s:f}", "threads", limits->n_threads, "instruction", limits->instruction,
                     "gmac_per_second", number(limits->macs / 1e9), "gb_per_second", limits->bytes / 1e9);
}

static void print_report(const struct bench *bench)
{
    static const bench_column columns[] = {
        {"kernel", "kernel"},
        {"shape", "shape"},
        {"rows", "rows"},
        {"thr", "threads"},
        {"GMAC/s: weir", "weir.gmac_per_second"},
        {"ggml", "ggml.gmac_per_second"},
        {"repack", "repacked.gmac_per_second"},
        {"ratio", "ratio"},
        {"of peak", "of_peak"},
        {"GB/s", "weir.gb_per_second"},
        {"of memory", "of_bandwidth"},
    };
    weir_device device = {.size = sizeof device};
    json_t *limits = json_array(), *rows = json_array();
    for (size_t i = 0; i < bench->args->thread_counts.n; i++)
        json_array_append_new(limits, limits_json(&bench->limits[i]));
    for (size_t i = 0; i < bench->n_done; i++)
        if (json_array_append_new(rows, row_json(bench, &bench->done[i])) != 0) cli_no_memory();
    bench_report(bench->args,
                 json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:i, s:i, s:o, s:o}", "weir", weir_version(),
                           "backend", weir_backend_version(), "processor", processor(&device), "processors",
                           weir__cpu_count(), "compiler", COMPILER, "kernels", weir__hook_kernels(),
                           "memory_mb", bench->args->memory_mb, "repetitions", bench->args->repeat, "limits",
                           limits, "rows", rows),
                 columns, sizeof columns / sizeof *columns);
}

static void write_csv(struct bench *bench, const struct row *row)
{
    const cli_limits *limits = &bench->limits[row->on];
    if (bench->csv == NULL) return;
    for (int32_t i = 0; i < bench->args->repeat; i++) {
        for (int side = 0; side < TRIAL_N_SIDES; side++) {
            if (row->runs[side] == NULL) continue;
            double seconds = row->runs[side][i];
            fprintf(bench->csv, "%s,%s,%s,%d,%d,%d,%.3f,%.3f,%.1f,%.1f\n", sides[side],
                    kernel_name(row->kernel), row->shape, row->m, bench->args->thread_counts.items[row->on],
                    i + 1, row->macs / seconds / 1e9, (double)row->bytes[side] / seconds / 1e9,
                    limits->macs / 1e9, limits->bytes / 1e9);
        }
    }
    fflush(bench->csv);
}

/* ---- Measuring ---- */

/* CLI_OK: go on. */
static cli_exit ended(void)
{
    if (cli_signals_ended() != 0) return cli_signals_exit();
    return CLI_OK;
}

/* All sides once, the first one first in turn with the last one, and the limits, so that other programs
 * disturb all of them; repetition -1 only warms up. */
static cli_exit run_sides(struct bench *bench, struct row *row, trial *const *trials, int32_t repetition)
{
    for (int i = 0; i < TRIAL_N_SIDES; i++) {
        int side = repetition % 2 != 0 ? TRIAL_N_SIDES - 1 - i : i;
        cli_exit code = ended();
        if (code != CLI_OK) return code;
        if (trials[side] == NULL) continue;
        double seconds = trial_run(trials[side], bench->threads[row->on]);
        if (seconds <= 0) return cli_fail(CLI_FAILED, "a pass of %s failed", sides[side]);
        if (repetition < 0) continue;
        row->runs[side][repetition] = seconds;
        if (row->best[side] == 0 || seconds < row->best[side]) row->best[side] = seconds;
    }
    cli_limits_measure(&bench->limits[row->on], bench->memory, bench->memory_size);
    return CLI_OK;
}

static cli_exit measure_row(struct bench *bench, struct row *row, trial_data *const *data)
{
    trial *trials[TRIAL_N_SIDES] = {NULL};
    cli_exit code = CLI_OK;
    for (int side = 0; side < TRIAL_N_SIDES && code == CLI_OK; side++) {
        if (data[side] == NULL) continue;
        if ((trials[side] = trial_create(data[side], row->m)) == NULL)
            code = cli_fail(CLI_FAILED, "out of memory for %d rows", row->m);
        else
            row->macs = trial_macs(trials[side]);
        row->bytes[side] = trial_data_bytes(data[side]);
        row->runs[side] = cli_alloc((size_t)bench->args->repeat, sizeof *row->runs[side]);
    }
    for (int32_t i = -1; i < bench->args->repeat && code == CLI_OK; i++)
        code = run_sides(bench, row, trials, i);
    if (code == CLI_OK && trials[TRIAL_WEIR] != NULL)
        row->difference = trial_difference(trials[TRIAL_WEIR], trials[TRIAL_GGML]);
    cli_term_progress_end();
    if (code == CLI_OK) write_csv(bench, row);
    for (int side = 0; side < TRIAL_N_SIDES; side++) {
        trial_destroy(trials[side]);
        cli_free(row->runs[side]);
        row->runs[side] = NULL;
    }
    if (code != CLI_OK) return code;
    cli_grow(&bench->done, &bench->done_capacity, bench->n_done + 1, sizeof *bench->done);
    bench->done[bench->n_done++] = *row;
    return code;
}

/* A kernel on one shape, with each number of rows and of threads. */
static cli_exit measure_shape(struct bench *bench, int kernel, const trial_shape *shape, const int32_t *rows,
                              size_t n_rows)
{
    const cli_args *args = bench->args;
    trial_data *data[TRIAL_N_SIDES] = {NULL};
    cli_exit code = CLI_OK;
    char name[48], line[96];
    if (shape->format != NULL)
        snprintf(name, sizeof name, "%dx%d", shape->k, shape->n);
    else
        snprintf(name, sizeof name, "%d/%dx%dx%d", shape->n_heads, shape->n_heads_kv, shape->head_size,
                 shape->n_cells);
    snprintf(line, sizeof line, "%s %s", kernel_name(kernel), name);
    if (!args->quiet) cli_progress_line(line);
    if (!trial_serves(TRIAL_GGML, shape)) return CLI_OK; /* blocks of 256 columns and fewer columns, say */
    for (int side = 0; side < TRIAL_N_SIDES && code == CLI_OK; side++) {
        if (!trial_serves((trial_side)side, shape)) continue;
        data[side] = trial_data_create((trial_side)side, shape, (size_t)args->memory_mb * MB);
        if (data[side] == NULL) code = cli_fail(CLI_FAILED, "out of memory for %s", line);
    }
    for (size_t on = 0; on < args->thread_counts.n; on++)
        for (size_t i = 0; i < n_rows && code == CLI_OK && !cli_out_closed(); i++) {
            if (shape->format == NULL && rows[i] > shape->n_cells) continue; /* queries without cells */
            struct row row = {.kernel = kernel, .m = rows[i], .on = on};
            memcpy(row.shape, name, sizeof row.shape);
            if (!args->quiet) cli_progress_line(line);
            code = measure_row(bench, &row, data);
        }
    for (int side = 0; side < TRIAL_N_SIDES; side++) trial_data_destroy(data[side]);
    return code;
}

/* Measures attention as in a model of some billion weights: heads of queries share one of keys and values. */
static cli_exit measure_attention(struct bench *bench)
{
    static const trial_shape usual = {.n_heads = 32, .n_heads_kv = 8, .head_size = 128, .n_cells = 4096};
    static const trial_shape small = {.n_heads = 4, .n_heads_kv = 2, .head_size = 32, .n_cells = 64};
    static const int32_t queries[] = {1, 64};
    const cli_args *args = bench->args;
    bool chosen = cli_options_given(args, "--rows");
    return measure_shape(bench, ATTENTION, args->quick ? &small : &usual, chosen ? args->rows.items : queries,
                         chosen ? args->rows.n : 2);
}

static cli_exit measure_all(struct bench *bench)
{
    const cli_args *args = bench->args;
    cli_exit code = CLI_OK;
    for (int i = 0; i < ATTENTION; i++) {
        for (size_t s = 0; bench->wanted[i] && s < bench->n_shapes && code == CLI_OK; s++) {
            trial_shape shape = bench->shapes[s];
            shape.format = kernel_name(i);
            code = measure_shape(bench, i, &shape, args->rows.items, args->rows.n);
        }
    }
    return code == CLI_OK && bench->wanted[ATTENTION] ? measure_attention(bench) : code;
}

/* The limits for the first time, and threads for the measurements. */
static cli_exit start_bench(struct bench *bench)
{
    const cli_args *args = bench->args;
    bench->memory_size = args->quick ? LIMIT_BYTES / 32 : LIMIT_BYTES;
    bench->memory = cli_alloc(bench->memory_size, 1);
    memset(bench->memory, 1, bench->memory_size); /* pages that were never written are one page */
    for (size_t i = 0; i < args->thread_counts.n; i++) {
        int32_t n = args->thread_counts.items[i];
        if (!args->quiet) cli_progress_line("the limits of this machine");
        if (!cli_limits_init(&bench->limits[i], n)) return cli_fail(CLI_FAILED, "out of memory");
        for (int32_t r = 0; r < args->repeat && ended() == CLI_OK; r++)
            cli_limits_measure(&bench->limits[i], bench->memory, bench->memory_size);
        if (ended() != CLI_OK) return ended();
        bench->threads[i] = trial_threads_create(n);
        if (bench->threads[i] == NULL) return cli_fail(CLI_FAILED, "%d threads cannot be started", n);
    }
    return CLI_OK;
}

/* ---- The command ---- */

static cli_exit choose_kernels(struct bench *bench)
{
    const cli_list *names = &bench->args->kernels;
    for (int i = 0; i < N_KERNELS; i++) bench->wanted[i] = names->n == 0;
    for (size_t n = 0; n < names->n; n++) {
        char known[256] = "";
        bool found = false;
        for (int i = 0; i < N_KERNELS && !found; i++) {
            size_t used = strlen(known);
            found = strcasecmp(names->items[n], kernel_name(i)) == 0;
            if (found) bench->wanted[i] = true;
            snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", kernel_name(i));
        }
        if (!found) return cli_fail(CLI_USAGE, "--kernel is \"%.80s\"; expected: %s", names->items[n], known);
    }
    return CLI_OK;
}

static bool parse_shape(const char *text, trial_shape *shape)
{
    char *end;
    long k = strtol(text, &end, 10);
    if (end == text || *end != 'x') return false;
    text = end + 1;
    long n = strtol(text, &end, 10);
    if (end == text || *end != '\0') return false;
    if (k < 32 || k > MOST_SIDE || k % 32 != 0 || n < 16 || n > MOST_SIDE || n % 16 != 0) return false;
    *shape = (trial_shape){.k = (int32_t)k, .n = (int32_t)n};
    return true;
}

static cli_exit choose_shapes(struct bench *bench)
{
    static char *const usual[] = {"576x1536", "2048x2048", "2048x8192"}, *const small[] = {"256x64"};
    const cli_args *args = bench->args;
    char *const *given = args->shapes.n > 0 ? args->shapes.items : args->quick ? small : usual;
    bench->n_shapes = args->shapes.n > 0 ? args->shapes.n : args->quick ? 1 : 3;
    bench->shapes = cli_alloc(bench->n_shapes, sizeof *bench->shapes);
    for (size_t i = 0; i < bench->n_shapes; i++)
        if (!parse_shape(given[i], &bench->shapes[i]))
            return cli_fail(
                CLI_USAGE, "--shape is \"%.80s\"; expected: COLUMNSxROWS, multiples of 32 and 16, at most %d",
                given[i], MOST_SIDE);
    return CLI_OK;
}

static cli_exit check_numbers(const char *option, const cli_numbers *numbers, int32_t most)
{
    for (size_t i = 0; i < numbers->n; i++)
        if (numbers->items[i] > most)
            return cli_fail(CLI_USAGE, "%s has %d; allowed: 1 to %d", option, numbers->items[i], most);
    return CLI_OK;
}

static cli_exit check_args(cli_args *args)
{
    static const int32_t rows[] = {1, 8, 32, 512};
    const int32_t threads[] = {1, weir__cpu_count()};
    uint64_t available = weir__cpu_memory_available();
    uint64_t room = available > LIMIT_BYTES ? (available - LIMIT_BYTES) / TRIAL_N_SIDES / MB : 0;
    if (args->words.n > 0) return cli_fail(CLI_USAGE, "weir bench kernels takes no %s", args->words.items[0]);
    if (args->quick && !cli_options_given(args, "--repeat")) args->repeat = 1;
    if (args->quick && !cli_options_given(args, "--memory")) args->memory_mb = 1;
    cli_numbers_default(&args->rows, rows, args->quick ? 2 : sizeof rows / sizeof *rows);
    cli_numbers_default(&args->thread_counts, threads, args->quick || threads[1] == 1 ? 1 : 2);
    if (args->repeat < 1 || args->repeat > MOST_REPEAT)
        return cli_fail(CLI_USAGE, "--repeat is %d; allowed: 1 to %d", args->repeat, MOST_REPEAT);
    if (args->memory_mb < 0 || (available > 0 && (uint64_t)args->memory_mb > room))
        return cli_fail(CLI_USAGE, "--memory is %d; allowed: 0 to %llu, for each of three sides",
                        args->memory_mb, (unsigned long long)room);
    cli_exit code = check_numbers("--rows", &args->rows, MOST_ROWS);
    return code == CLI_OK ? check_numbers("--threads", &args->thread_counts, weir__cpu_count()) : code;
}

static const char csv_head[] = "program,kernel,shape,rows,threads,repetition,gmac_per_second,gb_per_second,"
                               "most_gmac_per_second,most_gb_per_second\n";

cli_exit bench_kernels(cli_args *args)
{
    struct bench bench = {.args = args};
    weir_device device = {.size = sizeof device};
    cli_exit code = check_args(args);
    if (code != CLI_OK) return code;
    if ((code = choose_kernels(&bench)) != CLI_OK) return code;
    if ((code = choose_shapes(&bench)) != CLI_OK) goto done;
    cli_load_log(args);
    if (weir_device_get(0, &device) != WEIR_OK) { /* which starts the backend */
        code = cli_fail(CLI_FAILED, "this weir was built for a processor that has more than this one");
        goto done;
    }
    bench.threads = cli_alloc(args->thread_counts.n, sizeof(trial_threads *));
    bench.limits = cli_alloc(args->thread_counts.n, sizeof *bench.limits);
    code = cli_file_csv_open(args->csv_path, csv_head, &bench.csv);
    if (code == CLI_OK) code = start_bench(&bench);
    if (code == CLI_OK) code = measure_all(&bench);
    cli_term_progress_end();
    if (code == CLI_OK && bench.n_done == 0 && !cli_out_closed())
        code =
            cli_fail(CLI_USAGE, "nothing to measure: none of these kernels supports this shape or number of "
                                "rows; blocks of K-quants have 256 columns, attention has at most as many "
                                "rows as cells");
    if (bench.threads[args->thread_counts.n - 1] != NULL && (args->json || bench.n_done > 0))
        print_report(&bench);
    for (size_t i = 0; i < args->thread_counts.n; i++) {
        trial_threads_destroy(bench.threads[i]);
        cli_limits_fini(&bench.limits[i]);
    }
done:
    code = cli_file_csv_close(args->csv_path, bench.csv, code);
    cli_free(bench.done);
    cli_free(bench.memory);
    cli_free(bench.limits);
    cli_free(bench.threads);
    cli_free(bench.shapes);
    cli_load_log_flush();
    return code;
}

#endif

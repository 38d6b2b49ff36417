/* weir bench types: how fast this machine is with each type of weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/load.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/term.h"
#include "cli/text.h"
#include "commands.h"

#ifndef WEIR_NO_LLAMA
#include "../plain/trial.h"
#include "base/cpu.h"
#endif

/* What is measured, and as which type it is told. */
static const struct {
    const char *type, *format; /* format: of the weights, by ggml's name */
    double bits;
} formats[] = {
    {"F16", "f16", 16},      {"BF16", "bf16", 16},      {"Q8_0", "q8_0", 8.5},   {"Q6_K", "q6_K", 6.5625},
    {"Q5_K_M", "q5_K", 5.5}, {"Q5_0", "q5_0", 5.5},     {"Q4_K_M", "q4_K", 4.5}, {"Q4_1", "q4_1", 5},
    {"Q4_0", "q4_0", 4.5},   {"IQ4_NL", "iq4_nl", 4.5},
};

#define N_FORMATS (sizeof formats / sizeof *formats)

/* Tokens a second of a model of a billion weights, if it had nothing else to do. 0: not measured. */
struct speed {
    double generating, reading;
};

#ifdef WEIR_NO_LLAMA

static cli_exit measure(const cli_args *args, struct speed *speeds)
{
    (void)args, (void)speeds;
    return cli_fail(CLI_FAILED, "this weir was built without llama.cpp: it has no kernels");
}

#else

#define SIDE    2048
#define BYTES   ((size_t)48 << 20) /* more than caches hold */
#define ROWS    64                 /* of a prompt, at once */
#define ROUNDS  3                  /* over all formats, so that a busy moment is not one format's alone */
#define REPEATS 3                  /* in each; the best of all counts */

/* Seconds for a matrix by the faster one of weir's and ggml's kernels; 0: neither has any. */
static double matrix_seconds(const trial_shape *shape, int32_t rows, trial_threads *threads)
{
    double best = 0;
    for (int side = 0; side < TRIAL_N_SIDES; side++) {
        /* Where weir's kernels serve a format, they are what runs. */
        if (!trial_serves((trial_side)side, shape) || (side != TRIAL_WEIR && best > 0)) continue;
        trial_data *data = trial_data_create((trial_side)side, shape, BYTES);
        trial *t = data != NULL ? trial_create(data, rows) : NULL;
        for (int i = 0; i <= REPEATS && t != NULL; i++) {
            double seconds = trial_run(t, threads);
            if (i > 0 && seconds > 0 && (best == 0 || seconds < best))
                best = seconds; /* the first warms up */
        }
        trial_destroy(t);
        trial_data_destroy(data);
    }
    return best;
}

/* Asking for a device starts the backend, which trials need. */
static cli_exit measure(const cli_args *args, struct speed *speeds)
{
    weir_device device = {.size = sizeof device};
    int32_t n = args->engine.n_threads > 0 ? args->engine.n_threads : weir__cpu_count();
    if (weir_device_get(0, &device) == WEIR_UNSUPPORTED)
        return cli_fail(CLI_FAILED, "this build of weir does not run on this processor");
    trial_threads *threads = trial_threads_create(n);
    if (threads == NULL) return cli_fail(CLI_FAILED, "%d threads cannot be started; take fewer (-t)", n);
    for (size_t k = 0; k < ROUNDS * N_FORMATS && cli_signals_ended() == 0; k++) {
        size_t i = k % N_FORMATS;
        trial_shape shape = {.format = formats[i].format, .k = SIDE, .n = SIDE};
        char line[64];
        snprintf(line, sizeof line, "measuring %s", formats[i].type);
        if (!args->quiet) cli_term_progress(line);
        double one = matrix_seconds(&shape, 1, threads), many = matrix_seconds(&shape, ROWS, threads);
        double part = (double)SIDE * SIDE / 1e9; /* of a billion weights */
        if (one > 0 && part / one > speeds[i].generating) speeds[i].generating = part / one;
        if (many > 0 && ROWS * part / many > speeds[i].reading) speeds[i].reading = ROWS * part / many;
    }
    cli_term_progress_end();
    trial_threads_destroy(threads);
    return cli_signals_ended() == 0 ? CLI_OK : (cli_exit)(128 + cli_signals_ended());
}

#endif

static size_t fastest(const struct speed *speeds, bool reading)
{
    size_t best = 0;
    for (size_t i = 1; i < N_FORMATS; i++)
        if ((reading ? speeds[i].reading : speeds[i].generating) >
            (reading ? speeds[best].reading : speeds[best].generating))
            best = i;
    return best;
}

static void add_verdict(cli_text *text, const struct speed *speeds)
{
    const char *generating = formats[fastest(speeds, false)].type,
               *reading = formats[fastest(speeds, true)].type;
    if (strcmp(generating, reading) == 0)
        cli_text_printf(text, "this machine runs %s fastest\n", generating);
    else
        cli_text_printf(text, "this machine generates fastest with %s, and reads prompts fastest with %s\n",
                        generating, reading);
}

cli_exit bench_types(cli_args *args)
{
    struct speed speeds[N_FORMATS] = {{0, 0}};
    cli_table table = {.n_columns = 4};
    cli_text text = {0};
    json_t *array = args->json ? json_array() : NULL;
    cli_load_log(args);
    cli_exit code = measure(args, speeds);
    cli_table_cell(&table, "type");
    cli_table_cell(&table, "bits");
    cli_table_cell(&table, "generates, tok/s");
    cli_table_cell(&table, "reads, tok/s");
    for (size_t i = 0; i < N_FORMATS; i++) {
        cli_table_cell(&table, "%s", formats[i].type);
        cli_table_cell(&table, "%.1f", formats[i].bits);
        cli_table_cell(&table, "%.1f", speeds[i].generating);
        cli_table_cell(&table, "%.0f", speeds[i].reading);
        if (array != NULL)
            json_array_append_new(array, json_pack("{s:s, s:f, s:f, s:f}", "type", formats[i].type, "bits",
                                                   formats[i].bits, "generating", speeds[i].generating,
                                                   "reading", speeds[i].reading));
    }
    if (code == CLI_OK && args->json)
        cli_out_json(json_pack("{s:o, s:s, s:s}", "types", array, "fastest_generating",
                               formats[fastest(speeds, false)].type, "fastest_reading",
                               formats[fastest(speeds, true)].type));
    else if (code == CLI_OK) {
        cli_table_print(&table, &text, cli_term_style_out(CLI_BOLD), cli_term_style_out(CLI_PLAIN));
        cli_text_puts(&text, "a model of a billion weights, on the CPU, one request alone; ");
        add_verdict(&text, speeds);
        cli_text_puts(&text, "other types:");
        for (size_t i = 0, k; weir_quantize_type(i) != NULL; i++) {
            for (k = 0; k < N_FORMATS && strcmp(formats[k].type, weir_quantize_type(i)) != 0; k++) continue;
            if (k == N_FORMATS) cli_text_printf(&text, " %s", weir_quantize_type(i));
        }
        cli_text_puts(&text, "\n");
        cli_out(text.bytes, text.length);
    } else
        json_decref(array);
    cli_table_fini(&table);
    cli_text_fini(&text);
    return code;
}

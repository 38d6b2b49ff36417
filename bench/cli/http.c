/* weir bench http: the options, and the report. What is sent: traffic.c; sending: exchange.c; what came:
 * tally.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/figures.h"
#include "cli/file.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/term.h"
#include "commands.h"
#include "exchange.h"

#define WORDS_MAX    (1 << 20) /* of a prompt or an answer */
#define CLIENTS_MAX  16384     /* as many connections as carrier.c has at the most */
#define REQUESTS_MAX 100000000

struct bench {
    cli_args *args;
    const char *target;
    cli_exchanges exchanges;
    cli_tally *tally;
    json_t *runs;
};

/* ---- The report ---- */

static void label(cli_text *text, const char *name)
{
    cli_text_printf(text, "%s%-12s%s", cli_term_style_out(CLI_DIM), name, cli_term_style_out(CLI_PLAIN));
}

static void add_counts(cli_text *text, const cli_tally *tally)
{
    uint64_t n_errors = cli_tally_errors(tally);
    label(text, "requests");
    cli_text_add_count(text, tally->n_sent);
    cli_text_printf(text, " sent, %llu answered", (unsigned long long)tally->n_ended[CLI_FATE_ANSWERED]);
    if (tally->n_ended[CLI_FATE_LEFT] > 0)
        cli_text_printf(text, ", %llu left", (unsigned long long)tally->n_ended[CLI_FATE_LEFT]);
    if (tally->n_ended[CLI_FATE_STOPPED] > 0)
        cli_text_printf(text, ", %llu interrupted", (unsigned long long)tally->n_ended[CLI_FATE_STOPPED]);
    if (tally->n_retries > 0)
        cli_text_printf(text, ", %llu tries more", (unsigned long long)tally->n_retries);
    cli_text_printf(text, ", %s%llu error%s%s in ", cli_term_style_out(n_errors > 0 ? CLI_RED : CLI_PLAIN),
                    (unsigned long long)n_errors, n_errors == 1 ? "" : "s", cli_term_style_out(CLI_PLAIN));
    cli_text_add_time(text, tally->last_ns);
    cli_text_puts(text, "\n");
    for (int fate = CLI_FATE_CONNECT; fate < CLI_FATE_STOPPED; fate++) {
        if (tally->n_ended[fate] == 0) continue;
        label(text, "");
        cli_text_printf(text, "%llu × %s: ", (unsigned long long)tally->n_ended[fate], cli_fate_texts[fate]);
        cli_text_add_safe(text, tally->examples[fate], strlen(tally->examples[fate]));
        cli_text_puts(text, "\n");
    }
    if (tally->n_unsent > 0) {
        label(text, "");
        cli_text_printf(text, "%llu × not sent: no connection was free\n",
                        (unsigned long long)tally->n_unsent);
    }
}

static void add_tokens(cli_text *text, const cli_args *args, const cli_tally *tally)
{
    label(text, "tokens");
    if (tally->n_prompt > 0) {
        cli_text_add_count(text, tally->n_prompt);
        cli_text_puts(text, " in prompts");
        if (tally->n_cached_counted > 0) {
            cli_text_puts(text, " (");
            cli_text_add_count(text, tally->n_cached);
            cli_text_puts(text, " cached)");
        }
        cli_text_puts(text, ", ");
    }
    cli_text_add_count(text, tally->n_generated);
    bool all = tally->n_counted == tally->n_ended[CLI_FATE_ANSWERED] && tally->n_ended[CLI_FATE_LEFT] == 0;
    cli_text_printf(text, " in answers%s\n",
                    all                     ? ""
                    : tally->n_counted == 0 ? " (pieces: the server does not count)"
                                            : " (where the server did not count: pieces)");
    label(text, "throughput");
    cli_text_printf(text, "%s%.1f tok/s%s in answers, %.1f with prompts\n", cli_term_style_out(CLI_BOLD),
                    cli_tally_rate(tally, false), cli_term_style_out(CLI_PLAIN), cli_tally_rate(tally, true));
    if (args->ask.json_schema != NULL) {
        label(text, "JSON");
        cli_text_printf(text, "%llu answers ended by themselves, %llu of them are no JSON\n",
                        (unsigned long long)tally->n_by_itself, (unsigned long long)tally->n_not_json);
    }
}

static void add_row(cli_table *table, const char *name, const cli_spread *spread)
{
    static const double parts[] = {0.5, 0.9, 0.99, 1};
    if (spread->n == 0) return;
    cli_table_cell(table, "%s", name);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        cli_table_cell(table, "%.1f", cli_spread_part(spread, parts[i]));
    cli_table_cell(table, "%llu", (unsigned long long)spread->n);
}

static void add_times(cli_text *text, const cli_tally *tally)
{
    static const char *const head[] = {"ms", "p50", "p90", "p99", "most", "of"};
    cli_table table = {.n_columns = sizeof head / sizeof *head};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) cli_table_cell(&table, "%s", head[i]);
    add_row(&table, "TTFT", &tally->ttft);
    add_row(&table, "ITL", &tally->itl);
    add_row(&table, "worst gap", &tally->worst);
    add_row(&table, "end to end", &tally->total);
    cli_text_puts(text, "\n");
    cli_table_print(&table, text, cli_term_style_out(CLI_BOLD), cli_term_style_out(CLI_PLAIN));
    cli_table_fini(&table);
}

static void add_late(cli_text *text, const cli_args *args, const cli_tally *tally)
{
    const cli_record *late = &tally->late;
    if (args->n_late == 0) return;
    cli_text_puts(text, "\n");
    label(text, "late prompt");
    if (!tally->has_late) {
        cli_text_puts(text, "was not sent: the other answers had ended; --gen makes them longer\n");
        return;
    }
    if (late->n_prompt >= 0) cli_text_printf(text, "%lld tokens, ", (long long)late->n_prompt);
    cli_text_puts(text, "sent after ");
    cli_text_add_time(text, late->sent_ns);
    if (late->n_pieces > 0) {
        cli_text_puts(text, ", TTFT ");
        cli_text_add_time(text, late->first_ns - late->sent_ns);
    }
    cli_text_printf(text, ", %s after ", cli_fate_keys[late->fate]);
    cli_text_add_time(text, late->end_ns - late->sent_ns);
    cli_text_puts(text, "\n");
}

static void print_report(const struct bench *bench, int32_t run)
{
    cli_text text = {0};
    const cli_args *args = bench->args;
    if (run > 0) cli_text_puts(&text, "\n");
    cli_text_add_safe(&text, bench->target, strlen(bench->target));
    if (args->rate > 0)
        cli_text_printf(&text, ": %g requests/s", (double)args->rate);
    else
        cli_text_printf(&text, ": %d client%s", args->concurrency, args->concurrency == 1 ? "" : "s");
    cli_text_printf(&text, ", seed %u", args->seed);
    if (args->repeat > 1) cli_text_printf(&text, ", run %d of %d", run + 1, args->repeat);
    cli_text_puts(&text, "\n\n");
    add_counts(&text, bench->tally);
    add_tokens(&text, args, bench->tally);
    add_times(&text, bench->tally);
    add_late(&text, args, bench->tally);
    cli_out(text.bytes, text.n);
    weir__text_fini(&text);
}

static json_t *report_json(const struct bench *bench)
{
    const cli_args *args = bench->args;
    json_t *json = json_pack(
        "{s:o, s:I, s:s, s:f, s:s, s:s, s:i, s:i, s:f}", "target", cli_figures_string(bench->target), "seed",
        (json_int_t)args->seed, "loop", args->rate > 0 ? "open" : "closed", "rate", (double)args->rate,
        "prompt", args->prompt_span != NULL ? args->prompt_span : "128", "gen",
        args->answer_span != NULL ? args->answer_span : "64", "concurrency", args->concurrency,
        "shared_prefix", args->n_shared, "leave", (double)args->leave);
    if (json_object_set(json, "runs", bench->runs) != 0) cli_no_memory();
    return json;
}

/* ---- The options ---- */

static cli_exit out_of_range(const char *name, double value, const char *allowed)
{
    return cli_fail(CLI_USAGE, "%s is %g; allowed: %s", name, value, allowed);
}

static bool within(double value, double least, double most)
{
    return value >= least && value <= most; /* NaN is not */
}

static cli_exit check(cli_args *args, cli_traffic *traffic)
{
    const char *prompt = args->prompt_span != NULL ? args->prompt_span : "128";
    const char *answer = args->answer_span != NULL ? args->answer_span : "64";
    if (args->words.n != 1)
        return cli_fail(CLI_USAGE, "weir bench http takes one address, such as http://localhost:8080");
    if (!cli_span_parse(prompt, WORDS_MAX, &traffic->prompt))
        return cli_fail(CLI_USAGE, "--prompt is \"%.40s\"; expected: N or N-M, from 1 to %d", prompt,
                        WORDS_MAX);
    if (!cli_span_parse(answer, WORDS_MAX, &traffic->answer))
        return cli_fail(CLI_USAGE, "--gen is \"%.40s\"; expected: N or N-M, from 1 to %d", answer, WORDS_MAX);
    if (!within(args->concurrency, 1, CLIENTS_MAX))
        return out_of_range("--concurrency", args->concurrency, "1 to 16384");
    if (!within((double)args->rate, 0, 1e5)) return out_of_range("--rate", (double)args->rate, "0 to 100000");
    if (!within(args->n_requests, 1, REQUESTS_MAX))
        return out_of_range("--requests", args->n_requests, "1 to 100000000");
    if (!within((double)args->duration_s, 0, 1e6))
        return out_of_range("--duration", (double)args->duration_s, "0 to 1000000 seconds");
    if (!within((double)args->timeout_s, 0.001, 1e6))
        return out_of_range("--timeout", (double)args->timeout_s, "0.001 to 1000000 seconds");
    if (!within((double)args->leave, 0, 1)) return out_of_range("--leave", (double)args->leave, "0 to 1");
    if (!within(args->n_shared, 0, WORDS_MAX))
        return out_of_range("--shared-prefix", args->n_shared, "0 to 1048576");
    if (!within(args->n_late, 0, WORDS_MAX))
        return out_of_range("--late-prompt", args->n_late, "0 to 1048576");
    if (!within(args->n_tries, 1, 1000)) return out_of_range("--tries", args->n_tries, "1 to 1000");
    if (!within(args->repeat, 1, 1000)) return out_of_range("--repeat", args->repeat, "1 to 1000");
    if (args->rate > 0 && cli_options_given(args, "--concurrency"))
        return cli_fail(CLI_USAGE, "--concurrency and --rate exclude each other");
    if (args->duration_s > 0 && cli_options_given(args, "--requests"))
        return cli_fail(CLI_USAGE, "--requests and --duration exclude each other");
    return CLI_OK;
}

static void complete(struct bench *bench)
{
    cli_args *args = bench->args;
    cli_traffic *traffic = &bench->exchanges.traffic;
    if (args->seed == WEIR_SEED_RANDOM) args->seed = (uint32_t)weir__clock_now_ns() & INT32_MAX;
    traffic->seed = args->seed;
    traffic->rate = (double)args->rate;
    traffic->n_shared = args->n_shared;
    traffic->n_late = args->n_late;
    traffic->leave = (double)args->leave;
    bench->exchanges.args = args;
    bench->exchanges.n_clients = args->concurrency;
    bench->exchanges.n_planned = args->duration_s > 0 ? UINT64_MAX : (uint64_t)args->n_requests;
    bench->exchanges.duration_ns = (int64_t)((double)args->duration_s * 1e9);
    bench->exchanges.n_tries = args->n_tries;
    bench->exchanges.tally = bench->tally;
}

/* ---- The command ---- */

static cli_exit measure(struct bench *bench)
{
    cli_exit code = CLI_OK;
    for (int32_t run = 0; run < bench->args->repeat && cli_signals_ended() == 0 && !cli_out_closed(); run++) {
        cli_exchanges exchanges = bench->exchanges; /* each run from the beginning */
        cli_tally_init(bench->tally);
        cli_exchanges_run(&exchanges);
        if (bench->args->json) {
            if (json_array_append_new(bench->runs, cli_tally_json(bench->tally)) != 0) cli_no_memory();
        } else
            print_report(bench, run);
        if (cli_tally_errors(bench->tally) > 0) code = CLI_REFUSED;
    }
    return code;
}

cli_exit bench_http(cli_args *args)
{
    struct bench bench = {.args = args};
    cli_exit code = check(args, &bench.exchanges.traffic);
    if (code != CLI_OK) return code;
    bench.target = args->words.items[0];
    bench.tally = cli_alloc(1, sizeof *bench.tally);
    bench.runs = json_array();
    complete(&bench);
    bench.exchanges.carrier = cli_carrier_create(args, bench.target, &code);
    if (bench.exchanges.carrier == NULL) goto done;
    if (args->rate <= 0 && args->concurrency > cli_carrier_limit(bench.exchanges.carrier))
        code = cli_fail(CLI_USAGE, "--concurrency is %d; this process may have %d connections (ulimit -n)",
                        args->concurrency, cli_carrier_limit(bench.exchanges.carrier));
    if (code == CLI_OK)
        code = cli_file_csv_open(args->csv_path, cli_exchanges_csv_head, &bench.exchanges.csv);
    if (code != CLI_OK) goto done;
    code = measure(&bench);
    if (args->json) cli_out_json(report_json(&bench));
done:
    code = cli_file_csv_close(args->csv_path, bench.exchanges.csv, code);
    cli_carrier_destroy(bench.exchanges.carrier);
    json_decref(bench.runs);
    cli_free(bench.tally);
    return code;
}

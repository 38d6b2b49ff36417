/* weir bench http: the options, and the report. The requests: traffic.c; sending: exchange.c; the results:
 * tally.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/out.h"
#include "cli/lib/signals.h"
#include "commands.h"
#include "exchange.h"
#include "report.h"

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

static bool is_within(double value, double least, double most)
{
    return value >= least && value <= most; /* NaN is not */
}

static cli_exit check_args(cli_args *args, cli_traffic *traffic)
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
    if (!is_within(args->concurrency, 1, CLIENTS_MAX))
        return out_of_range("--concurrency", args->concurrency, "1 to 16384");
    if (!is_within((double)args->rate, 0, 1e5))
        return out_of_range("--rate", (double)args->rate, "0 to 100000");
    if (!is_within(args->n_requests, 1, REQUESTS_MAX))
        return out_of_range("--requests", args->n_requests, "1 to 100000000");
    if (!is_within((double)args->duration_s, 0, 1e6))
        return out_of_range("--duration", (double)args->duration_s, "0 to 1000000 seconds");
    if (!is_within((double)args->timeout_s, 0.001, 1e6))
        return out_of_range("--timeout", (double)args->timeout_s, "0.001 to 1000000 seconds");
    if (!is_within((double)args->leave, 0, 1)) return out_of_range("--leave", (double)args->leave, "0 to 1");
    if (!is_within(args->n_shared, 0, WORDS_MAX))
        return out_of_range("--shared-prefix", args->n_shared, "0 to 1048576");
    if (!is_within(args->n_late, 0, WORDS_MAX))
        return out_of_range("--late-prompt", args->n_late, "0 to 1048576");
    if (!is_within(args->n_tries, 1, 1000)) return out_of_range("--tries", args->n_tries, "1 to 1000");
    if (!is_within(args->repeat, 1, 1000)) return out_of_range("--repeat", args->repeat, "1 to 1000");
    if (args->rate > 0 && cli_options_given(args, "--concurrency"))
        return cli_fail(CLI_USAGE, "--concurrency and --rate exclude each other");
    if (args->duration_s > 0 && cli_options_given(args, "--requests"))
        return cli_fail(CLI_USAGE, "--requests and --duration exclude each other");
    return CLI_OK;
}

static void complete_params(struct bench *bench)
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

static cli_exit measure_load(struct bench *bench)
{
    cli_exit code = CLI_OK;
    for (int32_t run = 0; run < bench->args->repeat && cli_signals_ended() == 0 && !cli_out_closed(); run++) {
        cli_exchanges exchanges = bench->exchanges; /* each run from the beginning */
        cli_tally_init(bench->tally);
        cli_exchanges_run(&exchanges);
        if (json_array_append_new(bench->runs, cli_tally_json(bench->tally)) != 0) cli_no_memory();
        if (cli_tally_errors(bench->tally) > 0) code = CLI_REFUSED;
    }
    return code;
}

cli_exit bench_http(cli_args *args)
{
    struct bench bench = {.args = args};
    cli_exit code = check_args(args, &bench.exchanges.traffic);
    if (code != CLI_OK) return code;
    bench.target = args->words.items[0];
    bench.tally = cli_alloc(1, sizeof *bench.tally);
    bench.runs = json_array();
    complete_params(&bench);
    bench.exchanges.carrier = cli_carrier_create(args, bench.target, &code);
    if (bench.exchanges.carrier == NULL) goto done;
    if (args->rate <= 0 && args->concurrency > cli_carrier_limit(bench.exchanges.carrier))
        code = cli_fail(CLI_USAGE, "--concurrency is %d; this process may have %d connections (ulimit -n)",
                        args->concurrency, cli_carrier_limit(bench.exchanges.carrier));
    if (code == CLI_OK)
        code = cli_file_csv_open(args->csv_path, cli_exchanges_csv_head, &bench.exchanges.csv);
    if (code != CLI_OK) goto done;
    code = measure_load(&bench);
    bench_report(args, report_json(&bench), NULL, 0);
done:
    code = cli_file_csv_close(args->csv_path, bench.exchanges.csv, code);
    cli_carrier_destroy(bench.exchanges.carrier);
    json_decref(bench.runs);
    cli_free(bench.tally);
    return code;
}

/* weir bench http: the options, the loop that sends requests when the traffic says so, and the report. The
 * requests: traffic.c; sending: carrier.c; the results: tally.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/out.h"
#include "cli/lib/progress.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "commands.h"
#include "exchange.h"

/* ---- The loop ---- */

#define LATE_AFTER 8                       /* pieces that each stream has had when the late prompt comes */
#define SHOW_NS    (200 * WEIR__NS_PER_MS) /* between two texts of the line that shows progress */

static void send_exchange(cli_exchange *exchange)
{
    cli_exchanges *exchanges = exchange->exchanges;
    exchange->record.n_tries++;
    cli_carrier_start(exchanges->carrier, exchange);
}

static void begin_exchange(cli_exchanges *exchanges, uint64_t index)
{
    cli_exchange *exchange = cli_alloc(1, sizeof *exchange);
    cli_grow(&exchanges->all, &exchanges->capacity, exchanges->n + 1, sizeof(cli_exchange *));
    exchange->exchanges = exchanges;
    exchange->place = exchanges->n;
    exchange->planned = cli_traffic_plan(&exchanges->traffic, index);
    cli_traffic_prompt(&exchanges->traffic, index, &exchange->prompt);
    exchanges->all[exchanges->n++] = exchange;
    exchanges->tally->n_sent++;
    exchange->record = (cli_record){.index = index, .n_prompt = -1, .n_generated = -1, .n_cached = -1};
    exchange->record.sent_ns = cli_exchanges_now(exchanges);
    send_exchange(exchange);
}

static bool more_arrive(const cli_exchanges *exchanges, int64_t now)
{
    return exchanges->next < exchanges->n_planned &&
           (exchanges->duration_ns == 0 || now < exchanges->duration_ns);
}

static size_t running_count(const cli_exchanges *exchanges)
{
    bool late = false;
    for (size_t i = 0; exchanges->late_sent && i < exchanges->n && !late; i++)
        late = exchanges->all[i]->record.index == CLI_TRAFFIC_LATE;
    return exchanges->n - late;
}

/* Begins a closed load: each client sends its next request when it has its answer. */
static void begin_closed(cli_exchanges *exchanges)
{
    while (running_count(exchanges) < (size_t)exchanges->n_clients &&
           more_arrive(exchanges, cli_exchanges_now(exchanges)))
        begin_exchange(exchanges, exchanges->next++);
}

/* Open: requests arrive whether the others have been answered or not. */
static void begin_open(cli_exchanges *exchanges)
{
    while (cli_exchanges_now(exchanges) >= exchanges->arrival_ns &&
           more_arrive(exchanges, exchanges->arrival_ns)) {
        if (exchanges->n < (size_t)cli_carrier_limit(exchanges->carrier))
            begin_exchange(exchanges, exchanges->next);
        else
            exchanges->tally->n_unsent++;
        exchanges->next++;
        exchanges->arrival_ns +=
            (int64_t)(cli_traffic_plan(&exchanges->traffic, exchanges->next).gap_s * 1e9);
    }
}

static void begin_late(cli_exchanges *exchanges)
{
    if (exchanges->traffic.n_late == 0 || exchanges->late_sent || exchanges->n == 0) return;
    bool full = exchanges->traffic.rate > 0 || exchanges->n >= (size_t)exchanges->n_clients;
    if (!full && more_arrive(exchanges, cli_exchanges_now(exchanges))) return;
    for (size_t i = 0; i < exchanges->n; i++)
        if (exchanges->all[i]->record.n_pieces < LATE_AFTER) return;
    exchanges->late_sent = true;
    begin_exchange(exchanges, CLI_TRAFFIC_LATE);
}

static void begin_again(cli_exchanges *exchanges)
{
    int64_t now = cli_exchanges_now(exchanges);
    /* Backwards: an exchange that ends at once is replaced by the last one, which has been looked at. */
    for (size_t i = exchanges->n; exchanges->n_waiting > 0 && i-- > 0;) {
        cli_exchange *exchange = exchanges->all[i];
        if (exchange->retry_at_ns == 0 || exchange->retry_at_ns > now) continue;
        exchange->retry_at_ns = 0;
        exchanges->n_waiting--;
        send_exchange(exchange);
    }
}

static int timeout_of(const cli_exchanges *exchanges)
{
    int64_t now = cli_exchanges_now(exchanges), next = now + CLI_LOOK_MS * WEIR__NS_PER_MS;
    if (exchanges->traffic.rate > 0 && more_arrive(exchanges, exchanges->arrival_ns) &&
        exchanges->arrival_ns < next)
        next = exchanges->arrival_ns;
    for (size_t i = 0; exchanges->n_waiting > 0 && i < exchanges->n; i++)
        if (exchanges->all[i]->retry_at_ns > 0 && exchanges->all[i]->retry_at_ns < next)
            next = exchanges->all[i]->retry_at_ns;
    return next <= now ? 0 : (int)((next - now + WEIR__NS_PER_MS - 1) / WEIR__NS_PER_MS);
}

static void show_state(cli_exchanges *exchanges)
{
    int64_t now = cli_exchanges_now(exchanges);
    if (exchanges->args->quiet || now < exchanges->shown_ns) return;
    exchanges->shown_ns = now + SHOW_NS;
    cli_text line = {0};
    uint64_t n_errors = cli_tally_errors(exchanges->tally);
    cli_text_printf(&line, "%llu answered", (unsigned long long)exchanges->tally->n_ended[CLI_FATE_ANSWERED]);
    if (exchanges->n_planned != UINT64_MAX)
        cli_text_printf(&line, " of %llu", (unsigned long long)exchanges->n_planned);
    cli_text_printf(&line, ", %zu under way", exchanges->n);
    if (n_errors > 0) cli_text_printf(&line, ", %llu errors", (unsigned long long)n_errors);
    cli_text_printf(&line, ", %.0f s", (double)now / 1e9);
    cli_progress_line(line.bytes);
    weir__text_fini(&line);
}

static void stop_all(cli_exchanges *exchanges)
{
    while (exchanges->n > 0) {
        cli_exchange *exchange = exchanges->all[exchanges->n - 1];
        if (exchange->retry_at_ns == 0) cli_carrier_drop(exchange);
        cli_exchange_end(exchange, CLI_FATE_STOPPED, "", -1);
    }
}

/* Runs until all have ended, or a signal comes: then those under way are STOPPED. */
static void run_exchanges(cli_exchanges *exchanges)
{
    exchanges->started_ns = weir__clock_now_ns();
    while (cli_signals_ended() == 0) {
        if (exchanges->traffic.rate > 0)
            begin_open(exchanges);
        else
            begin_closed(exchanges);
        begin_again(exchanges);
        begin_late(exchanges);
        bool waits = exchanges->traffic.rate > 0 && more_arrive(exchanges, exchanges->arrival_ns);
        if (exchanges->n == 0 && !waits && !more_arrive(exchanges, cli_exchanges_now(exchanges))) break;
        show_state(exchanges);
        cli_carrier_wait(exchanges->carrier, timeout_of(exchanges));
    }
    stop_all(exchanges);
    cli_free(exchanges->all);
    exchanges->all = NULL;
    cli_term_progress_end();
}

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
        run_exchanges(&exchanges);
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

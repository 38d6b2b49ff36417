/* The loop that sends requests when the traffic says so; the functions are exchange.h's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "cli/lib/progress.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "exchange.h"

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

void cli_exchanges_run(cli_exchanges *exchanges)
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

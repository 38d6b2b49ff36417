/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/signals.h"
#include "cli/term.h"

#define ANSWER_MAX (64u << 10)             /* bytes that are kept to see whether they are JSON */
#define LATE_AFTER 8                       /* pieces that each stream has had when the late prompt comes */
#define SHOW_NS    (200 * WEIR__NS_PER_MS) /* between two texts of the line that shows progress */

const char cli_exchanges_csv_head[] =
    "request,ended,tries,sent_ms,prompt_tokens,cached_tokens,generated_tokens,pieces,ttft_ms,worst_gap_ms,"
    "end_to_end_ms\n";

static int64_t now_of(const cli_exchanges *exchanges)
{
    return weir__clock_now_ns() - exchanges->started_ns;
}

/* ---- One request ---- */

static void send_exchange(cli_exchange *exchange)
{
    cli_exchanges *exchanges = exchange->exchanges;
    exchange->record.n_tries++;
    cli_carrier_start(exchanges->carrier, exchange);
}

static void begin(cli_exchanges *exchanges, uint64_t index)
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
    exchange->record.sent_ns = now_of(exchanges);
    send_exchange(exchange);
}

bool cli_exchange_piece(cli_exchange *exchange, const char *text, size_t n)
{
    cli_exchanges *exchanges = exchange->exchanges;
    cli_tally_piece(exchanges->tally, &exchange->record, now_of(exchanges));
    if (exchanges->args->ask.json_schema != NULL && exchange->answer.n + n <= ANSWER_MAX)
        cli_text_add(&exchange->answer, text, n);
    return exchange->planned.leave_after == 0 || exchange->record.n_pieces < exchange->planned.leave_after;
}

static bool is_json(const cli_text *text)
{
    json_error_t error;
    json_t *json = text->n == 0 ? NULL : json_loadb(text->bytes, text->n, JSON_DECODE_ANY, &error);
    json_decref(json);
    return json != NULL;
}

static void write_row(FILE *csv, const cli_record *record)
{
    if (csv == NULL) return;
    if (record->index == CLI_TRAFFIC_LATE)
        fputs("late", csv);
    else
        fprintf(csv, "%llu", (unsigned long long)record->index);
    fprintf(csv, ",%s,%d,%.3f,%lld,%lld,%lld,%d,%.3f,%.3f,%.3f\n", cli_fate_keys[record->fate],
            record->n_tries, (double)record->sent_ns / 1e6, (long long)record->n_prompt,
            (long long)record->n_cached, (long long)record->n_generated, record->n_pieces,
            record->n_pieces > 0 ? (double)(record->first_ns - record->sent_ns) / 1e6 : 0.0,
            (double)record->worst_gap_ns / 1e6, (double)(record->end_ns - record->sent_ns) / 1e6);
}

void cli_exchange_end(cli_exchange *exchange, cli_fate fate, const char *message, int64_t retry_ms)
{
    cli_exchanges *exchanges = exchange->exchanges;
    exchange->carried = NULL;
    exchange->record.end_ns = now_of(exchanges);
    if (fate == CLI_FATE_BUSY && retry_ms >= 0 && exchange->record.n_tries < exchanges->n_tries) {
        exchange->retry_at_ns = exchange->record.end_ns + retry_ms * WEIR__NS_PER_MS;
        exchanges->n_waiting++;
        exchanges->tally->n_retries++;
        return;
    }
    exchange->record.fate = fate;
    if (exchanges->args->ask.json_schema != NULL && fate == CLI_FATE_ANSWERED &&
        exchange->record.ended_by_itself)
        exchanges->tally->n_not_json += !is_json(&exchange->answer);
    cli_tally_end(exchanges->tally, &exchange->record, message);
    write_row(exchanges->csv, &exchange->record);
    exchanges->all[exchange->place] = exchanges->all[--exchanges->n];
    exchanges->all[exchange->place]->place = exchange->place;
    weir__text_fini(&exchange->prompt);
    weir__text_fini(&exchange->answer);
    cli_free(exchange);
}

/* ---- When ---- */

static bool more(const cli_exchanges *exchanges, int64_t now)
{
    return exchanges->next < exchanges->n_planned &&
           (exchanges->duration_ns == 0 || now < exchanges->duration_ns);
}

static size_t running(const cli_exchanges *exchanges)
{
    bool late = false;
    for (size_t i = 0; exchanges->late_sent && i < exchanges->n && !late; i++)
        late = exchanges->all[i]->record.index == CLI_TRAFFIC_LATE;
    return exchanges->n - late;
}

/* Closed: each client sends its next request when it has its answer. */
static void begin_closed(cli_exchanges *exchanges)
{
    while (running(exchanges) < (size_t)exchanges->n_clients && more(exchanges, now_of(exchanges)))
        begin(exchanges, exchanges->next++);
}

/* Open: requests arrive whether the others have been answered or not. */
static void begin_open(cli_exchanges *exchanges)
{
    while (now_of(exchanges) >= exchanges->arrival_ns && more(exchanges, exchanges->arrival_ns)) {
        if (exchanges->n < (size_t)cli_carrier_limit(exchanges->carrier))
            begin(exchanges, exchanges->next);
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
    if (!full && more(exchanges, now_of(exchanges))) return;
    for (size_t i = 0; i < exchanges->n; i++)
        if (exchanges->all[i]->record.n_pieces < LATE_AFTER) return;
    exchanges->late_sent = true;
    begin(exchanges, CLI_TRAFFIC_LATE);
}

static void begin_again(cli_exchanges *exchanges)
{
    int64_t now = now_of(exchanges);
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
    int64_t now = now_of(exchanges), next = now + CLI_LOOK_MS * WEIR__NS_PER_MS;
    if (exchanges->traffic.rate > 0 && more(exchanges, exchanges->arrival_ns) && exchanges->arrival_ns < next)
        next = exchanges->arrival_ns;
    for (size_t i = 0; exchanges->n_waiting > 0 && i < exchanges->n; i++)
        if (exchanges->all[i]->retry_at_ns > 0 && exchanges->all[i]->retry_at_ns < next)
            next = exchanges->all[i]->retry_at_ns;
    return next <= now ? 0 : (int)((next - now + WEIR__NS_PER_MS - 1) / WEIR__NS_PER_MS);
}

static void show(cli_exchanges *exchanges)
{
    int64_t now = now_of(exchanges);
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
    cli_term_progress(line.bytes);
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
        bool waits = exchanges->traffic.rate > 0 && more(exchanges, exchanges->arrival_ns);
        if (exchanges->n == 0 && !waits && !more(exchanges, now_of(exchanges))) break;
        show(exchanges);
        cli_carrier_wait(exchanges->carrier, timeout_of(exchanges));
    }
    stop_all(exchanges);
    cli_free(exchanges->all);
    exchanges->all = NULL;
    cli_term_progress_end();
}

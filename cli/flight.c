/* SPDX-License-Identifier: Apache-2.0 */
#include "flight.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "signals.h"
#include "term.h"

#define ANSWER_MAX (64u << 10)
#define LATE_AFTER 8   /* pieces that each stream has had when the late prompt comes */
#define LOOK_MS    100 /* the longest wait */
#define SHOW_NS    (INT64_C(200) * 1000000)

const char cli_flights_csv_head[] =
    "request,ended,tries,sent_ms,prompt_tokens,cached_tokens,generated_tokens,pieces,ttft_ms,worst_gap_ms,"
    "end_to_end_ms\n";

static int64_t now_of(const cli_flights *flights)
{
    return weir__clock_now_ns() - flights->started_ns;
}

/* ---- One request ---- */

static void send_flight(cli_flight *flight)
{
    cli_flights *flights = flight->flights;
    flight->record.n_tries++;
    flights->carrier->start(flights->carrier, flight);
}

static void begin(cli_flights *flights, uint64_t index)
{
    cli_flight *flight = cli_alloc(1, sizeof *flight);
    cli_grow(&flights->all, &flights->capacity, flights->n + 1, sizeof(cli_flight *));
    flight->flights = flights;
    flight->place = flights->n;
    flight->planned = cli_traffic_plan(&flights->traffic, index);
    cli_traffic_prompt(&flights->traffic, index, &flight->prompt);
    flights->all[flights->n++] = flight;
    flights->tally->n_sent++;
    flight->record = (cli_record){.index = index, .n_prompt = -1, .n_generated = -1, .n_cached = -1};
    flight->record.sent_ns = now_of(flights);
    send_flight(flight);
}

bool cli_flight_piece(cli_flight *flight, const char *text, size_t n)
{
    cli_flights *flights = flight->flights;
    cli_tally_piece(flights->tally, &flight->record, now_of(flights));
    if (flights->args->ask.json_schema != NULL && flight->answer.length + n <= ANSWER_MAX)
        cli_text_add(&flight->answer, text, n);
    return flight->planned.leave_after == 0 || flight->record.n_pieces < flight->planned.leave_after;
}

static bool is_json(const cli_text *text)
{
    json_error_t error;
    json_t *json = text->length == 0 ? NULL : json_loadb(text->bytes, text->length, JSON_DECODE_ANY, &error);
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

void cli_flight_end(cli_flight *flight, cli_fate fate, const char *message, int64_t retry_ms)
{
    cli_flights *flights = flight->flights;
    flight->carried = NULL;
    flight->record.end_ns = now_of(flights);
    if (fate == CLI_FATE_BUSY && retry_ms >= 0 && flight->record.n_tries < flights->n_tries) {
        flight->retry_at_ns = flight->record.end_ns + retry_ms * WEIR__NS_PER_MS;
        flights->n_waiting++;
        flights->tally->n_retries++;
        return;
    }
    flight->record.fate = fate;
    if (flights->args->ask.json_schema != NULL && fate == CLI_FATE_ANSWERED && flight->record.ended_by_itself)
        flights->tally->n_not_json += !is_json(&flight->answer);
    cli_tally_end(flights->tally, &flight->record, message);
    write_row(flights->csv, &flight->record);
    flights->all[flight->place] = flights->all[--flights->n];
    flights->all[flight->place]->place = flight->place;
    cli_text_fini(&flight->prompt);
    cli_text_fini(&flight->answer);
    cli_free(flight);
}

/* ---- When ---- */

static bool more(const cli_flights *flights, int64_t now)
{
    return flights->next < flights->n_planned && (flights->duration_ns == 0 || now < flights->duration_ns);
}

static size_t running(const cli_flights *flights)
{
    bool late = false;
    for (size_t i = 0; flights->late_sent && i < flights->n && !late; i++)
        late = flights->all[i]->record.index == CLI_TRAFFIC_LATE;
    return flights->n - late;
}

/* Closed: each client sends its next request when it has its answer. */
static void begin_closed(cli_flights *flights)
{
    while (running(flights) < (size_t)flights->n_clients && more(flights, now_of(flights)))
        begin(flights, flights->next++);
}

/* Open: requests arrive whether the others have been answered or not. */
static void begin_open(cli_flights *flights)
{
    while (now_of(flights) >= flights->arrival_ns && more(flights, flights->arrival_ns)) {
        if (flights->n < (size_t)flights->carrier->limit)
            begin(flights, flights->next);
        else
            flights->tally->n_unsent++;
        flights->next++;
        flights->arrival_ns += (int64_t)(cli_traffic_plan(&flights->traffic, flights->next).gap_s * 1e9);
    }
}

static void begin_late(cli_flights *flights)
{
    if (flights->traffic.n_late == 0 || flights->late_sent || flights->n == 0) return;
    bool full = flights->traffic.rate > 0 || flights->n >= (size_t)flights->n_clients;
    if (!full && more(flights, now_of(flights))) return;
    for (size_t i = 0; i < flights->n; i++)
        if (flights->all[i]->record.n_pieces < LATE_AFTER) return;
    flights->late_sent = true;
    begin(flights, CLI_TRAFFIC_LATE);
}

static void begin_again(cli_flights *flights)
{
    int64_t now = now_of(flights);
    /* Backwards: a flight that ends at once is replaced by the last one, which has been looked at. */
    for (size_t i = flights->n; flights->n_waiting > 0 && i-- > 0;) {
        cli_flight *flight = flights->all[i];
        if (flight->retry_at_ns == 0 || flight->retry_at_ns > now) continue;
        flight->retry_at_ns = 0;
        flights->n_waiting--;
        send_flight(flight);
    }
}

static int timeout_of(const cli_flights *flights)
{
    int64_t now = now_of(flights), next = now + LOOK_MS * WEIR__NS_PER_MS;
    if (flights->traffic.rate > 0 && more(flights, flights->arrival_ns) && flights->arrival_ns < next)
        next = flights->arrival_ns;
    for (size_t i = 0; flights->n_waiting > 0 && i < flights->n; i++)
        if (flights->all[i]->retry_at_ns > 0 && flights->all[i]->retry_at_ns < next)
            next = flights->all[i]->retry_at_ns;
    return next <= now ? 0 : (int)((next - now + WEIR__NS_PER_MS - 1) / WEIR__NS_PER_MS);
}

static void show(cli_flights *flights)
{
    int64_t now = now_of(flights);
    if (flights->args->quiet || now < flights->shown_ns) return;
    flights->shown_ns = now + SHOW_NS;
    cli_text line = {0};
    uint64_t n_errors = cli_tally_errors(flights->tally);
    cli_text_printf(&line, "%llu answered", (unsigned long long)flights->tally->n_ended[CLI_FATE_ANSWERED]);
    if (flights->n_planned != UINT64_MAX)
        cli_text_printf(&line, " of %llu", (unsigned long long)flights->n_planned);
    cli_text_printf(&line, ", %zu under way", flights->n);
    if (n_errors > 0) cli_text_printf(&line, ", %llu errors", (unsigned long long)n_errors);
    cli_text_printf(&line, ", %.0f s", (double)now / 1e9);
    cli_term_progress(line.bytes);
    cli_text_fini(&line);
}

static void stop_all(cli_flights *flights)
{
    while (flights->n > 0) {
        cli_flight *flight = flights->all[flights->n - 1];
        if (flight->retry_at_ns == 0) flights->carrier->drop(flights->carrier, flight);
        cli_flight_end(flight, CLI_FATE_STOPPED, "", -1);
    }
}

void cli_flights_run(cli_flights *flights)
{
    flights->started_ns = weir__clock_now_ns();
    while (cli_signals_ended() == 0) {
        if (flights->traffic.rate > 0)
            begin_open(flights);
        else
            begin_closed(flights);
        begin_again(flights);
        begin_late(flights);
        bool waits = flights->traffic.rate > 0 && more(flights, flights->arrival_ns);
        if (flights->n == 0 && !waits && !more(flights, now_of(flights))) break;
        show(flights);
        flights->carrier->wait(flights->carrier, timeout_of(flights));
    }
    stop_all(flights);
    cli_free(flights->all);
    flights->all = NULL;
    cli_term_progress_end();
}

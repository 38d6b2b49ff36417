/* exchange.c: records the pieces and the end of an exchange, and writes its row of the table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define ANSWER_MAX (64u << 10) /* bytes that are kept to see whether they are JSON */

const char cli_exchanges_csv_head[] =
    "request,ended,tries,sent_ms,prompt_tokens,cached_tokens,generated_tokens,pieces,ttft_ms,worst_gap_ms,"
    "end_to_end_ms\n";

int64_t cli_exchanges_now(const cli_exchanges *exchanges)
{
    return weir__clock_now_ns() - exchanges->started_ns;
}

bool cli_exchange_piece(cli_exchange *exchange, const char *text, size_t n)
{
    cli_exchanges *exchanges = exchange->exchanges;
    cli_tally_piece(exchanges->tally, &exchange->record, cli_exchanges_now(exchanges));
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
    exchange->record.end_ns = cli_exchanges_now(exchanges);
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

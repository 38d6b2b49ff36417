/* carrier.c: requests to a server with OpenAI's API, over HTTP, all connections in one thread, and the
 * record of each.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An exchange becomes a transfer (transfer.h), whose bytes go through a reader of server-sent events. The
 * status and what came last say how it ended. A server that is busy gives the time of the next try. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/lib/file.h"
#include "cli/lib/signals.h"
#include "cli/lib/sse.h"
#include "hub/transfer/transfer.h"

/* ---- One exchange ---- */

#define ANSWER_MAX (64u << 10) /* bytes that are kept to see whether they are JSON */

const char cli_exchanges_csv_head[] =
    "request,ended,tries,sent_ms,prompt_tokens,cached_tokens,generated_tokens,pieces,ttft_ms,worst_gap_ms,"
    "end_to_end_ms\n";

int64_t cli_exchanges_now(const cli_exchanges *exchanges)
{
    return weir__clock_now_ns() - exchanges->started_ns;
}

/* Text came. False: the client leaves now; let go of the exchange and end it as LEFT. */
static bool add_piece(cli_exchange *exchange, const char *text, size_t n)
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

#define RETRY_S      1 /* where a server that is busy does not say when */
#define RETRY_MAX_S  60
#define ERROR_MAX    4096  /* of an error's body, bytes */
#define LIMIT        16384 /* connections, if the process may have this many descriptors */
#define DESCRIPTORS  64    /* for everything else */
#define CONNECT_MS   10000
#define SSL_AND_PIPE 4 /* descriptors at the most that libcurl needs for itself */

struct cli_carrier {
    const cli_args *args;
    int32_t limit; /* exchanges that it can carry at a time */
    weir__transfers *transfers;
    char *key; /* a line of each request's head; NULL = none */
    char *url;
    const char *model;
    json_t *extra, *schema; /* objects to put into each body; NULL = none */
};

typedef struct request {
    cli_carrier *carrier;
    cli_exchange *exchange;
    weir__transfer *transfer;
    char *body;
    cli_sse sse;
    cli_text error;      /* the body of an answer that is no stream */
    bool done, finished; /* [DONE], a finish_reason */
    bool ended;          /* by us: */
    cli_fate fate;
    char message[192];
} request;

/* ---- Requests ---- */

static char *body_of(const cli_carrier *carrier, const cli_exchange *exchange)
{
    const cli_args *args = carrier->args;
    json_t *body = json_pack("{s:s, s:i, s:i, s:b, s:{s:b}}", "model", carrier->model, "max_tokens",
                             exchange->planned.n_answer, "temperature", 0, "stream", 1, "stream_options",
                             "include_usage", 1);
    if (args->completions)
        json_object_set_new(body, "prompt", json_string(exchange->prompt.bytes));
    else
        json_object_set_new(body, "messages",
                            json_pack("[{s:s, s:s}]", "role", "user", "content", exchange->prompt.bytes));
    if (args->ignore_eos) json_object_set_new(body, "ignore_eos", json_true());
    if (carrier->schema != NULL)
        json_object_set_new(body, "response_format",
                            json_pack("{s:s, s:{s:s, s:b, s:O}}", "type", "json_schema", "json_schema",
                                      "name", "answer", "strict", 1, "schema", carrier->schema));
    if (carrier->extra != NULL) json_object_update(body, carrier->extra);
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (text == NULL) cli_no_memory();
    return text;
}

/* ---- Answers ---- */

static void end_by_us(request *r, cli_fate fate, const char *message)
{
    r->ended = true;
    r->fate = fate;
    snprintf(r->message, sizeof r->message, "%s", message);
}

static void take_piece(request *r, const cli_answer *answer)
{
    cli_record *record = &r->exchange->record;
    if (answer->has_usage) {
        record->n_prompt = answer->n_prompt;
        record->n_generated = answer->n_generated;
        record->n_cached = answer->n_cached;
    }
    if (answer->finish != NULL) {
        r->finished = true;
        record->ended_by_itself = strcmp(answer->finish, "length") != 0;
    }
    if (answer->n_text > 0 && !add_piece(r->exchange, answer->text, answer->n_text))
        end_by_us(r, CLI_FATE_LEFT, "");
}

static bool on_event(const char *data, size_t length, void *user)
{
    request *r = user;
    cli_answer answer;
    cli_answer_read(&answer, data, length, r->carrier->args->completions);
    if (r->done)
        end_by_us(r, CLI_FATE_MALFORMED, "an event came after [DONE]");
    else if (answer.kind == CLI_ANSWER_DONE)
        r->done = true;
    else if (answer.kind == CLI_ANSWER_ERROR)
        end_by_us(r, CLI_FATE_FAILED, answer.message);
    else if (answer.kind == CLI_ANSWER_MALFORMED)
        end_by_us(r, CLI_FATE_MALFORMED, answer.message);
    else
        take_piece(r, &answer);
    cli_answer_fini(&answer);
    return !r->ended;
}

static bool is_stream(request *r, const char *type)
{
    static const char wanted[] = "text/event-stream";
    if (type != NULL && strncmp(type, wanted, sizeof wanted - 1) == 0) return true;
    end_by_us(r, CLI_FATE_MALFORMED, "");
    snprintf(r->message, sizeof r->message, "the answer is %.80s, no text/event-stream",
             type != NULL ? type : "of no type");
    return false;
}

static bool on_bytes(const weir__transfer_head *head, const char *bytes, size_t n, void *user)
{
    request *r = user;
    if (head->status != 200) {
        size_t room = ERROR_MAX - r->error.n;
        cli_text_add(&r->error, bytes, n < room ? n : room);
        return true;
    }
    if (r->ended || (r->sse.line.bytes == NULL && !is_stream(r, head->type))) return false;
    cli_sse_status read = cli_sse_feed(&r->sse, bytes, n, on_event, r);
    if (read == CLI_SSE_NO_MEMORY) cli_no_memory();
    if (read == CLI_SSE_MALFORMED) end_by_us(r, CLI_FATE_MALFORMED, r->sse.problem);
    return !r->ended;
}

/* ---- How it ends ---- */

static void let_go(request *r)
{
    free(r->body); /* jansson's own memory */
    cli_sse_fini(&r->sse);
    weir__text_fini(&r->error);
    cli_free(r);
}

/* A status other than 200. */
static int64_t end_refused(request *r, const weir__transfer_result *result)
{
    char text[128];
    int64_t retry_s = result->retry_s > 0 ? result->retry_s : RETRY_S;
    cli_answer_error_text(r->error.bytes != NULL ? r->error.bytes : "", r->error.n, text, sizeof text);
    if (retry_s > RETRY_MAX_S) retry_s = RETRY_MAX_S;
    bool busy = result->head.status == 429 || result->head.status == 503;
    end_by_us(r, busy ? CLI_FATE_BUSY : result->head.status >= 500 ? CLI_FATE_FAILED : CLI_FATE_REFUSED, "");
    snprintf(r->message, sizeof r->message, "%ld: %s", result->head.status, text);
    return busy ? retry_s * 1000 : -1;
}

static cli_fate fate_of(weir__transfer_end end)
{
    switch (end) {
    case WEIR__TRANSFER_LATE: return CLI_FATE_TIMEOUT;
    case WEIR__TRANSFER_CLOSED:
    case WEIR__TRANSFER_UNREACHED:
    case WEIR__TRANSFER_DISTRUSTED: return CLI_FATE_CONNECT;
    case WEIR__TRANSFER_BAD_URL:
    case WEIR__TRANSFER_NOT_HTTP: return CLI_FATE_MALFORMED;
    default: return CLI_FATE_CUT;
    }
}

static void on_end(const weir__transfer_result *result, void *user)
{
    request *r = user;
    cli_exchange *exchange = r->exchange;
    int64_t retry_ms = -1;
    bool whole = result->end == WEIR__TRANSFER_WHOLE;
    if (!r->ended && whole && result->head.status != 200)
        retry_ms = end_refused(r, result);
    else if (!r->ended && !whole && !r->done)
        end_by_us(r, fate_of(result->end), result->problem);
    else if (!r->ended && r->done && !r->finished)
        end_by_us(r, CLI_FATE_MALFORMED, "[DONE] came before a finish_reason");
    else if (!r->ended && (!r->done || !whole || !cli_sse_complete(&r->sse)))
        end_by_us(r, CLI_FATE_CUT, "the stream ended before [DONE]");
    else if (!r->ended)
        end_by_us(r, CLI_FATE_ANSWERED, "");
    cli_fate fate = r->fate;
    char message[sizeof r->message];
    memcpy(message, r->message, sizeof message);
    let_go(r);
    cli_exchange_end(exchange, fate, message, retry_ms);
}

/* ---- The carrier ---- */

void cli_carrier_start(cli_carrier *carrier, cli_exchange *exchange)
{
    request *r = cli_alloc(1, sizeof *r);
    const char *const headers[] = {"Content-Type: application/json", "Accept: text/event-stream",
                                   "Expect:", /* not a round trip more for a long prompt */
                                   carrier->key, NULL};
    r->carrier = carrier;
    r->exchange = exchange;
    r->body = body_of(carrier, exchange);
    exchange->carried = r;
    const weir__transfer_request wanted = {
        .url = carrier->url,
        .body = r->body,
        .headers = headers,
        .proxy = "", /* the server is measured */
        .connect_ms = CONNECT_MS,
        .total_ms = (long)(carrier->args->timeout_s * 1000),
        .on_bytes = on_bytes,
        .on_end = on_end,
        .user = r,
    };
    r->transfer = weir__transfers_start(carrier->transfers, &wanted);
    if (r->transfer == NULL) cli_no_memory();
}

void cli_carrier_drop(cli_exchange *exchange)
{
    request *r = exchange->carried;
    weir__transfer_drop(r->transfer);
    let_go(r);
    exchange->carried = NULL;
}

void cli_carrier_wait(cli_carrier *carrier, int timeout_ms)
{
    const int signals = cli_signals_descriptor();
    if (weir__transfers_wait(carrier->transfers, &signals, 1, timeout_ms) != 0) cli_signals_drain();
}

int32_t cli_carrier_limit(const cli_carrier *carrier)
{
    return carrier->limit;
}

void cli_carrier_destroy(cli_carrier *carrier)
{
    if (carrier == NULL) return;
    weir__transfers_destroy(carrier->transfers);
    json_decref(carrier->extra);
    json_decref(carrier->schema);
    cli_free(carrier->key);
    cli_free(carrier->url);
    cli_free(carrier);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* The whole address: a host, or one with /v1, gets the rest of the path. */
static char *completions_address(const char *url, bool completions)
{
    const char *path = completions ? "/completions" : "/chat/completions";
    if (ends_with(url, path)) return cli_format("%s", url);
    int n = (int)strlen(url);
    while (n > 0 && url[n - 1] == '/') n--;
    return cli_format("%.*s%s%s", n, url, n >= 3 && strncmp(url + n - 3, "/v1", 3) == 0 ? "" : "/v1", path);
}

static cli_exit read_object(const char *text, const char *option, json_t **object)
{
    json_error_t error;
    if (text == NULL) return CLI_OK;
    *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(*object)) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s is not a JSON object%s%s", option, *object == NULL ? ": " : "",
                    *object == NULL ? weir__json_problem(&error).text : "");
}

static cli_exit read_key(cli_carrier *carrier)
{
    const char *key = carrier->args->api_key;
    if (key == NULL) return CLI_OK;
    if (strpbrk(key, "\r\n") != NULL) return cli_fail(CLI_USAGE, "--api-key has a line break");
    carrier->key = cli_format("Authorization: Bearer %s", key);
    return CLI_OK;
}

/* Raises the limit on descriptors. Returns how many connections they allow. */
static int32_t raise_limit(void)
{
    size_t n = cli_descriptors_raise(LIMIT + DESCRIPTORS);
    if (n >= LIMIT + DESCRIPTORS) return LIMIT;
    return n > DESCRIPTORS + SSL_AND_PIPE ? (int32_t)n - DESCRIPTORS : SSL_AND_PIPE;
}

cli_carrier *cli_carrier_create(const cli_args *args, const char *url, cli_exit *code)
{
    if (!weir__transfer_exists) {
        *code =
            cli_fail(CLI_FAILED,
                     "this weir was built without libcurl, which weir bench http needs: run scripts/deps.sh "
                     "and build again");
        return NULL;
    }
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        *code =
            cli_fail(CLI_USAGE, "%.200s is not an address; expected: http://HOST:PORT or https://HOST", url);
        return NULL;
    }
    cli_carrier *carrier = cli_alloc(1, sizeof *carrier);
    carrier->limit = raise_limit();
    carrier->args = args;
    carrier->url = completions_address(url, args->completions);
    carrier->model = cli_options_given(args, "--model") ? args->model_path : "default";
    carrier->transfers = weir__transfers_create(carrier->limit);
    if (carrier->transfers == NULL) cli_no_memory();
    *code = weir__utf8_valid(carrier->model, strlen(carrier->model))
                ? CLI_OK
                : cli_fail(CLI_USAGE, "--model is not UTF-8");
    if (*code == CLI_OK) *code = read_object(args->extra, "--extra", &carrier->extra);
    if (*code == CLI_OK) *code = read_object(args->ask.json_schema, "--schema", &carrier->schema);
    if (*code == CLI_OK) *code = read_key(carrier);
    if (*code == CLI_OK) return carrier;
    cli_carrier_destroy(carrier);
    return NULL;
}

/* Requests to a server with OpenAI's API, over HTTP: libcurl's multi interface, all connections in one
 * thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "exchange.h"

#ifndef WEIR_CURL

cli_carrier *cli_carrier_http(const cli_args *args, const char *url, cli_exit *code)
{
    (void)args;
    (void)url;
    *code = cli_fail(CLI_FAILED,
                     "this weir was built without libcurl, which weir bench http needs: run scripts/deps.sh "
                     "and build again");
    return NULL;
}

#else

#include <curl/curl.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/answer.h"
#include "cli/descriptors.h"
#include "cli/signals.h"
#include "cli/sse.h"
#include "cli/transfer.h"

#define RETRY_S      1 /* where a server that is busy does not say when */
#define RETRY_MAX_S  60
#define ERROR_MAX    4096  /* of an error's body, bytes */
#define LIMIT        16384 /* connections, where the process may have so many descriptors */
#define DESCRIPTORS  64    /* for everything else */
#define SSL_AND_PIPE 4     /* descriptors at the most that libcurl needs for itself */

typedef struct http_carrier {
    cli_carrier carrier;
    const cli_args *args;
    CURLM *multi;
    struct curl_slist *headers;
    char *url;
    const char *model;
    json_t *extra, *schema; /* objects to put into each body; NULL = none */
} http_carrier;

typedef struct transfer {
    http_carrier *http;
    cli_exchange *exchange;
    CURL *easy;
    char *body;
    cli_sse sse;
    cli_text error;      /* the body of an answer that is no stream */
    bool done, finished; /* [DONE], a finish_reason */
    bool ended;          /* by us: */
    cli_fate fate;
    char message[192];
} transfer;

/* ---- What is sent ---- */

static char *body_of(const http_carrier *http, const cli_exchange *exchange)
{
    const cli_args *args = http->args;
    json_t *body = json_pack("{s:s, s:i, s:i, s:b, s:{s:b}}", "model", http->model, "max_tokens",
                             exchange->planned.n_answer, "temperature", 0, "stream", 1, "stream_options",
                             "include_usage", 1);
    if (args->completions)
        json_object_set_new(body, "prompt", json_string(exchange->prompt.bytes));
    else
        json_object_set_new(body, "messages",
                            json_pack("[{s:s, s:s}]", "role", "user", "content", exchange->prompt.bytes));
    if (args->ignore_eos) json_object_set_new(body, "ignore_eos", json_true());
    if (http->schema != NULL)
        json_object_set_new(body, "response_format",
                            json_pack("{s:s, s:{s:s, s:b, s:O}}", "type", "json_schema", "json_schema",
                                      "name", "answer", "strict", 1, "schema", http->schema));
    if (http->extra != NULL) json_object_update(body, http->extra);
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (text == NULL) cli_no_memory();
    return text;
}

/* ---- What comes ---- */

static void end_by_us(transfer *t, cli_fate fate, const char *message)
{
    t->ended = true;
    t->fate = fate;
    snprintf(t->message, sizeof t->message, "%s", message);
}

static void take_piece(transfer *t, const cli_answer *answer)
{
    cli_record *record = &t->exchange->record;
    if (answer->has_usage) {
        record->n_prompt = answer->n_prompt;
        record->n_generated = answer->n_generated;
        record->n_cached = answer->n_cached;
    }
    if (answer->finish != NULL) {
        t->finished = true;
        record->ended_by_itself = strcmp(answer->finish, "length") != 0;
    }
    if (answer->n_text > 0 && !cli_exchange_piece(t->exchange, answer->text, answer->n_text))
        end_by_us(t, CLI_FATE_LEFT, "");
}

static bool on_event(const char *data, size_t length, void *user)
{
    transfer *t = user;
    cli_answer answer;
    cli_answer_read(&answer, data, length, t->http->args->completions);
    if (t->done)
        end_by_us(t, CLI_FATE_MALFORMED, "an event came after [DONE]");
    else if (answer.kind == CLI_ANSWER_DONE)
        t->done = true;
    else if (answer.kind == CLI_ANSWER_ERROR)
        end_by_us(t, CLI_FATE_FAILED, answer.message);
    else if (answer.kind == CLI_ANSWER_MALFORMED)
        end_by_us(t, CLI_FATE_MALFORMED, answer.message);
    else
        take_piece(t, &answer);
    cli_answer_fini(&answer);
    return !t->ended;
}

static bool is_stream(transfer *t)
{
    static const char wanted[] = "text/event-stream";
    const char *type = NULL;
    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_TYPE, &type);
    if (type != NULL && strncmp(type, wanted, sizeof wanted - 1) == 0) return true;
    end_by_us(t, CLI_FATE_MALFORMED, "");
    snprintf(t->message, sizeof t->message, "the answer is %.80s, no text/event-stream",
             type != NULL ? type : "of no type");
    return false;
}

/* libcurl's: returning less than came ends the transfer. */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *user)
{
    transfer *t = user;
    long status = 0;
    n *= size;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        size_t room = ERROR_MAX - t->error.n;
        cli_text_add(&t->error, bytes, n < room ? n : room);
        return n;
    }
    if (t->ended || (t->sse.line == NULL && !is_stream(t))) return 0;
    cli_sse_status read = cli_sse_feed(&t->sse, bytes, n, on_event, t);
    if (read == CLI_SSE_NO_MEMORY) cli_no_memory();
    if (read == CLI_SSE_MALFORMED) end_by_us(t, CLI_FATE_MALFORMED, t->sse.problem);
    return t->ended ? 0 : n;
}

/* ---- How it ends ---- */

static void let_go(transfer *t)
{
    curl_multi_remove_handle(t->http->multi, t->easy);
    curl_easy_cleanup(t->easy);
    free(t->body); /* jansson's own memory */
    cli_sse_fini(&t->sse);
    weir__text_fini(&t->error);
    cli_free(t);
}

/* A status other than 200. */
static int64_t refused(transfer *t, long status)
{
    char text[128];
    curl_off_t retry_s = 0;
    cli_answer_error_text(t->error.bytes != NULL ? t->error.bytes : "", t->error.n, text, sizeof text);
    curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &retry_s);
    if (retry_s <= 0) retry_s = RETRY_S;
    if (retry_s > RETRY_MAX_S) retry_s = RETRY_MAX_S;
    bool busy = status == 429 || status == 503;
    end_by_us(t, busy ? CLI_FATE_BUSY : status >= 500 ? CLI_FATE_FAILED : CLI_FATE_REFUSED, "");
    snprintf(t->message, sizeof t->message, "%ld: %s", status, text);
    return busy ? (int64_t)retry_s * 1000 : -1;
}

static void not_received(transfer *t, CURLcode result)
{
    switch (result) {
    case CURLE_OPERATION_TIMEDOUT: {
        double ready = 0; /* 0: it never came to sending */
        curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME, &ready);
        end_by_us(t, ready > 0 ? CLI_FATE_TIMEOUT : CLI_FATE_CONNECT, curl_easy_strerror(result));
        break;
    }
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION: end_by_us(t, CLI_FATE_CONNECT, curl_easy_strerror(result)); break;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL: end_by_us(t, CLI_FATE_MALFORMED, curl_easy_strerror(result)); break;
    default: end_by_us(t, CLI_FATE_CUT, curl_easy_strerror(result));
    }
}

static void end(transfer *t, CURLcode result)
{
    cli_exchange *exchange = t->exchange;
    long status = 0;
    int64_t retry_ms = -1;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    bool whole = result == CURLE_OK && cli_sse_complete(&t->sse);
    if (!t->ended && status != 0 && status != 200 && result == CURLE_OK)
        retry_ms = refused(t, status);
    else if (!t->ended && result != CURLE_OK && !t->done)
        not_received(t, result);
    else if (!t->ended && t->done && !t->finished)
        end_by_us(t, CLI_FATE_MALFORMED, "[DONE] came before a finish_reason");
    else if (!t->ended && (!t->done || !whole))
        end_by_us(t, CLI_FATE_CUT, "the stream ended before [DONE]");
    else if (!t->ended)
        end_by_us(t, CLI_FATE_ANSWERED, "");
    cli_fate fate = t->fate;
    char message[sizeof t->message];
    memcpy(message, t->message, sizeof message);
    let_go(t);
    cli_exchange_end(exchange, fate, message, retry_ms);
}

/* ---- The carrier ---- */

static void start(cli_carrier *carrier, cli_exchange *exchange)
{
    http_carrier *http = (http_carrier *)carrier;
    transfer *t = cli_alloc(1, sizeof *t);
    t->http = http;
    t->exchange = exchange;
    t->easy = cli_transfer_create(http->url, http->headers, on_bytes, t);
    t->body = body_of(http, exchange);
    exchange->carried = t;
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->body);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(t->body));
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)(http->args->timeout_s * 1000));
    if (curl_multi_add_handle(http->multi, t->easy) != CURLM_OK) cli_no_memory();
}

static void drop(cli_carrier *carrier, cli_exchange *exchange)
{
    (void)carrier;
    let_go(exchange->carried);
    exchange->carried = NULL;
}

static void wait_for_bytes(cli_carrier *carrier, int timeout_ms)
{
    http_carrier *http = (http_carrier *)carrier;
    struct curl_waitfd signals = {.fd = cli_signals_descriptor(), .events = CURL_WAIT_POLLIN};
    int n_running, n_left;
    curl_multi_poll(http->multi, &signals, 1, timeout_ms, NULL);
    if (signals.revents != 0) cli_signals_drain();
    curl_multi_perform(http->multi, &n_running);
    for (CURLMsg *message; (message = curl_multi_info_read(http->multi, &n_left)) != NULL;) {
        char *t = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode result = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
        end((transfer *)(void *)t, result);
    }
}

static void destroy(cli_carrier *carrier)
{
    http_carrier *http = (http_carrier *)carrier;
    curl_multi_cleanup(http->multi);
    curl_slist_free_all(http->headers);
    curl_global_cleanup();
    json_decref(http->extra);
    json_decref(http->schema);
    cli_free(http->url);
    cli_free(http);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* The whole address: a host, or one with /v1, gets what follows. */
static char *address(const char *url, bool completions)
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
    return cli_fail(CLI_USAGE, "%s is no JSON object%s%s", option, *object == NULL ? ": " : "",
                    *object == NULL ? weir__json_problem(&error).text : "");
}

static void add_header(http_carrier *http, const char *header)
{
    struct curl_slist *more = curl_slist_append(http->headers, header);
    if (more == NULL) cli_no_memory();
    http->headers = more;
}

static cli_exit add_headers(http_carrier *http)
{
    const char *key = http->args->api_key;
    add_header(http, "Content-Type: application/json");
    add_header(http, "Accept: text/event-stream");
    add_header(http, "Expect:"); /* not a round trip more for a long prompt */
    if (key == NULL || key[0] == '\0') return CLI_OK;
    if (strpbrk(key, "\r\n") != NULL) return cli_fail(CLI_USAGE, "--api-key has a line break");
    char *header = cli_format("Authorization: Bearer %s", key);
    add_header(http, header);
    cli_free(header);
    return CLI_OK;
}

/* As many connections as descriptors are to be had. */
static int32_t raise_limit(void)
{
    size_t n = cli_descriptors_raise(LIMIT + DESCRIPTORS);
    if (n >= LIMIT + DESCRIPTORS) return LIMIT;
    return n > DESCRIPTORS + SSL_AND_PIPE ? (int32_t)n - DESCRIPTORS : SSL_AND_PIPE;
}

cli_carrier *cli_carrier_http(const cli_args *args, const char *url, cli_exit *code)
{
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        *code = cli_fail(CLI_USAGE,
                         "%.200s is no address; expected: http://HOST:PORT, https://HOST, or engine:", url);
        return NULL;
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) cli_no_memory();
    http_carrier *http = cli_alloc(1, sizeof *http);
    http->carrier = (cli_carrier){
        .limit = raise_limit(), .start = start, .wait = wait_for_bytes, .drop = drop, .destroy = destroy};
    http->args = args;
    http->url = address(url, args->completions);
    http->model = cli_options_given(args, "--model") ? args->model_path : "default";
    http->multi = curl_multi_init();
    if (http->multi == NULL) cli_no_memory();
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)http->carrier.limit);
    *code = weir__utf8_valid(http->model, strlen(http->model)) ? CLI_OK
                                                               : cli_fail(CLI_USAGE, "--model is not UTF-8");
    if (*code == CLI_OK) *code = read_object(args->extra, "--extra", &http->extra);
    if (*code == CLI_OK) *code = read_object(args->ask.json_schema, "--schema", &http->schema);
    if (*code == CLI_OK) *code = add_headers(http);
    if (*code == CLI_OK) return &http->carrier;
    destroy(&http->carrier);
    return NULL;
}

#endif

/* call.c: one request and its answer, as bytes. SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "answer.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "keys.h"
#include "log.h"
#include "names.h"
#include "serve.h"
#include "tape.h"

#define HEAD_MAX      8192 /* bytes of an answer's head */
#define NEXT_SERVER_S 5    /* Retry-After while the server stops: time for the next one to start */

/* ---- Life ---- */

serve_call *serve_call_create(serve_server *server, serve_connection *connection)
{
    serve_call *call = weir__mem_calloc(1, sizeof *call);
    if (call == NULL || !serve_secret_make(call->id, SERVE_TOKEN)) {
        weir__mem_free(call);
        return NULL;
    }
    call->server = server;
    call->connection = connection;
    call->key = -1;
    call->began_ns = call->moved_ns = weir__clock_now_ns();
    call->after = server->calls;
    if (server->calls != NULL) server->calls->before = call;
    server->calls = call;
    server->n_calls++;
    return call;
}

void serve_call_destroy(serve_call *call)
{
    serve_server *server = call->server;
    bool taped = call->answer != NULL && call->answer->tape != NULL; /* its readers are what clients see */
    if (call->events) serve_events_leave(server->events, call);
    serve_log_call(call);
    if (call->tape != NULL) serve_tape_leave(call);
    if (call->left)
        server->n_left++;
    else if (call->answer != NULL && call->status == 200 && (!taped || call->ended))
        weir__histogram_observe(&server->e2e_seconds, (double)(weir__clock_now_ns() - call->began_ns) / 1e9);
    serve_answer_destroy(call->answer); /* from here on nobody puts it on the ready list */
    serve_server_unlist(call);
    if (call->counted > 0) serve_keys_leave(server->keys, call->key, call->counted);
    if (call->status >= 100 && call->status < 600 && !taped) {
        server->n_answers[call->status / 100]++;
        server->n_codes[call->status]++;
    }
    server->n_bodies -= call->body_length;
    if (call->before != NULL)
        call->before->after = call->after;
    else
        server->calls = call->after;
    if (call->after != NULL) call->after->before = call->before;
    server->n_calls--;
    weir__text_fini(&call->out);
    weir__text_fini(&call->body);
    weir__mem_free(call->relaxed);
    weir__mem_free(call);
}

void serve_call_leave(serve_call *call)
{
    call->connection = NULL;
    call->left = call->state == SERVE_WORKING || !call->ended || call->out_at < call->out.n;
    atomic_store_explicit(&call->gone, true, memory_order_release);
    if (call->state != SERVE_WORKING) serve_call_destroy(call);
}

bool serve_call_is_stalled(serve_call *call, int64_t now_ns)
{
    bool waited = call->waits;
    call->waits = call->out.n > call->out_at;
    /* Output that has just come after a silence: the client had no time yet to read it. */
    if (call->waits && !waited) call->moved_ns = now_ns;
    return call->waits && now_ns - call->moved_ns > (int64_t)call->server->params.stall_s * WEIR__NS_PER_S;
}

void serve_call_send(serve_call *call)
{
    if (call->connection != NULL) serve_connection_due(call->connection);
}

/* ---- Heads ---- */

static const char *phrase(int status)
{
    static const struct {
        int status;
        const char *text;
    } phrases[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {410, "Gone"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (phrases[i].status == status) return phrases[i].text;
    return "Unknown";
}

static void add_cors(serve_call *call)
{
    if (call->origin[0] == '\0') return;
    weir__text_printf(
        &call->out,
        "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n"
        "Access-Control-Expose-Headers: Retry-After, X-Request-Id, X-Stream-Id, X-Weir-Relaxed\r\n",
        call->origin);
    if (strcmp(call->method, "OPTIONS") == 0)
        weir__text_add_string(&call->out, "Access-Control-Allow-Methods: GET, POST, HEAD, OPTIONS\r\n"
                                          "Access-Control-Allow-Headers: Authorization, X-Api-Key, "
                                          "Content-Type, Last-Event-ID, *\r\n"
                                          "Access-Control-Max-Age: 600\r\n");
}

/* Writes the head, up to the headers that give the body's length. */
static void begin_head(serve_call *call, int status, const char *type)
{
    weir__text *out = &call->out;
    char date[64] = "";
    time_t now = time(NULL);
    struct tm utc;
    call->begun = true;
    call->status = status;
    if ((status == 429 || status == 503) && call->retry_s == 0) call->retry_s = 1;
    if (call->http_1_0) call->close = true;
    if (gmtime_r(&now, &utc) != NULL) strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    weir__text_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nX-Request-Id: %s\r\n", status, phrase(status), date,
                      call->id);
    if (type != NULL) weir__text_printf(out, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", type);
    if (call->retry_s > 0) weir__text_printf(out, "Retry-After: %d\r\n", call->retry_s);
    if (call->allow != NULL) weir__text_printf(out, "Allow: %s\r\n", call->allow);
    if (status == 401) weir__text_add_string(out, "WWW-Authenticate: Bearer\r\n");
    if (call->relaxed != NULL) weir__text_printf(out, "X-Weir-Relaxed: %s\r\n", call->relaxed);
    if (call->tape != NULL) weir__text_printf(out, "X-Stream-Id: %s\r\n", serve_tape_id(call->tape));
    if (call->close) weir__text_add_string(out, "Connection: close\r\n");
    add_cors(call);
}

static const char uncached[] = "Cache-Control: no-store\r\n";

/* Writes the whole head of an answer whose body has n bytes. */
static void whole_head(serve_call *call, int status, const char *type, const char *more, size_t n)
{
    begin_head(call, status, type);
    weir__text_add_string(&call->out, more);
    if (status == 204)
        weir__text_add_string(&call->out, "\r\n");
    else
        weir__text_printf(&call->out, "Content-Length: %zu\r\n\r\n", n);
    call->ended = true;
}

void serve_call_answer_more(serve_call *call, int status, const char *type, const char *more,
                            const char *bytes, size_t n)
{
    if (call->begun) return;
    whole_head(call, status, type, more, n);
    if (!call->head_only) weir__text_add(&call->out, bytes, n);
}

void serve_call_answer(serve_call *call, int status, const char *type, const char *bytes, size_t n)
{
    serve_call_answer_more(call, status, type, uncached, bytes, n);
}

/* Makes the text the answer, without copying it. */
static void answer_with(serve_call *call, int status, const char *type, weir__text *text)
{
    whole_head(call, status, type, uncached, text->n);
    if (call->head_only || call->out.failed) return;
    weir__text head = call->out;
    weir__text_close(text, head.bytes, head.n);
    call->out = *text;
    *text = head;
}

void serve_call_answer_text(serve_call *call, int status, const char *type, weir__text *text)
{
    (void)weir__text_reserve(text, HEAD_MAX);
    if (text->too_long)
        serve_call_refuse(call, 400, NULL, "answer_too_long",
                          "the answer is larger than the limit of %zu MiB; ask for less at a time",
                          text->quota->most >> 20);
    else if (text->over)
        serve_call_refuse(call, 503, NULL, "too_many_answers",
                          "too many large answers wait for clients that do not read them");
    else if (text->failed)
        serve_call_no_memory(call);
    else if (!call->begun)
        answer_with(call, status, type, text);
    weir__text_fini(text);
}

/* ---- Errors ---- */

static const char *error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 503: return "unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void serve_call_error_json(weir__text *text, int status, const char *field, const char *code,
                           const char *message)
{
    weir__text_add_string(text, "{");
    weir__json_string(text, "message", message);
    weir__json_string(text, "type", error_type(status));
    weir__json_string(text, "param", field != NULL && field[0] != '\0' ? field : NULL);
    weir__json_string(text, "code", code);
    weir__text_add_string(text, "}");
}

static bool refuse(serve_call *call, int status, const char *field, const char *code, const char *message)
{
    weir__text text = {0};
    if (!call->begun) call->code = code;
    weir__text_add_string(&text, "{\"error\":");
    serve_call_error_json(&text, status, field, code, message);
    weir__text_add_string(&text, "}\n");
    if (text.failed) {
        static const char plain[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\","
                                    "\"param\":null,\"code\":null}}\n";
        serve_call_answer(call, 503, "application/json", plain, sizeof plain - 1);
    } else
        serve_call_answer(call, status, "application/json", text.bytes, text.n);
    weir__text_fini(&text);
    return false;
}

bool serve_call_refuse(serve_call *call, int status, const char *field, const char *code, const char *format,
                       ...)
{
    char message[512], clean[512];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    /* A path may hold any bytes, and truncation may split a character. */
    weir__utf8_copy(clean, sizeof clean, message, strlen(message));
    return refuse(call, status, field, code, clean);
}

bool serve_call_stopping(serve_call *call)
{
    call->retry_s = NEXT_SERVER_S;
    return refuse(call, 503, NULL, "stopping", "the server is going down");
}

bool serve_call_no_memory(serve_call *call)
{
    return refuse(call, 503, NULL, "out_of_memory", "the server is out of memory for this request");
}

#define RELAXED_MAX 2048 /* of the header's value */

void serve_call_relaxed(serve_call *call, const char *lines)
{
    weir__text header = {0};
    char line[1024], place[1024];
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, lines);
        serve_names_field(line, call->schema_field, place, sizeof place);
        serve_log("info", "relaxed", "request %s: %s is not enforced", call->id, place);
        if (header.n + strlen(place) < RELAXED_MAX) {
            if (header.n > 0) weir__text_add_string(&header, "; ");
            for (const char *c = place; *c != '\0'; c++) /* a header holds ASCII */
                weir__text_printf(&header, (unsigned char)*c < 0x80 ? "%c" : "%%%02X", (unsigned char)*c);
        }
        lines += n + (lines[n] == '\n');
    }
    weir__mem_free(call->relaxed);
    call->relaxed = header.bytes;
}

bool serve_call_refuse_error(serve_call *call, const weir_error *error)
{
    char field[96], message[sizeof error->message];
    serve_names_field(error->field, call->schema_field, field, sizeof field);
    serve_names_message(error, call->schema_field, message, sizeof message);
    switch (error->code) {
    case WEIR_INVALID:
    case WEIR_REFUSED:
    case WEIR_GRAMMAR:
    case WEIR_TEMPLATE:
    case WEIR_FORMAT: return refuse(call, 400, field, "invalid_value", message);
    case WEIR_UNSUPPORTED: return refuse(call, 400, field, "unsupported_value", message);
    case WEIR_TOO_LONG: return refuse(call, 400, field, "context_length_exceeded", message);
    case WEIR_BUSY: {
        weir_engine_stats stats = {.size = sizeof stats};
        int64_t wait = 0;
        if (weir_engine_get_stats(call->server->engine, &stats) == WEIR_OK)
            wait = stats.retry_ns / WEIR__NS_PER_S;
        call->retry_s = wait < 1 ? 1 : wait > 600 ? 600 : (int32_t)wait + 1;
        return refuse(call, 429, NULL, "queue_full", message);
    }
    case WEIR_NO_MEMORY: return serve_call_no_memory(call);
    case WEIR_ABORTED: /* the client has left, the server stops, or work_timeout */
        return refuse(call, 503, NULL, "work_timeout",
                      "this request took longer to process than is allowed; make it smaller or simpler");
    case WEIR_STOPPED: return serve_call_stopping(call);
    default: return refuse(call, 500, NULL, weir_status_name(error->code), message);
    }
}

bool serve_call_passes(serve_call *call, weir_status status, weir_error *error)
{
    error->code = status;
    return status == WEIR_OK || serve_call_refuse_error(call, error);
}

/* ---- Answers that come in pieces ---- */

void serve_call_begin(serve_call *call, const char *type)
{
    if (call->begun) return;
    call->chunked = !call->http_1_0;
    begin_head(call, 200, type);
    weir__text_add_string(&call->out, "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n");
    weir__text_add_string(&call->out, call->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    if (call->head_only) call->ended = true;
}

/* A chunk's length has eight digits, so that it can be filled in afterwards. */
#define CHUNK_HEAD "00000000\r\n"

size_t serve_call_begin_piece(serve_call *call)
{
    if (call->chunked) weir__text_add_string(&call->out, CHUNK_HEAD);
    return call->out.n;
}

void serve_call_end_piece(serve_call *call, size_t at)
{
    char digits[24];
    if (!call->chunked || call->out.failed) return;
    size_t n = call->out.n - at;
    if (n == 0) {
        call->out.n = at - (sizeof CHUNK_HEAD - 1);
        return;
    }
    snprintf(digits, sizeof digits, "%08zx", n);
    memcpy(call->out.bytes + at - (sizeof CHUNK_HEAD - 1), digits, 8);
    weir__text_add_string(&call->out, "\r\n");
}

void serve_call_end(serve_call *call)
{
    if (call->chunked && !call->ended) weir__text_add_string(&call->out, "0\r\n\r\n");
    call->ended = true;
}

bool serve_call_comment(serve_call *call)
{
    bool stream = call->tape != NULL || (call->answer != NULL && call->answer->stream);
    if (!stream || call->ended) return false;
    size_t at = serve_call_begin_piece(call);
    weir__text_add_string(&call->out, ": still here\n\n");
    serve_call_end_piece(call, at);
    return true;
}

/* ---- Bodies ---- */

bool serve_call_read_any(serve_call *call, json_t **json)
{
    weir_error error = {0};
    *json = NULL;
    weir_status status = weir__json_parse(call->body.bytes != NULL ? call->body.bytes : "", call->body.n,
                                          "body", WEIR_INVALID, json, &error);
    if (status == WEIR_NO_MEMORY) return serve_call_no_memory(call);
    return status == WEIR_OK || serve_call_refuse(call, 400, NULL, "invalid_json", "%s", error.message);
}

bool serve_call_read_json(serve_call *call, json_t **json)
{
    if (!serve_call_read_any(call, json)) return false;
    if (json_is_object(*json)) return true;
    json_decref(*json);
    *json = NULL;
    return serve_call_refuse(call, 400, NULL, "invalid_json", "the body must be a JSON object");
}

bool serve_call_read_ids(serve_call *call, const char *field, const json_t *list, int32_t **ids, size_t *n)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(call->server->model, &info);
    *n = json_array_size(list);
    *ids = weir__mem_calloc(*n, sizeof **ids);
    if (*ids == NULL) return serve_call_no_memory(call);
    for (size_t i = 0; i < *n; i++) {
        const json_t *one = json_array_get(list, i);
        json_int_t id = json_integer_value(one);
        if (json_is_integer(one) && id >= 0 && id < info.n_vocab) {
            (*ids)[i] = (int32_t)id;
            continue;
        }
        return json_is_integer(one) ? serve_call_refuse(call, 400, field, "invalid_value",
                                                        "token %zu in %s is %lld; the vocabulary has 0 to %d",
                                                        i, field, (long long)id, info.n_vocab - 1)
                                    : serve_call_refuse(call, 400, field, "invalid_value",
                                                        "token %zu in %s is not a whole number", i, field);
    }
    return true;
}

bool serve_call_read_model(serve_call *call, const json_t *name, const char **adapter)
{
    *adapter = NULL;
    if (name == NULL || json_is_null(name)) return true;
    const char *word = json_string_value(name);
    if (word != NULL && serve_adapters_has(call->server->adapters, word))
        *adapter = word;
    else if (word == NULL)
        serve_call_refuse(call, 400, "model", "invalid_value", "model must be a string");
    else if (!serve_server_has_name(call->server, word))
        serve_call_refuse(call, 404, "model", "model_not_found",
                          "there is no model \"%.100s\" here; ask for \"%.100s\", or leave model out "
                          "(GET /v1/models lists all names)",
                          word, call->server->name);
    return !call->begun;
}

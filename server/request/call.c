/* call.c: one request and its answer, as bytes. An answer is whole, with a head that gives its length, or
 * comes in pieces, which HTTP/1.1 gets as chunks; either is put into call->out, which the connection sends.
 * The first answer to a call counts, and later ones are ignored. Large texts take their part of the answers'
 * quota before they are sent: without room for one, the answer is an error. Work on a call asks now and then
 * whether to go on, and ends with an answer if not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/access/keys.h"
#include "workers.h"

#define HEAD_MAX 8192 /* bytes of an answer's head */
#define STEPS    1024 /* between two questions whether a call goes on */

/* ---- Life ---- */

static bool take_quota(weir__quota *quota, size_t n)
{
    serve_call *call = (serve_call *)(void *)((char *)quota - offsetof(serve_call, answers));
    return serve_share_take(&call->server->answers, call->owner, n, SERVE_ANSWERS_MAX) == SERVE_SHARE_OK;
}

static void give_quota(weir__quota *quota, size_t n)
{
    serve_call *call = (serve_call *)(void *)((char *)quota - offsetof(serve_call, answers));
    serve_share_release(&call->server->answers, call->owner, n);
}

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
    call->answers = (weir__quota){.most = serve_share_alone(SERVE_ANSWERS_MAX),
                                  .small = SERVE_ANSWER_SMALL,
                                  .take = take_quota,
                                  .give = give_quota};
    call->body_most = server->params.live.body_bytes;
    call->response_s = server->params.live.response_s;
    call->strict = server->params.live.strict;
    call->began_ns = call->moved_ns = weir__clock_now_ns();
    call->after = server->calls;
    if (server->calls != NULL) server->calls->before = call;
    server->calls = call;
    server->n_calls++;
    return call;
}

const char *serve_call_request_id(const serve_call *call)
{
    size_t n = strlen(call->request_id);
    bool fit = n > 0 && n + 1 < sizeof call->request_id; /* else it may be cut */
    for (size_t i = 0; i < n && fit; i++) fit = call->request_id[i] > ' ' && call->request_id[i] < 0x7F;
    return fit ? call->request_id : call->id;
}

int serve_call_status(const serve_call *call)
{
    return call->starved ? 503 : call->left ? SERVE_LEFT : call->status;
}

bool serve_call_operates(const serve_call *call)
{
    const serve_server *server = call->server;
    if (serve_keys_are_wanted(server->keys)) return serve_keys_operate(server->keys, call->key);
    return !server->reachable && call->origin[0] == '\0';
}

bool serve_call_is_stalled(serve_call *call, int64_t now_ns)
{
    bool waited = call->waits;
    call->waits = call->out.n > call->out_at;
    /* Output that has just come after a silence: the client had no time yet to read it. */
    if (call->waits && !waited) call->moved_ns = now_ns;
    return call->waits &&
           now_ns - call->moved_ns > (int64_t)call->server->params.live.stall_s * WEIR__NS_PER_S;
}

/* ---- Heads ---- */

static const char *status_phrase(int status)
{
    static const struct {
        int status;
        const char *text;
    } phrases[] = {
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
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
    weir__text_printf(&call->out,
                      "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n"
                      "Access-Control-Expose-Headers: Retry-After, X-Should-Retry, X-Request-Id, "
                      "X-Stream-Id, X-Weir-Relaxed, X-Weir-Messages\r\n",
                      call->origin);
    if (strcmp(call->method, "OPTIONS") == 0)
        weir__text_add_string(&call->out, "Access-Control-Allow-Methods: GET, POST, HEAD, DELETE, OPTIONS\r\n"
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
    if (call->http_1_0) call->close = true;
    if (gmtime_r(&now, &utc) != NULL) strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    weir__text_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nX-Request-Id: %s\r\n", status,
                      status_phrase(status), date, serve_call_request_id(call));
    if (call->error != NULL) /* Anthropic's name for it */
        weir__text_printf(out, "Request-Id: %s\r\n", serve_call_request_id(call));
    if (type != NULL) weir__text_printf(out, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", type);
    if (serve_retry_decide(call, status))
        weir__text_printf(out, "X-Should-Retry: %s\r\n", call->retry_s != SERVE_NEVER ? "true" : "false");
    if (call->retry_s > 0) weir__text_printf(out, "Retry-After: %d\r\n", call->retry_s);
    if (call->allow != NULL)
        weir__text_printf(out, "Allow: %s%s\r\n", call->allow,
                          strcmp(call->method, "OPTIONS") == 0 ? ", OPTIONS" : "");
    if (status == 401) weir__text_add_string(out, "WWW-Authenticate: Bearer\r\n");
    serve_relaxed_add_header(call->relaxed, out);
    if (call->reshaped != NULL) weir__text_printf(out, "X-Weir-Messages: %s\r\n", call->reshaped);
    if (call->stream_id != NULL) weir__text_printf(out, "X-Stream-Id: %s\r\n", call->stream_id);
    if (call->router.endpoint[0] != '\0')
        weir__text_printf(out, "X-Gateway-Destination-Endpoint-Served: %s\r\n", call->router.endpoint);
    if (call->close) weir__text_add_string(out, "Connection: close\r\n");
    add_cors(call);
}

static const char uncached_line[] = "Cache-Control: no-store\r\n";

/* Writes the whole head of an answer whose body has n bytes. */
static void whole_head(serve_call *call, int status, const char *type, const char *more, uint64_t n)
{
    begin_head(call, status, type);
    weir__text_add_string(&call->out, more);
    if (status == 204 || status == 304)
        weir__text_add_string(&call->out, "\r\n");
    else
        weir__text_printf(&call->out, "Content-Length: %llu\r\n\r\n", (unsigned long long)n);
    call->ended = true;
}

void serve_call_begin_sized(serve_call *call, const char *type, uint64_t n)
{
    if (call->begun) return;
    whole_head(call, 200, type, uncached_line, n);
    call->ended = call->head_only;
}

/* Makes the text the answer, without copying it. */
static void answer_with_text(serve_call *call, int status, const char *type, const char *more,
                             weir__text *text)
{
    whole_head(call, status, type, more, text->n);
    if (call->head_only || call->out.failed) return;
    weir__text head = call->out;
    weir__text_close(text, head.bytes, head.n);
    call->out = *text;
    *text = head;
}

/* A text whose length no request decides takes its part of the quota, too, if it is large. */
static void take_share(serve_call *call, weir__text *text)
{
    weir__text counted = {.quota = &call->answers};
    if (text->quota != NULL || text->failed || text->n <= SERVE_ANSWER_SMALL) return;
    weir__text_add(&counted, text->bytes, text->n);
    weir__text_fini(text);
    *text = counted;
}

static void answer_text(serve_call *call, int status, const char *type, const char *more, weir__text *text)
{
    take_share(call, text);
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
        answer_with_text(call, status, type, more, text);
    weir__text_fini(text);
}

void serve_call_answer_text(serve_call *call, int status, const char *type, weir__text *text)
{
    answer_text(call, status, type, uncached_line, text);
}

void serve_call_answer_more(serve_call *call, int status, const char *type, const char *more,
                            const char *bytes, size_t n)
{
    if (call->begun) return;
    if (n > SERVE_ANSWER_SMALL && !call->head_only) {
        weir__text text = {.quota = &call->answers};
        weir__text_add(&text, bytes, n);
        answer_text(call, status, type, more, &text);
        return;
    }
    whole_head(call, status, type, more, n);
    if (!call->head_only) weir__text_add(&call->out, bytes, n);
}

void serve_call_answer(serve_call *call, int status, const char *type, const char *bytes, size_t n)
{
    serve_call_answer_more(call, status, type, uncached_line, bytes, n);
}

void serve_call_answer_json(serve_call *call, weir__text *text)
{
    weir__text_add_string(text, "\n");
    serve_call_answer_text(call, 200, "application/json", text);
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

static bool refuse_call(serve_call *call, int status, const char *field, const char *code,
                        const char *message)
{
    weir__text text = {0};
    if (!call->begun) call->code = code;
    if (call->error != NULL) {
        call->error(call, status, field, code, message, &text);
    } else {
        weir__text_add_string(&text, "{\"error\":");
        serve_call_error_json(&text, status, field, code, message);
        weir__text_add_string(&text, "}");
    }
    weir__text_add_string(&text, "\n");
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
    char message[640], clean[640];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    /* A path may hold any bytes, and truncation may split a character. */
    weir__utf8_copy(clean, sizeof clean, message, strlen(message));
    return refuse_call(call, status, field, code, clean);
}

bool serve_call_stopping(serve_call *call)
{
    return refuse_call(call, 503, NULL, "stopping", "the server is going down");
}

bool serve_call_interrupted(serve_call *call)
{
    if (atomic_load_explicit(&call->gone, memory_order_acquire)) /* nobody reads it */
        return serve_call_refuse(call, SERVE_LEFT, NULL, NULL, "the client has left");
    if (serve_workers_are_stopping()) return serve_call_stopping(call);
    return refuse_call(call, 503, NULL, "work_timeout",
                       "this request took longer to process than is allowed; make it smaller or simpler");
}

bool serve_call_goes_on(serve_call *call)
{
    return ++call->n_steps % STEPS != 0 || !weir_interrupt_asked() || serve_call_interrupted(call);
}

/* Refuses for lack of memory; work that was interrupted leaves the same traces. */
bool serve_call_no_memory(serve_call *call)
{
    if (weir_interrupt_asked()) return serve_call_interrupted(call);
    return refuse_call(call, 503, NULL, "out_of_memory", "the server is out of memory for this request");
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
        weir__text_cut(&call->out, at - (sizeof CHUNK_HEAD - 1));
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

/* ---- Retries ---- */

#define STATUS_ANY 0

/* Refusals that clients repeat on their own: 408, 409, 429 and from 500 on. The first row that fits counts.
 * never: the same request will be refused again, until someone changes the request or the server. */
static const struct {
    int status;
    const char *code; /* NULL = any */
    bool never;
    int32_t after_s; /* Retry-After, unless the call has one of its own; 0 = none */
} rules[] = {
    {501, NULL, true, 0},
    {503, "work_timeout", true, 0},
    {503, "model_too_large", true, 0},
    {503, "embeddings_too_large", true, 0},
    {503, "model_load_failed", true, 0},
    {503, "model_not_loaded", true, 0}, /* by a request that loads none */
    {503, "model_lost", true, 0},       /* of several models it is loaded again: see there */
    {503, "model_busy", false, 10},
    {503, "embeddings_busy", false, 10},
    {503, "stopping", false, 5}, /* time for the next server to start */
    {503, NULL, false, 1},
    {429, NULL, false, 1},
    {408, NULL, false, 0},
    {500, "WEIR_BACKEND", false, 0}, /* a pass that failed; a model that cannot compute any more is lost */
    {STATUS_ANY, NULL, true, 0},
};

static bool is_repeated(int status)
{
    return status == 408 || status == 409 || status == 429 || status >= 500;
}

bool serve_retry_after(serve_call *call, int64_t seconds)
{
    bool soon = seconds <= SERVE_RETRY_MOST_S;
    call->retry_s = soon ? (int32_t)(seconds > 0 ? seconds : 1) : SERVE_NEVER;
    return soon;
}

bool serve_retry_decide(serve_call *call, int status)
{
    size_t i = 0;
    if (!is_repeated(status)) {
        call->retry_s = 0;
        return false;
    }
    while (rules[i].status != STATUS_ANY &&
           (rules[i].status != status ||
            (rules[i].code != NULL && (call->code == NULL || strcmp(rules[i].code, call->code) != 0))))
        i++;
    if (call->retry_s == 0) call->retry_s = rules[i].never ? SERVE_NEVER : rules[i].after_s;
    if (call->retry_s > 0) (void)serve_retry_after(call, call->retry_s);
    return true;
}

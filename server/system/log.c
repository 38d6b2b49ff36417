/* log.c: a line for each request and event, as JSON or plain text. Prompts and answers only if asked for.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "log.h"
#include "server/api/core/answer.h"
#include "server/calls/mask.h"

#define TEXT_MAX     65536              /* of a body, with log_text */
#define BACKLOG_MAX  ((size_t)1 << 20)  /* of lines that nobody reads; beyond, they are counted */
#define BACKLOG_KEEP ((size_t)64 << 10) /* of memory, once they are read */

static bool plain; /* set before there are threads */

void serve_log_plain(void)
{
    plain = true;
}

/* Adds text from clients as UTF-8, with a "?" for each control character, which could move a terminal's
 * cursor. */
static void add_safe(weir__text *line, const char *bytes, size_t n)
{
    enum { PART = 256 };
    weir__utf8 state;
    weir__utf8_init(&state);
    for (size_t at = 0; at <= n; at += PART) {
        char text[WEIR__UTF8_BOUND(PART)];
        bool last = n - at < PART;
        size_t length = weir__utf8_feed(&state, bytes + at, last ? n - at : PART, text);
        if (last) length += weir__utf8_flush(&state, text + length);
        for (size_t i = 0; i < length; i++) {
            unsigned char byte = (unsigned char)text[i];
            bool wide = byte == 0xc2 && (unsigned char)text[i + 1] < 0xa0; /* U+0080 to U+009F */
            weir__text_add(line, byte < 0x20 || byte == 0x7f || wide ? "?" : text + i, 1);
            i += wide;
        }
    }
}

static void begin_plain(weir__text *line, const char *level)
{
    time_t now = time(NULL);
    struct tm local;
    char stamp[16] = "";
    if (localtime_r(&now, &local) != NULL) strftime(stamp, sizeof stamp, "%H:%M:%S", &local);
    weir__text_printf(line, "%s %s", stamp, strcmp(level, "warning") == 0 ? "warning: " : "");
}

static void begin_line(weir__text *line, const char *level, const char *event)
{
    struct timespec now;
    struct tm utc;
    char stamp[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc) != NULL) strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    weir__text_printf(line, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"event\":\"%s\"", stamp,
                      now.tv_nsec / 1000000, level, event);
}

static void add_message(weir__text *line, const char *level, const char *event, const char *message)
{
    if (plain) {
        begin_plain(line, level);
        add_safe(line, message, strlen(message));
        return;
    }
    begin_line(line, level, event);
    weir__json_string(line, "message", message);
}

/* ---- Unwritten lines ---- */

/* Who reads stderr may stand still, and a write would wait for it: nobody here does. */
static struct {
    pthread_mutex_t mutex; /* held for no longer than a write that does not wait */
    weir__text text;       /* [at .. n) is to be written */
    size_t at;
    uint64_t n_lost; /* lines, since the last one that was kept */
} backlog = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Whether a write of at most PIPE_BUF bytes goes through at once. */
static bool takes(int timeout_ms)
{
    struct pollfd descriptor = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&descriptor, 1, timeout_ms) == 1;
}

static void write_some(int timeout_ms)
{
    weir__text *text = &backlog.text;
    while (backlog.at < text->n && takes(timeout_ms)) {
        size_t left = text->n - backlog.at;
        ssize_t n = write(STDERR_FILENO, text->bytes + backlog.at, left < PIPE_BUF ? left : PIPE_BUF);
        if (n < 0 && errno == EINTR) continue;
        backlog.at = n > 0 ? backlog.at + (size_t)n : text->n; /* a failure cannot be reported */
    }
    if (backlog.at < text->n && backlog.at < BACKLOG_MAX / 2) return;
    text->n -= backlog.at;
    if (text->n > 0) memmove(text->bytes, text->bytes + backlog.at, text->n);
    if (text->n == 0 && text->capacity > BACKLOG_KEEP) weir__text_fini(text);
    backlog.at = 0;
}

static void keep_line(const weir__text *line)
{
    if (backlog.text.n - backlog.at + line->n <= BACKLOG_MAX && weir__text_reserve(&backlog.text, line->n))
        weir__text_add(&backlog.text, line->bytes, line->n);
    else
        backlog.n_lost++;
    backlog.text.failed = false;
}

static void add_lost(void)
{
    weir__text line = {0};
    char text[64];
    uint64_t n = backlog.n_lost;
    backlog.n_lost = 0;
    snprintf(text, sizeof text, "%llu line%s lost: nobody read the log", (unsigned long long)n,
             n == 1 ? " was" : "s were");
    add_message(&line, "warning", "log", text);
    weir__text_add_string(&line, plain ? "\n" : "}\n");
    if (!line.failed) keep_line(&line);
    weir__text_fini(&line);
}

static void end_line(weir__text *line)
{
    weir__text_add_string(line, plain ? "\n" : "}\n");
    pthread_mutex_lock(&backlog.mutex);
    if (backlog.n_lost > 0 && backlog.text.n - backlog.at < BACKLOG_MAX / 2) add_lost();
    if (line->failed)
        backlog.n_lost++;
    else
        keep_line(line);
    write_some(0);
    pthread_mutex_unlock(&backlog.mutex);
    weir__text_fini(line);
}

void serve_log_flush(int timeout_ms)
{
    pthread_mutex_lock(&backlog.mutex);
    write_some(timeout_ms);
    pthread_mutex_unlock(&backlog.mutex);
}

/* ---- Lines ---- */

void serve_log(const char *level, const char *event, const char *format, ...)
{
    weir__text line = {0};
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    add_message(&line, level, event, text);
    end_line(&line);
}

void serve_log_library(weir_log_level level, const char *message, void *user)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    const bool *verbose = user;
    weir__text line = {0};
    if (level < WEIR_LOG_WARN && !*verbose) return;
    add_message(&line, level >= 0 && level <= WEIR_LOG_ERROR ? names[level] : "info", "log", message);
    end_line(&line);
}

static void add_answer(weir__text *line, const serve_answer *answer)
{
    bool shows = answer->call->server->params.log_text;
    if (answer->n_dropped > 0) weir__text_printf(line, ",\"dropped_lines\":%d", answer->n_dropped);
    for (int32_t i = 0; i < answer->n; i++) {
        const serve_choice *choice = &answer->choices[i];
        weir_usage usage = choice->finished ? choice->usage : weir_stream_usage(choice->stream);
        weir__text_printf(line, "%s{\"reason\":\"%s\",\"prompt\":%d,\"cached\":%d,\"generated\":%d",
                          i == 0 ? ",\"choices\":[" : ",",
                          choice->finished ? weir_reason_name(choice->reason) : "left", usage.n_prompt,
                          usage.n_cached, usage.n_generated);
        weir__json_number(line, "queue_ms", (double)usage.queue_ns / 1e6, 2);
        weir__json_number(line, "ttft_ms", (double)usage.ttft_ns / 1e6, 2);
        if (choice->stream != NULL)
            serve_miss_add_member(choice->stream, shows, line);
        else if (choice->miss.n > 0)
            weir__text_printf(line, ",%.*s", (int)choice->miss.n, choice->miss.bytes);
        weir__text_add_string(line, "}");
    }
    weir__text_add_string(line, "]");
}

/* Whether anything was generated for it; a client that left in the queue has no status. */
static bool has_answer(const serve_call *call)
{
    return call->answer != NULL && (call->status == 200 || (call->left && !call->begun));
}

/* What a client gave, of this capacity. */
static void add_given(weir__text *line, const char *name, const char *given, size_t capacity)
{
    char shown[256];
    if (given[0] == '\0') return;
    snprintf(shown, sizeof shown, "%s", given);
    serve_mask_ids(shown, capacity);
    weir__json_string(line, name, shown);
}

/* POST /v1/chat/completions 200 in 123 ms: prompt 36 (12 cached), answer 60 (stop) */
static void add_call_plain(weir__text *line, const serve_call *call)
{
    int status = serve_call_status(call);
    begin_plain(line, status >= 500 ? "warning" : "info");
    weir__text_printf(line, "%s ", call->method);
    add_safe(line, call->path, strlen(call->path));
    weir__text_printf(line, " %d in %.0f ms", status, (double)(weir__clock_now_ns() - call->began_ns) / 1e6);
    if (call->code != NULL) weir__text_printf(line, ", %s", call->code);
    const serve_answer *answer = has_answer(call) ? call->answer : NULL;
    for (int32_t i = 0; answer != NULL && i < answer->n; i++) {
        const serve_choice *choice = &answer->choices[i];
        weir_usage usage = choice->finished ? choice->usage : weir_stream_usage(choice->stream);
        weir__text_printf(line, "%s prompt %d (%d cached), answer %d (%s)", i == 0 ? ":" : ";",
                          usage.n_prompt, usage.n_cached, usage.n_generated,
                          choice->finished ? weir_reason_name(choice->reason) : "left");
    }
    if (!call->server->params.log_text || call->body.n == 0) return;
    weir__text_add_string(line, " ");
    add_safe(line, call->body.bytes,
             call->body.n < TEXT_MAX ? call->body.n : weir__utf8_cut(call->body.bytes, TEXT_MAX));
}

void serve_log_call(const serve_call *call)
{
    const serve_params *params = &call->server->params;
    weir__text line = {0};
    if (!params->live.log) return;
    if (plain) {
        add_call_plain(&line, call);
        end_line(&line);
        return;
    }
    bool taped = call->answer != NULL && call->answer->tape != NULL;
    int status = serve_call_status(call);
    begin_line(&line, status >= 500 ? "warning" : "info", taped ? "stream" : "request");
    weir__text_printf(&line, ",\"id\":\"%s\",\"method\":\"%s\"", call->id, call->method);
    weir__json_string(&line, "path", call->path);
    weir__text_printf(&line, ",\"status\":%d", status);
    weir__json_number(&line, "ms", (double)(weir__clock_now_ns() - call->began_ns) / 1e6, 2);
    weir__text_printf(&line, ",\"received\":%zu,\"sent\":%llu", call->n_received,
                      (unsigned long long)call->n_sent);
    if (call->client[0] != '\0') weir__json_string(&line, "client", call->client);
    add_given(&line, "agent", call->agent, sizeof call->agent);
    add_given(&line, "request_id", call->request_id, sizeof call->request_id);
    add_given(&line, "session", call->session, sizeof call->session);
    if (call->code != NULL) weir__text_printf(&line, ",\"code\":\"%s\"", call->code);
    if (call->prefix_end != NULL) weir__text_printf(&line, ",\"prefix\":\"%s\"", call->prefix_end);
    if (call->key >= 0) weir__text_printf(&line, ",\"key\":%d", call->key);
    if (call->answer != NULL) weir__json_string(&line, "model", call->answer->model);
    if (call->left) weir__text_add_string(&line, ",\"left\":true");
    if (has_answer(call)) add_answer(&line, call->answer);
    if (params->log_text && call->body.n > 0)
        weir__json_bytes(&line, "body", call->body.bytes,
                         call->body.n < TEXT_MAX ? call->body.n : weir__utf8_cut(call->body.bytes, TEXT_MAX));
    end_line(&line);
}

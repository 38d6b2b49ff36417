/* log.c: lines on stderr, as JSON or plain text. SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/utf8.h"

#define BACKLOG_MAX  ((size_t)1 << 20)  /* of lines that nobody reads; beyond, they are counted */
#define BACKLOG_KEEP ((size_t)64 << 10) /* of memory, once they are read */

static bool plain_lines; /* set before there are threads */

void serve_log_plain(void)
{
    plain_lines = true;
}

bool serve_log_is_plain(void)
{
    return plain_lines;
}

void serve_log_text(weir__text *line, const char *bytes, size_t n)
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

static void begin_json(weir__text *line, const char *level, const char *event)
{
    struct timespec now;
    struct tm utc;
    char stamp[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc) != NULL) strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    weir__text_printf(line, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"event\":\"%s\"", stamp,
                      now.tv_nsec / 1000000, level, event);
}

void serve_log_begin(weir__text *line, const char *level, const char *event)
{
    if (plain_lines)
        begin_plain(line, level);
    else
        begin_json(line, level, event);
}

static void add_message(weir__text *line, const char *level, const char *event, const char *message)
{
    serve_log_begin(line, level, event);
    if (plain_lines)
        serve_log_text(line, message, strlen(message));
    else
        weir__json_string(line, "message", message);
}

/* ---- Unwritten lines ---- */

/* Lines that are not written yet. The reader of stderr may stand still, and a write would wait for it: nobody
 * here does. */
static struct {
    pthread_mutex_t mutex; /* held for no longer than a write that does not wait */
    weir__text text;       /* [at .. n) is to be written */
    size_t at;
    uint64_t n_lost; /* lines, since the last one that was kept */
} backlog = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* True if a write of at most PIPE_BUF bytes goes through at once. */
static bool stderr_takes(int timeout_ms)
{
    struct pollfd descriptor = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&descriptor, 1, timeout_ms) == 1;
}

static void write_backlog(int timeout_ms)
{
    weir__text *text = &backlog.text;
    while (backlog.at < text->n && stderr_takes(timeout_ms)) {
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
    weir__text_add_string(&line, plain_lines ? "\n" : "}\n");
    if (!line.failed) keep_line(&line);
    weir__text_fini(&line);
}

void serve_log_end(weir__text *line)
{
    weir__text_add_string(line, plain_lines ? "\n" : "}\n");
    pthread_mutex_lock(&backlog.mutex);
    if (backlog.n_lost > 0 && backlog.text.n - backlog.at < BACKLOG_MAX / 2) add_lost();
    if (line->failed)
        backlog.n_lost++;
    else
        keep_line(line);
    write_backlog(0);
    pthread_mutex_unlock(&backlog.mutex);
    weir__text_fini(line);
}

void serve_log_flush(int timeout_ms)
{
    pthread_mutex_lock(&backlog.mutex);
    write_backlog(timeout_ms);
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
    serve_log_end(&line);
}

void serve_log_library(weir_log_level level, const char *message, void *user)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    const bool *verbose = user;
    weir__text line = {0};
    if (level < WEIR_LOG_WARN && !*verbose) return;
    add_message(&line, level >= 0 && level <= WEIR_LOG_ERROR ? names[level] : "info", "log", message);
    serve_log_end(&line);
}

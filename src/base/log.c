/* log.c: the log that weir_log_set directs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void to_stderr(weir_log_level level, const char *message, void *user)
{
    (void)user;
    fprintf(stderr, "weir: %s%s\n", level >= WEIR_LOG_ERROR ? "error: " : "", message);
}

/* sink_lock protects sink and sink_user and is held while the sink runs, so that weir_log_set can promise
 * that the former one has ended. It is the last lock anybody takes. */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static weir_log_fn sink = to_stderr;
static void *sink_user;

/* The lowest level that the sink takes; read without the lock, so that dropped messages cost one load. */
static atomic_int lowest_level = WEIR_LOG_WARN;

/* True while this thread holds sink_lock: a sink that logs must not wait for itself. */
static _Thread_local bool in_sink;

void weir_log_set(weir_log_fn fn, void *user)
{
    if (in_sink) return;
    pthread_mutex_lock(&sink_lock);
    sink = fn != NULL ? fn : to_stderr;
    sink_user = user;
    atomic_store_explicit(&lowest_level, fn != NULL ? WEIR_LOG_DEBUG : WEIR_LOG_WARN, memory_order_relaxed);
    pthread_mutex_unlock(&sink_lock);
}

bool weir__log_wants(weir_log_level level)
{
    return (int)level >= atomic_load_explicit(&lowest_level, memory_order_relaxed);
}

void weir__log(weir_log_level level, const char *format, ...)
{
    if (in_sink || !weir__log_wants(level)) return;

    char raw[WEIR__LOG_CAPACITY];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    if (wanted < 0) return;
    size_t n = strlen(raw);
    if (wanted >= (int)sizeof raw) n = weir__utf8_cut(raw, n);
    char message[WEIR__LOG_CAPACITY];
    weir__utf8_copy(message, sizeof message, raw, n);

    pthread_mutex_lock(&sink_lock);
    in_sink = true;
    bool wanted_still = weir__log_wants(level); /* of the sink that stands now */
    for (char *line = message; wanted_still && *line != '\0';) {
        char *end = line + strcspn(line, "\r\n");
        bool last = *end == '\0';
        *end = '\0';
        if (end > line) sink(level, line, sink_user);
        line = last ? end : end + 1;
    }
    in_sink = false;
    pthread_mutex_unlock(&sink_lock);
}

void weir_log_message(weir_log_level level, const char *message)
{
    if (message != NULL) weir__log(level, "%s", message);
}

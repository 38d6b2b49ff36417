/* log.h: lines on stderr, as JSON or plain text. Any thread; only
 * serve_log_flush waits for a reader.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_LOG_H
#define WEIR_SERVER_SYSTEM_LOG_H

#include <stdbool.h>
#include <weir/weir.h>

#include "base/text.h"

/* Makes lines plain text with the local time. Called before the first line. */
void serve_log_plain(void);
bool serve_log_is_plain(void);

/* level: "info" or "warning". */
void serve_log(const char *level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A line in parts: its level and event, then members of JSON, or plain text, and its end, which writes and
 * frees it. serve_log_text adds text from clients as UTF-8, with a "?" for each control character, which
 * could move a terminal's cursor. */
void serve_log_begin(weir__text *line, const char *level, const char *event);
void serve_log_text(weir__text *line, const char *bytes, size_t n);
void serve_log_end(weir__text *line);

/* Writes the lines that could not be written at once. Waits at most timeout_ms for a reader, each time. */
void serve_log_flush(int timeout_ms);

/* A weir_log_fn; user points to a bool: true = log everything, false = warnings and errors only. */
void serve_log_library(weir_log_level level, const char *message, void *user);

#endif

/* log.h: a line for each request and event, on stderr, as JSON or plain text. Any thread; only
 * serve_log_flush waits for a reader.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_LOG_H
#define WEIR_SERVER_SYSTEM_LOG_H

#include <stdbool.h>
#include <weir/weir.h>

/* Makes lines plain text with the local time. Called before the first line. */
void serve_log_plain(void);

/* level: "info" or "warning". */
void serve_log(const char *level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes the lines that could not be written at once. Waits at most timeout_ms for a reader, each time. */
void serve_log_flush(int timeout_ms);

/* A weir_log_fn; user points to a bool: true = log everything, false = warnings and errors only. */
void serve_log_library(weir_log_level level, const char *message, void *user);

#endif

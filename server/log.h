/* log.h: a line of JSON for each request and event, on stderr. Any thread. Nothing here waits for who reads
 * it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_LOG_H
#define WEIR_SERVER_LOG_H

#include <stdbool.h>
#include <weir/weir.h>

/* level: "info" or "warning". */
void serve_log(const char *level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes what could not be written when it was said. Waits at most so long for somebody who reads, each
 * time. */
void serve_log_flush(int timeout_ms);

/* A weir_log_fn; user is a bool that says whether everything is wanted, not warnings and errors alone. */
void serve_log_library(weir_log_level level, const char *message, void *user);

#endif

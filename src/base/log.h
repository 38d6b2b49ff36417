/* log.h: the log that weir_log_set directs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdbool.h>

#include "weir/weir.h"

/* Bytes of one message with its terminator; the rest is cut at a code point boundary. */
#define WEIR__LOG_CAPACITY 1024

/* Hands each line of the message to the sink: sanitized UTF-8, without newline; empty lines are left out.
 * Allocates nothing. Any thread, not a signal handler. May block while another thread's sink runs, so do not
 * call it with a lock that a sink might want. Messages from inside a sink are dropped. */
void weir__log(weir_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True if the sink takes this level: for messages that are costly to make. */
bool weir__log_wants(weir_log_level level);

#endif

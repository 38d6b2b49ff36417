/* log.h: lines of weir's log about downloads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HUB_LOG_H
#define WEIR_HUB_LOG_H

#include <weir/weir.h>

/* Formats a message for weir_log_message, which has the limits. */
void weir__hub_log(weir_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

/* log.c: formats lines for weir's log.
 * SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>

void weir__hub_log(weir_log_level level, const char *format, ...)
{
    char message[2048]; /* more than a log's message has */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (n > 0) weir_log_message(level, message);
}

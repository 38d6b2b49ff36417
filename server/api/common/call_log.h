/* call_log.h: the line of a call in the log. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_CALL_LOG_H
#define WEIR_SERVER_API_COMMON_CALL_LOG_H

#include "server/request/serve.h"

void serve_call_log(const serve_call *call);

#endif

/* too_long.h: refuses prompts for which the context has no room. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_TOO_LONG_H
#define WEIR_SERVER_API_COMMON_TOO_LONG_H

#include "server/request/serve.h"

/* In words by which clients tell that from other errors. Returns false. */
bool serve_call_too_long(serve_call *call, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif

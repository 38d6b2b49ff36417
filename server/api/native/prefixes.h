/* prefixes.h: a cached prefix for another server. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_NATIVE_PREFIXES_H
#define WEIR_SERVER_API_NATIVE_PREFIXES_H

#include "server/request/serve.h"

/* Sends more of the prefix that the call gives, once bytes of it were sent. Service thread. */
void serve_prefixes_feed(serve_call *call);

#endif

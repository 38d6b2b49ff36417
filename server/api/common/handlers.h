/* handlers.h: the paths of streams that are resumed (http/route.c). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_HANDLERS_H
#define WEIR_SERVER_API_COMMON_HANDLERS_H

#include "server/request/serve.h"

serve_handler serve_stream_read, serve_stream_cancel;

#endif

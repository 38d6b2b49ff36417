/* handlers.h: Anthropic's paths (http/route.c). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_ANTHROPIC_HANDLERS_H
#define WEIR_SERVER_API_ANTHROPIC_HANDLERS_H

#include "server/request/serve.h"

serve_handler serve_messages, serve_count_tokens;

serve_error_form serve_messages_error;

#endif

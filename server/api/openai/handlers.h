/* handlers.h: OpenAI's paths (http/route.c). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OPENAI_HANDLERS_H
#define WEIR_SERVER_API_OPENAI_HANDLERS_H

#include "server/request/serve.h"

serve_handler serve_chat, serve_completions, serve_embeddings, serve_models, serve_models_load,
    serve_models_unload, serve_responses, serve_input_tokens, serve_response_get, serve_response_delete,
    serve_response_cancel, serve_response_items;

#endif

/* handlers.h: Ollama's paths (http/route.c). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OLLAMA_HANDLERS_H
#define WEIR_SERVER_API_OLLAMA_HANDLERS_H

#include "server/request/serve.h"

serve_handler serve_ollama_chat, serve_ollama_generate, serve_ollama_embed, serve_ollama_embeddings,
    serve_ollama_tags, serve_ollama_ps, serve_ollama_show, serve_ollama_version, serve_ollama_pull,
    serve_ollama_refuse;

serve_error_form serve_ollama_error;

#endif

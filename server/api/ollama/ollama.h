/* ollama.h: Ollama's API: its paths (http/paths.c), and what its files share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OLLAMA_OLLAMA_H
#define WEIR_SERVER_API_OLLAMA_OLLAMA_H

#include "server/api/common/ask.h"

serve_handler serve_ollama_chat, serve_ollama_generate, serve_ollama_embed, serve_ollama_embeddings,
    serve_ollama_tags, serve_ollama_ps, serve_ollama_show, serve_ollama_version, serve_ollama_pull,
    serve_ollama_refuse;

serve_error_form serve_ollama_error;

/* Appends the time as RFC 3339 has it, the value of a member. */
void serve_ollama_add_time(weir__text *text, const char *member, int64_t seconds);

/* ask.c: reads keep_alive, which may be NULL. With 0 the call unloads a model of several that is not
 * pinned. *unmet: the server keeps the model for another time than this. False: the call has its answer. */
bool serve_ollama_keep_alive(serve_call *call, const json_t *value, bool *unmet);

/* ask.c: read a conversation, or a prompt, after serve_ask_read. False: the call has its answer. */
bool serve_ask_ollama(serve_ask *ask);
bool serve_ask_generate(serve_ask *ask);

/* The form of /api/chat. */
extern const serve_form serve_ollama_chat_form;

#endif

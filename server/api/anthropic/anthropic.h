/* anthropic.h: Anthropic's API: its paths (http/paths.c), and what its files share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_ANTHROPIC_ANTHROPIC_H
#define WEIR_SERVER_API_ANTHROPIC_ANTHROPIC_H

#include "server/api/common/answer.h"
#include "server/api/common/ask.h"

serve_handler serve_messages, serve_count_tokens;

serve_error_form serve_messages_error;

extern const serve_form serve_messages_form;

/* Reads a request's conversation, tools and options, after serve_ask_read. False: the call has its answer. */
bool serve_ask_messages(serve_ask *ask);

/* Answers a list of models, or one, in OpenAI's shape, which it frees, in Anthropic's. */
void serve_anthropic_models(serve_call *call, weir__text *text);

#endif

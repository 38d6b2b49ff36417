/* models.h: the list of models in the shape of Anthropic's API. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_ANTHROPIC_MODELS_H
#define WEIR_SERVER_API_ANTHROPIC_MODELS_H

#include "server/request/serve.h"

/* Answers a list of models, or one, in OpenAI's shape, which it frees, in Anthropic's. */
void serve_anthropic_models(serve_call *call, weir__text *text);

#endif

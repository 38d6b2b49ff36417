/* models.h: the states of several models. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OPENAI_MODELS_H
#define WEIR_SERVER_API_OPENAI_MODELS_H

#include "base/text.h"
#include "server/request/serve.h"

/* Appends them as the member "models". */
void serve_models_add_states(serve_server *server, weir__text *text);

#endif

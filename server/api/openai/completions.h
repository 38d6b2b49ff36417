/* completions.h: requests with a prompt instead of a conversation. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OPENAI_COMPLETIONS_H
#define WEIR_SERVER_API_OPENAI_COMPLETIONS_H

#include "server/api/common/ask.h"

/* Answers a request with a prompt in the form that is written; where: SERVE_ASK_COMPLETIONS and more.
 * Worker. */
void serve_complete(serve_call *call, unsigned where, const serve_form *written);

/* Answers a request that was read, likewise. */
void serve_complete_ask(serve_ask *ask, const serve_form *written);

#endif

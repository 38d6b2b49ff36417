/* ask_responses.h: a request in the format of OpenAI's Responses API. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OPENAI_ASK_RESPONSES_H
#define WEIR_SERVER_API_OPENAI_ASK_RESPONSES_H

#include "server/api/common/ask.h"

/* Reads its conversation, tools and options, after serve_ask_read. False: the call has its answer. */
bool serve_ask_responses(serve_ask *ask);

/* ask_references.c: puts kept items in the place of references to them in "input". False: the call
 * has its answer. */
bool serve_ask_references(serve_ask *ask);

#endif

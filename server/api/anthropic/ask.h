/* ask.h: a request in the format of Anthropic's Messages API. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_ANTHROPIC_ASK_H
#define WEIR_SERVER_API_ANTHROPIC_ASK_H

#include "server/api/common/ask.h"

/* Reads its conversation, tools and options, after serve_ask_read. False: the call has its answer. */
bool serve_ask_messages(serve_ask *ask);

#endif

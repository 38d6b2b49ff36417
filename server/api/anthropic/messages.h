/* messages.h: answers in the format of Anthropic's Messages API. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_ANTHROPIC_MESSAGES_H
#define WEIR_SERVER_API_ANTHROPIC_MESSAGES_H

#include "server/api/common/answer.h"

extern const serve_form serve_messages_form;

#endif

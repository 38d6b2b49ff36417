/* responses.h: answers in the format of OpenAI's Responses API. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OPENAI_RESPONSES_H
#define WEIR_SERVER_API_OPENAI_RESPONSES_H

#include "server/api/common/answer.h"

extern const serve_form serve_responses_form;

#endif

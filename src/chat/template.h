/* template.h: the template of a conversation: given with it, or its model's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_TEMPLATE_H
#define WEIR_CHAT_TEMPLATE_H

#include <time.h>

#include "model/model.h"

/* The keys of a model's templates. */
#define WEIR__CHAT_TEMPLATE_KEY       "tokenizer.chat_template"
#define WEIR__CHAT_TEMPLATE_TOOLS_KEY WEIR__CHAT_TEMPLATE_KEY ".tool_use"

/* The template `source`, or the model's own: the one for tools if it has one and tools are given. Parses it
 * unless the model used it before. now: the time that strftime_now() returns, 0 = the present. The result is
 * held. Errors: UNSUPPORTED (the model has none), INVALID (source, now), TEMPLATE, NO_MEMORY. */
weir_status weir__chat_template_choose(weir_model *model, const char *source, bool tools, time_t now,
                                       weir__chat_template **out, weir_error *error);

#endif

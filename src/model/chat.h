/* chat.h: what the rest of the library needs to know of a rendered chat. Everything is owned by the chat.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_H
#define WEIR_MODEL_CHAT_H

#include "backend/backend.h"
#include "backend/shim_chat.h"
#include "model/chat_marks.h"
#include "model/chat_parts.h"

weir_model *weir__chat_model(const weir_chat *chat);

/* The constraint on the answer, NULL when there is none. */
const weir__grammar *weir__chat_grammar(const weir_chat *chat);

/* Stop strings of the template, [*n]. */
const char *const *weir__chat_stops(const weir_chat *chat, size_t *n);

/* Control tokens that must appear in the answer's text because the parser reads them, ascending, [*n]. */
const int32_t *weir__chat_preserved(const weir_chat *chat, size_t *n);

/* What reads the answer; NULL: all of it is content. */
const weir__shim_chat *weir__chat_reader(const weir_chat *chat);

/* Where the messages lie in the prompt, [*n]. */
const weir__chat_mark *weir__chat_places(const weir_chat *chat, size_t *n);

/* How the prompt is tokenized. */
const weir__parts *weir__chat_parts(const weir_chat *chat);

/* Whether the answer goes on with the last message, whose text is not to be delivered again. */
bool weir__chat_continues(const weir_chat *chat);

/* Whether the content has the form of chat_calls.h, and with *form a response that is JSON. */
bool weir__chat_calls(const weir_chat *chat, bool *form);

/* Frees what model->chat_cache holds; for the model's last release. NULL is fine. */
void weir__chat_cache_free(void *user);

#endif

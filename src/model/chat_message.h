/* chat_message.h: messages and tools of a conversation, checked and in one form.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_MESSAGE_H
#define WEIR_MODEL_CHAT_MESSAGE_H

#include "grammar/schema.h"

/* The conversation of params as the array that llama.cpp's common reads. Errors: INVALID and UNSUPPORTED,
 * field "messages[2].content" and the like whichever way they were given; NO_MEMORY. *messages is freed with
 * json_decref. */
weir_status weir__chat_messages(const weir_chat_params *params, json_t **messages, weir_error *error);

/* Appends a message's content, its parts on lines of their own. False: no memory. */
bool weir__chat_add_content(weir__text *text, const json_t *content);

typedef struct weir__chat_tools {
    json_t *shown;          /* as given, for the prompt; NULL: there are none */
    json_t *enforced;       /* the same with rewritten parameters, for the grammar */
    bool strict;            /* one of them asks to be enforced to the letter */
    bool called;            /* they may be: else nothing of their schemas is needed */
    weir__text relaxed;     /* lines about what of them is not enforced */
    weir__schema_work work; /* left for their schemas */
} weir__chat_tools;

/* tools_json may be NULL. What a schema has that cannot be enforced is left out, unless its tool is strict.
 * Errors: INVALID (field "tools[1].function.name" and the like), GRAMMAR (field: the JSON pointer into
 * tools_json), NO_MEMORY. Freed with fini; a zeroed one is fine too. */
weir_status weir__chat_tools_init(const char *tools_json, bool called, weir__chat_tools *tools,
                                  weir_error *error);
void weir__chat_tools_fini(weir__chat_tools *tools);

#endif

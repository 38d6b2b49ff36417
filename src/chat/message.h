/* message.h: the messages and tools of a conversation, checked and normalized.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_MESSAGE_H
#define WEIR_CHAT_MESSAGE_H

#include "grammar/schema.h"

/* Sets *messages to the conversation of params, in the form that llama.cpp's common reads; json_decref frees
 * it, also after an error. Errors: INVALID and UNSUPPORTED, with fields such as "messages[2].content" for
 * structs and JSON; NO_MEMORY. */
weir_status weir__chat_messages(const weir_chat_params *params, json_t **messages, weir_error *error);

/* The kind of a part of a content. A checked conversation has no UNKNOWN ones. */
typedef enum weir__part_kind {
    WEIR__PART_UNKNOWN,
    WEIR__PART_TEXT,
    WEIR__PART_IMAGE,
    WEIR__PART_SOUND,
    WEIR__PART_MEDIA, /* an image or a sound */
} weir__part_kind;

weir__part_kind weir__chat_part_kind(const json_t *part);

/* True if parsers of JSON recurse at this character. */
static inline bool weir__chat_is_bracket(char c)
{
    return c == '[' || c == '{';
}

/* Appends a message's content, with a newline between two texts. False: no memory. */
bool weir__chat_add_content(weir__text *text, const json_t *content);

typedef struct weir__chat_tools {
    json_t *shown;          /* as given, for the prompt; NULL: no tools */
    json_t *enforced;       /* the same with rewritten parameters, for the grammar */
    bool strict;            /* one of them must be enforced in full */
    bool called;            /* they may be called; otherwise their schemas are not needed */
    json_t *rules;          /* the number of the first tool, by its name as grammars' rules have it */
    json_t *beginnings;     /* the same for what may be the rule of a shorter name */
    weir__text relaxed;     /* lines about the parts of schemas that are not enforced */
    weir__schema_work work; /* the budget left for their schemas */
} weir__chat_tools;

/* Parts of a schema that cannot be enforced are dropped, unless its tool is strict.
 * Errors: INVALID (fields such as "tools[1].function.name"), GRAMMAR (field: the JSON pointer into the
 * tools), NO_MEMORY. fini also takes a zeroed struct. */
weir_status weir__chat_tools_init(const weir_chat_params *params, weir__chat_tools *tools, weir_error *error);
void weir__chat_tools_fini(weir__chat_tools *tools);

/* An error about a value with objects too wide for llama.cpp's JSON (weir__json_is_narrow). */
weir_status weir__chat_too_wide(const char *field, weir_status code, weir_error *error);

#endif

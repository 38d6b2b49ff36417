/* foreign.h: tools that run on another server, and what they left in a conversation. This server runs none of
 * them. Tools are left out of the prompt; of items and blocks a table says what the prompt has of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_FOREIGN_H
#define WEIR_SERVER_API_COMMON_FOREIGN_H

#include "turns.h"

/* Leaves out an object of the request whose type is not known here, or has no words for a prompt, and names
 * its list and its type for X-Weir-Relaxed: "input[]: compaction". Every such object comes here. An object
 * without a type is refused, with the types that are allowed; with `strict` any is. False: the call has its
 * answer. */
bool serve_foreign_skip(serve_ask *ask, const char *place, const json_t *object, const char *allowed);

/* Adds an item of Responses' input, or a block of a message, to the conversation: what a model asked of a
 * tool as the assistant's text, what it got as the user's, whose control tokens are text. Ids of files,
 * pictures and what is encrypted are left out. within: all of it becomes text of the last message, such as
 * a tool's result. Other types are skipped. False: the call has its answer. */
bool serve_foreign_add(serve_turns *turns, const char *place, const json_t *item, bool within,
                       const char *allowed);

/* Adds a text to the last message: "[TYPE]", and a line for each member of the list, which ends with NULL.
 * False: out of memory, and the call has its answer. */
bool serve_foreign_add_text(serve_turns *turns, const json_t *item, const char *const *members);

/* Copies the members that prompts have of an item into a lean one. False: out of memory. */
bool serve_foreign_keep(json_t *lean, const json_t *item);

/* Leaves a tool out, as serve_foreign_skip does, and remembers its name. */
bool serve_foreign_tool(serve_ask *ask, const char *place, const json_t *tool, const char *allowed);

/* The name of a tool that was left out: of one with this name, or of any where it is NULL. NULL: none was. */
const char *serve_foreign_left_out(const serve_ask *ask, const char *name);

#endif

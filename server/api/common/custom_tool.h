/* custom_tool.h: custom tools, whose input is a text. Models call them as functions with one parameter.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_CUSTOM_TOOL_H
#define WEIR_SERVER_API_COMMON_CUSTOM_TOOL_H

#include "server/request/serve.h"

struct serve_ask;

/* The function's parameters, {"input": a text of the tool's format}; format may be NULL. place: the format's.
 * Freed with json_decref; NULL: the call has its answer. */
json_t *serve_custom_tool_schema(serve_call *call, const char *place, const json_t *format);

/* Adds a custom tool's name to the ask's; NULL: it has none. False: out of memory, and the call has its
 * answer. */
bool serve_custom_tool_name(struct serve_ask *ask, const json_t *name);

/* Appends the input that the arguments of a call have, as far as they were generated. *at: bytes of the
 * arguments that were read before, 0 at first. Arguments of another form are the input themselves. */
void serve_custom_tool_read(const weir__text *arguments, size_t *at, weir__text *input);

#endif

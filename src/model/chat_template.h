/* chat_template.h: a model's chat templates, parsed once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_TEMPLATE_H
#define WEIR_MODEL_CHAT_TEMPLATE_H

#include "backend/backend.h"
#include "backend/shim_chat.h"

/* Limits of a template's source. What it does when it runs is limited by the shim. */
#define WEIR__CHAT_TEMPLATE_BYTES_MAX    262144
#define WEIR__CHAT_TEMPLATE_BRACKETS_MAX 16384

/* llama.cpp's Jinja recurses over nesting and over long expressions: values nested 100 deep in a recursive
 * macro, or a template at the limits above, need more stack than some callers' threads have. */
#define WEIR__CHAT_STACK       ((size_t)16 << 20)
#define WEIR__CHAT_STACK_GIVEN ((size_t)256 << 20) /* for templates of callers */

/* A counted, parsed template. */
typedef struct weir__chat_template weir__chat_template;

/* The model's own template (the one for tools, when it has one and tools are given), or `source`; from the
 * model's cache when it was asked for before. Errors: UNSUPPORTED (the model has none), INVALID (source),
 * TEMPLATE, NO_MEMORY. */
weir_status weir__chat_template_get(weir_model *model, const char *source, bool tools,
                                    weir__chat_template **out, weir_error *error);
void weir__chat_template_release(weir__chat_template *t);

const char *weir__chat_template_source(const weir__chat_template *t);
const weir__shim_template *weir__chat_template_parsed(const weir__chat_template *t);

/* True for the first caller only. */
bool weir__chat_template_warn_once(weir__chat_template *t);

#endif

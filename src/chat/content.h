/* content.h: which text of messages in a rendered prompt must remain text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_CONTENT_H
#define WEIR_CHAT_CONTENT_H

#include "base/json.h"
#include "base/text.h"
#include "model/control.h"

/* Bytes from..to of the prompt. */
typedef struct weir__span {
    size_t from, to; /* from < to */
    bool dirty;      /* set by weir__chat_cut: it holds a part of a control text */
} weir__span;

/* The contents that hold the text of a control token, or may hold a part of one: ascending, disjoint. */
typedef struct weir__spans {
    weir__span *at; /* [n] */
    size_t n, capacity;
    bool known; /* false: the template changes such a content, so nothing is known */
} weir__spans;

void weir__spans_fini(weir__spans *spans);

/* Renders other messages like those of the prompt. */
typedef weir_status (*weir__chat_render_fn)(void *user, const json_t *messages, weir__text *prompt,
                                            weir_error *error);

/* Fills *spans, which starts as zeroes. Templates are programs and do not report where they put a content. So
 * the messages are rendered again, with marks at both ends of these contents; without the marks, that text
 * must be the prompt, byte for byte. If it is not, marks are tried only beside the relevant characters of a
 * content. Contents without control texts are skipped and cost no rendering. deletes: the template may remove
 * text from contents, so contents with any character that begins a control text count too. Errors: NO_MEMORY,
 * ABORTED. */
weir_status weir__chat_content_find(const weir__controls *controls, const json_t *messages,
                                    weir_special_content special, bool deletes, const char *prompt,
                                    size_t length, weir__chat_render_fn render, void *user,
                                    weir__spans *spans, weir_error *error);

#endif

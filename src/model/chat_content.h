/* chat_content.h: where a rendered prompt has text of messages that is to stay text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_CONTENT_H
#define WEIR_MODEL_CHAT_CONTENT_H

#include "base/json.h"
#include "base/text.h"
#include "model/control.h"

/* Bytes from..to of the prompt. */
typedef struct weir__span {
    size_t from, to; /* from < to */
    bool dirty;      /* weir__chat_cut's: it has a part of a control text */
} weir__span;

/* Of the contents that have, or may be a part of, the text of a control token: ascending, apart. */
typedef struct weir__spans {
    weir__span *at; /* [n] */
    size_t n, capacity;
    bool known; /* false: the template changes such a content, and nothing is known */
} weir__spans;

void weir__spans_fini(weir__spans *spans);

/* Renders other messages as the prompt was rendered. */
typedef weir_status (*weir__chat_render_fn)(void *user, const json_t *messages, weir__text *prompt,
                                            weir_error *error);

/* Fills *spans, which begins as zeroes. Templates are programs, and do not say where a content went. So the
 * messages are rendered once more, with marks at both ends of these contents: without them that text must be
 * the prompt, byte for byte. Where it is not, the marks stand only before what matters in a content. Contents
 * without control texts are not looked for, and cost no rendering. deletes: the template may take something
 * out of contents; then all that have a beginning of a control text are looked for. Errors: NO_MEMORY,
 * ABORTED. */
weir_status weir__chat_content_find(const weir__controls *controls, const json_t *messages,
                                    weir_special_content special, bool deletes, const char *prompt,
                                    size_t length, weir__chat_render_fn render, void *user,
                                    weir__spans *spans, weir_error *error);

#endif

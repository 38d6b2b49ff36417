/* content.h: which text of messages in a rendered prompt must remain text, and the tokens of such a
 * prompt.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_CONTENT_H
#define WEIR_CHAT_CONTENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/text.h"
#include "model/control.h"

/* ---- Placeholders: words that a text lacks ---- */

/* A letter and digits. The letter occurs nowhere else in it, so text beside a placeholder cannot form
 * another one with a part of it. To templates it is a word: they do not strip, split or escape it. */
#define WEIR__CHAT_PLACEHOLDER 17 /* bytes */

/* Chooses digits that text[n] lacks. Nobody can know them beforehand, and if the text had them, others are
 * chosen. False: it had all that were tried. */
bool weir__chat_placeholder_choose(char word[WEIR__CHAT_PLACEHOLDER + 1], const char *text, size_t n);

/* ---- Contents ---- */

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

/* ---- Parts of a prompt, some of which are plain text ---- */

/* A part of a prompt, tokenized by itself. */
typedef struct weir__part {
    size_t from, to;
    bool plain; /* control texts in it remain text */
} weir__part;

typedef struct weir__parts {
    weir__part *at; /* [n]; none: the prompt is one part, and nothing in it is plain */
    size_t n, capacity;
} weir__parts;

/* Cuts the prompt at media, which stand at bytes of it, and at control tokens that the template wrote. So the
 * tokens of a part do not depend on other parts, no control text crosses a medium, and the tokens of plain
 * parts are as in a vocabulary without control tokens. *parts starts as zeroes; free parts->at with
 * weir__mem_free. Errors: NO_MEMORY, ABORTED. */
weir_status weir__chat_cut(const weir__controls *controls, const char *prompt, size_t length,
                           weir__spans *spans, const weir_media_use *media, size_t n_media,
                           weir__parts *parts, weir_error *error);

/* Tokenizes the prompt by these parts; like the backend's tokenize with add_special and parse_special.
 * places: as for weir__chat_tokenize. */
weir_status weir__chat_tokens(const weir_model *model, const char *prompt, size_t length,
                              const weir__parts *parts, const weir_media_use *media, size_t n_media,
                              int32_t *ids, size_t capacity, size_t *n_tokens, size_t *places,
                              weir_error *error);

#endif

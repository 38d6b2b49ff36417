/* parts.h: a prompt in parts, some of which are plain text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_PARTS_H
#define WEIR_CHAT_PARTS_H

#include "chat/content.h"

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

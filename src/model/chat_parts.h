/* chat_parts.h: a prompt in parts, some of which are text and nothing else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_PARTS_H
#define WEIR_MODEL_CHAT_PARTS_H

#include "model/chat_content.h"

/* A part of a prompt, tokenized by itself. */
typedef struct weir__part {
    size_t from, to;
    bool plain; /* control texts in it are text */
} weir__part;

typedef struct weir__parts {
    weir__part *at; /* [n]; 0: the prompt is one part, and nothing in it is plain */
    size_t n, capacity;
} weir__parts;

/* Cuts the prompt at control tokens that the template wrote: so no part's tokens depend on another one's, and
 * those of plain parts are what they would be in a vocabulary without control tokens. Begins as zeroes;
 * freed with weir__mem_free(parts->at). Errors: NO_MEMORY, ABORTED. */
weir_status weir__chat_cut(const weir__controls *controls, const char *prompt, size_t length,
                           weir__spans *spans, weir__parts *parts, weir_error *error);

/* The ids of the prompt with these parts: as the backend's tokenize with add_special and parse_special. */
weir_status weir__chat_tokens(const weir_model *model, const char *prompt, size_t length,
                              const weir__parts *parts, int32_t *ids, size_t capacity, size_t *n_tokens,
                              weir_error *error);

#endif

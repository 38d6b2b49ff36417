/* control.h: the texts that become control tokens if special tokens are parsed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CONTROL_H
#define WEIR_MODEL_CONTROL_H

#include "backend/backend.h"

typedef struct weir__control {
    const char *text; /* [n], n > 0 */
    size_t n;
    int strip; /* WEIR__STRIP_… */
} weir__control;

/* The well-formed control texts of a vocabulary, each once. Immutable; any thread. */
typedef struct weir__controls {
    weir__control *sorted; /* [n], ascending by bytes; a prefix comes before the longer text */
    size_t n;
    weir__control *ends; /* [n_ends] all their proper suffixes, sorted likewise */
    size_t n_ends;
    size_t longest; /* bytes */
    bool first[256];
} weir__controls;

/* Collects the control texts of a model's n_vocab tokens. NULL: no memory. */
weir__controls *weir__controls_create(const weir__backend *ops, const weir__bmodel *model, int32_t n_vocab);

/* NULL is allowed. */
void weir__controls_free(weir__controls *controls);

/* Calls take for each control text that is a prefix of text[n], the shortest first, until it returns
 * false. */
typedef bool (*weir__control_fn)(void *user, const weir__control *control);
void weir__controls_at(const weir__controls *controls, const char *text, size_t n, weir__control_fn take,
                       void *user);

/* True if a control text is a prefix of text[n]. */
bool weir__controls_begin(const weir__controls *controls, const char *text, size_t n);

/* True if a control text may begin at the end of the text and continue behind it (open), and if one that
 * began before the text may end in it or continue behind it (close). */
bool weir__controls_open(const weir__controls *controls, const char *text, size_t n);
bool weir__controls_close(const weir__controls *controls, const char *text, size_t n);

#endif

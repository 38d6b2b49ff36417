/* control.h: the texts that become control tokens where special tokens are parsed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CONTROL_H
#define WEIR_MODEL_CONTROL_H

#include "model/model.h"

typedef struct weir__control {
    const char *text; /* [n], n > 0 */
    size_t n;
    int strip; /* WEIR__STRIP_… */
} weir__control;

/* Those of a vocabulary that are well-formed, each text once. Immutable; any thread. */
typedef struct weir__controls {
    weir__control *sorted; /* [n], by their bytes, a beginning before what it begins */
    size_t n;
    weir__control *ends; /* [n_ends], what is left of them behind their first bytes, sorted likewise */
    size_t n_ends;
    size_t longest; /* bytes */
    bool first[256];
} weir__controls;

/* The model's, made on first use and kept with it. Errors: NO_MEMORY. */
weir_status weir__controls_get(weir_model *model, const weir__controls **controls, weir_error *error);

/* NULL is allowed. */
void weir__controls_free(weir__controls *controls);

/* Calls take for each control text that text begins with, the shortest first, until take returns false. */
typedef bool (*weir__control_fn)(void *user, const weir__control *control);
void weir__controls_at(const weir__controls *controls, const char *text, size_t n, weir__control_fn take,
                       void *user);

/* Whether text[n] begins with a control text. */
bool weir__controls_begin(const weir__controls *controls, const char *text, size_t n);

/* Whether the end of the text may begin a control text that goes on behind it; and whether its beginning may
 * end one that began before it, or all of it lie within one. */
bool weir__controls_open(const weir__controls *controls, const char *text, size_t n);
bool weir__controls_close(const weir__controls *controls, const char *text, size_t n);

#endif

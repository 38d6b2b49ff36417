/* chat_marks.h: where the messages' texts lie in a rendered prompt.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_MARKS_H
#define WEIR_MODEL_CHAT_MARKS_H

#include "base/json.h"

/* Templates are programs, and tell nothing of what they do. So texts are searched for, in order: each has a
 * first place where it can lie, and a last. Where both are one, that is it. */
typedef struct weir__chat_mark {
    size_t from, to;           /* bytes of the prompt: the first place */
    size_t last_from, last_to; /* the last */
    bool found; /* false: not there as it was given, not looked for, or it has no text; then the rest means
                 * nothing */
    char role[16];
} weir__chat_mark;

/* One for each message, freed with weir__mem_free; NULL: no memory. Takes time in proportion to the texts:
 * behind many that are not there no more are looked for. */
weir__chat_mark *weir__chat_marks(const json_t *messages, const char *prompt, size_t length);

/* The message in whose text the byte `at` lies (*within), or the first of n that is not known to lie wholly
 * before it; n: all do. -1: cannot be told. */
int32_t weir__chat_mark_at(const weir__chat_mark *marks, size_t n, size_t at, bool *within);

#endif

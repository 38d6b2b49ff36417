/* marks.h: where the texts of messages are in a rendered prompt.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_MARKS_H
#define WEIR_CHAT_MARKS_H

#include "base/json.h"

/* Templates are programs and do not report where they put a text. So the texts are searched for, in order:
 * each has a first and a last possible place. If both are the same, that is the place. */
typedef struct weir__chat_mark {
    size_t from, to;           /* the first place, in bytes of the prompt */
    size_t last_from, last_to; /* the last */
    bool found; /* false: the prompt lacks the text as it was given, it was not searched for, or it is empty;
                 * then the rest means nothing */
    char role[16];
} weir__chat_mark;

/* Returns one mark per message (weir__mem_free); NULL: no memory. Takes time proportional to the texts: after
 * many that are missing, it stops searching. */
weir__chat_mark *weir__chat_marks(const json_t *messages, const char *prompt, size_t length);

/* The message whose text holds the byte `at` (*within), or the first of n that may not end before it; n: all
 * end before it. -1: unknown. */
int32_t weir__chat_mark_at(const weir__chat_mark *marks, size_t n, size_t at, bool *within);

#endif

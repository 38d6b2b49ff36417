/* continued.h: a last message that the answer continues. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_CONTINUED_H
#define WEIR_CHAT_CONTINUED_H

#include "backend/chat.h"
#include "base/json.h"
#include "chat/content.h"

/* The last message, if the answer continues it. Starts as zeroes: it does not.
 *
 * Templates render finished messages, and the handlers of llama.cpp put the beginning of a message together
 * themselves, often in another way. So the prompt is that of the finished message with a mark behind its
 * text, up to the mark. The handler gives the rest: the grammar, and the state in which the answer's parser
 * begins. */
typedef struct weir__chat_continued {
    weir__continuation kind;
    char *text;                            /* its content, or "" if its reasoning goes on; owned */
    char mark[WEIR__CHAT_PLACEHOLDER + 1]; /* a word that no message has */
    bool reasons;                          /* the message has reasoning */
    bool apart; /* a call must follow the text, which is no part of the form that is enforced */
    bool cut;   /* the template shows the mark, so the prompt ends there */
} weir__chat_continued;

/* required: a call must follow. False: out of memory. */
bool weir__chat_continued_init(weir__chat_continued *last, const json_t *messages, bool required);
void weir__chat_continued_fini(weir__chat_continued *last);

/* The messages with the mark behind the text that goes on; with that text as a single part, as handlers read
 * it. text: the content's. Freed with json_decref; NULL: out of memory. */
json_t *weir__chat_continued_marked(const weir__chat_continued *last, const json_t *messages);
json_t *weir__chat_continued_single(const weir__chat_continued *last, const json_t *messages,
                                    const char *text);

/* The messages of weir__chat_continued_single with the text of these messages' own last one, in which marks
 * may stand. */
json_t *weir__chat_continued_joined(const weir__chat_continued *last, const json_t *messages);

/* The messages without the last one; with a marked text as its whole content. Freed with json_decref; NULL:
 * out of memory. */
json_t *weir__chat_continued_before(const json_t *messages);
json_t *weir__chat_continued_alone(const weir__chat_continued *last, const json_t *messages,
                                   const char *text);

/* Cuts the prompt off at the mark. False: it has none. */
bool weir__chat_continued_cut(const weir__chat_continued *last, weir__text *prompt);

#endif

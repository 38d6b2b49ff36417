/* reshape.h: conversations that a template refuses, put into the form that the strictest ones take.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_RESHAPE_H
#define WEIR_CHAT_RESHAPE_H

#include "base/json.h"
#include "base/text.h"
#include "model/model.h"

/* Forms that a template may refuse: it raises an error, leaves a message out, or moves it. Strict templates
 * want one system message, which is the first, then a user's and the assistant's in turn, where calls are
 * followed by their results and those by the assistant. */
typedef enum weir__chat_shape {
    WEIR__SHAPE_TOOL_CALLS = 1 << 0,         /* calls: become text of the assistant */
    WEIR__SHAPE_TOOL_RESULTS = 1 << 1,       /* results: become text of a user */
    WEIR__SHAPE_CALL_ID = 1 << 2,            /* an id that is not nine letters and digits: gets another */
    WEIR__SHAPE_NO_CALL_ID = 1 << 3,         /* a call or result without an id: gets one */
    WEIR__SHAPE_CALL_TWICE = 1 << 4,         /* calls of one message: each gets a message */
    WEIR__SHAPE_SYSTEM_FIRST = 1 << 5,       /* a system message before others: joins the user's behind it */
    WEIR__SHAPE_SYSTEM_ONLY = 1 << 6,        /* nothing but system messages: an empty user's follows */
    WEIR__SHAPE_ASSISTANT_FIRST = 1 << 7,    /* the assistant's before any user's: an empty user's precedes */
    WEIR__SHAPE_ASSISTANT_TWICE = 1 << 8,    /* behind the assistant's own text: the same */
    WEIR__SHAPE_SYSTEM_TWICE = 1 << 9,       /* behind the first system message: joins that */
    WEIR__SHAPE_USER_TWICE = 1 << 10,        /* a user's behind a user's: joins that */
    WEIR__SHAPE_USER_AFTER_RESULT = 1 << 11, /* a user's behind a result: joins that */
    WEIR__SHAPE_USER_AFTER_CALL = 1 << 12,   /* a user's behind a call: becomes its result */
    WEIR__SHAPE_RESULT_TWICE = 1 << 13, /* more results than the message before has calls: become a user's */
    WEIR__SHAPE_RESULT_WITHOUT_CALL = 1 << 14, /* behind no call: becomes a user's */
    WEIR__SHAPE_SYSTEM_LATE = 1 << 15,         /* a system message behind others: becomes a user's */
    WEIR__SHAPE_ALL = (1 << 16) - 1,
} weir__chat_shape;

/* Bytes of the list of messages that were put. */
#define WEIR__SHAPE_LINES_MAX 4096

/* True if no template refuses the form: at most one system message, then a user's and the assistant's texts
 * in turn. */
bool weir__chat_is_regular(const json_t *messages);

/* Sets *put to the conversation without the refused shapes (bits of weir__chat_shape), or to NULL if it has
 * none of them; json_decref. What becomes of a message depends only on it and those before it, texts keep
 * their order, and each is in one of the new messages. Adds a line to `lines` for each message that was put
 * (NULL: none), as weir_chat_reshaped has them, with numbers from the n_added-th message on: the caller did
 * not give those before. Takes time proportional to the messages. False: no memory. */
bool weir__chat_reshape(const json_t *messages, unsigned refused, size_t n_added, json_t **put,
                        weir__text *lines);

/* ---- What a template refuses ---- */

/* The shapes (bits of weir__chat_shape) that the template refuses, without tools or with. Found on first use,
 * by rendering small conversations: a template is a program and does not say. A shape counts as refused if
 * one of them is rendered with all texts, in order, only without it. stack: as the template needs. Errors:
 * NO_MEMORY, ABORTED. */
weir_status weir__chat_probe(weir__chat_template *t, bool tools, size_t stack, unsigned *refused,
                             weir_error *error);

#endif

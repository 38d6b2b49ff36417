/* calls.h: tool calls with templates that know no tools, or whose form of calls cannot be enforced. A
 * system message describes the tools; the answer is constrained to {"name": …, "arguments": …} or, unless a
 * call is required, {"response": "…"}, and is read here. With a schema the response is any JSON that follows
 * it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_CALLS_H
#define WEIR_CHAT_CALLS_H

#include "backend/backend.h"
#include "base/text.h"
#include "chat/message.h"

typedef enum weir__chat_calls_talk {
    WEIR__TALK_NONE, /* the answer must be a call */
    WEIR__TALK_WORDS,
    WEIR__TALK_FORM, /* the response is JSON that follows a schema */
} weir__chat_calls_talk;

/* Sets the messages to render instead (json_decref) and the schema of the answer (weir__mem_free). form: the
 * schema of a response for WEIR__TALK_FORM, read on these terms. Each schema is tried by itself: combined,
 * one that nothing satisfies would only make a branch that is never taken. Errors: GRAMMAR (field: as
 * weir__chat_tools_init, or "json_schema" and the pointer), UNSUPPORTED (a build without llama.cpp),
 * NO_MEMORY. goes_on: the answer continues the last message, whose text is then that of a response. */
weir_status weir__chat_calls_describe(const json_t *messages, const weir__chat_tools *tools,
                                      weir__chat_calls_talk talk, bool goes_on, const json_t *form,
                                      const weir__schema_terms *terms, json_t **described, char **schema,
                                      weir_error *error);

/* Tells the grammar of such an answer where a call begins. */
void weir__chat_calls_mark(weir__grammar *grammar, weir__chat_calls_talk talk);

/* The message without calls: those of the assistant become text behind its own, in the form of such an
 * answer, a result becomes a user's text, and any other message stays. NULL: out of memory. */
json_t *weir__chat_calls_write(json_t *message);

/* Reads such an answer piece by piece. Text that does not have the form comes out as content. Starts as
 * zeroes. */
typedef struct weir__chat_calls_reader {
    bool form; /* WEIR__TALK_FORM */
    int state;
    weir__text seen; /* the frame of the answer: read, not delivered */
    weir__text word; /* the key, the name or the escape that is being read */
    char key;        /* 'n'ame, 'a'rguments, 'r'esponse, 0 = none */
    int depth;       /* open brackets of the JSON value */
    bool quoted, escaped;
    uint32_t high; /* the first half of a surrogate pair */
} weir__chat_calls_reader;

/* Receives deltas without ids; the receiver gives each call an id. */
typedef bool (*weir__chat_calls_fn)(void *user, const weir_delta *delta);

/* bytes [n] are well-formed UTF-8, and so is the text of each delta. False: take returned false, or out of
 * memory; then the first *used bytes were read, and the rest can be fed again. */
bool weir__chat_calls_feed(weir__chat_calls_reader *reader, const char *bytes, size_t n,
                           weir__chat_calls_fn take, void *user, size_t *used);

/* The answer ends: delivers text that is held back and cannot be the frame's. False: as above; call it
 * again. */
bool weir__chat_calls_end(weir__chat_calls_reader *reader, weir__chat_calls_fn take, void *user);
void weir__chat_calls_fini(weir__chat_calls_reader *reader);

#endif

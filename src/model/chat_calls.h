/* chat_calls.h: calls of tools with templates that know none, or in a form that cannot be enforced: the
 * tools are described in a system message, the answer is constrained to {"name": …, "arguments": …} or, where
 * words are allowed, {"response": "…"}, and read here. With a schema of its own the response is any JSON of
 * that form.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_CALLS_H
#define WEIR_MODEL_CHAT_CALLS_H

#include "base/text.h"
#include "model/chat_message.h"

typedef enum weir__chat_calls_talk {
    WEIR__TALK_NONE, /* a call must come */
    WEIR__TALK_WORDS,
    WEIR__TALK_FORM, /* JSON that has the form */
} weir__chat_calls_talk;

/* What to render instead (json_decref), and the schema of the answer (weir__mem_free). form: for
 * WEIR__TALK_FORM, and read on these terms. All schemas are tried each by itself: together, one that nothing
 * satisfies would be a form that is never taken. Errors: GRAMMAR (field: as weir__chat_tools_init has it, or
 * "json_schema" and the pointer), UNSUPPORTED (a build without llama.cpp), NO_MEMORY. */
weir_status weir__chat_calls_describe(const json_t *messages, const weir__chat_tools *tools,
                                      weir__chat_calls_talk talk, const json_t *form,
                                      const weir__schema_terms *terms, json_t **described, char **schema,
                                      weir_error *error);

/* Reads such an answer piece by piece. What does not have the form comes out as content. Begins as zeroes. */
typedef struct weir__chat_calls_reader {
    bool form; /* WEIR__TALK_FORM */
    int state;
    weir__text seen; /* what was read and not delivered: the frame of the answer */
    weir__text word; /* the key, the name or the escape that is being read */
    char key;        /* 'n'ame, 'a'rguments, 'r'esponse, 0 = none */
    int depth;       /* open brackets of the JSON value */
    bool quoted, escaped;
    uint32_t high; /* the first half of a surrogate pair */
} weir__chat_calls_reader;

/* Gets deltas without an id: whoever delivers them gives one to the call. */
typedef bool (*weir__chat_calls_fn)(void *user, const weir_delta *delta);

/* bytes [n] are well-formed UTF-8, and so is each delta's text. False: take said so, or out of memory; then
 * the first *used bytes were read, and the rest can be given once more. */
bool weir__chat_calls_feed(weir__chat_calls_reader *reader, const char *bytes, size_t n,
                           weir__chat_calls_fn take, void *user, size_t *used);

/* No more will come: what was held back. False: as above, to be repeated. */
bool weir__chat_calls_end(weir__chat_calls_reader *reader, weir__chat_calls_fn take, void *user);
void weir__chat_calls_fini(weir__chat_calls_reader *reader);

#endif

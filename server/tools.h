/* tools.h: calls of tools with models whose templates know none, or in a form that cannot be enforced: the
 * tools are described in a system message, the answer is constrained to {"name": …, "arguments": …} or, where
 * words are allowed, {"response": "…"}, and read here. With a schema of its own the response is any JSON of
 * that form.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_TOOLS_H
#define WEIR_SERVER_TOOLS_H

#include <jansson.h>

#include "text.h"
#include <weir/weir.h>

typedef enum serve_talk {
    SERVE_TALK_NONE, /* a call must come */
    SERVE_TALK_WORDS,
    SERVE_TALK_FORM, /* JSON that has the form */
} serve_talk;

/* What to render instead, and the answer's form; both freed with weir__mem_free. form: for SERVE_TALK_FORM.
 * False: out of memory. */
bool serve_tools_describe(const json_t *messages, const json_t *tools, serve_talk talk, const json_t *form,
                          char **messages_text, char **schema_text);

/* Whether all schemas can be honoured, each by itself: together, one that nothing satisfies would be a form
 * that is never taken. error->field: the place in the request; form_place: that of form. Errors: GRAMMAR,
 * UNSUPPORTED (a build without llama.cpp), NO_MEMORY. */
weir_status serve_tools_check(const json_t *tools, const json_t *form, const char *form_place,
                              weir_error *error);

/* Reads such an answer piece by piece. What does not have the form comes out as content. Begins as zeroes,
 * with `number`, which makes the call's id. */
typedef struct serve_caller {
    uint64_t number;
    int32_t index;
    bool form; /* SERVE_TALK_FORM */
    int state;
    serve_text seen; /* what was read and not delivered: the frame of the answer */
    serve_text word; /* the key, the name or the escape that is being read */
    char key;        /* 'n'ame, 'a'rguments, 'r'esponse, 0 = none */
    int depth;       /* brackets that are open in the arguments, or in the response's JSON */
    bool quoted, escaped;
    uint32_t high; /* the first half of a surrogate pair */
} serve_caller;

typedef bool (*serve_delta_fn)(void *user, const weir_delta *delta);

/* False: take said so, or out of memory. */
bool serve_caller_feed(serve_caller *caller, const char *bytes, size_t n, serve_delta_fn take, void *user);

/* No more will come: what was held back. */
bool serve_caller_end(serve_caller *caller, serve_delta_fn take, void *user);
void serve_caller_fini(serve_caller *caller);

#endif

/* tools.h: calls of tools with models whose templates know none: the tools are described in a system message,
 * the answer is constrained to {"name": …, "arguments": …} or, where words are allowed, {"response": "…"},
 * and read here. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_TOOLS_H
#define WEIR_SERVER_TOOLS_H

#include <jansson.h>

#include "text.h"
#include <weir/weir.h>

/* What to render instead, and the answer's form; both freed with weir__mem_free. may_talk: an answer in words
 * is allowed. False: out of memory. */
bool serve_tools_describe(const json_t *messages, const json_t *tools, bool may_talk, char **messages_text,
                          char **schema_text);

/* Reads such an answer piece by piece. What does not have the form comes out as content. Begins as zeroes,
 * with `number`, which makes the call's id. */
typedef struct serve_caller {
    uint64_t number;
    int32_t index;
    int state;
    serve_text seen; /* what was read and not delivered: the frame of the answer */
    serve_text word; /* the key, the name or the escape that is being read */
    char key;        /* 'n'ame, 'a'rguments, 'r'esponse, 0 = none */
    int depth;       /* brackets that are open in the arguments */
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

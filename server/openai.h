/* openai.h: common to OpenAI's formats of chat and completions, and llama-server's completions: objects of
 * choices, in a frame or alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_OPENAI_H
#define WEIR_SERVER_OPENAI_H

#include "answer.h"

/* A choice's object is written without the frame around it. Begins with the serve_form. */
typedef struct serve_openai {
    serve_form form;    /* SERVE_OPENAI_FORM */
    const char *object; /* of a whole answer */
    const char *chunk;  /* of an event */
    bool bare; /* the objects stand alone: no frame around them, no [DONE] (llama-server's own form) */
    void (*begin)(serve_choice *choice, weir__text *text); /* NULL: nothing comes first */
    void (*delta)(serve_choice *choice, const weir_delta *delta, weir__text *text);
    void (*end)(serve_choice *choice, weir__text *text);
    void (*whole)(serve_choice *choice, weir__text *text);
    void (*rest)(const serve_answer *answer, weir__text *text); /* at a whole answer's end; NULL: nothing */
} serve_openai;

#define SERVE_OPENAI_FORM(prefix)                                                                            \
    {                                                                                                        \
        .id = (prefix), .head = serve_openai_head, .begin = serve_openai_begin, .delta = serve_openai_delta, \
        .end = serve_openai_end, .finish = serve_openai_finish, .fail = serve_openai_fail,                   \
        .whole = serve_openai_whole                                                                          \
    }

void serve_openai_head(const serve_answer *answer, weir__text *text);
void serve_openai_begin(serve_choice *choice);
void serve_openai_delta(serve_choice *choice, const weir_delta *delta);
void serve_openai_end(serve_choice *choice);
void serve_openai_finish(serve_answer *answer);
void serve_openai_fail(serve_answer *answer, const serve_failure *why);
void serve_openai_whole(serve_answer *answer, weir__text *text);

/* The last members of a choice's object, and its end. */
void serve_openai_add_reason(const serve_choice *choice, weir__text *text);

/* The prompt's logprobs in vLLM's format, if requested. */
void serve_openai_add_prompt(const serve_choice *choice, weir__text *text);

#endif

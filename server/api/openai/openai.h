/* openai.h: common to OpenAI's formats of chat and completions, and llama-server's completions: objects of
 * choices, in a frame or alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OPENAI_OPENAI_H
#define WEIR_SERVER_API_OPENAI_OPENAI_H

#include "server/api/common/answer.h"

/* A choice's object is written without the frame around it. */
struct serve_openai {
    const char *object; /* of a whole answer */
    const char *chunk;  /* of an event */
    bool bare; /* the objects stand alone: no frame around them, no [DONE] (llama-server's own form) */
    void (*begin)(serve_choice *choice, weir__text *text); /* NULL: nothing comes first */
    void (*delta)(serve_choice *choice, const weir_delta *delta, weir__text *text);
    void (*silent)(const serve_choice *choice, weir__text *text); /* without output; bare: without its end */
    void (*end)(serve_choice *choice, weir__text *text);
    void (*whole)(serve_choice *choice, weir__text *text);
    void (*rest)(const serve_answer *answer, weir__text *text); /* at a whole answer's end; NULL: nothing */
};

extern const serve_openai serve_openai_chat, serve_openai_completions, serve_openai_native;
extern const serve_form serve_chat_form, serve_completions_form, serve_native_form;

/* The last members of a choice's object, and its end. */
void serve_openai_add_reason(const serve_choice *choice, weir__text *text);

/* The member "timings", as llama-server has it. */
void serve_openai_add_timings(const weir_usage *usage, weir__text *text);

/* Adds ids if requested, as vLLM has them: "token_ids" of the tokens that are in no object of the choice yet,
 * and once "prompt_token_ids", for the first choice of a prompt. */
void serve_openai_add_ids(serve_choice *choice, weir__text *text);
void serve_openai_add_prompt_ids(serve_choice *choice, weir__text *text);

/* The prompt's logprobs in vLLM's format, if requested. */
void serve_openai_add_prompt(const serve_choice *choice, weir__text *text);

#endif

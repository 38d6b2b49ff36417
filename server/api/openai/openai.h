/* openai.h: OpenAI's APIs: their paths (http/paths.c), and what their files share with each other and with
 * those of Ollama and llama-server.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OPENAI_OPENAI_H
#define WEIR_SERVER_API_OPENAI_OPENAI_H

#include "server/api/common/answer.h"
#include "server/api/common/ask.h"

serve_handler serve_chat, serve_completions, serve_embeddings, serve_models, serve_models_load,
    serve_models_unload, serve_responses, serve_input_tokens, serve_response_get, serve_response_delete,
    serve_response_cancel, serve_response_items;

/* ---- openai.c: objects of choices, in a frame or alone, of chat, completions, and llama-server's ---- */

/* A choice's object is written without the frame around it. */
struct serve_openai {
    const char *object; /* of a whole answer */
    const char *chunk;  /* of an event */
    bool bare; /* the objects stand alone: no frame around them, no [DONE] (llama-server's own form) */
    void (*begin)(serve_choice *choice, weir__text *text);              /* NULL: nothing comes first */
    bool (*shows)(const serve_choice *choice, const weir_delta *delta); /* false: no event; NULL: true */
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

/* ---- completions.c: requests with a prompt instead of a conversation ---- */

/* Answers a request with a prompt in the form that is written; where: SERVE_ASK_COMPLETIONS and more.
 * Worker. */
void serve_complete(serve_call *call, unsigned where, const serve_form *written);

/* Answers a request that was read, likewise. */
void serve_complete_ask(serve_ask *ask, const serve_form *written);

/* ---- The Responses API ---- */

extern const serve_form serve_responses_form;

/* Reads its conversation, tools and options, after serve_ask_read. False: the call has its answer. */
bool serve_ask_responses(serve_ask *ask);

/* items.c: puts kept items in the place of references to them in "input". False: the call has its answer. */
bool serve_ask_references(serve_ask *ask);

/* items.c: the part of an item that was read which is kept: all that a prompt uses, and what clients expect
 * to be repeated, with a type and an id. Annotations, logprobs and whatever else no prompt has are left out.
 * id: for an item that has none. Freed with json_decref; NULL: out of memory. */
json_t *serve_item_lean(const json_t *item, const char *id);

/* ---- models.c ---- */

/* Appends the states of several models as the member "models". */
void serve_models_add_states(serve_server *server, weir__text *text);

#endif

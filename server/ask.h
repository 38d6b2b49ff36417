/* ask.h: the fields of a request for text, read from its JSON. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ASK_H
#define WEIR_SERVER_ASK_H

#include <jansson.h>

#include "answer.h"
#include "kept.h"

#define SERVE_ASK_CHAT        1u
#define SERVE_ASK_COMPLETIONS 2u
#define SERVE_ASK_NATIVE      4u /* beside COMPLETIONS: llama-server's own */

#define SERVE_N_MAX    SERVE_CHOICES_MAX
#define SERVE_STOP_MAX 64 /* what the library allows */
#define SERVE_ARGS_MAX 62 /* variables of a template; the library allows 64 */

typedef enum serve_tools {
    SERVE_TOOLS_UNSAID,
    SERVE_TOOLS_AUTO,
    SERVE_TOOLS_NONE,
    SERVE_TOOLS_REQUIRED,
    SERVE_TOOLS_NAMED, /* tool_name */
} serve_tools;

/* Whether the assistant's turn is begun; with UNSAID it is, unless the last message goes on. */
typedef enum serve_generation_prompt {
    SERVE_PROMPT_UNSAID,
    SERVE_PROMPT_WANTED,
    SERVE_PROMPT_UNWANTED,
} serve_generation_prompt;

/* Values borrow from `json`, which is owned. */
typedef struct serve_ask {
    json_t *json;
    weir_sampler_params sampler;
    weir_request request; /* the members that fields set; serve_ask_request adds the rest */
    bool stream, include_usage, ignore_eos, resume, share;
    int32_t n, best_of;
    const json_t *fork; /* NULL = none */
    bool unkept;        /* store: false */
    const char *cache_salt;
    const char *adapter; /* the model that was asked for is one; NULL = it is not */
    const json_t *lora;  /* NULL = not given */
    serve_adapter_set adapters;

    const char *stop[SERVE_STOP_MAX];
    size_t stop_length[SERVE_STOP_MAX];
    size_t n_stop;
    weir_logit_bias *biases; /* owned */
    const char **breakers;   /* owned */
    char *order;             /* owned */

    const json_t *prompt, *messages, *tools, *kwargs; /* NULL = not given */
    char *schema;                                     /* owned: the answer's; NULL = any */
    bool strict_schema; /* what of it cannot be enforced is an error in chats too */
    serve_tools tool_choice;
    const char *tool_name;
    const json_t *tools_allowed; /* an array of tools by name; NULL = all */
    bool parallel_tool_calls, continue_final, echo;
    serve_generation_prompt generation_prompt;
    const char *reasoning_effort;
    weir_special_content special_content;
} serve_ask;

/* Reads call->body. False: the call has its answer, a refusal that names the field. Freed with fini
 * always. */
bool serve_ask_read(serve_ask *ask, serve_call *call, unsigned where);
void serve_ask_fini(serve_ask *ask);

/* The field that sets a member of `of`, "sampler" or "request" (NULL: either), where the table has a line for
 * it; member is [n]. NULL: it has none. */
const char *serve_ask_name(const char *of, const char *member, size_t n);

/* Fills what all requests of the ask share; borrows from it. salt is [SERVE_SALT_MAX], which holds a key's
 * digest and what a request adds. */
#define SERVE_SALT_MAX 512
#define SERVE_SALT_OWN 256
void serve_ask_request(serve_ask *ask, const serve_call *call, char *salt, weir_request *request);

/* What the answer is to go on from; the request's source, too. False: the call has its answer. Freed with
 * serve_kept_choice_fini. */
bool serve_ask_fork(serve_ask *ask, serve_call *call, const char *salt, weir_request *request,
                    serve_kept_choice *choice);

/* How the answer comes, which scores it tells, and whether it is kept. */
void serve_ask_answer(const serve_ask *ask, serve_answer *answer);

/* Answers a request with a prompt in the form that is written; where: SERVE_ASK_COMPLETIONS and more.
 * Worker. */
void serve_complete(serve_call *call, unsigned where, const serve_form *written);

/* Renders messages; NULL: the call has its answer. */
weir_chat *serve_ask_render(serve_ask *ask, serve_call *call);

#endif

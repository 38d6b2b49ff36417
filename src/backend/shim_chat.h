/* shim_chat.h: llama.cpp's chat templates and output parsers for C, in shim_chat.cpp. Apart
 * from shim.h because callers outside the backend do not see llama.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_SHIM_CHAT_H
#define WEIR_BACKEND_SHIM_CHAT_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A parsed template. It remembers what was found in it, and is the same for all that. Any thread. */
typedef struct weir__shim_template weir__shim_template;

/* TEMPLATE: the source does not parse. bos, eos: their texts, or "". */
weir_status weir__shim_template_create(const char *source, const char *bos, const char *eos,
                                       weir__shim_template **out, weir_error *error);
void weir__shim_template_destroy(weir__shim_template *t);

/* Whether it renders tools, or calls of them. */
bool weir__shim_template_knows_tools(const weir__shim_template *t);

typedef struct weir__shim_render {
    const char *messages;       /* JSON array as in OpenAI's API */
    const char *tools;          /* JSON array as in OpenAI's API, or NULL: what the prompt shows */
    const char *enforced_tools; /* the same tools with rewritten parameters: what the grammar is made of */
    const char *json_schema;    /* rewritten, or NULL */
    weir_tool_choice tool_choice;
    const char *const *arg_keys;   /* [n_args] */
    const char *const *arg_values; /* [n_args], JSON */
    size_t n_args;
    bool parallel_tool_calls;
    bool add_generation_prompt;
    bool enable_thinking;
    bool continue_final;
    bool parse_reasoning;
} weir__shim_render;

/* A rendered conversation and the parser of its answer. Immutable; any thread. */
typedef struct weir__shim_chat weir__shim_chat;

/* A required call is enforced: nothing but reasoning comes before it, and with enable_thinking false not even
 * that. Tools with a schema: an answer is one or the other. TEMPLATE: what the template says. UNSUPPORTED:
 * that cannot be enforced with it. */
weir_status weir__shim_chat_create(const weir__shim_template *t, const weir__shim_render *in,
                                   weir__shim_chat **out, weir_error *error);
void weir__shim_chat_destroy(weir__shim_chat *chat);

/* The prompt alone, as weir__shim_chat_create has it: add gets it once, and false from it is NO_MEMORY. */
weir_status weir__shim_chat_prompt(const weir__shim_template *t, const weir__shim_render *in,
                                   bool (*add)(void *user, const char *prompt, size_t n), void *user,
                                   weir_error *error);

/* Pointers live as long as the chat. */
typedef struct weir__shim_chat_view {
    const char *prompt;
    size_t prompt_length;
    const char *grammar; /* "" = none */
    bool lazy;
    const char *generation_prompt; /* what the prompt already holds of the answer */
    size_t n_triggers, n_stops, n_preserved;
} weir__shim_chat_view;

void weir__shim_chat_look(const weir__shim_chat *chat, weir__shim_chat_view *view);
const char *weir__shim_chat_trigger(const weir__shim_chat *chat, size_t i, int *kind); /* as weir__trigger */
const char *weir__shim_chat_stop(const weir__shim_chat *chat, size_t i);
const char *weir__shim_chat_preserved(const weir__shim_chat *chat, size_t i);

/* How answers of this form can be read without parsing all of them again. */
typedef struct weir__shim_form {
    bool plain_tail;           /* once there is content, all that follows is content, byte for byte */
    unsigned char breaks[256]; /* [byte]: nonzero where a delimiter of the form begins with it; other bytes go
                                * on with the content or reasoning they follow */
    bool loose_arguments; /* calls have their arguments one by one, and not all of them by their schema */
    bool has_ids;         /* calls have ids in the text */
    bool has_breaks;      /* the table is complete: all text is delimited by texts */
} weir__shim_form;

void weir__shim_chat_form(const weir__shim_chat *chat, weir__shim_form *form);

typedef struct weir__shim_call {
    const char *name, *arguments, *id;
    size_t name_length, arguments_length, id_length;
} weir__shim_call;

/* What an answer says. Owned by whoever parsed; a zeroed one is empty. */
typedef struct weir__shim_message {
    const char *content, *reasoning;
    size_t content_length, reasoning_length;
    const weir__shim_call *calls; /* [n_calls] */
    size_t n_calls;
    bool broken;
    void *owner;
} weir__shim_message;

/* whole: the text must have the form from end to end; else it may break off anywhere, and `broken` tells that
 * no more text could make it have the form. BACKEND: there is no message. */
weir_status weir__shim_chat_parse(const weir__shim_chat *chat, const char *text, size_t length, bool whole,
                                  weir__shim_message *message, weir_error *error);
void weir__shim_message_fini(weir__shim_message *message);

#ifdef __cplusplus
}
#endif
#endif

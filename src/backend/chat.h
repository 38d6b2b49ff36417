/* chat.h: llama.cpp's chat templates and parsers of answers. src/llama implements it; the fake has none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_CHAT_H
#define WEIR_BACKEND_CHAT_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/backend.h"
#include "base/json.h"

/* A parsed template. Any thread; it keeps the results of its analysis, and the last forms of answers. */
typedef struct weir__llama_template weir__llama_template;

/* bos, eos: their texts, or "". TEMPLATE: the source does not parse. */
weir_status weir__llama_template_create(const char *source, const char *bos, const char *eos,
                                        weir__llama_template **out, weir_error *error);
void weir__llama_template_destroy(weir__llama_template *t);

/* True if it renders tools or calls of tools. */
bool weir__llama_template_knows_tools(const weir__llama_template *t);

/* The part of the last message that goes on in the answer. */
typedef enum weir__continuation {
    WEIR__CONTINUE_NONE,
    WEIR__CONTINUE_TEXT,
    WEIR__CONTINUE_REASONING,
} weir__continuation;

/* The member of a call's function that has its arguments as they were read from their text. */
#define WEIR__CHAT_PARSED "\xef\xb7\x90parsed"

typedef struct weir__llama_render {
    const json_t *messages;       /* as in OpenAI's API, checked */
    const json_t *tools;          /* as in OpenAI's API, or NULL: shown in the prompt */
    const json_t *enforced_tools; /* the same with rewritten parameters, for the grammar */
    const json_t *json_schema;    /* rewritten, or NULL */
    const json_t *args;           /* an object: variables of the template */
    weir_tool_choice tool_choice;
    bool parallel_tool_calls;
    bool add_generation_prompt;
    bool enable_thinking;
    weir__continuation continuation;
    bool fenced; /* the text that goes on may have opened a Markdown fence */
    bool parse_reasoning;
} weir__llama_render;

/* A rendered conversation and the form of its answer, which others may share. Immutable; any thread. */
typedef struct weir__llama_chat weir__llama_chat;

/* Enforces a required call: nothing but reasoning comes before it, and not even that if enable_thinking is
 * false. With tools and a schema, an answer is one or the other. TEMPLATE: the template raised an error.
 * UNSUPPORTED: this template's form of calls cannot be enforced. */
weir_status weir__llama_chat_create(const weir__llama_template *t, const weir__llama_render *in,
                                    weir__llama_chat **out, weir_error *error);
void weir__llama_chat_destroy(weir__llama_chat *chat);

/* Replaces generation_prompt, before the chat is used. NO_MEMORY. */
weir_status weir__llama_chat_begin(weir__llama_chat *chat, const char *text, weir_error *error);

/* Renders the prompt alone, as weir__llama_chat_create would. add gets it once; false from add: NO_MEMORY. */
weir_status weir__llama_chat_prompt(const weir__llama_template *t, const weir__llama_render *in,
                                    bool (*add)(void *user, const char *prompt, size_t n), void *user,
                                    weir_error *error);

/* Properties of a form of answers: how these can be read without parsing all of them again. */
typedef struct weir__llama_form {
    bool plain_tail;           /* all that follows the start of the content is content, byte for byte */
    unsigned char breaks[256]; /* [byte]: nonzero if a delimiter of the form begins with it; other bytes
                                * continue the content or reasoning that they follow */
    bool has_breaks;           /* the table is complete: literal texts delimit everything */
    bool loose_arguments;      /* calls have arguments one by one, and not all of them follow their schema */
    bool has_ids;              /* calls have ids in the text */
} weir__llama_form;

#define WEIR__MARK_MAX 256 /* bytes of a text around reasoning; the longest of llama.cpp's has 33 */

/* The result of a rendering. Pointers live as long as the chat. */
typedef struct weir__llama_rendered {
    const char *prompt;
    size_t prompt_length;
    const char *grammar; /* "" = none */
    bool lazy;
    bool calls_only;               /* the answer must be a call: its parser knows no content */
    const char *generation_prompt; /* the part of the answer that the prompt already holds */
    const weir__trigger *triggers; /* [n_triggers] where calls begin, without tokens */
    size_t n_triggers;
    const char *const *stops; /* [n_stops] */
    size_t n_stops;
    const char *const *preserved; /* [n_preserved] texts of control tokens that the parser reads */
    size_t n_preserved;
    const char *reasoning_start;       /* "" = an answer begins within its reasoning */
    const char *const *reasoning_ends; /* [n_reasoning_ends], if there are any: WEIR__MARK_MAX bytes at most,
                                        * as the start; 0 = the parser finds no reasoning by them */
    size_t n_reasoning_ends;
    const char *reasoning_closing; /* one of them, with white space that the parser needs beside it */
    weir__llama_form form;
} weir__llama_rendered;

const weir__llama_rendered *weir__llama_chat_rendered(const weir__llama_chat *chat);

typedef struct weir__llama_call {
    const char *name, *arguments, *id;
    size_t name_length, arguments_length, id_length;
} weir__llama_call;

/* A parsed answer. Starts as zeroes. */
typedef struct weir__llama_message {
    const char *content, *reasoning;
    size_t content_length, reasoning_length;
    const weir__llama_call *calls; /* [n_calls] */
    size_t n_calls;
    bool broken;
    void *owner;
} weir__llama_message;

/* The bytes at the end of the text that may be the beginning of a delimiter. What they are is open until more
 * comes, and parsers do not all wait for it. */
size_t weir__llama_chat_undecided(const weir__llama_chat *chat, const char *text, size_t length);

/* True if a word that triggers the grammar of calls is in the text, or the text ends with a delimiter that
 * lacks but white space. An answer's parser may take both for content. */
bool weir__llama_chat_calls(const weir__llama_chat *chat, const char *text, size_t length);

/* True if a delimiter that ends content or reasoning is in the text, or one of those. After a delimiter of
 * one byte, another text of the form must come. */
bool weir__llama_chat_delimits(const weir__llama_chat *chat, const char *text, size_t length);

/* whole: the text must have the form from end to end. Otherwise it may break off anywhere, and `broken` says
 * that no continuation could give it the form. BACKEND: there is no message. */
weir_status weir__llama_chat_parse(const weir__llama_chat *chat, const char *text, size_t length, bool whole,
                                   weir__llama_message *message, weir_error *error);
void weir__llama_message_fini(weir__llama_message *message);

#ifdef __cplusplus
}
#endif
#endif

/* chat.h: a rendered conversation: the prompt, and how its answer is constrained and read.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CHAT_CHAT_H
#define WEIR_CHAT_CHAT_H

#include "backend/chat.h"
#include "base/budget.h"
#include "base/error.h"
#include "chat/content.h"
#include "chat/marks.h"
#include "chat/message.h"
#include "model/model.h"

/* The marks of reasoning in an answer. The texts lie in the chat's reader. */
typedef struct weir__chat_reasoning {
    const char *start;       /* NULL or "" = the answer begins within its reasoning */
    const char *const *ends; /* [n_ends]; none = there is no reasoning, or it is unknown how it ends */
    size_t n_ends;
    const char *closing; /* ends it early; has one of the ends in it */
    const char *begun;   /* the part of the answer that the prompt already holds; NULL = "" */
} weir__chat_reasoning;

/* Immutable but for refs. Texts of the template lie in `reader`. */
struct weir_chat {
    _Atomic int refs;
    weir_model *model;        /* held */
    weir__llama_chat *reader; /* NULL in a build without llama.cpp */
    bool plain;               /* the answer is all content: nothing parses it */
    char *begun;      /* NULL, or the text that goes on: the answer, as the grammar and the parser read
                              * it, begins with it, but it is not delivered again */
    bool calls;       /* the content has the form of calls.h, */
    bool form;        /* and its response is JSON */
    char *own_prompt; /* the prompt, or NULL if it lies in reader */
    const char *prompt;
    size_t prompt_length;
    const weir__grammar *constraint; /* of the answer: &grammar, or NULL */
    weir__grammar grammar;
    char *schema_grammar;     /* NULL, or grammar.text if a schema alone constrains the answer */
    weir__trigger *triggers;  /* grammar.triggers */
    const char *const *stops; /* [n_stops] the template's stop strings */
    size_t n_stops;
    int32_t *preserved; /* [n_preserved] control tokens that the parser reads in the answer, ascending */
    size_t n_preserved;
    weir__chat_reasoning reasoning; /* of the answer */
    weir__chat_mark *marks;         /* [n_messages] where the messages lie in the prompt */
    size_t n_messages;
    char *relaxed;                /* NULL, or lines for weir_chat_relaxed */
    weir__text reshaped;          /* lines for weir_chat_reshaped */
    size_t n_added;               /* messages in front that the caller did not give */
    weir_special_content special; /* the policy that holds for the prompt */
    weir__spans spans;            /* contents in the prompt, while the chat is created */
    weir__parts parts;            /* how the prompt is tokenized */
    weir_media_use *media;        /* [n_media] held; bytes of the prompt */
    size_t n_media;
};

/* Renders messages and tools into the chat, whatever params has of both: fills all but `calls`, `form`,
 * `parts`, `media`, the marks, `relaxed` and `n_added`. relaxed: gets lines about
 * json_schema; may be NULL. */
weir_status weir__chat_render(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                              const weir__chat_tools *tools, weir__text *relaxed, weir_error *error);

/* Fills the members that say how the answer is constrained and read, from the template handler's analysis.
 * schema: json_schema, rewritten, or NULL. */
weir_status weir__chat_read_constraint(weir_chat *chat, const weir__llama_rendered *rendered,
                                       const json_t *schema, weir_error *error);

/* The terms on which json_schema is rewritten. */
static inline weir__schema_terms weir__chat_schema_terms(const weir_chat_params *params, weir__text *relaxed)
{
    return (weir__schema_terms){
        .where = "json_schema", .tag = "w", .relax = !params->strict_schema, .relaxed = relaxed};
}

/* Templates get text, as llama.cpp's server gives it to them: a marker in the place of each medium. It is a
 * word that no message has, so no text of a message can be one. */
typedef struct weir__chat_markers {
    char stem[WEIR__CHAT_PLACEHOLDER + 1]; /* "": there are no media */
} weir__chat_markers;

/* media.c: replaces the parts that are media by markers. Errors: INVALID (media[i], n_media, or the
 * part: too few media, too many, or one of another kind), NO_MEMORY. */
weir_status weir__chat_media_mark(const weir_chat_params *params, json_t *messages,
                                  weir__chat_markers *markers, weir_error *error);

/* Removes the markers from the chat's prompt and fills its media. messages: those with markers. Errors:
 * TEMPLATE (field: the part whose marker the template has left out, changed or repeated), NO_MEMORY. */
weir_status weir__chat_media_find(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                                  const weir__chat_markers *markers, weir_error *error);

/* Tokenizes as weir_chat_tokenize does; places: [n_media] gets the number of tokens before each of the chat's
 * media; NULL: not asked. */
weir_status weir__chat_tokenize(const weir_chat *chat, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                size_t *places, weir_error *error);

/* Work that was interrupted ends like this, too. */
static inline weir_status weir__chat_no_memory(weir_error *error)
{
    if (weir_interrupt_asked()) return weir__interrupt_error(error);
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat");
}

#endif

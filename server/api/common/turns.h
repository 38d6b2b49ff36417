/* turns.h: a conversation of another dialect, rewritten as messages of chat completions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_TURNS_H
#define WEIR_SERVER_API_COMMON_TURNS_H

#include "ask.h"

/* Begins as zeroes, except for the ask. An addition that fails sets `failed`, which is read at the end;
 * one for which there is no room gives the call its answer (call->begun). */
typedef struct serve_turns {
    serve_ask *ask;
    json_t *messages; /* owned, until serve_turns_end */
    json_t *last;     /* the message that grows; NULL: none */
    size_t n_first;   /* messages of the system that stay when the others become a summary */
    size_t n_parts;   /* of all messages */
    bool failed;      /* memory ran out */
} serve_turns;

/* Begins a message. place: where it is in the request, for errors. */
void serve_turns_begin(serve_turns *turns, const char *role, const char *place);

/* Continues the last message if it has this role, else begins one. */
void serve_turns_go_on(serve_turns *turns, const char *role, const char *place);

/* Add to the last message: a text; an image, with its place in the request; reasoning; a call of a tool,
 * whose arguments are an object or JSON text; the id of the call whose result it is. They keep references of
 * their own. */
void serve_turns_add_text(serve_turns *turns, const json_t *text);
void serve_turns_add_image(serve_turns *turns, const char *place, const json_t *url);
void serve_turns_add_reasoning(serve_turns *turns, const json_t *text);
void serve_turns_add_call(serve_turns *turns, const json_t *id, const json_t *name, const json_t *arguments);
void serve_turns_set_call(serve_turns *turns, const json_t *id);

/* Reads content that is a string, or an array each of whose items `each` reads (to: the turns), into the last
 * message. expected: what it may be. False: the call has its answer. */
bool serve_turns_read_content(serve_turns *turns, const char *place, const json_t *content,
                              serve_reader *each, const char *expected);

/* Reads an item that has the members of `of` alone, and in `name` a text, which `add` takes, likewise. */
bool serve_turns_read_text(serve_turns *turns, const char *place, const json_t *item, serve_object of,
                           const char *name, const char *expected,
                           void (*add)(serve_turns *turns, const json_t *text));

/* Drops the last message if it is the system's or the assistant's and nothing was added to it. */
void serve_turns_drop_empty(serve_turns *turns);

/* Drops all messages but the first n. */
void serve_turns_cut(serve_turns *turns, size_t n);

/* Makes the messages those of the ask. False: out of memory, and the call has its answer. */
bool serve_turns_end(serve_turns *turns);

/* Lets the answer continue a last message of the assistant that has only texts and reasoning. */
void serve_turns_continue(serve_ask *ask);

/* Frees the messages, unless the ask has them. */
void serve_turns_fini(serve_turns *turns);

#endif

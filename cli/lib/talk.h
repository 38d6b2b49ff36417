/* talk.h: answers as the model's parser reads them, to stdout as they come; and a conversation: its messages,
 * and the next answer.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_TALK_H
#define WEIR_CLI_TALK_H

#include "media.h"
#include "options.h"
#include "text.h"

/* ---- Answers ---- */

/* Zeroed at the start. */
typedef struct cli_reply {
    bool silent;              /* nothing is printed */
    bool trims;               /* blanks before the answer are left out */
    weir_chat *chat;          /* NULL: the prompt as it stands */
    weir_chat_parser *parser; /* NULL: the answer is content */
    cli_text content, reasoning;
    cli_wrap wrap; /* of a terminal */
    bool thinking; /* what was printed last is reasoning */
} cli_reply;

void cli_reply_fini(cli_reply *reply);

/* Renders messages [n] and their media (cli_media_messages) with the model's template or the user's. CLI_OK,
 * or a code after a message that begins with `context`. */
cli_exit cli_reply_render(cli_reply *reply, const cli_args *args, const cli_ask *ask, weir_model *model,
                          const weir_message *messages, size_t n, const cli_media *media, size_t first,
                          const char *context);

/* Called with each chunk of a stream before its text is added. */
typedef void cli_reply_fn(void *user, const weir_chunk *chunk);

/* Takes all chunks up to the last one, which always comes: a signal, or a reader of stdout that has left,
 * cancels the stream. Until the first one a terminal shows how far the prompt is. Reasoning is dimmed on a
 * terminal, and printed nowhere else. `fn` may be NULL. CLI_OK, or a code after a message. */
cli_exit cli_reply_follow(cli_reply *reply, const cli_args *args, weir_stream *stream, cli_reply_fn *fn,
                          void *user);

/* Ends styles and the line. */
void cli_reply_end(cli_reply *reply);

/* Messages are the user's and the assistant's in turn, the user's first; system stands before them. */
typedef struct cli_talk {
    const cli_args *args;
    weir_model *model;
    weir_engine *engine;
    cli_ask ask;            /* how answers are sampled; owned */
    char *system;           /* NULL: none; owned */
    weir_message *messages; /* [n] roles are static, contents owned */
    size_t n, capacity;
    size_t first;     /* message that the model sees; those before it stay, but are left out of prompts */
    cli_media media;  /* of the messages */
    weir_usage usage; /* of the last answer */
    weir_miss_info miss;
    weir_reason reason;
    bool too_long; /* the last answer was refused because the conversation does not fit */
    char why[sizeof((cli_words *)0)->text]; /* the library's words for that */
    int n_answers;
} cli_talk;

void cli_talk_init(cli_talk *talk, const cli_args *args);
void cli_talk_fini(cli_talk *talk);

/* Copies the content. */
void cli_talk_add(cli_talk *talk, bool user, const char *content);

/* Forgets messages until n are left. */
void cli_talk_cut(cli_talk *talk, size_t n);

/* Forgets the first n messages, an even number. */
void cli_talk_forget(cli_talk *talk, size_t n);

/* The answer to the last message, the user's: to stdout as it comes, and added when some came. Ctrl-C ends
 * the answer and keeps its text so far. CLI_OK; a code after a message: the conversation is as before. If it
 * is too long, there is no message, but too_long and why. */
cli_exit cli_talk_answer(cli_talk *talk);

/* {"messages": […]} with the system message, as in a file of requests. CLI_FAILED after a message. */
cli_exit cli_talk_save(const cli_talk *talk, const char *path);

/* Replaces system and messages. After a message of failure they are as before. */
cli_exit cli_talk_load(cli_talk *talk, const char *path);

#endif

/* talk.h: a conversation with a model: its messages, and the next answer as it comes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_TALK_H
#define WEIR_CLI_TALK_H

#include "media.h"
#include "options.h"

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

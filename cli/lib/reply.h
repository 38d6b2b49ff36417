/* reply.h: the answer to a chat or a prompt: as the model's parser reads it, to stdout as it comes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_REPLY_H
#define WEIR_CLI_REPLY_H

#include "media.h"
#include "options.h"
#include "text.h"
#include "wrap.h"

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

#endif

/* answer.h: the events of a streamed answer, as servers with OpenAI's API send them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_ANSWER_H
#define WEIR_CLI_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_answer_kind {
    CLI_ANSWER_PIECE,     /* more text, an end, a usage, or nothing of interest */
    CLI_ANSWER_DONE,      /* [DONE] */
    CLI_ANSWER_ERROR,     /* the server reports an error: message */
    CLI_ANSWER_MALFORMED, /* not in the API's format: message */
} cli_answer_kind;

typedef struct cli_answer {
    cli_answer_kind kind;
    const char *text; /* text that this event adds, reasoning and arguments of calls too; NULL = none */
    size_t n_text;
    const char *finish; /* "stop", "length" …; NULL = it goes on */
    bool has_usage;
    int64_t n_prompt, n_generated, n_cached; /* n_cached -1 = unknown */
    char message[192];
    json_t *root; /* owns the texts */
} cli_answer;

/* Reads the data of one event: of /v1/chat/completions, or with `plain` of /v1/completions. Freed with
 * fini. */
void cli_answer_read(cli_answer *answer, const char *data, size_t length, bool plain);
void cli_answer_fini(cli_answer *answer);

/* The message of an error's body, from its JSON if it has some; NUL-terminated UTF-8, cut to capacity. */
void cli_answer_error_text(const char *body, size_t length, char *text, size_t capacity);

#endif

/* sse.h: server-sent events, read strictly from bytes that come in any pieces.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_SSE_H
#define WEIR_CLI_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include <jansson.h>
#include <stdint.h>

/* The longest line, and the most data of one event, in bytes: all that a parser ever holds is two of them. */
#define CLI_SSE_MAX (1u << 20)

typedef enum cli_sse_status {
    CLI_SSE_OK,
    CLI_SSE_LEFT,      /* the callback asked to stop */
    CLI_SSE_MALFORMED, /* see cli_sse.problem */
    CLI_SSE_NO_MEMORY,
} cli_sse_status;

/* One event that has data; NUL-terminated, valid during the call. False: read no further. */
typedef bool (*cli_sse_fn)(const char *data, size_t length, void *user);

/* Zeroed at the start. Lines that the standard tells a reader to ignore are malformed here: fields other than
 * data, event, id, retry and comments; NUL; ill-formed UTF-8; a retry that is no number. Lines end with LF,
 * CR LF or CR. */
typedef struct cli_sse {
    weir__text line, data;
    bool begun;            /* the first line is behind: no byte order mark any more */
    bool after_cr;         /* the last byte was a CR: an LF that follows belongs to it */
    bool has_data;         /* the event has a data field, maybe an empty one */
    bool has_field;        /* the event has some field */
    cli_sse_status status; /* the error that ended the parser; nothing is read after it */
    const char *problem;   /* half a sentence, static; NULL = none */
} cli_sse;

/* Reads the next bytes. Returns sse->status. */
cli_sse_status cli_sse_feed(cli_sse *sse, const char *bytes, size_t n, cli_sse_fn on_event, void *user);

/* True if the stream may end here: not within a line or an event. */
bool cli_sse_complete(const cli_sse *sse);

void cli_sse_fini(cli_sse *sse);

/* ---- Events of a streamed answer, as servers with OpenAI's API send them ---- */

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

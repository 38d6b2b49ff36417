/* sse.h: server-sent events, read strictly from bytes that come in any pieces.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_SSE_H
#define WEIR_CLI_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

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

#endif

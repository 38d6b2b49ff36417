/* wrap.h: text broken between words, as a whole or as it streams. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_WRAP_H
#define WEIR_CLI_WRAP_H

#include "text.h"

/* Help and notices have no longer lines, also in wider windows: they are hard to read. */
#define CLI_WRAP_COLUMNS 80

/* Zeroed at the start, but for the columns where the text and its further lines begin. Code between fences
 * (```) keeps its lines. */
typedef struct cli_wrap {
    int indent;       /* of each line after the first */
    cli_text word;    /* the last one, which may go on */
    int column;       /* where the blanks before that word begin */
    int n_blanks;     /* before it */
    int word_columns; /* its width */
    bool written;     /* the line has a word */
    bool code;        /* between fences */
    bool escape;      /* in an escape sequence, which takes no columns */
    /* Help and notices: a line may end behind a semicolon, too, as in a;b;c, and ends behind a word that is
     * wider than a line. */
    bool whole;
} cli_wrap;

/* Adds to *out the text that can already be printed in a window of `columns`: all but the last word. */
void cli_wrap_add(cli_wrap *wrap, const char *bytes, size_t n, int columns, cli_text *out);

/* Adds the last word. Text that is added afterwards continues in the same line. */
void cli_wrap_flush(cli_wrap *wrap, int columns, cli_text *out);

void cli_wrap_fini(cli_wrap *wrap);

/* Adds a whole text, whose first line begins in `column`, with `whole`. Ends without a newline. */
void cli_wrap_text(cli_text *out, const char *string, int column, int indent, int columns);

/* Wraps a text for the terminal, at CLI_WRAP_COLUMNS or less. */
void cli_wrap_notice(cli_text *text);

#endif

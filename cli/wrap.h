/* wrap.h: text that streams to a terminal, broken between words. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_WRAP_H
#define WEIR_CLI_WRAP_H

#include "text.h"

/* Zeroed at the start. Code between fences (```) keeps its lines. */
typedef struct cli_wrap {
    cli_text word;    /* the last one, which may go on */
    int column;       /* where the blanks before it begin */
    int n_blanks;     /* before it */
    int word_columns; /* its width */
    bool written;     /* the line has a word */
    bool code;        /* between fences */
} cli_wrap;

/* Adds to *out what can be printed in a window of so many columns: all but the last word. */
void cli_wrap_add(cli_wrap *wrap, const char *bytes, size_t n, int columns, cli_text *out);

/* The rest. What is added afterwards goes on in the same line. */
void cli_wrap_flush(cli_wrap *wrap, int columns, cli_text *out);

void cli_wrap_fini(cli_wrap *wrap);

#endif

/* line.h: a line that a person types, with editing and history where the terminal allows it (libedit).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_LINE_H
#define WEIR_CLI_LINE_H

#include "text.h"

typedef struct cli_line cli_line;

typedef enum cli_line_what {
    CLI_LINE_TEXT,
    CLI_LINE_END,         /* Ctrl-D, the end of the input, or a signal that ends the program */
    CLI_LINE_INTERRUPTED, /* Ctrl-C: the typed text is forgotten */
} cli_line_what;

/* words: the words that Tab completes, ends with NULL. history: a file that lines are read from now and
 * written to by destroy; NULL: none. Both stay the caller's. To be called after
 * cli_signals_interrupts(true). */
cli_line *cli_line_create(const char *const *words, const char *history);
void cli_line_destroy(cli_line *line);

/* True if a person is asked: prompts are shown. */
bool cli_line_asks(const cli_line *line);

/* True if lines are edited here; elsewhere the terminal itself shows what is typed. */
bool cli_line_edits(const cli_line *line);

/* Reads a line into *text, without its newline. A paste is part of the line, with its newlines. */
cli_line_what cli_line_read(cli_line *line, const char *prompt, cli_text *text);

/* Adds a text to the history. */
void cli_line_remember(cli_line *line, const char *text);

#endif

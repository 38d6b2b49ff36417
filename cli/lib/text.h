/* text.h: text for a terminal: how wide it is there, tables, and lines broken between words, as a whole or as
 * it streams.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_TEXT_H
#define WEIR_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "term.h"

/* Functions that add to one end the program when memory is out. */
typedef weir__text cli_text;

void cli_text_add(cli_text *text, const char *bytes, size_t n);
void cli_text_puts(cli_text *text, const char *string);
void cli_text_fill(cli_text *text, const char *unit, int n);
void cli_text_printf(cli_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds well-formed UTF-8 for a terminal: control characters other than newline and tab become U+FFFD, so that
 * no model and no file moves the cursor or sets the title. */
void cli_text_add_safe(cli_text *text, const char *bytes, size_t n);

/* Adds as much of a one-line text as fits into `width` columns, with an ellipsis when it was cut, and fills
 * up with blanks when pad. */
void cli_text_add_cut(cli_text *text, const char *bytes, size_t n, int width, bool pad);

/* The code point at bytes[0 .. n), n > 0; *used bytes. Ill-formed bytes count as U+FFFD each. */
uint32_t cli_text_decode(const char *bytes, size_t n, size_t *used);

/* Columns of a code point, as the C library knows after cli_term_init: 0 (combining, controls), 1 or 2. */
int cli_text_columns(uint32_t point);

/* Columns of a text without newlines and escape sequences. */
int cli_text_width(const char *bytes, size_t n);

/* Prints a text on stderr, on a terminal broken between words at CLI_WRAP_COLUMNS, and frees it. */
void cli_text_tell(cli_text *text);

/* A number as text, for one call: printf("%s", cli_bytes(n).text) */
typedef struct cli_figure {
    char text[32];
} cli_figure;

cli_figure cli_bytes(uint64_t bytes); /* 98.1 MB */
cli_figure cli_count(uint64_t count); /* 12,345 */
cli_figure cli_time(int64_t ns);      /* 1.23 s or 45 ms */

/* A table: rows of cells, the first row its head. Columns after the first are aligned to the right, unless
 * their bit is set in `left`. Escape sequences are not for cells. */
typedef struct cli_table {
    int n_columns;
    uint32_t left;
    char **cells; /* [n_cells], row after row */
    size_t n_cells;
    size_t capacity;
} cli_table;

void cli_table_cell(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_table_print(const cli_table *table, cli_text *text, const char *head_on, const char *head_off);
void cli_table_fini(cli_table *table);

/* ---- Styles as marks in a text, for a table or a screen that is printed later ---- */

/* A mark in the text: from here on it has this style. */
void cli_mark(cli_text *text, cli_style style);

/* A text with a style of its own; it becomes safe for a terminal. */
void cli_mark_text(cli_text *text, cli_style style, const char *string);

/* The length of a piece without a mark at bytes[0 .. n), 0 = there is a mark, of two bytes, and *style. */
size_t cli_mark_piece(const char *bytes, size_t n, cli_style *style);

/* Marks become stdout's styles, or nothing; lines are cut at `columns` (0 = not at all). */
void cli_mark_print(const cli_text *marked, int columns, cli_text *text);

/* ---- Lines broken between words ---- */

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

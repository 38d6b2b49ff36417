/* mark.h: styles as marks in a text, for a table or a screen that is printed later.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_MARK_H
#define WEIR_CLI_MARK_H

#include "term.h"
#include "text.h"

/* A mark in the text: from here on it has this style. */
void cli_mark(cli_text *text, cli_style style);

/* A text with a style of its own; it becomes safe for a terminal. */
void cli_mark_text(cli_text *text, cli_style style, const char *string);

/* The length of a piece without a mark at bytes[0 .. n), 0 = there is a mark, of two bytes, and *style. */
size_t cli_mark_piece(const char *bytes, size_t n, cli_style *style);

/* Marks become stdout's styles, or nothing; lines are cut at `columns` (0 = not at all). */
void cli_mark_print(const cli_text *marked, int columns, cli_text *text);

#endif

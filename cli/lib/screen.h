/* screen.h: the whole screen through ncurses, for weir stream and weir top. Without ncurses it never opens.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_SCREEN_H
#define WEIR_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* False: stdout is no terminal that ncurses knows, or there is no ncurses. Undone by close, at exit, and by
 * each signal that ends the program. */
bool cli_screen_open(void);
void cli_screen_close(void);

/* The size of the open screen. It follows the window when a SIGWINCH was noted and resize was called. */
void cli_screen_size(int *columns, int *rows);
void cli_screen_resize(void);

/* Leaves, stops the process, and enters again once it continues. */
void cli_screen_suspend(void);

/* A frame: begin, lines with marks (term.h) at their rows, end. Lines are cut at the window's edge. */
void cli_screen_begin(void);
void cli_screen_line(int row, const char *marked, size_t n);
void cli_screen_end(void);

/* The descriptor from which keys come, -1 = there is none; and the next key, a character or a cli_key,
 * CLI_KEY_NONE = none. */
int cli_screen_keys(void);
int cli_screen_key(void);

#endif

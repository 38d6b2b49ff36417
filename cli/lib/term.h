/* term.h: the kinds of stdout and stderr, styles, the progress line, and a terminal in order at the end.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_TERM_H
#define WEIR_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>

/* Looks at descriptors and environment, once, at the start; the terminal is put in order at exit. */
void cli_term_init(void);

/* A terminal that understands cursor movements (not TERM=dumb). */
bool cli_term_out(void);
bool cli_term_err(void);

/* Size of the window, 80 × 24 when unknown. */
int cli_term_columns(void);
int cli_term_rows(void);

typedef enum cli_style {
    CLI_PLAIN, /* ends the others */
    CLI_BOLD,
    CLI_DIM,
    CLI_RED,
    CLI_GREEN,
    CLI_YELLOW,
    CLI_CYAN,
    CLI_REVERSE,
    CLI_TINTS, /* from here: distinct backgrounds */
    CLI_TINTS_END = CLI_TINTS + 4,
} cli_style;

/* The escape sequence; "" when that stream is no terminal or NO_COLOR is set. Static. */
const char *cli_term_style_out(cli_style style);
const char *cli_term_style_err(cli_style style);

/* One line on stderr that replaces the one before; nothing when stderr is no terminal. progress.h shows lines
 * that may be wider than the terminal. */
void cli_term_progress(const char *line);
void cli_term_progress_end(void);

/* The text that is being printed has a style that must be ended, should the program leave now. */
void cli_term_styled(bool styled);

/* Keys that are pressed while an answer is printed do not appear in it; they wait for the next line that is
 * read. */
void cli_term_echo(bool on);

/* Stops the program as Ctrl-Z does, with the terminal in order meanwhile. */
void cli_term_stop(void);

/* Asks the terminal to mark pasted text (bracketed paste), or no longer. */
void cli_term_pastes(bool on);

/* ncurses takes the whole screen (screen.c), and keys from this descriptor (-1 = none): from now on rescue
 * puts both in order. Undone by take_back once they are. */
void cli_term_lend(int descriptor);
void cli_term_take_back(void);
bool cli_term_entered(void);

/* Puts the terminal in order. Safe in a signal handler. */
void cli_term_rescue(void);

typedef enum cli_key {
    CLI_KEY_NONE = 0,
    CLI_KEY_UP = 256, /* below: the character */
    CLI_KEY_DOWN,
    CLI_KEY_LEFT,
    CLI_KEY_RIGHT,
    CLI_KEY_HOME,
    CLI_KEY_END,
    CLI_KEY_PAGE_UP,
    CLI_KEY_PAGE_DOWN,
    CLI_KEY_BACKTAB,
} cli_key;

#endif

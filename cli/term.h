/* term.h: what stdout and stderr are, styles, the progress line, and the whole screen for weir stream.
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
    CLI_TINTS, /* from here: backgrounds that are told apart */
    CLI_TINTS_END = CLI_TINTS + 4,
} cli_style;

/* The escape sequence; "" when that stream is no terminal or NO_COLOR is set. Static. */
const char *cli_term_style_out(cli_style style);
const char *cli_term_style_err(cli_style style);

/* One line on stderr that replaces the one before; nothing when stderr is no terminal. */
void cli_term_progress(const char *line);
void cli_term_progress_end(void);

/* The text that is being printed has a style that must be ended, should the program leave now. */
void cli_term_styled(bool styled);

/* Takes the whole screen: alternate buffer, no cursor, keys without Enter and without echo. False: stdout is
 * no terminal. Undone by leave, at exit, and by each signal that ends the program. */
bool cli_term_enter(void);
void cli_term_leave(void);
bool cli_term_entered(void);

/* Somebody else (ncurses) takes the screen, and keys from this descriptor (-1 = none): as after enter, signals
 * that end the program put it in order first. Undone by take_back once it is in order again. */
void cli_term_lend(int descriptor);
void cli_term_take_back(void);

/* Where keys come from once entered, -1 = nowhere: stdin is something else and there is no /dev/tty. */
int cli_term_keys(void);

/* Ctrl-Z: leaves, stops the process, and enters again once it continues. */
void cli_term_suspend(void);

/* As leave and progress_end. Safe in a signal handler. */
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

/* Reads escape sequences byte by byte, wherever reads split them. Zeroed at the start. */
typedef struct cli_keys {
    int state;
    int number;
} cli_keys;

/* The key that this byte completes, or CLI_KEY_NONE. */
int cli_keys_feed(cli_keys *state, unsigned char byte);

#endif

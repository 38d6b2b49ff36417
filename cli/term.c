/* SPDX-License-Identifier: Apache-2.0 */
#include "term.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "signals.h"
#include "text.h"

#define ENTER      "\033[?1049h\033[?25l\033[2J"
#define LEAVE      "\033[0m\033[?25h\033[?1049l"
#define KEYS_BACK  "\033[?1l\033>" /* arrows as they were before ncurses */
#define CLEAR_LINE "\r\033[K"

static bool out_term, err_term, out_colour, err_colour;

/* Read by rescue, in whichever thread a signal comes: written only while that signal could do no harm. */
static volatile sig_atomic_t entered;
static volatile sig_atomic_t lent;
static volatile sig_atomic_t progress_shown;
static volatile sig_atomic_t style_open;
static int keys = -1;
static bool keys_owned;
static struct termios before; /* of keys */

static void write_all(int descriptor, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(descriptor, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        bytes += written;
        n -= (size_t)written;
    }
}

void cli_term_init(void)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    bool moves = term != NULL && *term != '\0' && strcmp(term, "dumb") != 0;
    bool colour = no_colour == NULL || *no_colour == '\0';
    out_term = moves && isatty(STDOUT_FILENO);
    err_term = moves && isatty(STDERR_FILENO);
    out_colour = out_term && colour;
    err_colour = err_term && colour;
    atexit(cli_term_rescue);
}

bool cli_term_out(void)
{
    return out_term;
}

bool cli_term_err(void)
{
    return err_term;
}

static int window(bool columns)
{
    struct winsize size;
    const char *given = getenv(columns ? "COLUMNS" : "LINES");
    for (int descriptor = STDOUT_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) continue;
        int n = columns ? size.ws_col : size.ws_row;
        if (n > 0) return n;
    }
    long n = given != NULL ? strtol(given, NULL, 10) : 0;
    if (n > 0 && n < 10000) return (int)n;
    return columns ? 80 : 24;
}

int cli_term_columns(void)
{
    return window(true);
}

int cli_term_rows(void)
{
    return window(false);
}

static const char *sequence(cli_style style)
{
    static const char *const sequences[] = {
        [CLI_PLAIN] = "\033[0m",         [CLI_BOLD] = "\033[1m",          [CLI_DIM] = "\033[2m",
        [CLI_RED] = "\033[31m",          [CLI_GREEN] = "\033[32m",        [CLI_YELLOW] = "\033[33m",
        [CLI_CYAN] = "\033[36m",         [CLI_REVERSE] = "\033[7m",       [CLI_TINTS] = "\033[30;42m",
        [CLI_TINTS + 1] = "\033[30;43m", [CLI_TINTS + 2] = "\033[30;46m", [CLI_TINTS + 3] = "\033[30;45m",
    };
    return sequences[style];
}

const char *cli_term_style_out(cli_style style)
{
    return out_colour ? sequence(style) : "";
}

const char *cli_term_style_err(cli_style style)
{
    return err_colour ? sequence(style) : "";
}

void cli_term_progress(const char *line)
{
    static char shown[256];
    cli_text text = {0};
    if (!err_term || entered || (progress_shown && strncmp(shown, line, sizeof shown - 1) == 0)) return;
    snprintf(shown, sizeof shown, "%s", line);
    cli_text_puts(&text, CLEAR_LINE);
    cli_text_puts(&text, cli_term_style_err(CLI_DIM));
    cli_text_add_cut(&text, line, strlen(line), cli_term_columns() - 1, false);
    cli_text_puts(&text, cli_term_style_err(CLI_PLAIN));
    progress_shown = 1;
    write_all(STDERR_FILENO, text.bytes, text.n);
    weir__text_fini(&text);
}

void cli_term_progress_end(void)
{
    if (!progress_shown) return;
    write_all(STDERR_FILENO, CLEAR_LINE, sizeof CLEAR_LINE - 1);
    progress_shown = 0;
}

void cli_term_styled(bool styled)
{
    style_open = styled;
}

static void set_keys(void)
{
    struct termios raw;
    if (keys < 0 || tcgetattr(keys, &before) != 0) return;
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ISIG stays: Ctrl-C is a signal as everywhere */
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(keys, TCSADRAIN, &raw);
}

bool cli_term_enter(void)
{
    if (!out_term) return false;
    if (entered) return true;
    cli_term_progress_end();
    keys_owned = !isatty(STDIN_FILENO);
    keys = keys_owned ? open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY) : STDIN_FILENO;
    set_keys();
    cli_signals_screen(true);
    entered = 1;
    write_all(STDOUT_FILENO, ENTER, sizeof ENTER - 1);
    return true;
}

void cli_term_leave(void)
{
    if (!entered) return;
    cli_term_rescue();
    cli_signals_screen(false);
    if (keys_owned && keys >= 0) close(keys);
    keys = -1;
}

bool cli_term_entered(void)
{
    return entered != 0;
}

int cli_term_keys(void)
{
    return keys;
}

void cli_term_lend(int descriptor)
{
    cli_term_progress_end();
    keys = descriptor;
    keys_owned = false;
    if (keys >= 0 && tcgetattr(keys, &before) != 0) keys = -1;
    cli_signals_screen(true);
    lent = entered = 1;
}

void cli_term_take_back(void)
{
    lent = entered = 0;
    cli_signals_screen(false);
    keys = -1;
}

void cli_term_suspend(void)
{
    if (!entered) return;
    cli_term_rescue();
    raise(SIGSTOP);
    set_keys();
    entered = 1;
    write_all(STDOUT_FILENO, ENTER, sizeof ENTER - 1);
}

void cli_term_rescue(void)
{
    int error = errno;
    if (progress_shown) {
        progress_shown = 0;
        write_all(STDERR_FILENO, CLEAR_LINE, sizeof CLEAR_LINE - 1);
    }
    if (style_open) {
        style_open = 0;
        write_all(STDOUT_FILENO, "\033[0m", 4);
    }
    if (entered) {
        entered = 0;
        if (lent) write_all(STDOUT_FILENO, KEYS_BACK, sizeof KEYS_BACK - 1);
        lent = 0;
        write_all(STDOUT_FILENO, LEAVE, sizeof LEAVE - 1);
        if (keys >= 0) tcsetattr(keys, TCSANOW, &before);
    }
    errno = error;
}

/* States: 0 text, 1 after ESC, 2 in "ESC [" with digits, 3 after "ESC O". */
int cli_keys_feed(cli_keys *state, unsigned char byte)
{
    int was = state->state;
    if (was == 2 && byte >= '0' && byte <= '9') {
        if (state->number < 1000) state->number = state->number * 10 + (byte - '0');
        return CLI_KEY_NONE;
    }
    if (was == 2 && byte == ';') {
        state->number = 0;
        return CLI_KEY_NONE;
    }
    if (byte == 0x1b || (was == 1 && (byte == '[' || byte == 'O'))) {
        state->state = byte == 0x1b ? 1 : byte == '[' ? 2 : 3;
        state->number = 0;
        return CLI_KEY_NONE;
    }
    state->state = 0;
    if (was < 2) return byte;
    switch (byte) {
    case 'A': return CLI_KEY_UP;
    case 'B': return CLI_KEY_DOWN;
    case 'C': return CLI_KEY_RIGHT;
    case 'D': return CLI_KEY_LEFT;
    case 'H': return CLI_KEY_HOME;
    case 'F': return CLI_KEY_END;
    case 'Z': return CLI_KEY_BACKTAB;
    case '~': break;
    default: return CLI_KEY_NONE;
    }
    switch (state->number) {
    case 1:
    case 7: return CLI_KEY_HOME;
    case 4:
    case 8: return CLI_KEY_END;
    case 5: return CLI_KEY_PAGE_UP;
    case 6: return CLI_KEY_PAGE_DOWN;
    default: return CLI_KEY_NONE;
    }
}

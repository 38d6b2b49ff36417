/* term.c: styles, sizes and the progress line, and what must be restored when the program ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "term.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"

#define LEAVE      "\033[?1l\033>\033[0m\033[?25h\033[?1049l" /* arrows, styles, cursor, screen: as before */
#define CLEAR_LINE "\r\033[K"

static bool out_term, err_term, out_colour, err_colour;

/* State that rescue reads, in whichever thread a signal comes: written only while that signal could do no
 * harm. */
static volatile sig_atomic_t is_entered;
static volatile sig_atomic_t progress_shown;
static volatile sig_atomic_t style_open;
static volatile sig_atomic_t marks_pastes;
static volatile sig_atomic_t echo_off;
static struct termios echo_settings; /* stdin's settings before its echo was switched off */
static int keys_descriptor = -1;
static struct termios settings_before; /* of keys */

void cli_term_init(void)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    bool moves = term != NULL && *term != '\0' && strcmp(term, "dumb") != 0;
    bool colour = no_colour == NULL || *no_colour == '\0';
    /* Terminals show UTF-8, whatever the locale. */
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
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

static int window_size(bool columns)
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
    return window_size(true);
}

int cli_term_rows(void)
{
    return window_size(false);
}

static const char *style_sequence(cli_style style)
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
    return out_colour ? style_sequence(style) : "";
}

const char *cli_term_style_err(cli_style style)
{
    return err_colour ? style_sequence(style) : "";
}

void cli_term_progress(const char *line)
{
    static char shown[256];
    if (!err_term || is_entered || (progress_shown && strncmp(shown, line, sizeof shown - 1) == 0)) return;
    snprintf(shown, sizeof shown, "%s", line);
    progress_shown = 1;
    weir__file_send(STDERR_FILENO, CLEAR_LINE, sizeof CLEAR_LINE - 1);
    weir__file_send(STDERR_FILENO, line, strlen(line));
}

void cli_term_progress_end(void)
{
    if (!progress_shown) return;
    weir__file_send(STDERR_FILENO, CLEAR_LINE, sizeof CLEAR_LINE - 1);
    progress_shown = 0;
}

void cli_term_styled(bool styled)
{
    style_open = styled;
}

void cli_term_pastes(bool on)
{
    if (!out_term || on == (marks_pastes != 0)) return;
    marks_pastes = on;
    weir__file_send(STDOUT_FILENO, on ? "\033[?2004h" : "\033[?2004l", 8);
}

void cli_term_echo(bool on)
{
    struct termios quiet;
    if (on == (echo_off == 0)) return;
    if (on) {
        tcsetattr(STDIN_FILENO, TCSANOW, &echo_settings);
        echo_off = 0;
    } else if (out_term && tcgetattr(STDIN_FILENO, &echo_settings) == 0) {
        quiet = echo_settings;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        echo_off = 1; /* before it is: a signal may come in between */
        if (tcsetattr(STDIN_FILENO, TCSANOW, &quiet) != 0) echo_off = 0;
    }
}

void cli_term_stop(void)
{
    bool was_off = echo_off != 0;
    cli_term_echo(true);
    raise(SIGSTOP);
    if (was_off) cli_term_echo(false);
}

bool cli_term_entered(void)
{
    return is_entered != 0;
}

void cli_term_lend(int descriptor)
{
    cli_term_progress_end();
    keys_descriptor = descriptor;
    if (keys_descriptor >= 0 && tcgetattr(keys_descriptor, &settings_before) != 0) keys_descriptor = -1;
    is_entered = 1;
}

void cli_term_take_back(void)
{
    is_entered = 0;
    keys_descriptor = -1;
}

void cli_term_rescue(void)
{
    int error = errno;
    if (progress_shown) {
        progress_shown = 0;
        weir__file_send(STDERR_FILENO, CLEAR_LINE, sizeof CLEAR_LINE - 1);
    }
    if (style_open) {
        style_open = 0;
        weir__file_send(STDOUT_FILENO, "\033[0m", 4);
    }
    if (marks_pastes) cli_term_pastes(false);
    if (echo_off) cli_term_echo(true);
    if (is_entered) {
        is_entered = 0;
        weir__file_send(STDOUT_FILENO, LEAVE, sizeof LEAVE - 1);
        if (keys_descriptor >= 0) tcsetattr(keys_descriptor, TCSANOW, &settings_before);
    }
    errno = error;
}

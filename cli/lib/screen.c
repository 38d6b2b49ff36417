/* screen.c: wraps ncurses: rows with marks, keys, and the size of the window.
 * SPDX-License-Identifier: Apache-2.0 */
#include "screen.h"

#include "term.h"

#ifndef WEIR_NCURSES

bool cli_screen_open(void)
{
    return false;
}

void cli_screen_close(void)
{
}

void cli_screen_size(int *columns, int *rows)
{
    *columns = cli_term_columns();
    *rows = cli_term_rows();
}

void cli_screen_resize(void)
{
}

void cli_screen_suspend(void)
{
}

void cli_screen_begin(void)
{
}

void cli_screen_line(int row, const char *marked, size_t n)
{
    (void)row, (void)marked, (void)n;
}

void cli_screen_end(void)
{
}

int cli_screen_keys(void)
{
    return -1;
}

int cli_screen_key(void)
{
    return CLI_KEY_NONE;
}

#else

#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "signals.h"
#include "text.h"

static SCREEN *screen;   /* NULL = not open */
static FILE *input_file; /* a terminal of its own, where stdin is none; NULL = stdin */
static bool has_keys, has_style;

static void give_back(void)
{
    cli_term_take_back();
    cli_signals_screen(false);
}

bool cli_screen_open(void)
{
    if (!cli_term_out()) return false;
    has_keys = isatty(STDIN_FILENO);
    input_file = has_keys ? NULL : fopen("/dev/tty", "re");
    has_keys = has_keys || input_file != NULL;
    /* Handlers first: ncurses puts its own only where there is none. */
    cli_term_lend(has_keys ? fileno(input_file != NULL ? input_file : stdin) : -1);
    cli_signals_screen(true);
    screen = newterm(NULL, stdout, input_file != NULL ? input_file : stdin);
    if (screen == NULL) {
        give_back();
        if (input_file != NULL) fclose(input_file);
        return false;
    }
    has_style = *cli_term_style_out(CLI_BOLD) != '\0';
    if (has_style && has_colors() && start_color() == OK && use_default_colors() == OK) {
        init_pair(CLI_RED, COLOR_RED, -1);
        init_pair(CLI_GREEN, COLOR_GREEN, -1);
        init_pair(CLI_YELLOW, COLOR_YELLOW, -1);
        init_pair(CLI_CYAN, COLOR_CYAN, -1);
    }
    cbreak();
    noecho();
    nonl();
    curs_set(0);
    set_escdelay(25);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    leaveok(stdscr, TRUE);
    return true;
}

void cli_screen_close(void)
{
    if (screen == NULL) return;
    endwin();
    delscreen(screen);
    screen = NULL;
    give_back();
    if (input_file != NULL) fclose(input_file);
    input_file = NULL;
}

void cli_screen_size(int *columns, int *rows)
{
    getmaxyx(stdscr, *rows, *columns);
}

void cli_screen_resize(void)
{
    resizeterm(cli_term_rows(), cli_term_columns());
    clearok(stdscr, TRUE);
}

void cli_screen_suspend(void)
{
    endwin();
    raise(SIGSTOP);
    cli_screen_resize(); /* it may be another window by now */
    refresh();
}

void cli_screen_begin(void)
{
    erase();
}

static void set_style(cli_style style)
{
    if (!has_style) return;
    switch (style) {
    case CLI_BOLD: attrset(A_BOLD); break;
    case CLI_DIM: attrset(A_DIM); break;
    case CLI_REVERSE: attrset(A_REVERSE); break;
    case CLI_RED:
    case CLI_GREEN:
    case CLI_YELLOW:
    case CLI_CYAN: attrset(has_colors() ? COLOR_PAIR(style) : A_NORMAL); break;
    default: attrset(A_NORMAL); break;
    }
}

void cli_screen_line(int row, const char *marked, size_t n)
{
    int columns, rows, left;
    cli_screen_size(&columns, &rows);
    if (row < 0 || row >= rows) return;
    left = columns;
    move(row, 0);
    for (size_t i = 0; i < n && left > 0;) {
        cli_style style = CLI_PLAIN;
        size_t piece = cli_mark_piece(marked + i, n - i, &style);
        if (piece == 0) {
            set_style(style);
            i += 2;
            continue;
        }
        cli_text text = {0};
        cli_text_add_cut(&text, marked + i, piece, left, false);
        addstr(text.bytes);
        left -= cli_text_width(text.bytes, text.n);
        weir__text_fini(&text);
        i += piece;
    }
    set_style(CLI_PLAIN);
}

void cli_screen_end(void)
{
    refresh();
}

int cli_screen_keys(void)
{
    return !has_keys ? -1 : fileno(input_file != NULL ? input_file : stdin);
}

int cli_screen_key(void)
{
    int key = getch();
    switch (key) {
    case ERR: return CLI_KEY_NONE;
    case KEY_UP: return CLI_KEY_UP;
    case KEY_DOWN: return CLI_KEY_DOWN;
    case KEY_LEFT: return CLI_KEY_LEFT;
    case KEY_RIGHT: return CLI_KEY_RIGHT;
    case KEY_BTAB: return CLI_KEY_BACKTAB;
    case KEY_HOME: return CLI_KEY_HOME;
    case KEY_END: return CLI_KEY_END;
    case KEY_PPAGE: return CLI_KEY_PAGE_UP;
    case KEY_NPAGE: return CLI_KEY_PAGE_DOWN;
    case KEY_RESIZE: return CLI_KEY_NONE;
    default: return key < 256 ? key : CLI_KEY_NONE;
    }
}

#endif

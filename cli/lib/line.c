/* line.c: reads a line from a terminal or a pipe.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Without libedit bytes are read until a newline, and signals end or interrupt the wait. With it, libedit
 * edits the line and asks read_key for each character: there a paste is inserted whole, Tab completes the
 * word, and signals redraw or leave the line. */
#include "line.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "cli.h"
#include "out.h"
#include "signals.h"
#include "term.h"

#ifdef WEIR_LIBEDIT
#include <histedit.h>
#endif

#define HISTORY 1000 /* lines */

/* Marks that a terminal sends around pasted text in bracketed paste mode. */
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   "\033[201~"
#define REDISPLAY   '\036' /* Ctrl-^, a key that nobody needs */

struct cli_line {
    const char *const *words;
    const char *history_path, *prompt;
    bool asks, interrupted;
#ifdef WEIR_LIBEDIT
    EditLine *edit; /* NULL: lines as the terminal gives them */
    History *history;
    unsigned char
        again[sizeof PASTE_BEGIN]; /* bytes [n_again] that looked like PASTE_BEGIN; the next one is at `at` */
    size_t n_again, at;
    size_t matched; /* bytes of PASTE_BEGIN that came last */
#endif
};

/* Waits for a byte of stdin. 1: it is there; 0: the end; -1: a signal. */
static int wait_byte(unsigned char *byte)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = cli_signals_descriptor(), .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return 0;
        if (fds[1].revents != 0) cli_signals_drain();
        if (cli_signals_ended() != 0 || cli_signals_noted()) return -1;
        if (fds[0].revents == 0) continue;
        ssize_t n = read(STDIN_FILENO, byte, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        return n == 1;
    }
}

/* ---- Without editing ---- */

static cli_line_what read_plain(const cli_line *line, cli_text *text)
{
    unsigned char byte;
    bool some = false;
    if (line->asks) cli_out(line->prompt, strlen(line->prompt));
    for (;;) {
        int got = wait_byte(&byte);
        if (got < 0) {
            (void)cli_signals_took(SIGWINCH);
            if (cli_signals_took(SIGTSTP)) raise(SIGSTOP);
            if (cli_signals_ended() != 0) return CLI_LINE_END;
            if (cli_signals_took(SIGINT)) return CLI_LINE_INTERRUPTED;
            continue;
        }
        if (got == 0) return some ? CLI_LINE_TEXT : CLI_LINE_END;
        some = true;
        if (byte == '\n') return CLI_LINE_TEXT;
        cli_text_add(text, (const char *)&byte, 1);
    }
}

/* ---- With libedit ---- */

#ifdef WEIR_LIBEDIT

static char *prompt_of(EditLine *edit)
{
    cli_line *line;
    el_get(edit, EL_CLIENTDATA, &line);
    return (char *)line->prompt;
}

/* Prompt and line anew, in the row of the cursor and below. */
static void redraw_line(const cli_line *line)
{
    cli_out("\r\033[J", 4);
    el_set(line->edit, EL_REFRESH);
}

/* Handles signals. False: the line is over. */
static bool on_signal(cli_line *line)
{
    if (cli_signals_took(SIGWINCH)) { /* lines that a narrower window has wrapped are left above */
        el_resize(line->edit);
        redraw_line(line);
    }
    if (cli_signals_took(SIGTSTP)) {
        el_set(line->edit, EL_PREP_TERM, 0);
        cli_term_pastes(false);
        raise(SIGSTOP);
        cli_term_pastes(true);
        el_set(line->edit, EL_PREP_TERM, 1);
        redraw_line(line);
    }
    line->interrupted = cli_signals_took(SIGINT);
    return !line->interrupted && cli_signals_ended() == 0;
}

/* Tab at the end of a line: the rest that all words have in common which begin like it. */
static void complete_word(const cli_line *line)
{
    const LineInfo *info = el_line(line->edit);
    const char *found = NULL;
    size_t typed = (size_t)(info->lastchar - info->buffer), common = 0;
    if (typed == 0 || info->cursor != info->lastchar) return;
    for (const char *const *word = line->words; *word != NULL; word++) {
        if (strncmp(*word, info->buffer, typed) != 0) continue;
        size_t n = 0;
        if (found == NULL)
            n = strlen(*word);
        else
            while (n < common && found[n] == (*word)[n]) n++;
        found = *word;
        common = n;
    }
    if (found == NULL || common <= typed) return;
    char rest[32];
    snprintf(rest, sizeof rest, "%.*s", (int)(common - typed), found + typed);
    el_insertstr(line->edit, rest);
    redraw_line(line);
}

/* Reads a paste to its end, and inserts it into the line with its newlines. */
static void take_paste(cli_line *line)
{
    static const char end[] = PASTE_END;
    size_t n_end = sizeof end - 1;
    unsigned char byte;
    int got = 1;
    cli_text raw = {0}, lines = {0}, safe = {0};
    while (raw.n < n_end || memcmp(raw.bytes + raw.n - n_end, end, n_end) != 0) {
        got = wait_byte(&byte);
        if (got == 0 || (got < 0 && !on_signal(line))) break;
        if (got > 0) cli_text_add(&raw, (const char *)&byte, 1);
    }
    size_t n = got > 0 ? raw.n - n_end : 0; /* nothing of an incomplete paste */
    while (n > 0 && (raw.bytes[n - 1] == '\n' || raw.bytes[n - 1] == '\r')) n--;
    for (size_t i = 0; i < n; i++) {
        bool pair = raw.bytes[i] == '\r' && i + 1 < n && raw.bytes[i + 1] == '\n';
        if (!pair) cli_text_add(&lines, raw.bytes[i] == '\r' ? "\n" : raw.bytes + i, 1);
    }
    cli_text_add_safe(&safe, lines.bytes, lines.n);
    if (safe.n > 0) el_insertstr(line->edit, safe.bytes);
    weir__text_fini(&raw);
    weir__text_fini(&lines);
    weir__text_fini(&safe);
}

/* Reads a byte: 1. 0: the end; -1: a signal; 2: it was a paste, which is now in the line. */
static int next_byte(cli_line *line, unsigned char *byte)
{
    static const char begin[] = PASTE_BEGIN;
    for (;;) {
        if (line->at < line->n_again) {
            *byte = line->again[line->at++];
            return 1;
        }
        int got = wait_byte(byte);
        if (got <= 0) return got;
        if (*byte == (unsigned char)begin[line->matched]) {
            if (++line->matched < sizeof begin - 1) continue;
            line->matched = 0;
            take_paste(line);
            return 2;
        }
        if (line->matched == 0) return 1;
        memcpy(line->again, begin, line->matched);
        line->again[line->matched] = *byte;
        line->n_again = line->matched + 1;
        line->at = line->matched = 0;
    }
}

static int read_key(EditLine *edit, wchar_t *key)
{
    cli_line *line;
    mbstate_t state = {0};
    unsigned char byte;
    el_get(edit, EL_CLIENTDATA, &line);
    for (;;) {
        int got = next_byte(line, &byte);
        if (got < 0 && on_signal(line)) continue;
        if (got < 0) errno = EINTR;
        if (got <= 0) return got;
        if (got == 2) {
            *key = REDISPLAY;
            return 1;
        }
        if (byte == '\t') { /* here, since libedit never frees functions that are bound to keys */
            complete_word(line);
            continue;
        }
        size_t n = mbrtowc(key, (const char *)&byte, 1, &state);
        if (n == (size_t)-2) continue; /* more bytes of it are to come */
        if (n != (size_t)-1) return 1;
        state = (mbstate_t){0};
    }
}

static void edit_begin(cli_line *line)
{
    HistEvent event;
    line->edit = el_init("weir", stdin, stdout, stderr);
    if (line->edit == NULL) return;
    el_set(line->edit, EL_CLIENTDATA, line);
    el_set(line->edit, EL_PROMPT_ESC, prompt_of, '\1');
    el_set(line->edit, EL_EDITOR, "emacs");
    el_set(line->edit, EL_SIGNAL, 0);
    el_set(line->edit, EL_GETCFN, read_key);
    el_set(line->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(line->edit, EL_BIND, "^^", "ed-redisplay", NULL); /* REDISPLAY */
    line->history = history_init();
    if (line->history == NULL) return;
    history(line->history, &event, H_SETSIZE, HISTORY);
    history(line->history, &event, H_SETUNIQUE, 1);
    if (line->history_path != NULL) history(line->history, &event, H_LOAD, line->history_path);
    el_set(line->edit, EL_HIST, history, line->history);
}

static cli_line_what read_edited(cli_line *line, cli_text *text)
{
    int n = 0;
    line->interrupted = false;
    cli_term_pastes(true);
    const char *typed = el_gets(line->edit, &n);
    cli_term_pastes(false);
    if (line->interrupted) return CLI_LINE_INTERRUPTED;
    if (typed == NULL || n <= 0) return CLI_LINE_END;
    size_t length = strlen(typed);
    if (length > 0 && typed[length - 1] == '\n') length--;
    cli_text_add(text, typed, length);
    return CLI_LINE_TEXT;
}

#endif

/* ---- Both ---- */

cli_line *cli_line_create(const char *const *words, const char *history)
{
    cli_line *line = cli_alloc(1, sizeof *line);
    line->words = words;
    line->history_path = history;
    line->asks = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
#ifdef WEIR_LIBEDIT
    if (line->asks && cli_term_out()) edit_begin(line);
#endif
    return line;
}

void cli_line_destroy(cli_line *line)
{
    if (line == NULL) return;
#ifdef WEIR_LIBEDIT
    HistEvent event;
    if (line->history != NULL && line->history_path != NULL)
        history(line->history, &event, H_SAVE, line->history_path);
    if (line->edit != NULL) el_end(line->edit);
    if (line->history != NULL) history_end(line->history);
#endif
    cli_free(line);
}

bool cli_line_asks(const cli_line *line)
{
    return line->asks;
}

bool cli_line_edits(const cli_line *line)
{
#ifdef WEIR_LIBEDIT
    return line->edit != NULL;
#else
    (void)line;
    return false;
#endif
}

cli_line_what cli_line_read(cli_line *line, const char *prompt, cli_text *text)
{
    line->prompt = prompt;
    (void)cli_signals_took(SIGINT); /* earlier ones do not count */
#ifdef WEIR_LIBEDIT
    if (line->edit != NULL) return read_edited(line, text);
#endif
    return read_plain(line, text);
}

void cli_line_remember(cli_line *line, const char *text)
{
#ifdef WEIR_LIBEDIT
    HistEvent event;
    if (line->history != NULL && *text != '\0') history(line->history, &event, H_ENTER, text);
#else
    (void)line, (void)text;
#endif
}

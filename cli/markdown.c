/* SPDX-License-Identifier: Apache-2.0 */
#include "markdown.h"

#include <string.h>

#include "term.h"

/* All that is on now; the terminal knows no ends of single styles that work everywhere. */
static void restyle(const cli_markdown *m, cli_text *out)
{
    cli_text_puts(out, cli_term_style_out(CLI_PLAIN));
    if (m->heading || m->bold) cli_text_puts(out, cli_term_style_out(CLI_BOLD));
    if (m->code || m->fenced) cli_text_puts(out, cli_term_style_out(CLI_CYAN));
}

static void newline(cli_markdown *m, cli_text *out)
{
    bool styled = m->heading || m->bold || m->code;
    m->heading = m->bold = m->code = m->inside = false;
    if (styled) restyle(m, out);
    if (!m->fence) cli_text_puts(out, "\n");
    m->fence = false;
}

/* A character behind the beginning of its line. A star waits for another one. */
static void put_inside(cli_markdown *m, char c, cli_text *out)
{
    bool star = m->n_held > 0;
    m->n_held = 0;
    if (star && c == '*') {
        m->bold = !m->bold;
        restyle(m, out);
        return;
    }
    if (star) cli_text_puts(out, "*");
    if (c == '*' && !m->code && !m->fenced) {
        m->held[m->n_held++] = c;
    } else if (c == '`' && !m->fenced) {
        m->code = !m->code;
        restyle(m, out);
    } else
        cli_text_add(out, &c, 1);
}

/* What was held at the beginning of a line is no mark: it is text. */
static void release(cli_markdown *m, cli_text *out)
{
    char held[sizeof m->held];
    size_t n = m->n_held;
    memcpy(held, m->held, n);
    m->n_held = 0;
    m->inside = true;
    for (size_t i = 0; i < n; i++) put_inside(m, held[i], out);
}

/* Whether the held characters can still become a mark that begins a line: #, -, *, +, >, ```. */
static bool may_begin(const cli_markdown *m)
{
    const char *held = m->held;
    size_t n = m->n_held;
    if (held[0] == '`') return n < 3 && (n == 1 || held[1] == '`');
    if (m->fenced) return false;
    if (held[0] == '#') return n <= 6 && held[n - 1] == '#';
    return n == 1 && strchr("-*+>", held[0]) != NULL;
}

static void put_first(cli_markdown *m, char c, cli_text *out)
{
    if (m->n_held == 0 && c == ' ' && !m->fenced) { /* a list in a list */
        cli_text_puts(out, " ");
        return;
    }
    if (m->n_held < sizeof m->held) m->held[m->n_held++] = c;
    if (may_begin(m)) return;
    if (m->n_held == 3 && memcmp(m->held, "```", 3) == 0) {
        m->fence = m->inside = true;
        m->fenced = !m->fenced;
        m->n_held = 0;
        restyle(m, out);
    } else if (!m->fenced && m->n_held > 1 && c == ' ') {
        if (m->held[0] == '#') {
            m->heading = true;
            restyle(m, out);
        } else
            cli_text_puts(out, m->held[0] == '>' ? "│ " : "• ");
        m->n_held = 0;
        m->inside = true;
    } else
        release(m, out);
}

void cli_markdown_feed(cli_markdown *m, const char *bytes, size_t n, cli_text *out)
{
    cli_text safe = {0};
    cli_text_add_safe(&safe, bytes, n);
    for (size_t i = 0; i < safe.length; i++) {
        char c = safe.bytes[i];
        if (c == '\n') {
            if (!m->inside) release(m, out);
            if (m->n_held > 0) cli_text_puts(out, "*");
            m->n_held = 0;
            newline(m, out);
        } else if (m->fence)
            continue; /* the language */
        else if (m->inside)
            put_inside(m, c, out);
        else
            put_first(m, c, out);
    }
    cli_text_fini(&safe);
}

void cli_markdown_end(cli_markdown *m, cli_text *out)
{
    if (!m->inside && m->n_held > 0) release(m, out);
    if (m->n_held > 0) cli_text_puts(out, "*");
    *m = (cli_markdown){0};
    cli_text_puts(out, cli_term_style_out(CLI_PLAIN));
}

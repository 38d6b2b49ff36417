/* panes.c: draws the rows of each pane from its text and figures, and moves the focus.
 * SPDX-License-Identifier: Apache-2.0 */
#include "panes.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli.h"
#include "mark.h"
#include "screen.h"
#include "term.h"

#define PANE_ROWS_MAX 8 /* a pane's headline and up to seven lines of its text */
#define INDENT        2
#define RATE_NS       (WEIR__NS_PER_S / 2) /* how often the rate of all is measured anew */

void cli_panes_init(cli_panes *panes, const char *title, size_t n)
{
    *panes = (cli_panes){
        .title = title,
        .panes = cli_alloc(n, sizeof *panes->panes),
        .n = n,
        .measured_ns = weir__clock_now_ns(),
    };
}

void cli_panes_fini(cli_panes *panes)
{
    for (size_t i = 0; i < panes->n; i++) weir__text_fini(&panes->panes[i].shown);
    cli_free(panes->panes);
    *panes = (cli_panes){0};
}

void cli_panes_add(cli_pane *pane, const char *text, size_t length)
{
    size_t from = pane->shown.n;
    cli_text_add_safe(&pane->shown, text, length);
    for (size_t i = from; i < pane->shown.n; i++)
        if (pane->shown.bytes[i] == '\t') pane->shown.bytes[i] = ' '; /* so that columns can be counted */
}

/* ---- Rows ---- */

/* The number of rows of each pane, headline included. */
static int pane_rows(const cli_panes *panes, int available)
{
    int rows = available / (int)(panes->n < 4096 ? panes->n : 4096);
    return rows < 2 ? 2 : rows > PANE_ROWS_MAX ? PANE_ROWS_MAX : rows;
}

static const char *state_name(const cli_pane *pane)
{
    static const char *const names[] = {"queued", "prefilling", "generating"};
    if (pane->state == CLI_PANE_FINISHED) return weir_reason_name(pane->reason);
    return pane->cancelling ? "cancelling" : names[pane->state];
}

static cli_style state_style(const cli_pane *pane)
{
    switch (pane->state) {
    case CLI_PANE_QUEUED: return CLI_DIM;
    case CLI_PANE_PREFILLING: return CLI_YELLOW;
    case CLI_PANE_GENERATING: return CLI_CYAN;
    default: break;
    }
    return pane->reason == WEIR_REASON_ERROR || pane->reason == WEIR_REASON_CANCELLED ? CLI_RED : CLI_GREEN;
}

/* Tokens and rate, as wide as they always are, so that they stand still. */
static void add_figures(cli_text *text, const cli_pane *pane, int columns)
{
    const weir_usage *usage = &pane->usage;
    int64_t ns = usage->total_ns - usage->ttft_ns;
    if (columns < 50 || usage->n_generated == 0) return;
    cli_text_printf(text, " %5d tokens", usage->n_generated);
    if (columns < 64) return;
    if (usage->n_generated > 1 && usage->ttft_ns > 0 && ns > 0)
        cli_text_printf(text, " %6.1f tok/s", (usage->n_generated - 1) * 1e9 / (double)ns);
    else
        cli_text_fill(text, " ", 13);
}

/* Puts a row on the screen, and frees it. */
static void put_row(int row, cli_text *text)
{
    cli_screen_line(row, text->bytes, text->n);
    weir__text_fini(text);
}

static void draw_headline(const cli_panes *panes, size_t i, int row)
{
    const cli_pane *pane = &panes->panes[i];
    bool focus = i == panes->focus;
    char left[160], number[24];
    cli_text text = {0}, name = {0}, figures = {0};
    snprintf(number, sizeof number, "%zu", i + 1);
    bool named = strcmp(number, pane->name) != 0;
    snprintf(left, sizeof left, "%s%s%.100s", number, named ? " " : "", named ? pane->name : "");
    add_figures(&figures, pane, panes->columns);
    int figures_width = cli_text_width(figures.bytes, figures.n);
    int state_width = (int)strlen(state_name(pane));
    int room = panes->columns - INDENT - figures_width - state_width - 4;
    cli_text_add_cut(&name, left, strlen(left), room < 4 ? 4 : room, false);
    cli_mark_text(&text, focus ? CLI_CYAN : CLI_PLAIN, focus ? "▶ " : "  ");
    cli_mark_text(&text, focus ? CLI_REVERSE : CLI_BOLD, name.bytes);
    cli_mark(&text, CLI_DIM);
    cli_text_puts(&text, " ");
    cli_text_fill(&text, "─",
                  panes->columns - INDENT - cli_text_width(name.bytes, name.n) - 2 - state_width -
                      figures_width);
    cli_text_puts(&text, " ");
    cli_mark_text(&text, state_style(pane), state_name(pane));
    if (figures.n > 0) cli_text_puts(&text, figures.bytes);
    weir__text_fini(&name);
    weir__text_fini(&figures);
    put_row(row, &text);
}

/* The length of the first line of a text, with the newline or the blank that ends it. */
static size_t line_length(const char *bytes, size_t n, int width)
{
    size_t blank = 0;
    int column = 0;
    for (size_t i = 0, used; i < n; i += used) {
        uint32_t point = cli_text_decode(bytes + i, n - i, &used);
        if (point == '\n') return i + 1;
        column += cli_text_columns(point);
        if (column > width && point != ' ') return blank > 0 ? blank : i > 0 ? i : used;
        if (point == ' ') blank = i + 1;
    }
    return n;
}

/* The last `n` lines of a pane's text. */
static void draw_text(const cli_panes *panes, cli_pane *pane, int row, size_t n)
{
    int width = panes->columns - INDENT - 1;
    const char *bytes = pane->shown.bytes;
    size_t starts[PANE_ROWS_MAX + 1] = {0}, n_lines = 0;
    if (width < 4 || pane->shown.n == 0) return;
    if (pane->width != width || pane->n_lines != n) pane->from = 0;
    pane->width = width;
    pane->n_lines = n;
    for (size_t at = pane->from; at < pane->shown.n;) {
        if (n_lines == n) memmove(starts, starts + 1, --n_lines * sizeof *starts);
        starts[n_lines++] = at;
        at += line_length(bytes + at, pane->shown.n - at, width);
    }
    pane->from = starts[0];
    starts[n_lines] = pane->shown.n;
    for (size_t i = 0; i < n_lines; i++) {
        cli_text text = {0};
        size_t to = starts[i + 1];
        while (to > starts[i] && (bytes[to - 1] == '\n' || bytes[to - 1] == ' ')) to--;
        cli_text_fill(&text, " ", INDENT);
        cli_text_add(&text, bytes + starts[i], to - starts[i]);
        put_row(row + (int)i, &text);
    }
}

static void draw_title(cli_panes *panes)
{
    size_t counts[4] = {0};
    cli_text text = {0}, left = {0};
    char rate[32] = "";
    for (size_t i = 0; i < panes->n; i++) counts[panes->panes[i].state]++;
    cli_text_printf(&left, "  %s  %zu running, %zu queued, %zu done", panes->title,
                    counts[CLI_PANE_PREFILLING] + counts[CLI_PANE_GENERATING], counts[CLI_PANE_QUEUED],
                    counts[CLI_PANE_FINISHED]);
    int64_t now = weir__clock_now_ns(), elapsed = now - panes->measured_ns;
    if (elapsed >= RATE_NS) {
        panes->rate = (double)(panes->n_tokens - panes->measured_tokens) * 1e9 / (double)elapsed;
        panes->measured_ns = now;
        panes->measured_tokens = panes->n_tokens;
    }
    if (panes->rate > 0) snprintf(rate, sizeof rate, " %.1f tok/s", panes->rate);
    cli_mark_text(&text, CLI_BOLD, "weir stream");
    cli_text_add_cut(&text, left.bytes, left.n, panes->columns - 11 - (int)strlen(rate), true);
    cli_text_puts(&text, rate);
    weir__text_fini(&left);
    put_row(0, &text);
}

static void draw_keys(const cli_panes *panes, size_t hidden_above, size_t hidden_below)
{
    cli_text text = {0};
    cli_mark(&text, CLI_DIM);
    cli_text_puts(&text, "Tab ↓ j next   ↑ k back   s skip   q cancel all");
    if (hidden_above > 0) cli_text_printf(&text, "   %zu above", hidden_above);
    if (hidden_below > 0) cli_text_printf(&text, "   %zu below", hidden_below);
    put_row(panes->rows - 1, &text);
}

/* ---- Focus ---- */

static int visible_panes(const cli_panes *panes, int *rows_each)
{
    int available = panes->rows - 2;
    *rows_each = pane_rows(panes, available);
    int n = available / *rows_each;
    if (n < 1) n = 1;
    return (size_t)n < panes->n ? n : (int)panes->n;
}

bool cli_panes_key(cli_panes *panes, int key)
{
    int each;
    size_t page = panes->rows > 0 ? (size_t)visible_panes(panes, &each) : 1, last = panes->n - 1;
    switch (key) {
    case '\t':
    case CLI_KEY_RIGHT: panes->focus = panes->focus == last ? 0 : panes->focus + 1; return true;
    case CLI_KEY_BACKTAB:
    case CLI_KEY_LEFT: panes->focus = panes->focus == 0 ? last : panes->focus - 1; return true;
    case 'j':
    case CLI_KEY_DOWN: panes->focus += panes->focus < last; return true;
    case 'k':
    case CLI_KEY_UP: panes->focus -= panes->focus > 0; return true;
    case 'g':
    case CLI_KEY_HOME: panes->focus = 0; return true;
    case 'G':
    case CLI_KEY_END: panes->focus = last; return true;
    case ' ':
    case CLI_KEY_PAGE_DOWN:
        panes->focus = panes->focus + page < last ? panes->focus + page : last;
        return true;
    case CLI_KEY_PAGE_UP: panes->focus -= panes->focus < page ? panes->focus : page; return true;
    default: return false;
    }
}

/* ---- Screen ---- */

void cli_panes_draw(cli_panes *panes)
{
    cli_screen_size(&panes->columns, &panes->rows);
    int each;
    size_t shown = (size_t)visible_panes(panes, &each);
    if (panes->focus < panes->first) panes->first = panes->focus;
    if (panes->focus >= panes->first + shown) panes->first = panes->focus - shown + 1;
    if (panes->first + shown > panes->n) panes->first = panes->n - shown;
    cli_screen_begin();
    draw_title(panes);
    for (size_t i = 0; i < shown; i++) {
        int row = 1 + (int)i * each;
        if (row + each > panes->rows) break; /* a window of two rows */
        draw_headline(panes, panes->first + i, row);
        draw_text(panes, &panes->panes[panes->first + i], row + 1, (size_t)each - 1);
    }
    if (panes->rows > 1) draw_keys(panes, panes->first, panes->n - panes->first - shown);
    cli_screen_end();
}

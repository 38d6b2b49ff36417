/* SPDX-License-Identifier: Apache-2.0 */
#include "panes.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli.h"
#include "out.h"
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

static void forget_rows(cli_panes *panes)
{
    for (int i = 0; i < panes->n_drawn; i++) cli_free(panes->drawn[i]);
    cli_free(panes->drawn);
    panes->drawn = NULL;
    panes->n_drawn = 0;
}

void cli_panes_fini(cli_panes *panes)
{
    forget_rows(panes);
    for (size_t i = 0; i < panes->n; i++) {
        weir__text_fini(&panes->panes[i].shown);
        cli_free(panes->panes[i].lines);
    }
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

/* ---- Wrapping ---- */

static void begin_line(cli_pane *pane, size_t at)
{
    cli_grow(&pane->lines, &pane->lines_capacity, pane->n_lines + 1, sizeof *pane->lines);
    pane->lines[pane->n_lines++] = at;
    pane->blank = 0;
    pane->column = 0;
}

/* Wraps what came since the last time; all of it when the width is another. */
static void lay(cli_pane *pane, int width)
{
    if (pane->width != width || pane->n_lines == 0) {
        pane->width = width;
        pane->n_lines = 0;
        pane->laid = 0;
        begin_line(pane, 0);
    }
    const char *bytes = pane->shown.bytes;
    for (size_t used; pane->laid < pane->shown.n; pane->laid += used) {
        size_t at = pane->laid;
        uint32_t point = cli_text_decode(bytes + at, pane->shown.n - at, &used);
        if (point == '\n') {
            begin_line(pane, at + 1);
            continue;
        }
        int columns = cli_text_columns(point);
        if (pane->column + columns > width && point != ' ') {
            size_t next = pane->blank > 0 ? pane->blank : at;
            begin_line(pane, next);
            pane->column = cli_text_width(bytes + next, at - next);
        }
        pane->column += columns;
        if (point == ' ') pane->blank = at + 1;
    }
}

/* ---- Rows ---- */

struct frame {
    cli_text *rows; /* [n_rows] */
    int n_rows, columns;
};

/* How many rows each pane has, headline included. */
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

static void draw_headline(const cli_panes *panes, size_t i, cli_text *row)
{
    const cli_pane *pane = &panes->panes[i];
    bool focus = i == panes->focus;
    const char *plain = cli_term_style_out(CLI_PLAIN), *dim = cli_term_style_out(CLI_DIM);
    char left[160], number[24];
    cli_text name = {0}, figures = {0};
    snprintf(number, sizeof number, "%zu", i + 1);
    bool named = strcmp(number, pane->name) != 0;
    snprintf(left, sizeof left, "%s%s%.100s", number, named ? " " : "", named ? pane->name : "");
    add_figures(&figures, pane, panes->columns);
    int figures_width = cli_text_width(figures.bytes, figures.n);
    int state_width = (int)strlen(state_name(pane));
    int room = panes->columns - INDENT - figures_width - state_width - 4;
    if (room < 4) room = 4;
    cli_text_add_cut(&name, left, strlen(left), room, false);
    int name_width = cli_text_width(name.bytes, name.n);
    cli_text_printf(row, "%s%s%s%s%s%s ", cli_term_style_out(focus ? CLI_CYAN : CLI_PLAIN),
                    focus ? "▶ " : "  ", plain, cli_term_style_out(focus ? CLI_REVERSE : CLI_BOLD),
                    name.bytes, plain);
    cli_text_puts(row, dim);
    cli_text_fill(row, "─", panes->columns - INDENT - name_width - 1 - 1 - state_width - figures_width);
    cli_text_printf(row, "%s %s%s%s", plain, cli_term_style_out(state_style(pane)), state_name(pane), plain);
    if (figures.n > 0) cli_text_puts(row, figures.bytes);
    weir__text_fini(&name);
    weir__text_fini(&figures);
}

/* The last `n` lines of a pane's text. */
static void draw_text(const cli_panes *panes, size_t i, cli_text *rows, int n)
{
    cli_pane *pane = &panes->panes[i];
    int width = panes->columns - INDENT - 1;
    if (width < 4 || pane->shown.n == 0) return;
    lay(pane, width);
    size_t last = pane->n_lines;
    if (pane->lines[last - 1] >= pane->shown.n && last > 1) last--; /* an empty line is none yet */
    size_t first = last > (size_t)n ? last - (size_t)n : 0;
    for (size_t line = first; line < last; line++) {
        cli_text *row = &rows[line - first];
        size_t from = pane->lines[line];
        size_t to = line + 1 < pane->n_lines ? pane->lines[line + 1] : pane->shown.n;
        while (to > from && (pane->shown.bytes[to - 1] == '\n' || pane->shown.bytes[to - 1] == ' ')) to--;
        cli_text_fill(row, " ", INDENT);
        cli_text_add(row, pane->shown.bytes + from, to - from);
    }
}

static void draw_title(cli_panes *panes, cli_text *row)
{
    size_t counts[4] = {0};
    cli_text left = {0};
    char rate[32] = "";
    for (size_t i = 0; i < panes->n; i++) counts[panes->panes[i].state]++;
    cli_text_printf(&left, "%s  %zu running, %zu queued, %zu done", panes->title,
                    counts[CLI_PANE_PREFILLING] + counts[CLI_PANE_GENERATING], counts[CLI_PANE_QUEUED],
                    counts[CLI_PANE_FINISHED]);
    int64_t now = weir__clock_now_ns(), elapsed = now - panes->measured_ns;
    if (elapsed >= RATE_NS) {
        panes->rate = (double)(panes->n_tokens - panes->measured_tokens) * 1e9 / (double)elapsed;
        panes->measured_ns = now;
        panes->measured_tokens = panes->n_tokens;
    }
    if (panes->rate > 0) snprintf(rate, sizeof rate, " %.1f tok/s", panes->rate);
    cli_text_printf(row, "%sweir stream%s  ", cli_term_style_out(CLI_BOLD), cli_term_style_out(CLI_PLAIN));
    cli_text_add_cut(row, left.bytes, left.n, panes->columns - 13 - (int)strlen(rate), true);
    cli_text_puts(row, rate);
    weir__text_fini(&left);
}

static void draw_keys(const cli_panes *panes, cli_text *row, int hidden_above, int hidden_below)
{
    cli_text line = {0};
    cli_text_puts(&line, "Tab ↓ j next   ↑ k back   s skip   q cancel all");
    if (hidden_above > 0) cli_text_printf(&line, "   %d above", hidden_above);
    if (hidden_below > 0) cli_text_printf(&line, "   %d below", hidden_below);
    cli_text_puts(row, cli_term_style_out(CLI_DIM));
    cli_text_add_cut(row, line.bytes, line.n, panes->columns - 1, false);
    cli_text_puts(row, cli_term_style_out(CLI_PLAIN));
    weir__text_fini(&line);
}

/* ---- Focus ---- */

static int visible(const cli_panes *panes, int *rows_each)
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
    size_t page = panes->rows > 0 ? (size_t)visible(panes, &each) : 1, last = panes->n - 1;
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

void cli_panes_resize(cli_panes *panes)
{
    forget_rows(panes);
    panes->columns = cli_term_columns();
    panes->rows = cli_term_rows();
}

/* Writes the rows that are not on the screen yet, and keeps them. */
static void put(cli_panes *panes, struct frame *frame)
{
    cli_text out = {0};
    if (panes->n_drawn != frame->n_rows) {
        forget_rows(panes);
        panes->drawn = cli_alloc((size_t)frame->n_rows, sizeof *panes->drawn);
        panes->n_drawn = frame->n_rows;
        cli_text_puts(&out, "\033[2J");
    }
    for (int i = 0; i < frame->n_rows; i++) {
        const char *row = frame->rows[i].bytes != NULL ? frame->rows[i].bytes : "";
        if (panes->drawn[i] != NULL && strcmp(panes->drawn[i], row) == 0) continue;
        cli_text_printf(&out, "\033[%d;1H%s\033[K", i + 1, row);
        cli_free(panes->drawn[i]);
        panes->drawn[i] = cli_copy(row, strlen(row) + 1);
    }
    cli_out(out.bytes, out.n);
    weir__text_fini(&out);
}

void cli_panes_draw(cli_panes *panes)
{
    if (panes->rows == 0) cli_panes_resize(panes);
    struct frame frame = {.n_rows = panes->rows, .columns = panes->columns};
    frame.rows = cli_alloc((size_t)frame.n_rows, sizeof *frame.rows);
    int each, shown = visible(panes, &each);
    if (panes->focus < panes->first) panes->first = panes->focus;
    if (panes->focus >= panes->first + (size_t)shown) panes->first = panes->focus - (size_t)shown + 1;
    if (panes->first + (size_t)shown > panes->n) panes->first = panes->n - (size_t)shown;
    draw_title(panes, &frame.rows[0]);
    for (int i = 0; i < shown; i++) {
        int row = 1 + i * each;
        if (row + each > panes->rows) break; /* a window of two rows */
        draw_headline(panes, panes->first + (size_t)i, &frame.rows[row]);
        draw_text(panes, panes->first + (size_t)i, &frame.rows[row + 1], each - 1);
    }
    if (panes->rows > 1)
        draw_keys(panes, &frame.rows[panes->rows - 1], (int)panes->first,
                  (int)(panes->n - panes->first) - shown);
    put(panes, &frame);
    for (int i = 0; i < frame.n_rows; i++) weir__text_fini(&frame.rows[i]);
    cli_free(frame.rows);
}

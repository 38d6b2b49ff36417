/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli.h"
#include "out.h"
#include "term.h"

#define LANE_ROWS_MAX 8 /* a lane's headline and up to seven lines of its text */
#define INDENT        2
#define RATE_NS       (WEIR__NS_PER_S / 2) /* how often the rate of all is measured anew */

void cli_lanes_init(cli_lanes *lanes, const char *title, size_t n)
{
    *lanes = (cli_lanes){
        .title = title,
        .lanes = cli_alloc(n, sizeof *lanes->lanes),
        .n = n,
        .measured_ns = weir__clock_now_ns(),
    };
}

static void forget_rows(cli_lanes *lanes)
{
    for (int i = 0; i < lanes->n_drawn; i++) cli_free(lanes->drawn[i]);
    cli_free(lanes->drawn);
    lanes->drawn = NULL;
    lanes->n_drawn = 0;
}

void cli_lanes_fini(cli_lanes *lanes)
{
    forget_rows(lanes);
    for (size_t i = 0; i < lanes->n; i++) {
        cli_text_fini(&lanes->lanes[i].shown);
        cli_free(lanes->lanes[i].lines);
    }
    cli_free(lanes->lanes);
    *lanes = (cli_lanes){0};
}

void cli_lanes_add(cli_lane *lane, const char *text, size_t length)
{
    size_t from = lane->shown.length;
    cli_text_add_safe(&lane->shown, text, length);
    for (size_t i = from; i < lane->shown.length; i++)
        if (lane->shown.bytes[i] == '\t') lane->shown.bytes[i] = ' '; /* so that columns can be counted */
}

/* ---- Wrapping ---- */

static void begin_line(cli_lane *lane, size_t at)
{
    cli_grow(&lane->lines, &lane->lines_capacity, lane->n_lines + 1, sizeof *lane->lines);
    lane->lines[lane->n_lines++] = at;
    lane->blank = 0;
    lane->column = 0;
}

/* Wraps what came since the last time; all of it when the width is another. */
static void lay(cli_lane *lane, int width)
{
    if (lane->width != width || lane->n_lines == 0) {
        lane->width = width;
        lane->n_lines = 0;
        lane->laid = 0;
        begin_line(lane, 0);
    }
    const char *bytes = lane->shown.bytes;
    for (size_t used; lane->laid < lane->shown.length; lane->laid += used) {
        size_t at = lane->laid;
        uint32_t point = cli_text_decode(bytes + at, lane->shown.length - at, &used);
        if (point == '\n') {
            begin_line(lane, at + 1);
            continue;
        }
        int columns = cli_text_columns(point);
        if (lane->column + columns > width && point != ' ') {
            size_t next = lane->blank > 0 ? lane->blank : at;
            begin_line(lane, next);
            lane->column = cli_text_width(bytes + next, at - next);
        }
        lane->column += columns;
        if (point == ' ') lane->blank = at + 1;
    }
}

/* ---- Rows ---- */

struct frame {
    cli_text *rows; /* [n_rows] */
    int n_rows, columns;
};

/* How many rows each lane has, headline included. */
static int lane_rows(const cli_lanes *lanes, int available)
{
    int rows = available / (int)(lanes->n < 4096 ? lanes->n : 4096);
    return rows < 2 ? 2 : rows > LANE_ROWS_MAX ? LANE_ROWS_MAX : rows;
}

static const char *state_name(const cli_lane *lane)
{
    static const char *const names[] = {"queued", "prefilling", "generating"};
    if (lane->state == CLI_LANE_FINISHED) return weir_reason_name(lane->reason);
    return lane->cancelling ? "cancelling" : names[lane->state];
}

static cli_style state_style(const cli_lane *lane)
{
    switch (lane->state) {
    case CLI_LANE_QUEUED: return CLI_DIM;
    case CLI_LANE_PREFILLING: return CLI_YELLOW;
    case CLI_LANE_GENERATING: return CLI_CYAN;
    default: break;
    }
    return lane->reason == WEIR_REASON_ERROR || lane->reason == WEIR_REASON_CANCELLED ? CLI_RED : CLI_GREEN;
}

/* Tokens and rate, as wide as they always are, so that they stand still. */
static void add_figures(cli_text *text, const cli_lane *lane, int columns)
{
    const weir_usage *usage = &lane->usage;
    int64_t ns = usage->total_ns - usage->ttft_ns;
    if (columns < 50 || usage->n_generated == 0) return;
    cli_text_printf(text, " %5d tokens", usage->n_generated);
    if (columns < 64) return;
    if (usage->n_generated > 1 && usage->ttft_ns > 0 && ns > 0)
        cli_text_printf(text, " %6.1f tok/s", (usage->n_generated - 1) * 1e9 / (double)ns);
    else
        cli_text_fill(text, " ", 13);
}

static void draw_headline(const cli_lanes *lanes, size_t i, cli_text *row)
{
    const cli_lane *lane = &lanes->lanes[i];
    bool focus = i == lanes->focus;
    const char *plain = cli_term_style_out(CLI_PLAIN), *dim = cli_term_style_out(CLI_DIM);
    char left[160], number[24];
    cli_text name = {0}, figures = {0};
    snprintf(number, sizeof number, "%zu", i + 1);
    bool named = strcmp(number, lane->name) != 0;
    snprintf(left, sizeof left, "%s%s%.100s", number, named ? " " : "", named ? lane->name : "");
    add_figures(&figures, lane, lanes->columns);
    int figures_width = cli_text_width(figures.bytes, figures.length);
    int state_width = (int)strlen(state_name(lane));
    int room = lanes->columns - INDENT - figures_width - state_width - 4;
    if (room < 4) room = 4;
    cli_text_add_cut(&name, left, strlen(left), room, false);
    int name_width = cli_text_width(name.bytes, name.length);
    cli_text_printf(row, "%s%s%s%s%s%s ", cli_term_style_out(focus ? CLI_CYAN : CLI_PLAIN),
                    focus ? "▶ " : "  ", plain, cli_term_style_out(focus ? CLI_REVERSE : CLI_BOLD),
                    name.bytes, plain);
    cli_text_puts(row, dim);
    cli_text_fill(row, "─", lanes->columns - INDENT - name_width - 1 - 1 - state_width - figures_width);
    cli_text_printf(row, "%s %s%s%s", plain, cli_term_style_out(state_style(lane)), state_name(lane), plain);
    if (figures.length > 0) cli_text_puts(row, figures.bytes);
    cli_text_fini(&name);
    cli_text_fini(&figures);
}

/* The last `n` lines of a lane's text. */
static void draw_text(const cli_lanes *lanes, size_t i, cli_text *rows, int n)
{
    cli_lane *lane = &lanes->lanes[i];
    int width = lanes->columns - INDENT - 1;
    if (width < 4 || lane->shown.length == 0) return;
    lay(lane, width);
    size_t last = lane->n_lines;
    if (lane->lines[last - 1] >= lane->shown.length && last > 1) last--; /* an empty line is none yet */
    size_t first = last > (size_t)n ? last - (size_t)n : 0;
    for (size_t line = first; line < last; line++) {
        cli_text *row = &rows[line - first];
        size_t from = lane->lines[line];
        size_t to = line + 1 < lane->n_lines ? lane->lines[line + 1] : lane->shown.length;
        while (to > from && (lane->shown.bytes[to - 1] == '\n' || lane->shown.bytes[to - 1] == ' ')) to--;
        cli_text_fill(row, " ", INDENT);
        cli_text_add(row, lane->shown.bytes + from, to - from);
    }
}

static void draw_title(cli_lanes *lanes, cli_text *row)
{
    size_t counts[4] = {0};
    cli_text left = {0};
    char rate[32] = "";
    for (size_t i = 0; i < lanes->n; i++) counts[lanes->lanes[i].state]++;
    cli_text_printf(&left, "%s  %zu running, %zu queued, %zu done", lanes->title,
                    counts[CLI_LANE_PREFILLING] + counts[CLI_LANE_GENERATING], counts[CLI_LANE_QUEUED],
                    counts[CLI_LANE_FINISHED]);
    int64_t now = weir__clock_now_ns(), elapsed = now - lanes->measured_ns;
    if (elapsed >= RATE_NS) {
        lanes->rate = (double)(lanes->n_tokens - lanes->measured_tokens) * 1e9 / (double)elapsed;
        lanes->measured_ns = now;
        lanes->measured_tokens = lanes->n_tokens;
    }
    if (lanes->rate > 0) snprintf(rate, sizeof rate, " %.1f tok/s", lanes->rate);
    cli_text_printf(row, "%sweir stream%s  ", cli_term_style_out(CLI_BOLD), cli_term_style_out(CLI_PLAIN));
    cli_text_add_cut(row, left.bytes, left.length, lanes->columns - 13 - (int)strlen(rate), true);
    cli_text_puts(row, rate);
    cli_text_fini(&left);
}

static void draw_keys(const cli_lanes *lanes, cli_text *row, int hidden_above, int hidden_below)
{
    cli_text line = {0};
    cli_text_puts(&line, "Tab ↓ j next   ↑ k back   s skip   q cancel all");
    if (hidden_above > 0) cli_text_printf(&line, "   %d above", hidden_above);
    if (hidden_below > 0) cli_text_printf(&line, "   %d below", hidden_below);
    cli_text_puts(row, cli_term_style_out(CLI_DIM));
    cli_text_add_cut(row, line.bytes, line.length, lanes->columns - 1, false);
    cli_text_puts(row, cli_term_style_out(CLI_PLAIN));
    cli_text_fini(&line);
}

/* ---- Focus ---- */

static int visible(const cli_lanes *lanes, int *rows_each)
{
    int available = lanes->rows - 2;
    *rows_each = lane_rows(lanes, available);
    int n = available / *rows_each;
    if (n < 1) n = 1;
    return (size_t)n < lanes->n ? n : (int)lanes->n;
}

bool cli_lanes_key(cli_lanes *lanes, int key)
{
    int each;
    size_t page = lanes->rows > 0 ? (size_t)visible(lanes, &each) : 1, last = lanes->n - 1;
    switch (key) {
    case '\t':
    case CLI_KEY_RIGHT: lanes->focus = lanes->focus == last ? 0 : lanes->focus + 1; return true;
    case CLI_KEY_BACKTAB:
    case CLI_KEY_LEFT: lanes->focus = lanes->focus == 0 ? last : lanes->focus - 1; return true;
    case 'j':
    case CLI_KEY_DOWN: lanes->focus += lanes->focus < last; return true;
    case 'k':
    case CLI_KEY_UP: lanes->focus -= lanes->focus > 0; return true;
    case 'g':
    case CLI_KEY_HOME: lanes->focus = 0; return true;
    case 'G':
    case CLI_KEY_END: lanes->focus = last; return true;
    case ' ':
    case CLI_KEY_PAGE_DOWN:
        lanes->focus = lanes->focus + page < last ? lanes->focus + page : last;
        return true;
    case CLI_KEY_PAGE_UP: lanes->focus -= lanes->focus < page ? lanes->focus : page; return true;
    default: return false;
    }
}

/* ---- Screen ---- */

void cli_lanes_resize(cli_lanes *lanes)
{
    forget_rows(lanes);
    lanes->columns = cli_term_columns();
    lanes->rows = cli_term_rows();
}

/* Writes the rows that are not on the screen yet, and keeps them. */
static void put(cli_lanes *lanes, struct frame *frame)
{
    cli_text out = {0};
    if (lanes->n_drawn != frame->n_rows) {
        forget_rows(lanes);
        lanes->drawn = cli_alloc((size_t)frame->n_rows, sizeof *lanes->drawn);
        lanes->n_drawn = frame->n_rows;
        cli_text_puts(&out, "\033[2J");
    }
    for (int i = 0; i < frame->n_rows; i++) {
        const char *row = frame->rows[i].bytes != NULL ? frame->rows[i].bytes : "";
        if (lanes->drawn[i] != NULL && strcmp(lanes->drawn[i], row) == 0) continue;
        cli_text_printf(&out, "\033[%d;1H%s\033[K", i + 1, row);
        cli_free(lanes->drawn[i]);
        lanes->drawn[i] = cli_copy(row, strlen(row) + 1);
    }
    cli_out(out.bytes, out.length);
    cli_text_fini(&out);
}

void cli_lanes_draw(cli_lanes *lanes)
{
    if (lanes->rows == 0) cli_lanes_resize(lanes);
    struct frame frame = {.n_rows = lanes->rows, .columns = lanes->columns};
    frame.rows = cli_alloc((size_t)frame.n_rows, sizeof *frame.rows);
    int each, shown = visible(lanes, &each);
    if (lanes->focus < lanes->first) lanes->first = lanes->focus;
    if (lanes->focus >= lanes->first + (size_t)shown) lanes->first = lanes->focus - (size_t)shown + 1;
    if (lanes->first + (size_t)shown > lanes->n) lanes->first = lanes->n - (size_t)shown;
    draw_title(lanes, &frame.rows[0]);
    for (int i = 0; i < shown; i++) {
        int row = 1 + i * each;
        if (row + each > lanes->rows) break; /* a window of two rows */
        draw_headline(lanes, lanes->first + (size_t)i, &frame.rows[row]);
        draw_text(lanes, lanes->first + (size_t)i, &frame.rows[row + 1], each - 1);
    }
    if (lanes->rows > 1)
        draw_keys(lanes, &frame.rows[lanes->rows - 1], (int)lanes->first,
                  (int)(lanes->n - lanes->first) - shown);
    put(lanes, &frame);
    for (int i = 0; i < frame.n_rows; i++) cli_text_fini(&frame.rows[i]);
    cli_free(frame.rows);
}

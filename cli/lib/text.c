/* text.c: counts columns of UTF-8 text, makes it safe to print, aligns tables, and breaks lines between words
 * as text comes in pieces.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Texts grow as they are written, and the program ends if there is no memory for one. Safe text has no
 * control characters but newlines and tabs, so styles stand in it as marks of two bytes, which become escape
 * sequences, or nothing, when a line is printed. A cli_wrap holds back the last word until it ends, because
 * only then is it known whether the line has room for it. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "cli.h"
#include "term.h"

#define REPLACEMENT "\xef\xbf\xbd"

void cli_text_add(cli_text *text, const char *bytes, size_t n)
{
    if (!weir__text_add(text, bytes, n)) cli_no_memory();
}

void cli_text_puts(cli_text *text, const char *string)
{
    cli_text_add(text, string, strlen(string));
}

void cli_text_fill(cli_text *text, const char *unit, int n)
{
    for (int i = 0; i < n; i++) cli_text_puts(text, unit);
}

void cli_text_printf(cli_text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (!weir__text_vprintf(text, format, list)) cli_no_memory();
    va_end(list);
}

uint32_t cli_text_decode(const char *bytes, size_t n, size_t *used)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)bytes[0];
    size_t size = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 0;
    *used = 1;
    if (size == 1) return first;
    if (size == 0 || size > n || first > 0xf4) return 0xfffd;
    uint32_t point = first & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if ((byte & 0xc0) != 0x80) return 0xfffd;
        point = point << 6 | (byte & 0x3f);
    }
    if (point < least[size] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return 0xfffd;
    *used = size;
    return point;
}

int cli_text_columns(uint32_t point)
{
    if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return 0;
    int columns = point < 0x80 ? 1 : wcwidth((wchar_t)point);
    return columns < 0 ? 1 : columns; /* newer than the C library */
}

int cli_text_width(const char *bytes, size_t n)
{
    int width = 0;
    for (size_t i = 0, used; i < n; i += used)
        width += cli_text_columns(cli_text_decode(bytes + i, n - i, &used));
    return width;
}

void cli_text_add_safe(cli_text *text, const char *bytes, size_t n)
{
    for (size_t i = 0, used; i < n; i += used) {
        uint32_t point = cli_text_decode(bytes + i, n - i, &used);
        bool control = (point < 0x20 && point != '\n' && point != '\t') || (point >= 0x7f && point < 0xa0);
        if (control || (point == 0xfffd && used == 1))
            cli_text_puts(text, REPLACEMENT);
        else
            cli_text_add(text, bytes + i, used);
    }
}

void cli_text_add_cut(cli_text *text, const char *bytes, size_t n, int width, bool pad)
{
    int columns = 0;
    bool cut = cli_text_width(bytes, n) > width;
    int room = cut ? width - 1 : width;
    for (size_t i = 0, used; i < n; i += used) {
        int next = cli_text_columns(cli_text_decode(bytes + i, n - i, &used));
        if (columns + next > room) break;
        cli_text_add_safe(text, bytes + i, used);
        columns += next;
    }
    if (cut && width > 0) {
        cli_text_puts(text, "…");
        columns++;
    }
    if (pad) cli_text_fill(text, " ", width - columns);
}

cli_figure cli_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    cli_figure figure;
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    snprintf(figure.text, sizeof figure.text, "%.*f %s", unit == 0 || value >= 100 ? 0 : 1, value,
             units[unit]);
    return figure;
}

cli_figure cli_count(uint64_t count)
{
    cli_figure figure;
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count), at = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) figure.text[at++] = ',';
        figure.text[at++] = digits[i];
    }
    figure.text[at] = '\0';
    return figure;
}

cli_figure cli_time(int64_t ns)
{
    cli_figure figure;
    double ms = (double)ns / 1e6;
    snprintf(figure.text, sizeof figure.text,
             ms < 10     ? "%.1f ms"
             : ms < 1000 ? "%.0f ms"
                         : "%.2f s",
             ms < 1000 ? ms : ms / 1e3);
    return figure;
}

void cli_table_cell(cli_table *table, const char *format, ...)
{
    char cell[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cell, sizeof cell, format, arguments);
    va_end(arguments);
    cli_grow(&table->cells, &table->capacity, table->n_cells + 1, sizeof *table->cells);
    table->cells[table->n_cells++] = cli_copy(cell, strlen(cell) + 1);
}

static int column_width(const cli_table *table, int column)
{
    int width = 0;
    for (size_t i = (size_t)column; i < table->n_cells; i += (size_t)table->n_columns) {
        int cell = cli_text_width(table->cells[i], strlen(table->cells[i]));
        if (cell > width) width = cell;
    }
    return width;
}

void cli_table_print(const cli_table *table, cli_text *text, const char *head_on, const char *head_off)
{
    for (size_t i = 0; i < table->n_cells; i++) {
        int column = (int)(i % (size_t)table->n_columns);
        bool last = column + 1 == table->n_columns;
        bool left = column == 0 || (table->left >> column & 1);
        int blanks = column_width(table, column) - cli_text_width(table->cells[i], strlen(table->cells[i]));
        if (i == 0) cli_text_puts(text, head_on);
        if (column > 0) cli_text_puts(text, "  ");
        if (!left) cli_text_fill(text, " ", blanks);
        cli_text_puts(text, table->cells[i]);
        if (left && !last) cli_text_fill(text, " ", blanks);
        if (i + 1 == (size_t)table->n_columns) cli_text_puts(text, head_off);
        if (last) cli_text_puts(text, "\n");
    }
}

void cli_table_fini(cli_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++) cli_free(table->cells[i]);
    cli_free(table->cells);
    *table = (cli_table){0};
}

/* ---- Marks ---- */

#define MARK '\1' /* texts that were made safe have no such character */

void cli_mark(cli_text *text, cli_style style)
{
    const char mark[] = {MARK, (char)('0' + style)};
    cli_text_add(text, mark, sizeof mark);
}

void cli_mark_text(cli_text *text, cli_style style, const char *string)
{
    cli_mark(text, style);
    cli_text_add_safe(text, string, strlen(string));
    cli_mark(text, CLI_PLAIN);
}

size_t cli_mark_piece(const char *bytes, size_t n, cli_style *style)
{
    if (n >= 2 && bytes[0] == MARK) {
        *style = (cli_style)(bytes[1] - '0');
        return 0;
    }
    const char *mark = memchr(bytes, MARK, n);
    return mark != NULL ? (size_t)(mark - bytes) : n;
}

static void print_line(const char *line, size_t n, int columns, cli_text *text)
{
    int left = columns;
    bool styled = false;
    for (size_t i = 0; i < n;) {
        cli_style style = CLI_PLAIN;
        size_t piece = cli_mark_piece(line + i, n - i, &style);
        if (piece == 0) {
            cli_text_puts(text, cli_term_style_out(style));
            styled = style != CLI_PLAIN;
            i += 2;
            continue;
        }
        if (columns > 0 && left > 0)
            cli_text_add_cut(text, line + i, piece, left, false);
        else if (columns == 0)
            cli_text_add(text, line + i, piece);
        left -= cli_text_width(line + i, piece);
        i += piece;
    }
    if (styled) cli_text_puts(text, cli_term_style_out(CLI_PLAIN));
    cli_text_puts(text, "\n");
}

void cli_mark_print(const cli_text *marked, int columns, cli_text *text)
{
    for (size_t at = 0; at < marked->n;) {
        size_t n = strcspn(marked->bytes + at, "\n");
        print_line(marked->bytes + at, n, columns, text);
        at += n + 1;
    }
}

/* ---- Lines broken between words ---- */

#define TAB 8

/* Prints the word, in the next line where it does not fit into this one. */
static void put_word(cli_wrap *wrap, int columns, cli_text *out)
{
    if (wrap->word.n == 0) return;
    bool fence = !wrap->written && wrap->word.n >= 3 && memcmp(wrap->word.bytes, "```", 3) == 0;
    int end = wrap->column + wrap->n_blanks + wrap->word_columns;
    if (end > columns && !wrap->code && wrap->written) {
        cli_text_puts(out, "\n");
        cli_text_fill(out, " ", wrap->indent);
        end = wrap->indent + wrap->word_columns;
    } else
        cli_text_fill(out, " ", wrap->n_blanks);
    cli_text_add(out, wrap->word.bytes, wrap->word.n);
    weir__text_clear(&wrap->word);
    wrap->column = end <= columns || wrap->whole ? end : (end - 1) % columns + 1; /* the terminal breaks it */
    wrap->n_blanks = wrap->word_columns = 0;
    wrap->written = true;
    if (fence) wrap->code = !wrap->code;
}

static void end_line(cli_wrap *wrap, cli_text *out)
{
    cli_text_puts(out, "\n");
    wrap->column = 0;
    wrap->n_blanks = wrap->indent;
    wrap->written = false;
}

/* The columns of a character; 0 in an escape sequence: ESC, [, and all up to the first letter. */
static int columns_of(cli_wrap *wrap, uint32_t point)
{
    bool inside = wrap->escape || point == 0x1b;
    wrap->escape = inside && (point == 0x1b || point == '[' || point < 0x40);
    return inside ? 0 : cli_text_columns(point);
}

void cli_wrap_add(cli_wrap *wrap, const char *bytes, size_t n, int columns, cli_text *out)
{
    for (size_t i = 0, used; i < n; i += used) {
        uint32_t point = cli_text_decode(bytes + i, n - i, &used);
        int width = columns_of(wrap, point);
        bool blank = point == ' ' || point == '\t';
        if (blank || point == '\n' || width == 2)
            put_word(wrap, columns, out); /* wide: a line may end anywhere */
        if (point == '\n')
            end_line(wrap, out);
        else if (blank)
            wrap->n_blanks += point == ' ' ? 1 : TAB - (wrap->column + wrap->n_blanks) % TAB;
        else {
            cli_text_add(&wrap->word, bytes + i, used);
            wrap->word_columns += width;
            if (wrap->whole && point == ';') put_word(wrap, columns, out);
        }
    }
}

void cli_wrap_flush(cli_wrap *wrap, int columns, cli_text *out)
{
    put_word(wrap, columns, out);
    cli_text_fill(out, " ", wrap->n_blanks);
    wrap->column += wrap->n_blanks;
    wrap->n_blanks = 0;
}

void cli_wrap_fini(cli_wrap *wrap)
{
    weir__text_fini(&wrap->word);
}

void cli_wrap_text(cli_text *out, const char *string, int column, int indent, int columns)
{
    cli_wrap wrap = {.column = column, .indent = indent, .whole = true};
    cli_wrap_add(&wrap, string, strlen(string), columns, out);
    cli_wrap_flush(&wrap, columns, out);
    cli_wrap_fini(&wrap);
}

void cli_wrap_notice(cli_text *text)
{
    cli_text wrapped = {0};
    int columns = cli_term_columns();
    if (text->n == 0) return;
    cli_wrap_text(&wrapped, text->bytes, 0, 0, columns < CLI_WRAP_COLUMNS ? columns : CLI_WRAP_COLUMNS);
    weir__text_fini(text);
    *text = wrapped;
}

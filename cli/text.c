/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

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

/* First and last code points, ascending. The C library's wcwidth knows more, but only in some locales. */
typedef struct span {
    uint32_t from, to;
} span;

static const span no_columns[] = {
    {0x0300, 0x036f},   {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x0610, 0x061a},   {0x064b, 0x065f},
    {0x0900, 0x0902},   {0x093c, 0x093c}, {0x0941, 0x0948}, {0x094d, 0x094d},   {0x0e31, 0x0e31},
    {0x0e34, 0x0e3a},   {0x0e47, 0x0e4e}, {0x1160, 0x11ff}, {0x1ab0, 0x1aff},   {0x1dc0, 0x1dff},
    {0x200b, 0x200f},   {0x202a, 0x202e}, {0x2060, 0x2064}, {0x20d0, 0x20ff},   {0x302a, 0x302f},
    {0xfe00, 0xfe0f},   {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0x1f3fb, 0x1f3ff}, {0xe0001, 0xe007f},
    {0xe0100, 0xe01ef},
};

static const span two_columns[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},   {0x23f0, 0x23f0},
    {0x23f3, 0x23f3},   {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267f, 0x267f},
    {0x2693, 0x2693},   {0x26a1, 0x26a1},   {0x26aa, 0x26ab},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},
    {0x26ce, 0x26ce},   {0x26d4, 0x26d4},   {0x26ea, 0x26ea},   {0x26f2, 0x26f3},   {0x26f5, 0x26f5},
    {0x26fa, 0x26fa},   {0x26fd, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},   {0x2728, 0x2728},
    {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
    {0x27b0, 0x27b0},   {0x27bf, 0x27bf},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2b55, 0x2b55},
    {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xa000, 0xa4cf},
    {0xa960, 0xa97f},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
    {0xffe0, 0xffe6},   {0x16fe0, 0x18aff}, {0x1b000, 0x1b2ff}, {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf},
    {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f1e6, 0x1f320}, {0x1f32d, 0x1f335}, {0x1f337, 0x1f37c},
    {0x1f37e, 0x1f393}, {0x1f3a0, 0x1f3ca}, {0x1f3cf, 0x1f3d3}, {0x1f3e0, 0x1f3f0}, {0x1f3f4, 0x1f3f4},
    {0x1f3f8, 0x1f43e}, {0x1f440, 0x1f440}, {0x1f442, 0x1f4fc}, {0x1f4ff, 0x1f53d}, {0x1f54b, 0x1f54e},
    {0x1f550, 0x1f567}, {0x1f57a, 0x1f57a}, {0x1f595, 0x1f596}, {0x1f5a4, 0x1f5a4}, {0x1f5fb, 0x1f64f},
    {0x1f680, 0x1f6c5}, {0x1f6cc, 0x1f6cc}, {0x1f6d0, 0x1f6d2}, {0x1f6d5, 0x1f6d7}, {0x1f6eb, 0x1f6ec},
    {0x1f6f4, 0x1f6fc}, {0x1f7e0, 0x1f7eb}, {0x1f90c, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
};

static bool in_spans(const span *spans, size_t n, uint32_t point)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (point > spans[middle].to)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && point >= spans[low].from;
}

int cli_text_columns(uint32_t point)
{
    if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return 0;
    if (point < 0x300) return 1;
    if (in_spans(no_columns, sizeof no_columns / sizeof *no_columns, point)) return 0;
    return in_spans(two_columns, sizeof two_columns / sizeof *two_columns, point) ? 2 : 1;
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

void cli_text_add_wrapped(cli_text *text, const char *string, int column, int indent, int width)
{
    bool first = true;
    while (*string != '\0') {
        size_t n = strcspn(string, " \n");
        int columns = cli_text_width(string, n);
        if (!first && column + 1 + columns > width) {
            cli_text_puts(text, "\n");
            cli_text_fill(text, " ", indent);
            column = indent;
        } else if (!first) {
            cli_text_puts(text, " ");
            column++;
        }
        cli_text_add(text, string, n);
        column += columns;
        string += n;
        first = false;
        if (*string == '\n') {
            cli_text_puts(text, "\n");
            cli_text_fill(text, " ", indent);
            column = indent;
            first = true;
        }
        if (*string != '\0') string++;
    }
}

void cli_text_add_bytes(cli_text *text, uint64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    cli_text_printf(text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void cli_text_add_count(cli_text *text, uint64_t count)
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) cli_text_puts(text, ",");
        cli_text_add(text, digits + i, 1);
    }
}

void cli_text_add_time(cli_text *text, int64_t ns)
{
    double ms = (double)ns / 1e6;
    if (ms < 10)
        cli_text_printf(text, "%.1f ms", ms);
    else if (ms < 1000)
        cli_text_printf(text, "%.0f ms", ms);
    else
        cli_text_printf(text, "%.2f s", ms / 1e3);
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

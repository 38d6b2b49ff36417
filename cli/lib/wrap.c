/* wrap.c: breaks lines between words as text comes in pieces.
 * SPDX-License-Identifier: Apache-2.0 */
#include "wrap.h"

#include <string.h>

#include "term.h"

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

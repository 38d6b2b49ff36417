/* mark.c: replaces marks by a terminal's escape sequences, or by nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mark.h"

#include <string.h>

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

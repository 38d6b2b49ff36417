/* page.c: writes the parts of a page in either form.
 * SPDX-License-Identifier: Apache-2.0 */
#include "page.h"

#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "term.h"
#include "wrap.h"

#define NARROW 64 /* below that, explanations stand in lines of their own */

cli_page cli_page_begin(bool man)
{
    int width = cli_term_out() ? cli_term_columns() : CLI_WRAP_COLUMNS;
    return (cli_page){
        .man = man,
        .width = width < 40                 ? 40
                 : width > CLI_WRAP_COLUMNS ? CLI_WRAP_COLUMNS
                                            : width,
        .bold = cli_term_style_out(CLI_BOLD),
        .dim = cli_term_style_out(CLI_DIM),
        .cyan = cli_term_style_out(CLI_CYAN),
        .plain = cli_term_style_out(CLI_PLAIN),
    };
}

void cli_page_roff(cli_text *text, const char *string)
{
    static const struct {
        char plain;
        const char *roff;
    } escapes[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                   {'^', "\\(ha"}, {'~', "\\(ti"}, {'`', "\\(ga"}};
    bool begins = text->n == 0 || text->bytes[text->n - 1] == '\n';
    for (; *string != '\0'; string++) {
        size_t i = 0, n = sizeof escapes / sizeof *escapes;
        if (begins && (*string == '.' || *string == '\'')) cli_text_puts(text, "\\&");
        begins = *string == '\n';
        while (i < n && escapes[i].plain != *string) i++;
        if (begins) {
            while (string[1] == '\n') string++;
            cli_text_puts(text, "\n.PP\n");
        } else if (i < n)
            cli_text_puts(text, escapes[i].roff);
        else
            cli_text_add(text, string, 1);
    }
}

void cli_page_section(cli_page *page, const char *title)
{
    if (!page->man) {
        cli_text_printf(&page->text, "\n%s%s%s\n", page->bold, title, page->plain);
        return;
    }
    cli_text_puts(&page->text, ".SH ");
    for (; *title != '\0'; title++) {
        char upper = weir__ascii_upper(*title);
        cli_text_add(&page->text, &upper, 1);
    }
    cli_text_puts(&page->text, "\n");
}

void cli_page_group(cli_page *page, const char *title)
{
    if (page->man)
        cli_text_printf(&page->text, ".SS %s\n", title);
    else
        cli_page_section(page, title);
}

void cli_page_puts(cli_page *page, const char *string)
{
    if (page->man)
        cli_page_roff(&page->text, string);
    else
        cli_wrap_text(&page->text, string, 0, 0, page->width);
    cli_text_puts(&page->text, "\n");
}

void cli_page_entry(cli_page *page, const char *label, const char *explanation, int column)
{
    cli_text *text = &page->text;
    if (page->man) {
        cli_text_puts(text, ".TP\n\\fB");
        cli_page_roff(text, label);
        cli_text_puts(text, "\\fR\n");
        cli_page_puts(page, explanation);
        return;
    }
    int width = cli_text_width(label, strlen(label));
    if (page->width < NARROW) column = 8;
    cli_text_printf(text, "  %s%s%s", page->cyan, label, page->plain);
    if (width + 4 > column) {
        cli_text_puts(text, "\n");
        width = -2;
    }
    cli_text_fill(text, " ", column - width - 2);
    cli_wrap_text(text, explanation, column, column, page->width);
    cli_text_puts(text, "\n");
}

void cli_page_examples(cli_page *page, const char *lines)
{
    bool several = strchr(lines, '\n') != NULL && strchr(strchr(lines, '\n') + 1, '\n') != NULL;
    cli_page_section(page, several || page->man ? "Examples" : "Example");
    if (page->man) cli_text_puts(&page->text, ".nf\n");
    for (; *lines != '\0'; lines += *lines == '\n') {
        char line[256];
        size_t n = strcspn(lines, "\n");
        bool comment = lines[0] == '#';
        snprintf(line, sizeof line, "%.*s", (int)n, lines);
        if (page->man)
            cli_page_puts(page, line);
        else
            cli_text_printf(&page->text, "  %s%s%s\n", comment ? page->dim : "", line,
                            comment ? page->plain : "");
        lines += n;
    }
    if (page->man) cli_text_puts(&page->text, ".fi\n");
}

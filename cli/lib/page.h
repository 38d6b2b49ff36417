/* page.h: a page of help, for a terminal or as a manual page in roff.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_PAGE_H
#define WEIR_CLI_PAGE_H

#include "text.h"

typedef struct cli_page {
    bool man;
    cli_text text;
    int width;                             /* of the terminal */
    const char *bold, *dim, *cyan, *plain; /* escape sequences, or "" */
} cli_page;

cli_page cli_page_begin(bool man);

void cli_page_section(cli_page *page, const char *title);
void cli_page_group(cli_page *page, const char *title); /* of options */

/* Paragraphs, separated by empty lines; wrapped on a terminal. */
void cli_page_puts(cli_page *page, const char *string);

/* "  label      explanation", the explanation from this column on. */
void cli_page_entry(cli_page *page, const char *label, const char *explanation, int column);

/* Lines "# what" and "command". */
void cli_page_examples(cli_page *page, const char *lines);

/* Text as roff shows it: hyphens stay hyphens, nothing is taken for a request. Newlines begin paragraphs. */
void cli_page_roff(cli_text *text, const char *string);

#endif

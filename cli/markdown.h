/* markdown.h: Markdown on a terminal while it arrives: marks become styles, the text stays where it is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_MARKDOWN_H
#define WEIR_CLI_MARKDOWN_H

#include "text.h"

/* Zeroed is the beginning of a text. */
typedef struct cli_markdown {
    bool inside; /* of a line: its beginning is read */
    bool fenced; /* between lines of ``` */
    bool fence;  /* in such a line, which is not shown */
    bool heading, bold, code;
    char held[8]; /* [n_held] what may become a mark */
    size_t n_held;
} cli_markdown;

/* Adds what can be shown of the text so far; control characters become U+FFFD. At most some bytes are held
 * back. */
void cli_markdown_feed(cli_markdown *markdown, const char *bytes, size_t n, cli_text *out);

/* Adds the rest, ends all styles, and begins anew. */
void cli_markdown_end(cli_markdown *markdown, cli_text *out);

#endif

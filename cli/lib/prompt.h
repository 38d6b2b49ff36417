/* prompt.h: the prompt: texts from files and stdin, then words.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_PROMPT_H
#define WEIR_CLI_PROMPT_H

#include "cli.h"
#include "text.h"

typedef struct cli_prompt_text {
    char *name, *bytes;
    size_t length;
} cli_prompt_text;

/* Zeroed is empty. */
typedef struct cli_prompt {
    cli_prompt_text *texts; /* [n], in the order in which they were read; none is empty */
    size_t n, capacity;
} cli_prompt;

void cli_prompt_fini(cli_prompt *prompt);

/* Adds the text of a file, or of stdin for "-"; an empty one adds nothing. `patient`: says after a while that
 * it waits for stdin. CLI_OK, or a code after a message. */
cli_exit cli_prompt_read(cli_prompt *prompt, const char *path, bool patient);

/* Adds the texts, then the words (NULL: none), to *whole. A single text stands as it is. Of several, each
 * stands under its name between fences that are longer than those in the text. Newlines at the ends of texts
 * are left out. */
void cli_prompt_join(const cli_prompt *prompt, const char *words, cli_text *whole);

/* The texts and the words as they are, one after the other. */
void cli_prompt_join_raw(const cli_prompt *prompt, const char *words, cli_text *whole);

/* Adds "notes.txt (1.2 KB) and stdin (12 B)"; nothing without texts. */
void cli_prompt_names(const cli_prompt *prompt, cli_text *line);

#endif

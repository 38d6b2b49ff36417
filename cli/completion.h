/* completion.h: command lines of weir, completed in a shell. A short script in the shell's language asks this
 * program, so that the words come from the tables of commands and options.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_COMPLETION_H
#define WEIR_CLI_COMPLETION_H

#include "cli/lib/cli.h"

typedef struct cli_shell {
    const char *name;
    const char *file; /* where such a script lies below PREFIX/share */
    const char *script;
} cli_shell;

extern const cli_shell cli_shells[]; /* ends with a NULL name */

/* words [n] follow `weir` on the line up to the cursor; the last one is being typed. Prints a line for each
 * word that may stand there, "WORD TAB explanation", and the line ":files" where names of files belong. */
cli_exit cli_complete(int n, char *const *words);

#endif

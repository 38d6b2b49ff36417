/* completion.h: scripts that complete command lines of weir, made from the tables of commands and options.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_COMPLETION_H
#define WEIR_CLI_COMPLETION_H

#include "text.h"

typedef struct cli_shell {
    const char *name;
    const char *file; /* where such a script lies below PREFIX/share */
    void (*add)(cli_text *text);
} cli_shell;

extern const cli_shell cli_shells[]; /* ends with a NULL name */

#endif

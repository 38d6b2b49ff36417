/* help.h: the texts of `weir help`, made from the tables of commands, options and exit codes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_HELP_H
#define WEIR_CLI_HELP_H

#include "cli.h"

/* What the environment says, and what the config file is: for the overview and its man page. */
typedef struct cli_help_entry {
    const char *name, *text;
} cli_help_entry;

extern const cli_help_entry cli_help_environment[]; /* ends with a NULL name */
extern const char cli_help_config[];

cli_exit cli_help_bench(void);
cli_exit cli_help_all(void);
cli_exit cli_help_command(const cli_command *command);

#endif

/* help.h: help texts, manual pages and completions, made from the tables of commands, options and exit codes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_HELP_H
#define WEIR_CLI_HELP_H

#include "cli/lib/cli.h"

typedef enum cli_help_kind {
    CLI_HELP_SHORT, /* of a command with --help-all, the options that most people need */
    CLI_HELP_ALL,
    CLI_HELP_MAN, /* a manual page, with all options */
} cli_help_kind;

/* Prints the help of a command, or of weir as a whole (NULL), through $PAGER if the terminal has too few
 * rows. */
cli_exit cli_help_print(const cli_command *command, cli_help_kind kind);

/* The commands of weir bench. */
cli_exit cli_help_bench(void);

/* Writes the files that are installed beside the program into a folder laid out like PREFIX/share: man/man1,
 * bash-completion/completions, zsh/site-functions, fish/vendor_completions.d. CLI_FAILED after a message. */
cli_exit cli_help_write(const char *folder);

#endif

/* help.h: help texts, manual pages and completions, made from the tables of commands, options and exit codes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_HELP_H
#define WEIR_CLI_HELP_H

#include "cli.h"

/* Of a command, or of weir as a whole (NULL); `man`: as a manual page. */
cli_exit cli_help_print(const cli_command *command, bool man);

/* The commands of weir bench. */
cli_exit cli_help_bench(void);

/* What is installed beside the program, into a folder as PREFIX/share is laid out: man/man1,
 * bash-completion/completions, zsh/site-functions, fish/vendor_completions.d. CLI_FAILED after a message. */
cli_exit cli_help_write(const char *folder);

#endif

/* pages.h: what is installed beside the program and made from its tables: man pages and completions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_PAGES_H
#define WEIR_CLI_PAGES_H

#include "cli.h"

/* The man page of a command to stdout; NULL: of weir. */
cli_exit cli_pages_print(const cli_command *command);

/* All of them into a folder, laid out as in PREFIX/share: man/man1, bash-completion/completions,
 * zsh/site-functions, fish/vendor_completions.d. CLI_FAILED after a message. */
cli_exit cli_pages_write(const char *folder);

#endif

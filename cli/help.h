/* help.h: the texts of `weir help`, made from the tables of commands, options and exit codes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_HELP_H
#define WEIR_CLI_HELP_H

#include "cli.h"

cli_exit cli_help_all(void);
cli_exit cli_help_command(const cli_command *command);

#endif

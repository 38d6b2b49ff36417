/* man.h: manual pages, made from the tables of commands and options.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_MAN_H
#define WEIR_CLI_MAN_H

#include "cli.h"
#include "text.h"

/* Adds the page of a command in roff; NULL: of weir as a whole. */
void cli_man_add(cli_text *text, const cli_command *command);

/* "weir-bench-engine" */
void cli_man_name(const cli_command *command, char *name, size_t capacity);

#endif

/* child.h: runs a program that the user chose ($EDITOR, $PAGER) on weir's terminal.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_CHILD_H
#define WEIR_CLI_CHILD_H

#include <stddef.h>

#define CLI_CHILD_MISSING 127 /* the shell found no such program */

/* Runs a shell command and waits for its end. argument: one more word, NULL = none. input [n]: its stdin,
 * NULL = weir's. Returns its exit status; -1: it could not be started, or a signal ended it. */
int cli_child_run(const char *command, const char *argument, const char *input, size_t n);

#endif

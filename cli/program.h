/* program.h: weir and weir-bench from main() on: prepare the process, find the command, read its options, run
 * it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_PROGRAM_H
#define WEIR_CLI_PROGRAM_H

#include "cli/lib/options.h"

/* Runs a command whose options are read. argv: of main. */
typedef cli_exit cli_runner(cli_args *args, char **argv);

/* The exit code. */
int cli_program(int argc, char **argv, cli_runner *run);

#endif

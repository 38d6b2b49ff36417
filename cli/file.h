/* file.h: whole files and whole streams into memory; tables into files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_FILE_H
#define WEIR_CLI_FILE_H

#include <stdio.h>

#include "cli.h"

/* Reads all of a file, or of stdin for "-", NUL-terminated; `what` it is goes into the message of a failure:
 * CLI_FAILED. Ends early when a signal comes, with the signal's code and no message. */
cli_exit cli_file_read(const char *path, const char *what, char **bytes, size_t *length);

/* What a command is to work on: its word, what its option --file gave, or stdin for "-" and where nothing
 * else is given. CLI_OK, or a code after a message, such as that nothing is given and stdin is a terminal. */
struct cli_args;
cli_exit cli_file_text(const struct cli_args *args, char **bytes, size_t *length);

/* A table for other programs: begins a file with the names of its columns. *csv is NULL where path is.
 * CLI_FAILED. */
cli_exit cli_file_csv_open(const char *path, const char *head, FILE **csv);

/* Closes it, if it is one. `code`, or CLI_FAILED where something could not be written. */
cli_exit cli_file_csv_close(const char *path, FILE *csv, cli_exit code);

#endif

/* file.h: whole files and whole streams into memory; tables into files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_FILE_H
#define WEIR_CLI_FILE_H

#include <stdint.h>
#include <stdio.h>

#include "cli.h"
#include <stddef.h>

/* Reads all of a file, or of stdin for "-", NUL-terminated; `what` names it in the message of a failure:
 * CLI_FAILED. Ends early when a signal comes, with the signal's code and no message. */
cli_exit cli_file_read(const char *path, const char *what, char **bytes, size_t *length);

/* A command's input: its word, the file of its option --file, or stdin for "-" and if nothing else is given.
 * CLI_OK, or a code after a message, such as that nothing is given and stdin is a terminal. */
struct cli_args;
cli_exit cli_file_text(const struct cli_args *args, char **bytes, size_t *length);

/* NAME in the folder that an XDG variable names, else in HOME/fallback; NULL: neither is set. Freed with
 * cli_free. */
char *cli_file_of_user(const char *variable, const char *fallback, const char *name);

/* Makes the folders of a path, whose last part is a file; failures show when that is opened. */
void cli_file_make_folders(char *path, unsigned mode);

/* Writes a file, and makes the folders of its path. CLI_OK, or CLI_FAILED after a message. */
cli_exit cli_file_write(char *path, const char *bytes, size_t n);

/* The last part of a path. */
const char *cli_file_name(const char *path);

/* True if it begins with ./ or ../ */
bool cli_file_is_relative(const char *path);

/* Bytes of a file; 0 = there is none. */
uint64_t cli_file_size(const char *path);

/* A table for other programs: begins a file with the names of its columns. *csv is NULL where path is.
 * CLI_FAILED. */
cli_exit cli_file_csv_open(const char *path, const char *head, FILE **csv);

/* Closes it, if it is one. `code`, or CLI_FAILED where something could not be written. */
cli_exit cli_file_csv_close(const char *path, FILE *csv, cli_exit code);

/* ---- Descriptors ---- */

/* Raises the limit to `wanted`, or as far as allowed; never lowers it. Returns the limit, 0 = unknown. */
size_t cli_descriptors_raise(size_t wanted);

#endif

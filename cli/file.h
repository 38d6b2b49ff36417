/* file.h: whole files and whole streams into memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_FILE_H
#define WEIR_CLI_FILE_H

#include "cli.h"

/* Reads all of a file, or of stdin for "-", NUL-terminated; `what` it is goes into the message of a failure:
 * CLI_FAILED. Ends early when a signal comes, with the signal's code and no message. */
cli_exit cli_file_read(const char *path, const char *what, char **bytes, size_t *length);

#endif

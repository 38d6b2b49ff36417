/* file.h: all of a piece of a file, or an error; all bytes into a pipe or a terminal.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_FILE_H
#define WEIR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n bytes from `at` on. False: errno says why; 0 = the file to be read ends before. */
bool weir__file_read(int fd, void *bytes, size_t n, uint64_t at);
bool weir__file_write(int fd, const void *bytes, size_t n, uint64_t at);

/* Bytes to a pipe or a terminal, until a write fails. May be called from a signal handler. */
void weir__file_send(int fd, const char *bytes, size_t n);

#endif

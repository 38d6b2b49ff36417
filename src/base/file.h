/* file.h: all of a piece of a file, or an error; all bytes into a pipe or a terminal; files that
 * must not change while they are mapped.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_FILE_H
#define WEIR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/* n bytes from `at` on. False: errno says why; 0 = the file to be read ends before. */
bool weir__file_read(int fd, void *bytes, size_t n, uint64_t at);
bool weir__file_write(int fd, const void *bytes, size_t n, uint64_t at);

/* Bytes to a pipe or a terminal, until a write fails. May be called from a signal handler. */
void weir__file_send(int fd, const char *bytes, size_t n);

/* ---- Stamps ---- */

/* Whoever writes into a mapped file changes its size or time of writing, the stamp; a new file that is
 * renamed over it does not touch the mapped one. */

#define WEIR__STAMPS_MS 250 /* between two looks */

/* Files are added by one thread, before any looks. */
typedef struct weir__stamps weir__stamps;

weir__stamps *weir__stamps_create(void);         /* NULL: no memory */
void weir__stamps_destroy(weir__stamps *stamps); /* NULL is ignored */

/* Adds an open file, with a descriptor of its own. IO; NO_MEMORY. */
weir_status weir__stamps_add(weir__stamps *stamps, int fd, const char *path, weir_error *error);

/* IO: a path has another file now, or its file has changed. For a reader that opened the paths anew. */
weir_status weir__stamps_settle(weir__stamps *stamps, weir_error *error);

/* BACKEND: a file has changed, now or before. Looks at the files every WEIR__STAMPS_MS at most. Any
 * thread. */
weir_status weir__stamps_check(weir__stamps *stamps, weir_error *error);

#endif

/* folder.h: the files of a folder of snapshots. SPDX-License-Identifier: Apache-2.0
 *
 * The folder (mode 0700) and every file read from it must belong to the user, because the backend trusts
 * the states. */
#ifndef WEIR_CACHE_FOLDER_H
#define WEIR_CACHE_FOLDER_H

#include <time.h>

#include "weir/weir.h"

#define WEIR__FOLDER_NAME   48
#define WEIR__FOLDER_ENDING ".weirkv" /* of a complete file */
#define WEIR__FOLDER_PART   ".part"   /* of one that is being written */

typedef struct weir__folder_file {
    uint64_t n_bytes;
    struct timespec used; /* the file's time */
    char name[WEIR__FOLDER_NAME];
} weir__folder_file;

/* Creates the folder if it does not exist and opens it, so that later changes of the path do not matter.
 * INVALID (field cache_dir): others may use the folder; IO. */
weir_status weir__folder_open(const char *path, int *folder, weir_error *error);

/* The snapshots in the folder, complete or not; in no order, in a weir__mem block. Files with other names are
 * left out. IO, NO_MEMORY (field cache_dir). */
weir_status weir__folder_list(int folder, const char *path, weir__folder_file **files, size_t *n,
                              weir_error *error);

/* Size and time of a file. False: there is none of this name, or it is not a snapshot. */
bool weir__folder_find(int folder, const char *name, weir__folder_file *file);

/* Opens a regular file that only its owner, this user, can write to. NOT_FOUND, IO. */
weir_status weir__folder_open_file(int folder, const char *name, int *fd, weir_error *error);

bool weir__folder_is_complete(const char *name);

/* True if a is later than b. */
bool weir__folder_is_later(struct timespec a, struct timespec b);

#endif

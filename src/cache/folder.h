/* folder.h: the files of a folder of snapshots, and which of them other processes add or remove.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The folder (mode 0700) and every file read from it must belong to the user, because the backend trusts
 * the states. */
#ifndef WEIR_CACHE_FOLDER_H
#define WEIR_CACHE_FOLDER_H

#include <time.h>

#include "cache/snapshot.h"
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

/* ---- Changes by other processes ---- */

#define WEIR__WATCH_BATCH 16 /* files that one look reads, at most */

/* One thread's at a time. */
typedef struct weir__watch {
    int folder;       /* borrowed, as is the path */
    const char *path; /* for messages */
    weir__snapshot_limits limits;
    struct timespec changed;  /* the folder's mtime at the last look; 0 = look in any case */
    weir__folder_file *known; /* by name */
    size_t n_known, capacity;
    bool gone; /* the folder was removed, which is logged */
} weir__watch;

/* A complete file; text.tokens NULL: it is damaged, or of another model. */
typedef struct weir__watch_file {
    weir__folder_file file;
    weir__snapshot text;
} weir__watch_file;

typedef struct weir__watch_news {
    weir__watch_file added[WEIR__WATCH_BATCH];
    size_t n_added;
    weir__folder_file *removed;
    size_t n_removed;
    bool more; /* there are more added ones: look again */
} weir__watch_news;

/* Takes the files [n], a weir__mem block, which are known and not reported. */
void weir__watch_init(weir__watch *watch, int folder, const char *path, const weir__snapshot_limits *limits,
                      weir__folder_file *files, size_t n);
void weir__watch_fini(weir__watch *watch);

/* Tells the watch that this process has added or removed the file: the next look does not report it, but a
 * later change by others. Without memory for the name, the file is reported once. */
void weir__watch_add(weir__watch *watch, const char *name);
void weir__watch_drop(weir__watch *watch, const char *name);

/* Reports the differences since the last look. True: there are some; free them with news_fini. Without memory
 * or if the folder cannot be read, the next look reports them. */
bool weir__watch_look(weir__watch *watch, weir__watch_news *news);
void weir__watch_news_fini(weir__watch_news *news);

/* Reads a file's text, and logs why it cannot be used, unless it is gone or of another model. */
weir_status weir__watch_read(const weir__watch *watch, const char *name, weir__snapshot *text);

#endif

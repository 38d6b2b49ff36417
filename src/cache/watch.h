/* watch.h: finds the files that other processes add to a folder of snapshots or remove from it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_WATCH_H
#define WEIR_CACHE_WATCH_H

#include "cache/folder.h"
#include "cache/snapshot.h"

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

/* archive.h: a folder of snapshots with a limited size, the thread that writes them and the one that reads
 * them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Processes may share the folder: files are added by rename, removed by unlink and never written to, a file
 * that no longer exists is a miss, and the writer looks for files of others. Each keeps all files within
 * its own limit. Of the driver's calls only open, index, wait and close ask the file system. */
#ifndef WEIR_CACHE_ARCHIVE_H
#define WEIR_CACHE_ARCHIVE_H

#include "cache/reader.h"

typedef struct weir__archive weir__archive;

/* A file in the folder. The driver's. */
typedef struct weir__archive_file {
    struct weir__archive_file *newer, *older;
    uint64_t n_bytes;
    void *owner;          /* its cache entry; NULL: only its age decides when it is removed */
    struct timespec used; /* the file's time when this process last saw it */
    int64_t known_ns;     /* until then that time counts as its present one */
    char name[WEIR__FOLDER_NAME];
} weir__archive_file;

typedef struct weir__archive_params {
    const char *path;
    uint64_t n_bytes; /* of all files together */
    weir__snapshot_limits limits;
    int64_t watch_ns; /* how often the writer looks for changes by other processes; 0 = never */
    /* Called on a thread of the archive: a file was written or read, or could not be, or there is news. */
    void (*wake)(void *user);
    void *user;
} weir__archive_params;

/* Called for each usable file, the least recently used first. Returns its owner. */
typedef void *(*weir__archive_fn)(weir__archive_file *file, const weir__snapshot *snapshot, void *user);

/* Creates the folder if it does not exist. Files that are damaged or of another kind are logged and left
 * alone until room is needed. INVALID (field cache_dir): others may use the folder; IO; NO_MEMORY. */
weir_status weir__archive_open(const weir__archive_params *params, weir__archive **archive,
                               weir_error *error);

/* Waits for the writer and the reader. Does not call owners. */
void weir__archive_close(weir__archive *archive);

/* Call once, after open. */
void weir__archive_index(weir__archive *archive, weir__archive_fn found, void *user);

/* True if the writer has a state to write, or one that was not collected yet. */
bool weir__archive_is_busy(const weir__archive *archive);

/* True if a state of this size can be stored at all (fits), and if files must be removed first
 * (is_crowded). */
bool weir__archive_fits(const weir__archive *archive, const weir__prefix_key *key, int32_t n_tokens,
                        uint64_t state_size);
bool weir__archive_is_crowded(const weir__archive *archive, const weir__prefix_key *key, int32_t n_tokens,
                              uint64_t state_size);

/* True if there are more files than allowed. */
bool weir__archive_is_overfull(const weir__archive *archive);

/* The least recently used file, to remove it. NULL: there is none, or another process may have used it; then
 * the reader is asked, if it is free: call again after put_away. */
weir__archive_file *weir__archive_oldest(weir__archive *archive);

/* Gives the writer, which is not busy, a state [size] of tokens [n], in a weir__mem block. The writer only
 * reads it, and frees it if `owned`. False: no memory, nothing was done. */
bool weir__archive_put(weir__archive *archive, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       void *state, size_t size, bool owned);

/* Call before freeing a block that the writer may be reading. True: the writer frees it. */
bool weir__archive_adopt(weir__archive *archive, const void *state);

/* Returns the text of a state that the writer is done with, valid until the clear, and its new file, which is
 * NULL if none was written. NULL: the writer is not done with a state. */
const weir__snapshot *weir__archive_collect(weir__archive *archive, weir__archive_file **file);
void weir__archive_clear(weir__archive *archive);

/* Waits until the writer has written its state. */
void weir__archive_wait(weir__archive *archive);

/* Reports changes by other processes: `found` for each file that they added, as in index, `gone` with the
 * owner of each that they removed, which the list no longer has. False: nothing. */
bool weir__archive_follow(weir__archive *archive, weir__archive_fn found,
                          void (*gone)(void *owner, void *user), void *user);

/* The thread that reads. */
weir__reader *weir__archive_reader(weir__archive *archive);

/* Asks the reader, which is FREE, for the state of a file of this text. The file becomes the newest. False:
 * no memory. */
bool weir__archive_ask(weir__archive *archive, weir__archive_file *file, const weir__prefix_key *key,
                       const int32_t *tokens, int32_t n);

/* The result of the reader, which is DONE, for the file that was asked for and is still listed. OK: the file
 * becomes the newest; *state [*size] is the reader's. Otherwise the file is useless, unless the status is
 * NO_MEMORY. */
weir_status weir__archive_read(weir__archive *archive, weir__archive_file *file, const void **state,
                               size_t *size, weir_error *error);

/* Frees the result of the reader, which is DONE, after taking note of the times that it has read, if it was
 * asked for these. It is FREE then. */
void weir__archive_put_away(weir__archive *archive);

/* Removes the file from the list; the writer unlinks it soon. */
void weir__archive_remove(weir__archive *archive, weir__archive_file *file);

/* Bytes of all files. */
uint64_t weir__archive_bytes(const weir__archive *archive);

#endif

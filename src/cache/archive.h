/* archive.h: a folder of snapshots with a limited size, and the thread that writes them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The folder (mode 0700) and every file read from it must belong to the user, because the backend trusts
 * the states. Processes may share the folder: files are added by rename, removed by unlink and never written
 * to, and a file that no longer exists is a miss. */
#ifndef WEIR_CACHE_ARCHIVE_H
#define WEIR_CACHE_ARCHIVE_H

#include "cache/snapshot.h"

typedef struct weir__archive weir__archive;

#define WEIR__ARCHIVE_NAME 48

/* A file of the folder. The driver's. */
typedef struct weir__archive_file {
    struct weir__archive_file *newer, *older;
    uint64_t n_bytes;
    uint64_t checksum; /* of its head */
    void *owner;       /* what may be done with it is its owner's business; NULL: only that it goes by age */
    char name[WEIR__ARCHIVE_NAME];
} weir__archive_file;

typedef struct weir__archive_params {
    const char *path;
    uint64_t n_bytes; /* of all files together */
    weir__snapshot_limits limits;
    void (*ring)(void *user); /* from the writer's thread: a file is written, or could not be */
    void *user;
} weir__archive_params;

/* Called with each file that can be used, the one that was used longest ago first. Returns its owner. */
typedef void *(*weir__archive_fn)(weir__archive_file *file, const weir__snapshot *snapshot, void *user);

/* Makes the folder where there is none. Files that are damaged or of another kind are left alone, and said
 * so; they go when room is needed. INVALID (field cache_dir): not the owner's alone; IO; NO_MEMORY. */
weir_status weir__archive_open(const weir__archive_params *params, weir__archive **archive,
                               weir_error *error);

/* Waits for the writer. Owners are not asked. */
void weir__archive_close(weir__archive *archive);

/* Once, after open. */
void weir__archive_index(weir__archive *archive, weir__archive_fn found, void *user);

/* Whether the writer has something to write, or has just done so. */
bool weir__archive_is_busy(const weir__archive *archive);

/* Whether a state of so many bytes could be there at all; and then the file that has to go first, NULL =
 * there is room. */
bool weir__archive_fits(const weir__archive *archive, const weir__prefix_key *key, int32_t n_tokens,
                        uint64_t state_size);
weir__archive_file *weir__archive_crowded(const weir__archive *archive, const weir__prefix_key *key,
                                          int32_t n_tokens, uint64_t state_size);

/* Gives the writer, which is not busy, a state [size] of tokens [n], a block of weir__mem's. It only reads
 * it, and frees it when `owned`. False: no memory, nothing was done. */
bool weir__archive_put(weir__archive *archive, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       void *state, size_t size, bool owned);

/* Whoever frees a block that may be with the writer asks before. True: the writer frees it. */
bool weir__archive_adopt(weir__archive *archive, const void *state);

/* What was put is over: its text, valid until the clear; *file is what became of it, or NULL. NULL: nothing
 * is over. */
const weir__snapshot *weir__archive_collect(weir__archive *archive, weir__archive_file **file);
void weir__archive_clear(weir__archive *archive);

/* Returns when the writer has written what it has. */
void weir__archive_wait(weir__archive *archive);

/* The state of a file, which is the newest then. Errors as weir__snapshot_read's, NOT_FOUND; the file is of
 * no use then. */
weir_status weir__archive_read(weir__archive *archive, weir__archive_file *file, void **state, size_t *size,
                               weir_error *error);

/* The file goes: the writer unlinks it soon. */
void weir__archive_remove(weir__archive *archive, weir__archive_file *file);

/* Bytes of all files. */
uint64_t weir__archive_bytes(const weir__archive *archive);

#endif

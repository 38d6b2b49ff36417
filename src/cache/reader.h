/* reader.h: the thread that reads the states of a folder's files, one at a time, and the times of files, so
 * that a slow or hung file system stops nobody else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_READER_H
#define WEIR_CACHE_READER_H

#include "base/thread.h"
#include "cache/folder.h"
#include "cache/snapshot.h"

#define WEIR__READER_FILES 16 /* whose times are read together, at most */

/* FREE: no question. READS: the reader has the question. DONE: the driver has the result. */
typedef enum weir__reader_phase {
    WEIR__READER_FREE,
    WEIR__READER_READS,
    WEIR__READER_DONE
} weir__reader_phase;

typedef struct weir__reader {
    int folder; /* borrowed */
    weir__snapshot_limits limits;
    weir_status (*open_file)(int folder, const char *name, int *fd, weir_error *error);
    bool (*find_file)(int folder, const char *name, weir__folder_file *file);
    void (*wake)(void *user); /* on the reader's thread: it is DONE */
    void *user;
    weir__helper helper; /* its mutex protects phase, and is held for a few instructions */
    weir__reader_phase phase;
    /* The reader's while READS, else the driver's. */
    char name[WEIR__FOLDER_NAME];
    int64_t asked_ns;    /* when it was asked; the driver's */
    weir__snapshot text; /* that the file is to have; its state_size is the file's once it is DONE */
    weir_status status;  /* as of weir__snapshot_read and read_state, and NOT_FOUND */
    weir_error error;
    void *state;                                 /* [text.head.state_size] if status is OK */
    struct timespec used;                        /* the file's time, which reading has updated */
    weir__folder_file files[WEIR__READER_FILES]; /* [n_files] `used`: now, or as before if it is gone */
    size_t n_files;                              /* 0: a state was asked for */
} weir__reader;

/* Starts the thread. The members up to `user` must be set. False: no thread; nothing is to be closed. */
bool weir__reader_start(weir__reader *reader);

/* Waits for a file that is being read. */
void weir__reader_close(weir__reader *reader);

weir__reader_phase weir__reader_phase_of(const weir__reader *reader);

/* Asks for the state of a file, which must have this text. The reader is FREE. False: no memory. */
bool weir__reader_ask(weir__reader *reader, const char *name, const weir__prefix_key *key,
                      const int32_t *tokens, int32_t n);

/* Asks for the times of files [n], 1 … WEIR__READER_FILES. The reader is FREE. */
void weir__reader_look(weir__reader *reader, const weir__folder_file *files, size_t n);

/* Frees the result; the reader, which is DONE, is FREE then. */
void weir__reader_clear(weir__reader *reader);

/* Waits until the reader does not read. */
void weir__reader_wait(weir__reader *reader);

#endif

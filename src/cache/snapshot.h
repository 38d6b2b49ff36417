/* snapshot.h: a saved sequence as a file, or as bytes for another engine: its salt and adapters, its tokens,
 * its state.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The file consists of a head, the tokens, the salt, and the state as the backend saved it. The head's
 * checksum covers everything before the state and is compared when a file is opened; the state's checksum
 * is compared when the state is read. Both detect damage, not forgery. Numbers are in the machine's byte
 * order. */
#ifndef WEIR_CACHE_SNAPSHOT_H
#define WEIR_CACHE_SNAPSHOT_H

#include "cache/prefix_tree.h"
#include "weir/weir.h"

#define WEIR__SNAPSHOT_SALT_MAX 4096 /* bytes; texts with a longer salt are not saved */

typedef struct weir__snapshot_head {
    char magic[8];
    uint32_t version;
    uint32_t n_tokens;
    uint64_t salt_length;
    uint64_t kind;    /* of model and context; no other can load the state */
    uint64_t adapter; /* as in weir__prefix_key */
    uint64_t state_size;
    uint64_t state_checksum;
    uint64_t checksum; /* of the fields above, the tokens and the salt */
} weir__snapshot_head;

/* The data before the state. fini frees it; all zeroes is empty. */
typedef struct weir__snapshot {
    weir__snapshot_head head;
    int32_t *tokens; /* [head.n_tokens] */
    char *salt;      /* [head.salt_length] */
} weir__snapshot;

/* The limits of a context. */
typedef struct weir__snapshot_limits {
    uint64_t kind;
    int32_t n_tokens;
    int32_t n_vocab;
} weir__snapshot_limits;

/* Copies the text, for a state of this size. False: no memory. salt_length is at most
 * WEIR__SNAPSHOT_SALT_MAX. */
bool weir__snapshot_init(weir__snapshot *snapshot, uint64_t kind, const weir__prefix_key *key,
                         const int32_t *tokens, int32_t n, size_t state_size);
void weir__snapshot_fini(weir__snapshot *snapshot);

/* Valid as long as the snapshot. */
weir__prefix_key weir__snapshot_key(const weir__snapshot *snapshot);

/* A hash of kind and text: equal for files that can replace each other. */
uint64_t weir__snapshot_name(const weir__snapshot *snapshot);

/* Bytes of the whole file. */
uint64_t weir__snapshot_size(const weir__snapshot *snapshot);

/* Writes the whole file, and both checksums into the head. False: see errno. */
bool weir__snapshot_write(weir__snapshot *snapshot, const void *state, int fd);

/* Reads and checks the data before the state. FORMAT: damaged or not a snapshot; UNSUPPORTED: of another
 * kind, or longer than the context; IO; NO_MEMORY. Never takes more memory than the size of the file. */
weir_status weir__snapshot_read(weir__snapshot *snapshot, const weir__snapshot_limits *limits, int fd,
                                weir_error *error);

/* Reads the state, a block of head.state_size bytes. IO, FORMAT, NO_MEMORY. */
weir_status weir__snapshot_read_state(const weir__snapshot *snapshot, int fd, void **state,
                                      weir_error *error);

/* ---- The same bytes without a file ---- */

/* Writes both checksums into the head. */
void weir__snapshot_seal(weir__snapshot *snapshot, const void *state);

/* Copies the bytes [at, at + n) of a sealed snapshot; returns their number, less than n at the end. */
size_t weir__snapshot_copy(const weir__snapshot *snapshot, const void *state, uint64_t at, void *bytes,
                           size_t n);

/* A snapshot that comes in pieces. The caller sets limits and most first; fini frees the bytes received. */
typedef struct weir__snapshot_arrival {
    weir__snapshot_limits limits;
    uint64_t most; /* bytes of the whole */
    weir__snapshot text;
    bool has_text; /* it has come, and is intact */
    void *state;   /* [text.head.state_size] */
    uint64_t n;    /* bytes that have come */
    uint64_t hash; /* of the first n_hashed bytes of the state */
    uint64_t n_hashed;
} weir__snapshot_arrival;

/* Takes the next n bytes, and checks the head, the text and the state as soon as each is there. Errors as of
 * read and read_state, and TOO_LONG: it has more than `most` bytes. After an error only fini is allowed. */
weir_status weir__snapshot_take(weir__snapshot_arrival *arrival, const void *bytes, size_t n,
                                weir_error *error);

/* True if all has come. */
bool weir__snapshot_is_whole(const weir__snapshot_arrival *arrival);

void weir__snapshot_arrival_fini(weir__snapshot_arrival *arrival);

#endif

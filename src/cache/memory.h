/* memory.h: the contents of a context's sequences, and the KV cells that they use.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_MEMORY_H
#define WEIR_CACHE_MEMORY_H

#include "backend/backend.h"

/* Cells held by the same sequences. Runs form a tree: a sequence holds the runs from its last one to a root.
 * Invariant: from < to, and from is the parent's `to`, or 0; refs counts the runs and sequences that continue
 * it. */
typedef struct weir__run {
    int32_t parent; /* -1 = none */
    int32_t from, to;
    int32_t refs; /* 0 = unused; then parent is the next unused one */
    uint64_t stamp;
} weir__run;

/* All changes of a context's sequences go through here. Invariant: sequence s holds the cells of n[s]
 * tokens, which have positions 0 … n[s] - 1 unless cells of images share some. `pos` is the position behind
 * n tokens (prefix_tree.h). The driver's. */
typedef struct weir__memory {
    const weir__backend *ops;
    weir__bcontext *context;
    bool pooled; /* sequences share cells; otherwise each has its own */
    bool uneven; /* cells of images may share positions */
    int32_t n_seqs;
    int32_t n_cells; /* of all */
    int32_t *n;      /* [n_seqs] */
    int32_t *last;   /* [n_seqs] runs, -1 = empty */
    weir__run *runs; /* [2 * n_seqs + 2] */
    int32_t unused;
    int32_t n_used; /* cells in all */
    uint64_t stamp;
} weir__memory;

weir_status weir__memory_init(weir__memory *memory, const weir__backend *ops, weir__bcontext *context,
                              const weir_context_info *info, weir_error *error);
void weir__memory_fini(weir__memory *memory);

/* A pass has added n tokens. */
void weir__memory_append(weir__memory *memory, int32_t seq, int32_t n);

/* Keeps the first n tokens, also removing cells that a failed pass has added. False: the memory cannot be cut
 * there, nothing was done; never for n = 0. */
bool weir__memory_cut(weir__memory *memory, int32_t seq, int32_t n, int32_t pos);

/* Gives the empty sequence `to` the first n tokens of `from`. After an error it is empty. */
weir_status weir__memory_share(weir__memory *memory, int32_t from, int32_t to, int32_t n, int32_t pos,
                               weir_error *error);

/* True if a state of n tokens may find cells. */
bool weir__memory_has_room(const weir__memory *memory, int32_t n);

/* The bytes that save needs; 0 = cannot be saved. */
size_t weir__memory_state_size(weir__memory *memory, int32_t seq);

/* Writes the sequence's state and returns its length; 0 = failed. */
size_t weir__memory_save(weir__memory *memory, int32_t seq, void *bytes, size_t capacity);

/* Loads a saved state of n tokens into the empty sequence. After an error it is empty. */
weir_status weir__memory_load(weir__memory *memory, int32_t seq, const void *bytes, size_t length, int32_t n,
                              weir_error *error);

/* True if the sequence can be cut at this position. */
bool weir__memory_can_end(const weir__memory *memory, int32_t seq, int32_t pos);

/* Gives the empty sequence `to` all tokens of `from`. After an error it is empty. */
weir_status weir__memory_copy(weir__memory *memory, int32_t from, int32_t to, weir_error *error);

/* The part of a state that keeps a sequence from being cut, as size and save do for the whole; 0 = there is
 * none. resume: cuts a sequence to its first n tokens, where the part was saved. After an error it is
 * empty. */
size_t weir__memory_part_size(weir__memory *memory, int32_t seq);
size_t weir__memory_part_save(weir__memory *memory, int32_t seq, void *bytes, size_t capacity);
weir_status weir__memory_resume(weir__memory *memory, int32_t seq, int32_t n, int32_t pos, const void *bytes,
                                size_t length, weir_error *error);

/* The cells that the wanted sequences hold together. wanted: [n_seqs] */
int32_t weir__memory_count(weir__memory *memory, const bool *wanted);

/* Asserts the invariants, in debug builds and tests. */
void weir__memory_check(const weir__memory *memory);

#endif

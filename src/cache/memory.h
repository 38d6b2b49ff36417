/* memory.h: the contents of a context's sequences, and the KV cells that they use.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_MEMORY_H
#define WEIR_CACHE_MEMORY_H

#include "backend/backend.h"

/* Cells that the same sequences hold. Runs form a tree: what a sequence holds are the runs from its last
 * one to a root. Invariant: from < to, and from is the parent's `to`, or 0; refs counts the runs and the
 * sequences right behind it. */
typedef struct weir__run {
    int32_t parent; /* -1 = none */
    int32_t from, to;
    int32_t refs; /* 0 = unused; then parent is the next unused one */
    uint64_t stamp;
} weir__run;

/* Between a context and whoever changes its sequences: all such calls go through here. Invariant: sequence
 * s holds positions 0 … n[s] - 1, and nothing else. The driver's. */
typedef struct weir__memory {
    const weir__backend *ops;
    weir__bcontext *context;
    bool pooled; /* sequences share cells, else each has its own */
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

/* Leaves the first n tokens, also of what a failed pass has added. False: the memory cannot be cut there,
 * nothing was done; never for 0. */
bool weir__memory_cut(weir__memory *memory, int32_t seq, int32_t n);

/* The empty sequence `to` gets the first n tokens of `from`. After an error it is empty. */
weir_status weir__memory_share(weir__memory *memory, int32_t from, int32_t to, int32_t n, weir_error *error);

/* Whether a state of n tokens may find cells. */
bool weir__memory_has_room(const weir__memory *memory, int32_t n);

/* Bytes that save needs; 0 = it cannot. */
size_t weir__memory_state_size(weir__memory *memory, int32_t seq);

/* The sequence's state; returns its length, 0 = failed. */
size_t weir__memory_save(weir__memory *memory, int32_t seq, void *bytes, size_t capacity);

/* The empty sequence gets a saved state of n tokens. After an error it is empty. */
weir_status weir__memory_load(weir__memory *memory, int32_t seq, const void *bytes, size_t length, int32_t n,
                              weir_error *error);

/* Cells that the wanted sequences hold together. wanted: [n_seqs] */
int32_t weir__memory_count(weir__memory *memory, const bool *wanted);

/* For debug builds and tests: stops the program where an invariant does not hold. */
void weir__memory_check(const weir__memory *memory);

#endif

/* internal.h: declarations for the files of the fake backend.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_FAKE_INTERNAL_H
#define WEIR_FAKE_INTERNAL_H

#include <pthread.h>
#include <stddef.h>

#include "fake/fake.h"

/* The longest delay of an option: no test waits for its end. */
#define HOUR_US INT64_C(3600000000)

typedef struct weir__fake_token {
    const char *bytes; /* [length]; in `text` of the model, or `own` */
    char *own;         /* set by a test; NULL = none */
    int32_t length;
    weir__fake_kind kind;
} weir__fake_token;

typedef struct weir__fake_options {
    int64_t n_vocab, n_ctx_train, seed, eos_every, any, longest, tick_us, token_us, load_us, free_us, exact,
        recurrent, hybrid, n_swa, fim, fail_pass, n_bytes, fail_load, change_pass, embedder_us,
        fail_embedders;
} weir__fake_options;

struct weir__bmodel {
    weir__fake hooks;
    weir__fake_options options;
    bool vocab_only;
    int64_t free_us;     /* 0 until it is loaded, and of an outline */
    int64_t embedder_us; /* these two are 0 of an outline */
    _Atomic int64_t failing_embedders;
    weir__fake_token *pieces; /* [n_vocab] */
    char *text;               /* the bytes of all pieces */
    bool log_on;
    weir__fake_entry *log; /* [n_log] */
    size_t n_log, log_capacity;
};

typedef struct weir__fake_projector_options {
    int64_t images, sounds, cells, pieces, positions, causal, marks, sample_rate, encode_us, broken;
} weir__fake_projector_options;

struct weir__bprojector {
    weir__bmodel *model;
    weir__fake_projector_options options;
    uint64_t identity;
};

struct weir__badapter {
    weir__bmodel *model;
    uint64_t number; /* from its path */
};

/* A row with logits of the last pass. */
typedef struct weir__fake_row {
    uint64_t hash;  /* of the history up to this row */
    int32_t chosen; /* the token with the highest logit */
    float *logits;  /* [n_vocab], computed on request; later passes reuse the block */
    bool filled;
} weir__fake_row;

/* A sequence; entry i has the i-th smallest position. Invariant: pos ascends; hash[i] is the hash of token[0
 * … i]; in the unified layout cell[i] is a cell of the pool with refs > 0. */
typedef struct weir__fake_seq {
    int32_t n;
    int32_t *token, *pos, *cell; /* [n_ctx_seq] each */
    uint64_t *hash;
    uint64_t *adapters; /* with which the token was computed; as in the context */
    int32_t first;      /* the lowest position that layers with a window still hold; 0 = all */
    bool pending_to;    /* a copy into this lane waits for the next pass */
    bool pending_from;  /* a copy out of it does */
} weir__fake_seq;

struct weir__bcontext {
    weir__bmodel *model;
    weir_context_info info;
    bool embeddings;
    bool (*abort)(void *user); /* NULL = never */
    void *abort_user;
    weir__fake_seq seqs[WEIR__SEQ_MAX]; /* [n_seq_max] */
    int32_t *ints;                      /* memory of the sequences' arrays */
    uint64_t *hashes;
    uint64_t adapters; /* those that are set, hashed */
    uint16_t *refs;    /* [n_ctx] sequences that hold a cell of the pool; unified layout only, like
                        * `unused` */
    int32_t *unused;
    int32_t n_unused;

    weir__fake_row *rows; /* [n_kept] */
    int32_t *row_of;      /* [n_entries]: index into rows, -1 = kept none */
    int32_t n_kept, n_entries;
    pthread_mutex_t logits_lock; /* protects logits and filled of all rows */

    float *vectors;  /* [n_entries][WIDTH], embeddings only */
    float *pools;    /* [n_seq_max][WIDTH] */
    int32_t *pooled; /* [n_seq_max] tokens that the last pass pooled */
};

uint64_t weir__fake_mix(uint64_t x);
uint64_t weir__fake_hash_start(const weir__bmodel *model);
/* The hash of an adapter; those of several are added. 0: its scale is 0. */
uint64_t weir__fake_adapter_hash(uint64_t number, float scale);
uint64_t weir__fake_hash_next(uint64_t hash, int32_t token, uint64_t adapters);
/* Chooses by the hash alone, without the test's next(). */
int32_t weir__fake_choose(const weir__bmodel *model, uint64_t hash);
/* The logit of a token in a row. */
float weir__fake_logit(uint64_t hash, int32_t chosen, int32_t token);
void weir__fake_wait(int64_t us);
/* True if the test wants this call to fail. */
bool weir__fake_fails(_Atomic int64_t *at, _Atomic int64_t *more);
/* The row of a batch entry, -1 = the last one kept. NULL, and a fault: there is none. */
weir__fake_row *weir__fake_row_of(weir__bcontext *context, int32_t row);

#define OPERATION(result, operation, ...) result weir__fake_##operation(__VA_ARGS__);
#define OPTIONAL(...)
#include "backend/operations.h"

/* The options of a path, "name=number" separated by commas: sets the members of *all. */
typedef struct weir__fake_option {
    const char *name;
    size_t offset; /* of an int64_t */
    int64_t start, min, max;
} weir__fake_option;

/* The row of a member. */
#define WEIR__FAKE_OPTION(type, name, start, min, max)                                                       \
    {                                                                                                        \
#name, offsetof(type, name), start, min, max                                                         \
    }

weir_status weir__fake_options_read(void *all, const weir__fake_option *of, size_t n, const char *what,
                                    const char *text, weir_error *error);

/* A cell of a segment in a sequence: its id and the step to the next position, 0 … 255. */
static inline int32_t weir__fake_cell(uint64_t hash, int32_t step)
{
    return -1 - (int32_t)((hash & 0x7fffff) << 8 | (uint32_t)step);
}

static inline int32_t weir__fake_cell_step(int32_t cell)
{
    return (-1 - cell) & 0xff;
}

/* The id of a segment's cell: its hash is that of all of its embedding. */
int32_t weir__fake_cell_of(const weir__segment *segment, int32_t cell);

/* The position that follows entry i of a sequence. */
int32_t weir__fake_seq_next(const weir__fake_seq *seq, int32_t i);

/* A pass begins: layers with a window let go of all that llama.cpp may overwrite. */
void weir__fake_slide(weir__bcontext *context, const weir__batch *batch);

/* The last micro-batch of a pass has found no cells. In a pool, what the others would have overwritten is
 * lost (ADR 0140). */
void weir__fake_slide_in_vain(weir__bcontext *context, const weir__batch *batch);

/* True if the windows hold all that the sequences' next tokens attend to. */
bool weir__fake_has_windows(const weir__bcontext *context, const weir__batch *batch);

/* Appends a token, computed with these adapters. The caller has checked its position and the room. */
void weir__fake_seq_append(weir__bcontext *context, int32_t seq, int32_t token, int32_t pos,
                           uint64_t adapters);

#endif

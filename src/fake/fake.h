/* fake.h: test controls of a model loaded from "fake:...".
 *
 * The path is "fake:" and options, which docs/guides/fake.md lists.
 *
 * The next token is a pure function of the seed, of the sequence's tokens in the order of their positions,
 * and of the adapters that each was computed with. So wrong bookkeeping gives wrong text. Samplers support
 * seed, temp (0 or top_k 1 = greedy, else a draw from the whole distribution), logit_bias, ignore_eos, masks
 * and grammars that are not lazy; they ignore all other parameters.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_FAKE_FAKE_H
#define WEIR_FAKE_FAKE_H

#include <stdatomic.h>

#include "backend/backend.h"

#define WEIR__FAKE_BOS      256
#define WEIR__FAKE_EOS      257
#define WEIR__FAKE_EOT      258 /* "<|im_end|>" */
#define WEIR__FAKE_IM_START 259
#define WEIR__FAKE_WORDS    260 /* the first token of more than one byte */
#define WEIR__FAKE_WIDTH    16  /* n_embd */

/* Errors of callers; bits of weir__fake.faults. */
enum {
    WEIR__FAKE_BAD_BATCH = 1,    /* empty, over n_batch, or with a bad token or sequence */
    WEIR__FAKE_BAD_POSITION = 2, /* does not continue its sequence, or exceeds its lane */
    WEIR__FAKE_BAD_ROW = 4,      /* sampled or read a row that kept no logits */
    WEIR__FAKE_BAD_SHARE = 8,    /* more than the source holds, or a sequence with itself */
    WEIR__FAKE_STALE_READ = 16,  /* state_save of a lane whose copy is still pending */
    WEIR__FAKE_STALE_WRITE = 32, /* state_load into a lane that a pending copy reads or will overwrite */
    WEIR__FAKE_BAD_NEXT = 64,    /* the test's next() returned no token */
    WEIR__FAKE_BAD_PART = 128,   /* part_load into another text than it was saved of */
    WEIR__FAKE_NO_WINDOW = 256,  /* a token attends to cells that its sequence has lost */
};

/* An entry of the log. */
typedef struct weir__fake_entry {
    uint64_t pass; /* from 0 */
    int32_t token, pos, seq;
    bool logits;
} weir__fake_entry;

/* Members that tests set and read. Set function pointers before a context is created; the atomics at any
 * time, from any thread. */
typedef struct weir__fake {
    /* The token that follows history[n], n >= 1, instead of the hash's; -1 = the hash decides. Runs during
     * decode, once per row with logits. */
    int32_t (*next)(void *user, const int32_t *history, int32_t n);
    void *next_user;
    /* Run on the thread that decodes or samples, before anything else, even if the call will fail. */
    void (*before_decode)(void *user, const weir__batch *batch);
    void *before_decode_user;
    void (*before_sample)(void *user, int32_t row);
    void *before_sample_user;
    /* True if the state of a sequence that starts with this token may be loaded; NULL = yes. */
    bool (*may_load)(void *user, int32_t token);
    void *may_load_user;

    /* Failures: each call decrements `at`. The call that finds 0 and the `more` after it fail; then it is -1
     * = off. */
    _Atomic int64_t fail_decode_at;
    _Atomic int64_t fail_decode_more; /* INT64_MAX = all later calls */
    /* WEIR_BACKEND, or NO_SPACE, which leaves the memory unchanged, apart from windows in a pool: the pass's
     * last micro-batch is the one without cells */
    _Atomic int32_t fail_decode_status;
    _Atomic int32_t fail_decode_keep; /* tokens that another failing pass leaves in the memory; 0 */
    _Atomic int64_t fail_sample_at;
    _Atomic int64_t fail_sample_more;
    _Atomic bool fail_state_save;
    _Atomic bool fail_state_load; /* parts of states as well */
    _Atomic bool fail_part_load;
    _Atomic bool fail_share;
    _Atomic bool fail_cut; /* sequences can only be removed as a whole */

    /* Time of a pass. */
    _Atomic int64_t tick_us;
    _Atomic int64_t token_us;

    _Atomic uint32_t faults;
    _Atomic uint64_t n_passes; /* successful ones only, like the next two */
    _Atomic uint64_t n_tokens;
    _Atomic uint64_t n_rows; /* with logits */
    _Atomic uint64_t n_samples;
    _Atomic uint64_t n_shares;
    _Atomic uint64_t n_parts;        /* loaded */
    _Atomic uint64_t n_uncut;        /* cuts that were refused */
    _Atomic int64_t n_cells;         /* in use, in all contexts; shared cells count once */
    _Atomic int32_t n_contexts;      /* alive */
    _Atomic int32_t n_samplers;      /* alive */
    _Atomic int32_t n_adapters;      /* alive */
    _Atomic uint64_t n_adapter_sets; /* calls of set_adapters */
    _Atomic bool fail_adapters;      /* set_adapters fails */
    _Atomic uint64_t n_counted;      /* prompt tokens that samplers counted */
    _Atomic uint64_t n_begun;        /* encodes that have begun */
    _Atomic uint64_t n_encodes;      /* segments encoded */
} weir__fake;

typedef enum weir__fake_kind {
    WEIR__FAKE_TEXT = 0,
    WEIR__FAKE_CONTROL = 1, /* no text unless special tokens are rendered */
    WEIR__FAKE_END = 2,     /* control, and ends a generation */
} weir__fake_kind;

#endif

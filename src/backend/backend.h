/* backend.h: the interface between the engine and a backend, which computes: a table of operations
 * (operations.h). Two implement it: src/llama (llama.cpp) and src/fake (deterministic, no weights).
 *
 * Rules:
 *   - Model operations may run on several threads at once. Operations on one context, and on samplers that
 *     read it, run on one thread at a time, except that sample may run for several samplers at once after
 *     logits_ready.
 *   - The caller has checked that tokens, positions, sequence ids and row indexes are in range. Texts are
 *     unchecked.
 *   - A failing operation fills *error (which may be NULL) and leaves its object usable.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_BACKEND_H
#define WEIR_BACKEND_BACKEND_H

#include <weir/more.h>

#include "params/bounds.h"

typedef struct weir__bmodel weir__bmodel;         /* a backend's model */
typedef struct weir__bcontext weir__bcontext;     /* a backend's context */
typedef struct weir__bsampler weir__bsampler;     /* a backend's sampler chain */
typedef struct weir__badapter weir__badapter;     /* a backend's adapter */
typedef struct weir__bprojector weir__bprojector; /* a backend's encoder of images and sounds */

/* One forward pass, as parallel arrays. The caller owns it; its capacity is fixed at init. */
typedef struct weir__batch {
    int32_t n; /* entries */
    int32_t capacity;
    int32_t *token; /* [capacity] */
    int32_t *pos;   /* [capacity] */
    int32_t *seq;   /* [capacity] */
    int8_t *logits; /* [capacity]; nonzero: keep this row */
} weir__batch;

weir_status weir__batch_init(weir__batch *batch, int32_t capacity, weir_error *error);
void weir__batch_fini(weir__batch *batch);

/* Adds an entry; the caller has checked n < capacity. Returns its row index. */
static inline int32_t weir__batch_add(weir__batch *batch, int32_t token, int32_t pos, int32_t seq,
                                      bool logits)
{
    int32_t i = batch->n++;
    batch->token[i] = token;
    batch->pos[i] = pos;
    batch->seq[i] = seq;
    batch->logits[i] = logits;
    return i;
}

/* The most bytes of a text: llama.cpp counts bytes and tokens as int32_t, and some tokenizers write several
 * bytes for one. */
#define WEIR__TEXT_MAX (INT32_MAX / 4)

typedef enum weir__trigger_kind {
    WEIR__TRIGGER_WORD,
    WEIR__TRIGGER_PATTERN,
    WEIR__TRIGGER_FULL_PATTERN, /* matches from the start to the end of the answer so far */
    WEIR__TRIGGER_TOKEN,
} weir__trigger_kind;

/* A text or token with which calls of tools begin. */
typedef struct weir__trigger {
    weir__trigger_kind kind;
    const char *value;
    int32_t token;
} weir__trigger;

#define WEIR__NO_CALL SIZE_MAX /* of text_before_call */

/* A grammar that a rendered chat gives the sampler. */
typedef struct weir__grammar {
    const char *text;              /* GBNF */
    const char *root;              /* NULL = "root" */
    bool lazy;                     /* it waits until a trigger appears */
    bool calls_only;               /* all of the answer is calls, after reasoning */
    const weir__trigger *triggers; /* [n_triggers]; also of a grammar that is not lazy */
    size_t n_triggers;
    const char *prefill; /* the part of the answer that the prompt already holds; NULL = none */
} weir__grammar;

/* White space that becomes part of a control token. */
#define WEIR__STRIP_LEFT  1 /* before it */
#define WEIR__STRIP_RIGHT 2 /* behind it */

typedef struct weir__projector_info {
    bool images, sounds; /* the kinds that it encodes */
    int32_t sample_rate; /* of sounds, Hz */
    int32_t width;       /* floats of an embedding */
    uint64_t n_bytes;    /* of its weights */
    uint64_t identity;   /* weir__gguf_info's */
} weir__projector_info;

/* The place of a cell, from the first position of its segment: position, row and column (M-RoPE). */
typedef struct weir__place {
    int32_t t, y, x, z;
} weir__place;

/* Cells of an image or a sound that belong together. With M-RoPE, cells and positions are two counts. */
typedef struct weir__segment {
    int32_t n_cells;
    int32_t n_positions; /* positions that it takes */
    bool causal;         /* false: all of it is one pass, which is not causal */
    int32_t *tokens;     /* [n_cells], NULL: embeddings */
    weir__place *places; /* [n_cells], NULL: 0, 1, 2 … */
    float *embeddings;   /* [n_cells][width], once they are computed */
} weir__segment;

/* An image or a sound as the model reads it. The segments follow each other: an image in tiles and 30 s
 * pieces of a sound are several, with tokens before, between and behind them. */
typedef struct weir__prepared {
    weir__segment *segments; /* [n_segments] */
    int32_t n_segments;
    int32_t n_cells, n_positions; /* of all segments */
    void *backend;
} weir__prepared;

/* The cells of a segment that a pass computes: entry i of its batch is cell first + i. */
typedef struct weir__slice {
    const weir__segment *segment; /* one with embeddings */
    int32_t first;
    int32_t pos; /* of the segment's first cell */
} weir__slice;

/* The positions from the segment's first one to that of a cell. */
static inline int32_t weir__segment_step(const weir__segment *segment, int32_t cell)
{
    return segment->places != NULL ? segment->places[cell].t : cell;
}

typedef struct weir__backend {
    const char *name;
#define OPERATION(result, operation, ...) result (*operation)(__VA_ARGS__);
#define OPTIONAL                          OPERATION /* may be NULL */
#include "backend/operations.h"
} weir__backend;

extern const weir__backend weir__backend_fake;
#ifndef WEIR_NO_LLAMA
extern const weir__backend weir__backend_llama;
#endif

#endif

/* The seam between the engine and what computes: one table of operations, implemented by llama.c (llama.cpp
 * behind shim*.cpp) and by fake.c (deterministic, no weights).
 *
 * Rules for both sides:
 *   - Model operations may be called from any thread at once. Operations on one context, and on samplers that
 *     read it, run on one thread at a time, except sample(), which may run for several samplers at once after
 *     logits_ready().
 *   - Tokens, positions, sequence ids and row indexes have been range-checked by the caller; texts have not.
 *   - A failing operation fills *error (which may be NULL) and leaves its object usable.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_BACKEND_H
#define WEIR_BACKEND_BACKEND_H

#include <weir/weir.h>

#include "params/bounds.h"

typedef struct weir__bmodel weir__bmodel;     /* a backend's model */
typedef struct weir__bcontext weir__bcontext; /* a backend's context */
typedef struct weir__bsampler weir__bsampler; /* a backend's sampler chain */
typedef struct weir__badapter weir__badapter; /* a backend's adapter */

/* One forward pass, as parallel arrays. Owned by the caller, capacity fixed at init. */
typedef struct weir__batch {
    int32_t n; /* tokens in it */
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

/* Bytes of one text: llama.cpp counts bytes and tokens as int32_t, and some tokenizers write several bytes
 * for one. */
#define WEIR__TEXT_MAX (INT32_MAX / 4)

/* A lazy grammar waits until one of these appears. */
typedef struct weir__trigger {
    int kind; /* 0 word, 1 pattern, 2 full pattern, 3 token; llama.cpp's common numbers them differently */
    char *value;
    int32_t token;
} weir__trigger;

/* What a rendered chat adds to the sampler's parameters. */
typedef struct weir__grammar {
    const char *text; /* GBNF */
    const char *root; /* NULL = "root" */
    bool lazy;
    const weir__trigger *triggers; /* [n_triggers] */
    size_t n_triggers;
    const char *prefill; /* text the prompt already holds of the answer; NULL = none */
} weir__grammar;

/* White space that goes with a control token. */
#define WEIR__STRIP_LEFT  1 /* before it */
#define WEIR__STRIP_RIGHT 2 /* behind it */

typedef struct weir__backend {
    const char *name;

    /* -- model -- */
    weir_status (*model_load)(const char *path, const weir_model_params *params, weir__bmodel **model,
                              weir_error *error);
    void (*model_free)(weir__bmodel *model);
    /* Writes what later loads map instead of working for it, and checks it. out NULL: beside the model. NULL:
     * loads have no such work. */
    weir_status (*model_optimize)(const char *path, const char *out, weir_progress_fn progress, void *user,
                                  weir_error *error);
    weir_status (*model_optimize_check)(const char *path, const char *optimized, weir_progress_fn progress,
                                        void *user, weir_error *error);
    /* Writes `path` with weights of this type (weir_quantize_type's spelling) to `out`, which is no model
     * before it is whole. NULL: there are no weights. */
    weir_status (*model_quantize)(const char *path, const char *out, const weir_quantize_params *params,
                                  weir_error *error);
    /* A load without the weights, for describe, cell_bytes and estimates alone. NULL: loads read none. */
    weir_status (*model_outline)(const char *path, const weir_model_params *params, weir__bmodel **model,
                                 weir_error *error);
    /* All of *info but `size` and `backend`; strings live as long as the model. */
    void (*model_describe)(const weir__bmodel *model, weir_model_info *info);
    /* Of the weights, for what is kept in files: those of other weights have another one. */
    uint64_t (*model_identity)(const weir__bmodel *model);
    /* Length of the value or key, -1 when there is none; cut to capacity and terminated. */
    int64_t (*model_meta)(const weir__bmodel *model, const char *key, char *text, size_t capacity);
    int64_t (*model_meta_key)(const weir__bmodel *model, size_t i, char *key, size_t capacity);
    /* length <= WEIR__TEXT_MAX. *n_tokens is the number needed; TOO_LONG when capacity is smaller. */
    weir_status (*tokenize)(const weir__bmodel *model, const char *text, size_t length, bool add_special,
                            bool parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                            weir_error *error);
    /* Bytes of the piece, or minus the size needed. Allocates nothing. */
    int32_t (*piece)(const weir__bmodel *model, int32_t token, bool special, char *bytes, int32_t capacity);
    bool (*is_eog)(const weir__bmodel *model, int32_t token);
    /* [*n]: the text that is this token where special tokens are parsed, and text like any other where they
     * are not; NULL for tokens of other kinds. *strip: bits of WEIR__STRIP_*. Lives as long as the model. */
    const char *(*control_text)(const weir__bmodel *model, int32_t token, size_t *n, int *strip);
    /* The most bytes of a text that become one token; 0 = unknown. */
    int32_t (*longest_piece)(const weir__bmodel *model);
    /* The i-th kind of the model's weights: all of *weights but `size`. END past the last. */
    weir_status (*model_weights)(const weir__bmodel *model, size_t i, weir_model_weights *weights);
    /* The i-th device that this backend computes on: all of *device but `size`. END past the last. */
    weir_status (*device_get)(size_t i, weir_device *device);

    /* -- adapter -- */
    /* Any thread, as free: also while contexts of the model compute. */
    weir_status (*adapter_load)(weir__bmodel *model, const char *path, weir__badapter **adapter,
                                weir_error *error);
    /* No context has it set. */
    void (*adapter_free)(weir__badapter *adapter);
    /* All of *info but `size` and `path`; strings live as long as the adapter. */
    void (*adapter_describe)(const weir__badapter *adapter, weir_adapter_info *info);

    /* -- context -- */
    /* params are complete (no zeros that mean "default", layout decided). Fills what was allotted into *info.
     */
    weir_status (*context_create)(weir__bmodel *model, const weir_context_params *params,
                                  weir__bcontext **context, weir_context_info *info, weir_error *error);
    /* A head of the target: a context that guesses its next tokens from what the target's layers say of the
     * last one, and follows whatever happens to its sequences (clear, seq_remove, share, state_*; seq_copy
     * and seq_keep not). model: the head's, or the target's for layers of its own that do so. params: batches
     * as long as the target's, and as many sequences, at least. There may be one. On it are allowed: decode,
     * of entries behind seq_pos_max, which is the newest position that the target has told of, or behind its
     * own last one, all of them with logits; sample and logits; seq_remove of what it has guessed; clear;
     * context_free, before the target's. UNSUPPORTED: it does not fit the target's model. NULL: there are no
     * such models. */
    weir_status (*head_create)(weir__bcontext *target, weir__bmodel *model, const weir_context_params *params,
                               weir__bcontext **head, weir_context_info *info, weir_error *error);
    void (*context_free)(weir__bcontext *context);
    /* What context_create would allot, of an outline: fills *info as it does, and bytes. NULL: a context
     * costs little, so one is made. */
    weir_status (*context_estimate)(weir__bmodel *model, const weir_context_params *params,
                                    weir_context_info *info, uint64_t *kv_bytes, uint64_t *compute_bytes,
                                    weir_error *error);
    /* What a context of the target and a head of it, as head_create has it, would allot together, of
     * outlines. */
    weir_status (*head_estimate)(weir__bmodel *target, const weir_context_params *target_params,
                                 weir__bmodel *model, const weir_context_params *params, uint64_t *kv_bytes,
                                 uint64_t *compute_bytes, weir_error *error);
    /* One forward pass. NO_SPACE: no cells, memory as before. BACKEND: see pos_max. ABORTED: by set_abort's
     * fn.
     */
    weir_status (*decode)(weir__bcontext *context, const weir__batch *batch, weir_error *error);
    /* What passes from now on have, [n]; on failure they have none. The adapters live until others are set,
     * or the context is freed. May take as long as a small pass: the caller sees to it that it is a
     * change. */
    weir_status (*set_adapters)(weir__bcontext *context, weir__badapter *const *adapters, const float *scales,
                                int32_t n, weir_error *error);
    /* fn is asked now and then during decode, on the thread that decodes; true ends the pass with ABORTED,
     * and what it had computed may stay in the memory. NULL: never. Backends that cannot be interrupted
     * ignore it. */
    void (*set_abort)(weir__bcontext *context, bool (*fn)(void *user), void *user);
    /* Waits for the pass and settles the rows, so that logits() and sample() may then run on several threads.
     */
    void (*logits_ready)(weir__bcontext *context);
    /* [n_vocab] of batch entry `row`, or of the last row kept for -1; NULL when it kept none. */
    const float *(*logits)(weir__bcontext *context, int32_t row);
    /* [width] of a token's row, or of a sequence's pool when row is -1; NULL when there is none. */
    const float *(*embedding)(weir__bcontext *context, int32_t row, int32_t seq);
    int32_t (*embedding_width)(const weir__bcontext *context);
    /* KV bytes of one cell: both tensors, all layers. */
    uint64_t (*cell_bytes)(const weir__bmodel *model, weir_kv_type type_k, weir_kv_type type_v);

    /* -- memory. Positions [from, to), both already resolved: 0 <= from, to < 0 = the end -- */
    void (*clear)(weir__bcontext *context);
    /* False: this memory cannot be cut there, nothing was done. A whole sequence can always be removed. */
    bool (*seq_remove)(weir__bcontext *context, int32_t seq, int32_t from, int32_t to);
    /* share(from, to, n): afterwards sequence `to` holds exactly positions 0 … n-1 of `from`. In a unified
     * pool cells are shared; between lanes they are copied when the next pass begins, and state_save before
     * it would read stale cells. */
    weir_status (*share)(weir__bcontext *context, int32_t from, int32_t to, int32_t n, weir_error *error);
    /* Does at once what share and seq_copy have put off until the next pass. NULL: state_save and state_load
     * do so themselves. */
    weir_status (*settle)(weir__bcontext *context, weir_error *error);
    /* False: this memory cannot be cut there, or the copy failed; to_seq is empty or as before. */
    bool (*seq_copy)(weir__bcontext *context, int32_t seq, int32_t to_seq, int32_t from, int32_t to);
    void (*seq_keep)(weir__bcontext *context, int32_t seq);
    int32_t (*seq_pos_max)(const weir__bcontext *context, int32_t seq);
    /* Raw bytes, without weir's header. */
    size_t (*state_size)(weir__bcontext *context, int32_t seq);
    size_t (*state_save)(weir__bcontext *context, int32_t seq, void *bytes, size_t capacity);
    weir_status (*state_load)(weir__bcontext *context, int32_t seq, const void *bytes, size_t length,
                              weir_error *error);

    /* -- sampler -- */
    /* params are complete and in range, but for their grammar, which is checked here; grammar may be NULL
     * and replaces params->grammar. GRAMMAR: as weir_grammar_check has it, field "grammar" or
     * "grammar_root", or the model has no such grammar. */
    weir_status (*sampler_create)(const weir__bmodel *model, const weir_sampler_params *params,
                                  const weir__grammar *grammar, weir__bsampler **sampler, weir_error *error);
    void (*sampler_free)(weir__bsampler *sampler);
    weir_status (*sampler_reset)(weir__bsampler *sampler, weir_error *error);
    /* Chooses and accepts. row as in logits(). */
    weir_status (*sample)(weir__bsampler *sampler, weir__bcontext *context, int32_t row, int32_t *token,
                          weir_error *error);
    weir_status (*accept)(weir__bsampler *sampler, int32_t token, weir_error *error);
    /* A token of the prompt: as accept, but not for the grammar. */
    weir_status (*count)(weir__bsampler *sampler, int32_t token, weir_error *error);
} weir__backend;

extern const weir__backend weir__backend_fake;
#ifndef WEIR_NO_LLAMA
extern const weir__backend weir__backend_llama;
#endif

/* Adapters that a pass has together. Zeroes: none. */
typedef struct weir__adapters {
    uint64_t key; /* of their contents and scales, in this process and others; 0 = none */
    int32_t n;
    weir_adapter *adapter[WEIR_ADAPTERS_MAX]; /* [n], held */
    float scale[WEIR_ADAPTERS_MAX];           /* [n], none 0 */
} weir__adapters;

/* What a weir_model is inside the library. */
struct weir_model {
    const weir__backend *ops;
    weir__bmodel *model;
    weir_model_info info; /* complete */
    char *path;
    _Atomic int refs;
    /* Parsed chat templates, made on first use; NULL at first. The last release hands it to
     * weir__chat_cache_free (model/chat.h), which takes NULL. */
    _Atomic(void *) chat_cache;
    /* Texts of control tokens, made on first use; NULL at first. Likewise with weir__controls_free
     * (model/control.h). */
    _Atomic(void *) controls;
};

/* What a weir_adapter is inside the library. */
struct weir_adapter {
    weir_model *model; /* held */
    weir__badapter *adapter;
    weir_adapter_info info; /* complete */
    char *path;
    _Atomic int refs;
};

/* As weir_model_load, without weights: to describe, and for estimates and cell_bytes alone. */
weir_status weir__model_outline(const char *path, const weir_model_params *params, weir_model **model,
                                weir_error *error);

/* The backend of a path's model. UNSUPPORTED: this build has none. */
weir_status weir__model_backend(const char *path, const weir__backend **ops, weir_error *error);

/* What a weir_sampler is: a backend's chain and the model it belongs to. */
struct weir_sampler {
    weir_model *model;
    weir__bsampler *chain;
    size_t window; /* tokens that penalties look back on at the most */
};

/* What a weir_context is. */
struct weir_context {
    weir_model *model;
    weir__bcontext *context;
    weir_context_info info;
    weir_context_params params; /* complete; what a saved state's fingerprint is made of */
    weir__batch batch;          /* [n_batch]; the last pass's entries, until the next */
    int32_t n_rows;             /* entries of the last pass; 0 = there is none to read */
    weir__adapters adapters;    /* that are set */
};

#endif

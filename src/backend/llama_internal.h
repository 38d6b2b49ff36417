/* llama_internal.h: what llama.c and the files llama_*.c share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_LLAMA_INTERNAL_H
#define WEIR_BACKEND_LLAMA_INTERNAL_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/optimized_file.h"
#include "backend/shim.h"
#include "backend/team.h"

/* Room for one sampling. */
typedef struct weir__llama_scratch {
    struct weir__llama_scratch *next; /* while it is free */
    float *allowed;                   /* [n_vocab] logits of what a grammar allows, else -INFINITY */
    uint64_t *mask;                   /* [WEIR__AUTOMATON_WORDS(n_vocab)] */
    llama_token_data candidates[];    /* [n_vocab] */
} weir__llama_scratch;

/* What a head follows (llama_head.c). */
typedef struct weir__llama_following weir__llama_following;

/* Grammars that a model has compiled (llama_grammar.c). */
typedef struct weir__llama_grammars weir__llama_grammars;

struct weir__bmodel {
    struct llama_model *model;
    const struct llama_vocab *vocab;
    uint64_t identity; /* weir__gguf_info's */
    bool vocab_only;
    bool offloads;        /* some of it may lie on a GPU */
    bool causal;          /* a token sees those before it only; a pass of others is one micro-batch */
    bool encoder_only;    /* embeddings only */
    bool encoder_decoder; /* what is decoded attends to an encoder's output */
    bool head;            /* guesses for another model, and can do nothing alone */
    bool whole_sequences; /* recurrent: its memory is cut at the end of a sequence or not at all */
    int32_t n_positions;  /* tokens that it has position embeddings for, INT32_MAX = any */
    weir_model_info info;
    char description[128];
    char architecture[64];
    weir_logit_bias *banned; /* [n_banned] tokens the model never says: its own list */
    size_t n_banned;
    int32_t *eog; /* [n_eog] tokens that end a generation */
    size_t n_eog;
    int32_t longest_piece; /* bytes of a text that become one token, at the most; 0 = unknown */

    /* Free rooms for candidates. One is made when all are in use, so there come to be as many as threads that
     * sample at once, not one for each sampler. */
    pthread_mutex_t scratch_lock; /* protects scratch; held for a few instructions */
    weir__llama_scratch *scratch;

    weir__llama_grammars *grammars;

    /* Protects llama.cpp's list of the model's adapters, which it reads when it plans for a context's passes.
     * Held while an adapter is loaded, a context is made, or gets other adapters; never across a pass. */
    pthread_mutex_t adapter_lock;
};

struct weir__badapter {
    weir__bmodel *model;
    struct llama_adapter_lora *adapter;
    weir__shim_adapter shape;
    uint64_t identity;
    char name[128];
};

/* Rows of a pass are numbered by batch entry outside and in order of output inside.
 * Invariant: row_of[0 .. n_entries) are -1 or below n_rows, ascending. */
struct weir__bcontext {
    weir__bmodel *model;
    struct llama_context *context;
    struct ggml_threadpool *pool;
    weir__team teams[2]; /* of passes that only generate, and of others */
    bool adapts;         /* the teams learn */
    int32_t n_batch;
    int32_t n_seq_max;
    bool unified;
    bool embeddings;
    bool has_memory;
    bool copy_pending; /* between lanes; carried out by the next pass */
    enum llama_pooling_type pooling;
    int32_t width; /* floats of an embedding */

    int32_t *ones;   /* [n_batch] each entry has one sequence */
    int32_t **seqs;  /* [n_batch] where it stands: in the batch that was last decoded */
    int32_t *row_of; /* [n_batch] */
    int32_t n_entries;
    int32_t n_rows;
    bool settled; /* logits and embedded are of the last pass */
    float *logits;
    float *embedded;

    bool (*abort_fn)(void *user);
    void *abort_user;

    weir__bcontext *head;             /* what guesses for this one, NULL = nothing */
    weir__llama_following *following; /* of a head */
};

/* ---- The operations of the table: see weir__backend ----------------------------------------------- */

/* llama_model.c */
/* Whether the layers of such models that guess tokens are loaded: also by those who pack weights. */
bool weir__llama_guesses(const char *architecture);
weir_status weir__llama_model_load(const char *path, const weir_model_params *params, weir__bmodel **out,
                                   weir_error *error);
weir_status weir__llama_model_outline(const char *path, const weir_model_params *params, weir__bmodel **out,
                                      weir_error *error);
void weir__llama_model_free(weir__bmodel *model);
void weir__llama_model_describe(const weir__bmodel *model, weir_model_info *info);
uint64_t weir__llama_model_identity(const weir__bmodel *model);
int64_t weir__llama_model_meta(const weir__bmodel *model, const char *key, char *text, size_t capacity);
int64_t weir__llama_model_meta_key(const weir__bmodel *model, size_t i, char *key, size_t capacity);
weir_status weir__llama_tokenize(const weir__bmodel *model, const char *text, size_t length, bool add_special,
                                 bool parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                 weir_error *error);
int32_t weir__llama_piece(const weir__bmodel *model, int32_t token, bool special, char *bytes,
                          int32_t capacity);
bool weir__llama_is_eog(const weir__bmodel *model, int32_t token);
const char *weir__llama_control_text(const weir__bmodel *model, int32_t token, size_t *n, int *strip);
int32_t weir__llama_longest_piece(const weir__bmodel *model);
weir_status weir__llama_model_weights(const weir__bmodel *model, size_t i, weir_model_weights *weights);
weir_status weir__llama_device_get(size_t i, weir_device *device);

/* llama_adapter.c */
weir_status weir__llama_adapter_load(weir__bmodel *model, const char *path, weir__badapter **out,
                                     weir_error *error);
void weir__llama_adapter_free(weir__badapter *adapter);
void weir__llama_adapter_describe(const weir__badapter *adapter, weir_adapter_info *info);
weir_status weir__llama_set_adapters(weir__bcontext *c, weir__badapter *const *adapters, const float *scales,
                                     int32_t n, weir_error *error);

/* llama_quantize.c */
weir_status weir__llama_model_quantize(const char *path, const char *out, const weir_quantize_params *params,
                                       weir_error *error);

/* llama_optimized.c */
weir_status weir__llama_model_optimize(const char *path, const char *out, weir_progress_fn progress,
                                       void *user, weir_error *error);
weir_status weir__llama_model_optimize_check(const char *path, const char *named, weir_progress_fn progress,
                                             void *user, weir_error *error);

/* The optimized file of a model: the one that is named (""; none), or the one beside the model. NULL: there
 * is none that fits, which is logged when one was there. */
weir__optimized_file *weir__llama_optimized_open(const char *model, const char *named, uint64_t identity);

/* A metadata number of the model's architecture, `otherwise` when it is missing or no number. */
int64_t weir__llama_meta_number(const weir__bmodel *model, const char *name, int64_t otherwise);

/* llama_context.c */
weir_status weir__llama_context_create(weir__bmodel *model, const weir_context_params *params,
                                       weir__bcontext **out, weir_context_info *info, weir_error *error);
/* The same, also for a head: target is what it guesses for, NULL otherwise. */
weir_status weir__llama_context_open(weir__bmodel *model, const weir_context_params *params,
                                     const weir__bcontext *target, weir__bcontext **out,
                                     weir_context_info *info, weir_error *error);
/* Of an outline: the context alone, which no pass can be made with; freed with llama_free. What it, its
 * attention and its logits would allot. */
weir_status weir__llama_outline_open(weir__bmodel *model, const weir_context_params *params,
                                     const weir__bcontext *target, weir__bcontext *c, weir_error *error);
weir_status weir__llama_outline_bytes(const weir__bcontext *c, const weir_context_params *params,
                                      uint64_t *kv_bytes, uint64_t *compute_bytes, weir_error *error);
weir_status weir__llama_context_estimate(weir__bmodel *model, const weir_context_params *params,
                                         weir_context_info *info, uint64_t *kv_bytes, uint64_t *compute_bytes,
                                         weir_error *error);
void weir__llama_context_free(weir__bcontext *c);
weir_status weir__llama_decode(weir__bcontext *c, const weir__batch *batch, weir_error *error);
/* One pass over a sound batch. embd: [n][width of a head's rows], NULL: the tokens alone. */
weir_status weir__llama_pass(weir__bcontext *c, const weir__batch *batch, float *embd, weir_error *error);
void weir__llama_set_abort(weir__bcontext *c, bool (*fn)(void *user), void *user);
void weir__llama_logits_ready(weir__bcontext *c);
const float *weir__llama_embedding(weir__bcontext *c, int32_t row, int32_t seq);
int32_t weir__llama_embedding_width(const weir__bcontext *c);
uint64_t weir__llama_cell_bytes(const weir__bmodel *model, weir_kv_type type_k, weir_kv_type type_v);
void weir__llama_clear(weir__bcontext *c);
bool weir__llama_seq_remove(weir__bcontext *c, int32_t seq, int32_t from, int32_t to);
weir_status weir__llama_share(weir__bcontext *c, int32_t from, int32_t to, int32_t n, weir_error *error);
bool weir__llama_seq_copy(weir__bcontext *c, int32_t seq, int32_t to_seq, int32_t from, int32_t to);
void weir__llama_seq_keep(weir__bcontext *c, int32_t seq);
int32_t weir__llama_seq_pos_max(const weir__bcontext *c, int32_t seq);
size_t weir__llama_state_size(weir__bcontext *c, int32_t seq);
size_t weir__llama_state_save(weir__bcontext *c, int32_t seq, void *bytes, size_t capacity);
weir_status weir__llama_state_load(weir__bcontext *c, int32_t seq, const void *bytes, size_t length,
                                   weir_error *error);
const float *weir__llama_logits(weir__bcontext *context, int32_t row);

/* llama_head.c */
weir_status weir__llama_head_create(weir__bcontext *target, weir__bmodel *model,
                                    const weir_context_params *params, weir__bcontext **out,
                                    weir_context_info *info, weir_error *error);
weir_status weir__llama_head_estimate(weir__bmodel *target, const weir_context_params *target_params,
                                      weir__bmodel *model, const weir_context_params *params,
                                      uint64_t *kv_bytes, uint64_t *compute_bytes, weir_error *error);
/* A context is freed: whoever it follows or leads is told, and what it had for that is freed. */
void weir__llama_head_leave(weir__bcontext *c);
weir_status weir__llama_head_decode(weir__bcontext *head, const weir__batch *batch, weir_error *error);
/* The newest position of the target that it was told of, -1 = none. */
int32_t weir__llama_head_known(const weir__bcontext *head, int32_t seq);
/* Its own rows from this position on go. */
void weir__llama_head_cut(weir__bcontext *head, int32_t seq, int32_t from);
void weir__llama_head_forget(weir__bcontext *head);
/* What has happened to the target: a pass; a sequence that ends before `from`; one that holds the first n
 * positions of another. */
void weir__llama_head_note(weir__bcontext *head, const weir__batch *batch);
void weir__llama_head_removed(weir__bcontext *head, int32_t seq, int32_t from);
void weir__llama_head_shared(weir__bcontext *head, int32_t from, int32_t to, int32_t n);
/* What it adds behind the target's state of a sequence. Loading takes the whole; what it cannot read leaves
 * the head without the sequence. */
size_t weir__llama_head_state_size(weir__bcontext *head, int32_t seq);
size_t weir__llama_head_state_save(weir__bcontext *head, int32_t seq, void *bytes, size_t capacity);
void weir__llama_head_state_load(weir__bcontext *head, int32_t seq, const void *bytes, size_t length);

/* llama_grammar.c */
weir__llama_grammars *weir__llama_grammars_create(void);
void weir__llama_grammars_destroy(weir__llama_grammars *grammars);

/* The automaton of a GBNF text, held; root NULL = "root". Compiles it unless it is known. Errors: as
 * weir_grammar_check, and what only the vocabulary shows. */
weir_status weir__llama_grammar_get(weir__bmodel *model, const char *text, const char *root,
                                    weir__automaton **automaton, weir_error *error);

/* llama_sampler.c */
weir_status weir__llama_sampler_create(const weir__bmodel *model, const weir_sampler_params *params,
                                       const weir__grammar *grammar, weir__bsampler **sampler,
                                       weir_error *error);
void weir__llama_sampler_free(weir__bsampler *sampler);
weir_status weir__llama_sampler_reset(weir__bsampler *sampler, weir_error *error);
weir_status weir__llama_sample(weir__bsampler *sampler, weir__bcontext *context, int32_t row, int32_t *token,
                               weir_error *error);
weir_status weir__llama_accept(weir__bsampler *sampler, int32_t token, weir_error *error);
weir_status weir__llama_count(weir__bsampler *sampler, int32_t token, weir_error *error);

#endif

/* internal.h: declarations for the files of the llama backend.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_LLAMA_INTERNAL_H
#define WEIR_LLAMA_INTERNAL_H

#include <llama.h>
#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/backend.h"
#include "backend/team.h"
#include "grammar/automaton.h"
#include "hook/optimized_file.h"

/* Room for one sampling (sampler.cpp). */
typedef struct weir__llama_scratch weir__llama_scratch;

/* The state of a draft head (head.cpp). */
typedef struct weir__llama_following weir__llama_following;

/* Machines that compute layers of a model (workers.cpp). */
typedef struct weir__workers weir__workers;

/* The compiled grammars of a model (grammars.c). */
typedef struct weir__llama_grammars weir__llama_grammars;

struct weir__bmodel {
    struct llama_model *model;
    const struct llama_vocab *vocab;
    uint64_t identity; /* weir__gguf_info's */
    bool vocab_only;
    bool offloads;        /* parts of it may be on a GPU */
    bool causal;          /* tokens attend to earlier ones only; a pass of other models is one micro-batch */
    bool encoder_only;    /* embeddings only */
    bool encoder_decoder; /* the decoder attends to an encoder's output */
    bool head;            /* a draft head: predicts for another model, and can do nothing alone */
    bool m_rope;          /* positions in rows and columns */
    bool whole_sequences; /* recurrent or hybrid: its memory cannot be cut within a sequence */
    int32_t n_positions;  /* tokens with position embeddings, INT32_MAX = any number */
    struct llama_context_params attention; /* of all its contexts: flash attention, RoPE and YaRN alone */
    weir_model_info info;
    char description[128];
    char architecture[64];
    weir_logit_bias *banned; /* [n_banned] tokens that the model suppresses */
    size_t n_banned;
    int32_t *eog; /* [n_eog] tokens that end a generation */
    size_t n_eog;

    /* Free scratch. A thread that finds none creates one, so there are as many as threads that sample at
     * once, not one per sampler. */
    pthread_mutex_t scratch_lock; /* protects scratch; held for a few instructions */
    weir__llama_scratch *scratch;

    weir__llama_grammars *grammars;
    weir__workers *workers; /* NULL = none */
    weir__stamps *files;    /* that are mapped; NULL = none */

    /* Protects llama.cpp's list of the model's adapters, which it reads when it plans the passes of a
     * context. Held while an adapter is loaded or freed, and while a context is created or gets other
     * adapters; never during a pass. */
    pthread_mutex_t adapter_lock;
};

struct weir__badapter {
    weir__bmodel *model;
    struct llama_adapter_lora *adapter;
    uint64_t identity;
    int32_t n_weights;
    int32_t rank; /* the largest */
    float alpha;  /* as the file has it */
    uint64_t n_bytes;
    char name[128];
};

/* Callers number the rows of a pass by batch entry, llama.cpp by output. Invariant: row_of[0 .. n_entries)
 * are -1 or below n_rows, ascending. */
struct weir__bcontext {
    weir__bmodel *model;
    struct llama_context *context;
    struct ggml_threadpool *pool;
    weir__team teams[2]; /* for passes that only generate, and for others */
    bool adapts;         /* the teams learn */
    int32_t n_batch;
    int32_t n_seq_max;
    bool unified;
    bool embeddings;
    bool has_memory;
    bool copy_pending; /* between lanes; the next pass carries it out */
    enum llama_pooling_type pooling;
    int32_t width; /* floats of an embedding */

    int32_t *ones; /* [n_batch] the number of sequences per entry */
    int32_t
        *places; /* [4 * n_batch] of the cells of a segment: position, row, column, and one more with M-RoPE;
                      * NULL until the first one */
    int32_t **seqs;  /* [n_batch] each entry's sequence, in the batch that was decoded last */
    int32_t *row_of; /* [n_batch] */
    int32_t n_entries;
    int32_t n_rows;
    bool settled; /* logits and embedded are of the last pass */
    float *logits;
    float *embedded;

    bool (*abort_fn)(void *user);
    void *abort_user;

    weir__bcontext *head;             /* its draft head, NULL = none */
    weir__llama_following *following; /* set for a draft head */
};

#define OPERATION(result, operation, ...) result weir__llama_##operation(__VA_ARGS__);
#define OPTIONAL                          OPERATION
#include "backend/operations.h"

/* ---- guard.cpp ---- */

/* Starts llama.cpp and takes over its log, once. All that follows needs it. UNSUPPORTED: llama.cpp was
 * compiled for instructions that this processor lacks, so none of it may run. */
weir_status weir__llama_start(weir_error *error);

/* ---- load.cpp ---- */

/* INVALID or UNSUPPORTED of `main_gpu` or `split_mode`: the devices cannot serve it. NO_MEMORY. Others: as
 * weir__gguf_refused; also if the progress callback ended the load. */
weir_status weir__llama_file_load(const char *path, struct llama_model_params params,
                                  struct llama_model **model, weir_error *error);

/* The source of the model's chat template, owned by the model; NULL: it has none. */
weir_status weir__llama_template_text(const struct llama_model *model, const char **text, weir_error *error);

/* The number of the model's MTP layers that can be computed. */
int32_t weir__llama_mtp_layers(const struct llama_model *model);

/* ---- workers.cpp ---- */

/* GPUs and workers of one model. ggml computes with 16 devices; the CPU and a BLAS are among them. */
#define WEIR__DEVICES_USED_MAX 14

/* Connects to all of "HOST:PORT,…". No part of a message takes longer than the timeout. Field: "rpc". */
weir_status weir__llama_workers_open(const char *list, int32_t timeout_ms, weir__workers **out,
                                     weir_error *error);
/* BACKEND: a connection is lost, and whatever was read over it since may be zeroes. NULL has none. */
weir_status weir__llama_workers_check(const weir__workers *workers, weir_error *error);
/* Returns how many devices it wrote. */
size_t weir__llama_workers_devices(const weir__workers *workers, ggml_backend_dev_t *devices,
                                   size_t capacity);
/* Closes the connections, after the models that use them. NULL is ignored. */
void weir__llama_workers_close(weir__workers *workers);

/* ---- vocab.cpp ---- */

/* True if models of this architecture are loaded with their MTP layers, also to pack their weights. */
bool weir__llama_has_mtp(const char *architecture);

/* A metadata number of the model's architecture, `otherwise` if it is missing or no number. */
int64_t weir__llama_meta_number(const weir__bmodel *model, const char *name, int64_t otherwise);

/* ---- optimized.c ---- */

/* The optimized file of a model: the one that is named ("" = none), or the one beside the model. NULL: there
 * is none that fits. If one exists and does not fit, that is logged. */
weir__optimized_file *weir__llama_optimized_open(const char *model, const char *named, uint64_t identity);

/* ---- context.cpp ---- */

/* context_create, also for a head of `target` (else NULL). */
weir_status weir__llama_context_open(weir__bmodel *model, const weir_context_params *params,
                                     const weir__bcontext *target, weir__bcontext **out,
                                     weir_context_info *info, weir_error *error);
/* Frees a context that has no head and is none. */
void weir__llama_context_close(weir__bcontext *c);
/* Bytes of its memory and of its compute buffers; works for outlines, which have allocated neither. */
weir_status weir__llama_context_bytes(const struct llama_context *context, uint64_t *memory,
                                      uint64_t *compute, weir_error *error);
/* Fills *c for an outline, which can run no pass; freed with llama_free(c->context). */
weir_status weir__llama_outline_open(weir__bmodel *model, const weir_context_params *params,
                                     const weir__bcontext *target, weir__bcontext *c, weir_error *error);
/* The bytes that the context of an outline, its attention and its logits would allocate. */
weir_status weir__llama_outline_bytes(const weir__bcontext *c, const weir_context_params *params,
                                      uint64_t *kv_bytes, uint64_t *compute_bytes, weir_error *error);

/* ---- pass.cpp ---- */

/* Runs llama.cpp's encoder or decoder. *began: the batch was valid, so pending copies in the memory are
 * done. */
weir_status weir__llama_compute(struct llama_context *context, struct llama_batch batch, bool encode,
                                bool *began, weir_error *error);
/* Runs one pass over a checked batch. embd: [n][width of a head's rows], NULL: tokens alone. */
weir_status weir__llama_pass(weir__bcontext *c, const weir__batch *batch, float *embd, weir_error *error);
/* Runs one pass over cells of a segment. */
weir_status weir__llama_pass_segment(weir__bcontext *c, const weir__batch *batch, const weir__slice *slice,
                                     weir_error *error);

/* ---- head.cpp ---- */

/* The newest position of the target's sequence that the head knows, -1 = none. */
int32_t weir__llama_head_known(const weir__bcontext *head, int32_t seq);
/* Removes the head's own rows from this position on. */
void weir__llama_head_cut(weir__bcontext *head, int32_t seq, int32_t from);
void weir__llama_head_forget(weir__bcontext *head);
/* Tell a head that a sequence of the target was cut at `from`, or now holds the first n positions of
 * another. */
void weir__llama_head_removed(weir__bcontext *head, int32_t seq, int32_t from);
void weir__llama_head_shared(weir__bcontext *head, int32_t from, int32_t to, int32_t n);
/* The part of a sequence's state behind the target's. state_load gets the whole state; if it cannot read the
 * head's part, the head goes without the sequence. */
size_t weir__llama_head_state_size(weir__bcontext *head, int32_t seq);
size_t weir__llama_head_state_save(weir__bcontext *head, int32_t seq, void *bytes, size_t capacity);
void weir__llama_head_state_load(weir__bcontext *head, int32_t seq, const void *bytes, size_t length);

/* ---- sampler.cpp ---- */

void weir__llama_scratch_free(weir__llama_scratch *all);

/* ---- grammars.c ---- */

weir__llama_grammars *weir__llama_grammars_create(void);
void weir__llama_grammars_destroy(weir__llama_grammars *grammars);

/* The automaton of a GBNF text, held; compiles it unless it is known. root NULL = "root". Errors: as
 * weir_grammar_check, and those that depend on the vocabulary. */
weir_status weir__llama_grammar_get(weir__bmodel *model, const char *text, const char *root,
                                    weir__automaton **automaton, weir_error *error);

#ifdef __cplusplus
}
#endif
#endif

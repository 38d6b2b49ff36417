/* nif.h: declarations for the files of the native layer. Each function nif_NAME is a row of NIF_TABLE.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of the wrong type raise ArgumentError; errors of the library are {:error, %Weir.Error{}}. Nothing
 * here aborts. A normal scheduler never waits: a call that would wait, or take long, moves to a dirty
 * scheduler. */
#ifndef WEIR_NIF_H
#define WEIR_NIF_H

#include <erl_nif.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/hub.h"
#include "weir/more.h"

/* ---- call.c ---- */

/* The end of a call, if not with its own result. */
typedef enum nif_end {
    NIF_RESULT = 0,
    NIF_WRONG,     /* ArgumentError */
    NIF_NO_MEMORY, /* {:error, _} with the code :no_memory */
    NIF_STOPPED,   /* {:error, _} with the code :stopping */
    NIF_DIRTY,     /* the VM repeats it on a dirty scheduler */
} nif_end;

typedef struct nif_object nif_object;
typedef struct nif_block nif_block;
typedef struct nif_kept nif_kept;

/* One call of a native function. Its end frees the memory, and releases the locks and resources that the call
 * took. */
typedef struct nif_call {
    ErlNifEnv *env;
    weir_error error; /* the library's */
    bool normal;      /* runs on a normal scheduler */
    nif_end end;
    nif_block *blocks;
    nif_kept *kept;
    nif_object *locked;
    nif_object *engine; /* cannot be destroyed meanwhile */
} nif_call;

/* The result is ignored unless call->end is NIF_RESULT. */
typedef ERL_NIF_TERM nif_fn(nif_call *call, const ERL_NIF_TERM argv[]);

/* Ends the call this way, unless it ends already. Returns 0, for `return nif_stop(…)`. */
ERL_NIF_TERM nif_stop(nif_call *call, nif_end end);

/* Moves the call from a normal scheduler to a dirty one. True: it moves. */
bool nif_move(nif_call *call);

/* Memory until the end of the call, aligned for pointers and numbers. NULL: the call ends with NO_MEMORY. */
void *nif_alloc(nif_call *call, size_t size);

/* Locks an object until the end of the call. False: the call ends otherwise; on a normal scheduler also
 * because another process holds the lock. A call that takes several locks takes the context's first, then
 * those of samplers by their addresses. */
bool nif_lock(nif_call *call, nif_object *object);

/* Keeps an engine from being destroyed until the end of the call. False: the call ends otherwise; on a normal
 * scheduler also because the engine is being destroyed. A call uses one engine, before it takes locks. */
bool nif_use(nif_call *call, nif_object *engine);

/* Releases a resource at the end of the call. False: there is no memory for that; it was released. */
bool nif_keep(nif_call *call, void *resource);

/* Ends the call: releases its locks and resources, frees its memory. */
void nif_call_fini(nif_call *call);

/* Removes the interrupt that ends work on a dirty scheduler once the caller is dead. For work that other
 * callers need. */
void nif_uninterrupted(void);

/* ---- term.c: terms to values ---- */

/* Each of these ends the call with NIF_WRONG, and returns 0, if the term has another type. Texts and lists
 * stay valid until the end of the call. */
bool nif_bool(nif_call *call, ERL_NIF_TERM term);
int32_t nif_i32(nif_call *call, ERL_NIF_TERM term);
int32_t nif_i32_in(nif_call *call, ERL_NIF_TERM term, int32_t min, int32_t max);
float nif_float(nif_call *call, ERL_NIF_TERM term); /* infinite if it is too large */
ErlNifBinary nif_bytes(nif_call *call, ERL_NIF_TERM term);
const char *nif_text(nif_call *call, ERL_NIF_TERM term);         /* a binary without NUL bytes */
const char *nif_text_or_null(nif_call *call, ERL_NIF_TERM term); /* NULL for nil */
const char **nif_texts(nif_call *call, ERL_NIF_TERM list, size_t *n);
weir_tokens nif_tokens(nif_call *call, ERL_NIF_TERM list);
ErlNifPid nif_pid(nif_call *call, ERL_NIF_TERM term);

/* Memory for a list's elements; *n is their number. */
void *nif_list(nif_call *call, ERL_NIF_TERM list, size_t size, size_t *n);

/* Moves to the next element of a list. False: it was the last, or the call ends otherwise. */
bool nif_next(nif_call *call, ERL_NIF_TERM *list, ERL_NIF_TERM *head);

/* Moves to the next element of a list of tuples of this arity, likewise. */
bool nif_next_tuple(nif_call *call, ERL_NIF_TERM *list, int arity, const ERL_NIF_TERM **elements);

/* The value of a map's key. False: the key is missing, or its value is nil. */
bool nif_key(nif_call *call, ERL_NIF_TERM map, const char *name, ERL_NIF_TERM *value);

/* The size of a binary in bytes; 0 for other terms. */
size_t nif_size(ErlNifEnv *env, ERL_NIF_TERM term);

/* True if a list has more than `limit` elements; false for other terms. */
bool nif_longer_than(ErlNifEnv *env, ERL_NIF_TERM list, size_t limit);

bool nif_is(ErlNifEnv *env, ERL_NIF_TERM term, const char *atom);

/* ---- term.c: values to terms ---- */

ERL_NIF_TERM nif_atom(ErlNifEnv *env, const char *name);
ERL_NIF_TERM nif_truth(ErlNifEnv *env, bool value);
ERL_NIF_TERM nif_ok(ErlNifEnv *env, ERL_NIF_TERM term);
ERL_NIF_TERM nif_binary(ErlNifEnv *env, const char *text, size_t length);
ERL_NIF_TERM nif_text_or_nil(ErlNifEnv *env, const char *text); /* nil for NULL and "" */
ERL_NIF_TERM nif_number(ErlNifEnv *env, double number);         /* -9999.0 for infinity and NaN */
ERL_NIF_TERM nif_ids(ErlNifEnv *env, const int32_t *tokens, size_t n);
void nif_put(ErlNifEnv *env, ERL_NIF_TERM *map, const char *name, ERL_NIF_TERM value);

/* ---- error.c: {:error, %Weir.Error{}} ---- */

/* The library's error; its message is the status's text if it has none. */
ERL_NIF_TERM nif_refused(ErlNifEnv *env, weir_status status, const weir_error *error);

/* The same, for a request that waits for its model to load. */
ERL_NIF_TERM nif_refused_load(ErlNifEnv *env, weir_status status, const weir_error *error);

ERL_NIF_TERM nif_failed(ErlNifEnv *env, weir_status status); /* a status without details */
ERL_NIF_TERM nif_error(nif_call *call, weir_status status, const char *field, const char *message);
ERL_NIF_TERM nif_status(nif_call *call, weir_status status); /* :ok, or the call's error */

/* The name of the option for a member of the struct `of`, named as in weir_members(). */
const char *nif_option_name(const char *of, const char *member);

/* ---- members.c: structs by the rows of weir_members() ---- */

/* A member that has another key in the map. */
typedef struct nif_rename {
    const char *member, *key;
} nif_rename;

/* Writes the members of a parameter struct, `of` as in weir_members(), that the map has; others stay. The
 * caller reads those of type OTHER. `renames` ends with a NULL member, or is NULL. nil counts as a missing
 * key for texts and lists; for a 64-bit number :auto is WEIR_AUTO. */
void nif_options(nif_call *call, ERL_NIF_TERM map, const char *of, const nif_rename *renames, void *params);

/* A result as a map: its members that are numbers, flags or choices. */
ERL_NIF_TERM nif_map_of(ErlNifEnv *env, const char *of, const void *from);

/* ---- resource.c: handles as terms ---- */

typedef enum nif_kind {
    NIF_MODEL,
    NIF_CONTEXT,
    NIF_SAMPLER,
    NIF_ENGINE,
    NIF_STREAM,
    NIF_CHAT,
    NIF_PARSER,
    NIF_ADAPTER,
    NIF_MEDIA,
    NIF_POOL,
    NIF_LEASE,
    NIF_CLAIM,
    NIF_KINDS,
} nif_kind;

typedef struct nif_corpse nif_corpse;

/* The start of every resource. The lock keeps two processes from using one handle at the same time;
 * models, chats and adapters need none. The library locks an engine itself; here the lock is for those
 * that drive a manual one. */
struct nif_object {
    void *handle; /* the library's, by kind */
    ErlNifMutex *lock;
    ErlNifRWLock *calls; /* of an engine: read by each call, written to destroy it; then the handle is NULL */
    nif_corpse *corpse;
    nif_object *next_locked; /* of the call that holds the lock */
};

typedef struct nif_sampler {
    nif_object object;
    bool slow;  /* every function of it may take longer than a normal scheduler should give */
    bool walks; /* its draws may */
} nif_sampler;

/* One request's stream, whose chunks become messages. The lock protects the handle and the members after
 * `to`, for the engine's thread, for processes that ask for more, and for the end of the consumer. It is held
 * for a few instructions: the thread that has set `sending` makes messages without it. The handle is NULL
 * once the last message was sent. */
typedef struct nif_stream {
    nif_object object;
    nif_object *engine; /* kept until then */
    ErlNifPid to;
    int64_t credit;       /* messages that may be sent before more are asked for */
    int64_t n_sent;       /* tokens */
    int64_t width;        /* terms of a message per token, with its top alternatives */
    int64_t prompt_width; /* the same for the prompt; 0: not requested, or already sent */
    bool fork;
    bool progress;       /* wanted, */
    weir_progress shown; /* as last sent */
    bool sending;        /* a thread makes messages of a chunk; only it may take the next one */
    bool deaf;           /* the consumer has ended: nothing is sent any more */
    weir_usage usage;    /* at the end, when there is no handle */
    weir_stream *kept;   /* held for forks as long as the resource; constant; NULL = not wanted */
} nif_stream;

/* A pool's lease, or a server's model, for as long as anything uses it: the handle of NIF_CLAIM, which is
 * never a term. The handle of NIF_LEASE is the claim of a process, until that process ends or releases it.
 * Calls and streams keep the claim, too, so the model stays until they have ended. */
typedef struct nif_claim {
    weir_lease *lease;   /* NULL: a server's model */
    weir_model *model;   /* held; NULL: the lease has it */
    nif_object *pool;    /* kept */
    ErlNifEnv *messages; /* for the message that the lease is ready, or has failed */
    ERL_NIF_TERM ref;    /* in `messages` */
    ErlNifPid to;
    ErlNifMutex *lock; /* is held while the message is sent */
    bool deaf;         /* no message any more */
} nif_claim;

typedef void nif_down(ErlNifEnv *env, void *resource, ErlNifPid *pid, ErlNifMonitor *monitor);

/* Called when the process that a stream or a lease monitors ends. */
bool nif_resources_open(ErlNifEnv *env, nif_down *stream_down, nif_down *lease_down);

/* A resource without a handle yet. NULL: the call ends otherwise. It is created before its handle, because
 * a VM that stops unloads this module during the call: the resource keeps its type. nif_resource_term()
 * gives it to the VM. */
void *nif_resource_new(nif_call *call, nif_kind kind);
ERL_NIF_TERM nif_resource_term(nif_call *call, void *resource);

/* {:ok, resource} with a handle that was created, or the call's error, which frees the resource. */
ERL_NIF_TERM nif_made(nif_call *call, weir_status status, nif_object *object, void *handle);

/* NULL: the term is no resource of this kind. The second ends the call with NIF_WRONG then; the third,
 * too, and returns the handle. */
void *nif_resource_find(ErlNifEnv *env, ERL_NIF_TERM term, nif_kind kind);
void *nif_resource(nif_call *call, ERL_NIF_TERM term, nif_kind kind);
void *nif_handle(nif_call *call, ERL_NIF_TERM term, nif_kind kind);

/* Frees the handle now, not with the last reference; afterwards it is NULL. Nobody else may use it. */
void nif_handle_free(nif_object *object);

/* The claim of a lease, kept until the end of the call. NULL: the lease was released; the call ends with
 * NIF_WRONG. */
nif_object *nif_claim_of(nif_call *call, nif_object *lease);

/* The model of a claim; NULL: the lease's is not loaded, or has failed. */
weir_model *nif_claim_model(const nif_object *claim);

/* The handle of a model, or of a lease's model until the end of the call. NULL: the call ends with
 * NIF_WRONG. */
weir_model *nif_model(nif_call *call, ERL_NIF_TERM term);

/* The handle of an engine, or of a lease's engine, likewise; *keeper is the resource that a stream must keep.
 * NULL with the call not ended: the lease's model cannot generate. An engine that was destroyed ends the call
 * with NIF_STOPPED. The second accepts no lease. */
weir_engine *nif_engine(nif_call *call, ERL_NIF_TERM term, nif_object **keeper);
nif_object *nif_own_engine(nif_call *call, ERL_NIF_TERM term);

nif_down nif_stream_down; /* stream.c */
nif_down nif_lease_down;  /* pool.c */

/* ---- model.c, chat.c, engine.c, request.c, sampler.c: options of several functions ---- */

/* A list of numbers; NULL for an empty one. */
const float *nif_shares(nif_call *call, ERL_NIF_TERM list, size_t *n);

/* Engine parameters from a map, except for draft_model. INVALID: there is no such strategy. */
weir_status nif_engine_options(nif_call *call, ERL_NIF_TERM map, weir_engine_params *params);

#define NIF_STOPS 64 /* stop strings, as weir_request has it */

/* A request, and the data of its pointers. */
typedef struct nif_request {
    weir_request request;
    weir_sampler_params sampler;
    const char *stops[NIF_STOPS];
    size_t stop_lengths[NIF_STOPS];
    bool keep;     /* can be forked after its end */
    bool progress; /* messages tell how far its prompt is */
    bool fork;     /* request.source is NULL if the source is no longer there */
} nif_request;

/* Reads a request from a map. nif_request_fini() in any case. */
void nif_request_read(nif_call *call, ERL_NIF_TERM map, nif_request *request);
void nif_request_fini(nif_request *request);

/* True if reading and submitting it takes longer than a normal scheduler should give. */
bool nif_request_long(nif_call *call, ERL_NIF_TERM map);

/* True if creating a sampler of these options takes that long. */
bool nif_sampling_long(nif_call *call, ERL_NIF_TERM map);

/* A list of {adapter, scale}, at most WEIR_ADAPTERS_MAX. */
weir_adapter_use *nif_adapters(nif_call *call, ERL_NIF_TERM list, size_t *n);

/* A list of media. */
weir_media **nif_media(nif_call *call, ERL_NIF_TERM list, size_t *n);

/* ---- The native functions: name, arity, scheduler ---- */

#define NIF_DECLARE(name, arity, flags) nif_fn nif_##name;
#define NIF_TABLE(X)                                                                                         \
    X(backend_version, 0, 0)                                                                                 \
    X(live_handles, 0, 0)                                                                                    \
    X(members, 1, 0)                                                                                         \
    X(log_to, 2, 0)                                                                                          \
    X(devices, 0, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                                \
    X(model_load, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                             \
    X(model_info, 1, 0)                                                                                      \
    X(vocab_is_eog, 2, 0)                                                                                    \
    X(tokenize, 4, 0)                                                                                        \
    X(detokenize, 2, 0)                                                                                      \
    X(token_to_piece, 2, 0)                                                                                  \
    X(context_create, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                        \
    X(context_n_ctx, 1, 0)                                                                                   \
    X(context_n_seq_max, 1, 0)                                                                               \
    X(prefill, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                               \
    X(decode_batch, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                          \
    X(adapter_load, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                           \
    X(memory_clear, 1, 0)                                                                                    \
    X(memory_seq_pos_max, 2, 0)                                                                              \
    X(embed_decode, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                          \
    X(get_embeddings, 3, 0)                                                                                  \
    X(embed, 4, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                                 \
    X(state_save, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                            \
    X(state_load, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                            \
    X(sampler_create, 2, 0)                                                                                  \
    X(sampler_accept, 2, 0)                                                                                  \
    X(sampler_reset, 1, 0)                                                                                   \
    X(sampler_sample_at, 3, 0)                                                                               \
    X(generate, 4, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                              \
    X(generate_tokens, 6, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                       \
    X(chat_create, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(chat_relaxed, 1, 0)                                                                                    \
    X(chat_reshaped, 1, 0)                                                                                   \
    X(chat_prompt, 1, 0)                                                                                     \
    X(chat_tokens, 1, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(media_create, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                          \
    X(chat_special_content, 1, 0)                                                                            \
    X(chat_parser, 1, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(chat_parser_feed, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                      \
    X(json_schema_to_grammar_nif, 1, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                            \
    X(engine_create, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                         \
    X(engine_submit_n, 5, 0)                                                                                 \
    X(engine_demand, 2, 0)                                                                                   \
    X(engine_cancel, 1, 0)                                                                                   \
    X(engine_interval, 2, 0)                                                                                 \
    X(engine_progress, 1, 0)                                                                                 \
    X(engine_view, 1, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(engine_turn, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(engine_stats, 1, 0)                                                                                    \
    X(engine_stop, 1, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                            \
    X(engine_destroy, 1, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                         \
    X(engine_usage, 1, 0)                                                                                    \
    X(engine_close, 1, 0)                                                                                    \
    X(engine_ticks, 2, 0)                                                                                    \
    X(engine_slots, 1, 0)                                                                                    \
    X(pool_create, 1, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                            \
    X(pool_set, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                              \
    X(pool_get, 2, 0)                                                                                        \
    X(pool_find, 2, 0)                                                                                       \
    X(pool_stats, 1, 0)                                                                                      \
    X(pool_set_memory, 2, 0)                                                                                 \
    X(pool_load, 2, 0)                                                                                       \
    X(pool_unload, 2, 0)                                                                                     \
    X(lease_create, 5, 0)                                                                                    \
    X(lease_share, 2, 0)                                                                                     \
    X(model_share, 2, 0)                                                                                     \
    X(lease_adapters, 1, 0)                                                                                  \
    X(lease_release, 1, 0)                                                                                   \
    X(hub_list, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                               \
    X(hub_resolve, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                            \
    X(hub_get, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                                \
    X(hub_download, 4, ERL_NIF_DIRTY_JOB_IO_BOUND)
NIF_TABLE(NIF_DECLARE)

#endif

/* nif.h: what the files of the native layer share. Each nif_NAME function is a line in the table at its end.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of the wrong type are an ArgumentError; values that weir refuses are {:error, message}.
 * Nothing here aborts. A normal scheduler never waits: what is busy, or long, moves to a dirty one. */
#ifndef WEIR_NIF_H
#define WEIR_NIF_H

#include <erl_nif.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/hub.h"
#include "weir/weir.h"

typedef ERL_NIF_TERM nif_fn(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);

/* The VM's free does not promise to take NULL. */
static inline void nif_free(void *memory)
{
    if (memory != NULL) enif_free(memory);
}

/* ---- term.c: terms in, terms out ---- */

typedef struct nif_tokens {
    int32_t *ids; /* [n]; nif_free */
    size_t n;
} nif_tokens;

/* false: the term is no such thing, or there is no memory. */
bool nif_get_bool(ErlNifEnv *env, ERL_NIF_TERM term, bool *value);
bool nif_get_i32(ErlNifEnv *env, ERL_NIF_TERM term, int32_t *value);
bool nif_get_float(ErlNifEnv *env, ERL_NIF_TERM term, float *value); /* too large: infinite */
bool nif_get_tokens(ErlNifEnv *env, ERL_NIF_TERM term, nif_tokens *tokens);

/* A binary without NUL bytes. */
bool nif_get_text(ErlNifEnv *env, ERL_NIF_TERM term, ErlNifBinary *text);

/* The same as a C string, to be freed with nif_free; nil gives NULL where `nil` allows. */
bool nif_get_string(ErlNifEnv *env, ERL_NIF_TERM term, bool nil, char **text);

/* Bytes of a binary, 0 of what is none. */
size_t nif_size(ErlNifEnv *env, ERL_NIF_TERM term);

/* Whether a list has more than `limit` elements; false for what is no list. */
bool nif_longer_than(ErlNifEnv *env, ERL_NIF_TERM list, size_t limit);

ERL_NIF_TERM nif_atom(ErlNifEnv *env, const char *name);
ERL_NIF_TERM nif_ok(ErlNifEnv *env, ERL_NIF_TERM term);
ERL_NIF_TERM nif_binary(ErlNifEnv *env, const char *text, size_t length);
ERL_NIF_TERM nif_number(ErlNifEnv *env, double number); /* -9999.0 for what Erlang has none for */
void nif_put(ErlNifEnv *env, ERL_NIF_TERM *map, const char *name, ERL_NIF_TERM value);
ERL_NIF_TERM nif_failed(ErlNifEnv *env, const char *message);
ERL_NIF_TERM nif_no_memory(ErlNifEnv *env);

/* {:error, "field: message"} of what weir said; status says it where error is empty. */
ERL_NIF_TERM nif_refused(ErlNifEnv *env, weir_status status, const weir_error *error);
ERL_NIF_TERM nif_status(ErlNifEnv *env, weir_status status, const weir_error *error); /* :ok or the above */

/* ---- map.c: options by name, and structs as maps ---- */

/* A member that the map has under another key. */
typedef struct nif_rename {
    const char *member, *key;
} nif_rename;

typedef struct nif_block nif_block;

typedef struct nif_map {
    ErlNifEnv *env;
    ERL_NIF_TERM term;
    const nif_rename *renames; /* ends with a member that is NULL; NULL = none */
    const char *wrong;         /* the first key whose value is of the wrong type; NULL = none */
    nif_block *blocks;         /* what the members that were read point to */
} nif_map;

/* Writes the members of a parameter struct, `of` as in weir_members(), that the map has, and nothing where it
 * has not. The caller reads those of WEIR_MEMBER_OTHER. map->wrong names a member that could not be read,
 * also when memory ran out. For a text or a list, nil counts as a missing key; for a 64-bit number :auto is
 * WEIR_AUTO. */
void nif_map_members(nif_map *map, const char *of, void *params);

/* Frees the texts and lists that members point to. */
void nif_map_fini(nif_map *map);

bool nif_map_term(nif_map *map, const char *name, ERL_NIF_TERM *value);

/* The same, and nothing for nil. */
bool nif_map_given(nif_map *map, const char *name, ERL_NIF_TERM *value);

/* A result as a map: the members that are numbers, flags or choices, by the rows of weir_members(of). */
ERL_NIF_TERM nif_map_of(ErlNifEnv *env, const char *of, const void *from);

/* ---- resource.c: handles as terms ---- */

typedef struct nif_corpse nif_corpse;

/* How every resource begins. What `handle` is depends on its type. `lock` keeps two processes from using one
 * handle at the same time; models need none. Order where several are taken: context, then samplers by
 * their addresses. */
typedef struct nif_object {
    void *handle;
    ErlNifMutex *lock;
    nif_corpse *corpse;
} nif_object;

typedef struct nif_model {
    nif_object object;
    weir_model_info info;
} nif_model;

typedef struct nif_context {
    nif_object object;
    weir_context_info info;
    size_t width; /* floats of an embedding */
} nif_context;

typedef struct nif_sampler {
    nif_object object;
    bool slow;  /* all that it does may take more than a normal scheduler should give */
    bool sorts; /* its draws may */
} nif_sampler;

/* Says to one generation that nobody wants more of it. */
typedef struct nif_halt {
    nif_object object; /* the lock is held while a message is sent, so that none is sent after a stop */
    bool stopped;
} nif_halt;

/* Its functions lock by themselves; the lock here is for those that drive a manual engine. */
typedef struct nif_engine {
    nif_object object;
} nif_engine;

/* A rendered conversation, and how its answer is read. Immutable. */
typedef struct nif_chat {
    nif_object object;
} nif_chat;

/* Reads one answer; its functions lock. */
typedef struct nif_parser {
    nif_object object;
} nif_parser;

/* One request's stream, whose chunks become messages. The lock protects the handle and what follows `to`: the
 * engine's thread, processes that ask for more, and the end of the consumer meet here. It is held for a few
 * instructions; messages are made without it, by the thread that has set `sending`. The handle is NULL once
 * the last of them was sent. */
typedef struct nif_stream {
    nif_object object;
    nif_engine *engine; /* kept until then */
    ErlNifPid to;
    int64_t credit;       /* messages that may be sent before more are asked for */
    int64_t n_sent;       /* tokens */
    int64_t width;        /* terms of a message for each token: with its likeliest alternatives */
    int64_t prompt_width; /* the same of the prompt's; 0 = nobody asked, or they were sent */
    bool fork;
    bool sending;      /* a thread makes messages of a chunk, whose next one only it may take */
    bool deaf;         /* the consumer has ended: nothing is sent any more */
    weir_usage usage;  /* at the end, when there is no handle to ask */
    weir_stream *kept; /* held for forks, as long as the resource is there; constant; NULL = not wanted */
} nif_stream;

/* Immutable. */
typedef struct nif_adapter {
    nif_object object;
} nif_adapter;

/* A list of {adapter, scale}; handles live as long as the term. */
typedef struct nif_adapters {
    weir_adapter_use uses[WEIR_ADAPTERS_MAX];
    size_t n;
} nif_adapters;

bool nif_get_adapters(ErlNifEnv *env, ERL_NIF_TERM list, nif_adapters *adapters); /* false: it is none */

typedef enum nif_kind {
    NIF_MODEL,
    NIF_CONTEXT,
    NIF_SAMPLER,
    NIF_HALT,
    NIF_ENGINE,
    NIF_STREAM,
    NIF_CHAT,
    NIF_PARSER,
    NIF_ADAPTER,
    NIF_KINDS,
} nif_kind;

bool nif_resources_open(ErlNifEnv *env);

/* A resource without a handle yet; NULL: no memory. nif_resource_term() gives it to the VM. */
void *nif_resource_new(nif_kind kind);
ERL_NIF_TERM nif_resource_term(ErlNifEnv *env, void *resource);
void nif_resource_drop(void *resource);
void *nif_resource_get(ErlNifEnv *env, ERL_NIF_TERM term, nif_kind kind); /* NULL: it is none */

static inline weir_model *nif_model_handle(const nif_model *model)
{
    return model->object.handle;
}
static inline weir_context *nif_context_handle(const nif_context *context)
{
    return context->object.handle;
}
static inline weir_sampler *nif_sampler_handle(const nif_sampler *sampler)
{
    return sampler->object.handle;
}

/* sampler.c: whether a sampler of these options takes longer to make than a normal scheduler should give. */
bool nif_sampling_long(ErlNifEnv *env, ERL_NIF_TERM term);

/* stream.c: what a stream's request has cost until now, also after its end; and as a map. */
weir_usage nif_stream_usage(nif_stream *stream);
ERL_NIF_TERM nif_usage_map(ErlNifEnv *env, const weir_usage *usage);

/* When a monitored process ends. */
void nif_stream_down(ErlNifEnv *env, void *resource, ErlNifPid *pid, ErlNifMonitor *monitor);

/* Takes one or two locks (either may be NULL). On a normal scheduler: false when that would wait. */
bool nif_lock(nif_context *context, nif_sampler *sampler);
void nif_unlock(nif_context *context, nif_sampler *sampler);

/* ---- nif.c ---- */

bool nif_on_normal_scheduler(void);

/* Calls fn, a nif_run_NAME, on a dirty scheduler, with the same arguments. */
ERL_NIF_TERM nif_dirty(ErlNifEnv *env, const char *name, nif_fn *fn, int argc, const ERL_NIF_TERM argv[]);

/* Called on a dirty scheduler by work that must go on when its caller dies, because other callers need it. */
void nif_uninterrupted(void);

/* nif_run_NAME is nif_NAME as the VM calls it. */
#define NIF_DECLARE(name, arity, flags) nif_fn nif_##name, nif_run_##name;
#define NIF_TABLE(X)                                                                                         \
    X(backend_init, 0, 0)                                                                                    \
    X(backend_free, 0, 0)                                                                                    \
    X(backend_version, 0, 0)                                                                                 \
    X(live_handles, 0, 0)                                                                                    \
    X(members, 1, 0)                                                                                         \
    X(log_to, 2, 0)                                                                                          \
    X(model_load, 9, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                             \
    X(model_n_ctx_train, 1, 0)                                                                               \
    X(model_n_embd, 1, 0)                                                                                    \
    X(model_desc, 1, 0)                                                                                      \
    X(model_size, 1, 0)                                                                                      \
    X(model_n_params, 1, 0)                                                                                  \
    X(model_chat_template, 1, 0)                                                                             \
    X(vocab_n_tokens, 1, 0)                                                                                  \
    X(vocab_bos, 1, 0)                                                                                       \
    X(vocab_eos, 1, 0)                                                                                       \
    X(vocab_is_eog, 2, 0)                                                                                    \
    X(tokenize, 4, 0)                                                                                        \
    X(detokenize, 2, 0)                                                                                      \
    X(token_to_piece, 2, 0)                                                                                  \
    X(context_create, 9, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                        \
    X(context_n_ctx, 1, 0)                                                                                   \
    X(context_n_seq_max, 1, 0)                                                                               \
    X(decode, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                                \
    X(prefill, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                               \
    X(decode_token, 4, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                          \
    X(decode_batch, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                          \
    X(batch_eval, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                            \
    X(adapter_load, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                           \
    X(context_set_adapters, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                  \
    X(memory_clear, 1, 0)                                                                                    \
    X(memory_seq_rm, 4, 0)                                                                                   \
    X(memory_seq_cp, 5, 0)                                                                                   \
    X(memory_seq_keep, 2, 0)                                                                                 \
    X(memory_seq_pos_max, 2, 0)                                                                              \
    X(embed_decode, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                          \
    X(get_embeddings, 3, 0)                                                                                  \
    X(embed, 4, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                                 \
    X(state_save, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                            \
    X(state_load, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                            \
    X(sampler_init, 11, 0)                                                                                   \
    X(sampler_create, 2, 0)                                                                                  \
    X(sampler_accept, 2, 0)                                                                                  \
    X(sampler_reset, 1, 0)                                                                                   \
    X(sampler_sample, 2, 0)                                                                                  \
    X(sampler_sample_at, 3, 0)                                                                               \
    X(generate, 4, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                              \
    X(generate_tokens, 6, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                       \
    X(generate_ref, 0, 0)                                                                                    \
    X(generate_stop, 1, 0)                                                                                   \
    X(chat_apply_template, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                   \
    X(chat_apply_template_jinja, 5, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                             \
    X(chat_create, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(chat_relaxed, 1, 0)                                                                                    \
    X(chat_prompt, 1, 0)                                                                                     \
    X(chat_tokens, 1, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(chat_special_content, 1, 0)                                                                            \
    X(chat_parser, 1, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(chat_parser_feed, 3, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                      \
    X(json_schema_to_grammar_nif, 1, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                            \
    X(engine_create, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                         \
    X(engine_submit, 4, 0)                                                                                   \
    X(engine_submit_n, 5, 0)                                                                                 \
    X(engine_demand, 2, 0)                                                                                   \
    X(engine_cancel, 1, 0)                                                                                   \
    X(engine_view, 1, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(engine_step, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(engine_turn, 2, ERL_NIF_DIRTY_JOB_CPU_BOUND)                                                           \
    X(engine_stats, 1, 0)                                                                                    \
    X(engine_drain, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                           \
    X(engine_stop, 1, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                            \
    X(engine_usage, 1, 0)                                                                                    \
    X(engine_close, 1, 0)                                                                                    \
    X(engine_ticks, 2, 0)                                                                                    \
    X(engine_slots, 1, 0)                                                                                    \
    X(hub_list, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                               \
    X(hub_resolve, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                            \
    X(hub_get, 2, ERL_NIF_DIRTY_JOB_IO_BOUND)                                                                \
    X(hub_download, 4, ERL_NIF_DIRTY_JOB_IO_BOUND)
NIF_TABLE(NIF_DECLARE)

#endif

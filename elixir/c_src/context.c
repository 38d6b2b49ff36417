/* context.c: contexts, forward passes, the memory of sequences, embeddings.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each function reads its arguments, locks the handles that it uses, makes one call of weir.h or more.h, and
 * turns its result into terms. A wrong argument is noted in the call, and the next lock then fails, so that
 * most functions check once. Calls that take long run on dirty schedulers: nif.h's table says which always
 * do, and the others move there when their context or vector is large (nif_move). A batch with several
 * samplers locks them in the order of their addresses, so that two calls cannot wait for each other.
 * nif_embed ends early when its caller has died or its time is over. */
#include <stdlib.h>

#include "nif.h"

/* Above it, a walk over all cells takes longer than a normal scheduler should give. */
#define CELLS_MAX 65536

/* context_create(model, options): the members of weir_context_params by their names */
ERL_NIF_TERM nif_context_create(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_context *context = NULL;
    weir_context_params params = weir_context_params_default();
    weir_model *model = nif_model(call, argv[0]);
    nif_options(call, argv[1], "context", NULL, &params);
    nif_object *object = nif_resource_new(call, NIF_CONTEXT);
    if (object == NULL) return 0;
    weir_status status = weir_context_create(model, &params, &context, &call->error);
    return nif_made(call, status, object, context);
}

static weir_context_info describe_context(const weir_context *context)
{
    weir_context_info info = {.size = sizeof info};
    (void)weir_context_describe(context, &info);
    return info;
}

ERL_NIF_TERM nif_context_n_ctx(nif_call *call, const ERL_NIF_TERM argv[])
{
    return enif_make_int(call->env, describe_context(nif_handle(call, argv[0], NIF_CONTEXT)).n_ctx);
}

ERL_NIF_TERM nif_context_n_seq_max(nif_call *call, const ERL_NIF_TERM argv[])
{
    return enif_make_int(call->env, describe_context(nif_handle(call, argv[0], NIF_CONTEXT)).n_seq_max);
}

/* ---- Forward passes ---- */

/* prefill(context, tokens, seq): appends them; {:ok, n_past} */
ERL_NIF_TERM nif_prefill(nif_call *call, const ERL_NIF_TERM argv[])
{
    int32_t n_past = 0, seq = nif_i32(call, argv[2]);
    nif_object *context = nif_resource(call, argv[0], NIF_CONTEXT);
    weir_tokens tokens = nif_tokens(call, argv[1]);
    if (!nif_lock(call, context)) return 0;
    weir_status status = weir_prefill(context->handle, tokens.ids, tokens.n, seq, &n_past, &call->error);
    return status == WEIR_OK ? nif_ok(call->env, enif_make_int(call->env, n_past)) : nif_status(call, status);
}

/* A list of {token, pos, seq, logits?} */
static weir_batch_entry *get_entries(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    const ERL_NIF_TERM *at;
    weir_batch_entry *entries = nif_list(call, list, sizeof *entries, n);
    for (size_t i = 0; nif_next_tuple(call, &list, 4, &at); i++)
        entries[i] = (weir_batch_entry){nif_i32(call, at[0]), nif_i32(call, at[1]), nif_i32(call, at[2]),
                                        nif_bool(call, at[3])};
    return entries;
}

/* The sampler of each entry, NULL for those without logits: from one sampler for all of them, or from a
 * list with a sampler or nil for each entry. */
static nif_object **get_samplers(nif_call *call, ERL_NIF_TERM term, const weir_batch_entry *entries, size_t n)
{
    size_t length = n;
    ERL_NIF_TERM head;
    nif_object *one = nif_resource_find(call->env, term, NIF_SAMPLER);
    nif_object **samplers =
        one != NULL ? nif_alloc(call, n * sizeof *samplers) : nif_list(call, term, sizeof *samplers, &length);
    if (length != n) nif_stop(call, NIF_WRONG);
    for (size_t i = 0; i < n && call->end == NIF_RESULT; i++) {
        samplers[i] = one;
        if (one == NULL && nif_next(call, &term, &head) && !nif_is(call->env, head, "nil"))
            samplers[i] = nif_resource(call, head, NIF_SAMPLER);
        if (!entries[i].logits) samplers[i] = NULL;
    }
    return samplers;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (nif_object *const *)a, y = (uintptr_t) * (nif_object *const *)b;
    return (x > y) - (x < y);
}

/* Locks the context and each sampler once, in the order of their addresses, in which `samplers` is sorted. */
static bool lock_samplers(nif_call *call, nif_object *context, nif_object **samplers, size_t n)
{
    if (!nif_lock(call, context)) return false;
    if (n > 0) qsort(samplers, n, sizeof *samplers, by_address);
    for (size_t i = 0; i < n; i++)
        if (samplers[i] != NULL && samplers[i] != call->locked && !nif_lock(call, samplers[i])) return false;
    return true;
}

/* decode_batch(context, sampler or [sampler or nil], entries): {:ok, [token or nil]}, one for each entry */
ERL_NIF_TERM nif_decode_batch(nif_call *call, const ERL_NIF_TERM argv[])
{
    size_t n;
    nif_object *context = nif_resource(call, argv[0], NIF_CONTEXT);
    const weir_batch_entry *entries = get_entries(call, argv[2], &n);
    nif_object **samplers = get_samplers(call, argv[1], entries, n);
    weir_sampler **handles = nif_alloc(call, n * sizeof *handles);
    int32_t *sampled = nif_alloc(call, n * sizeof *sampled);
    if (call->end != NIF_RESULT) return 0;
    for (size_t i = 0; i < n; i++) handles[i] = samplers[i] != NULL ? samplers[i]->handle : NULL;
    if (!lock_samplers(call, context, samplers, n)) return 0;
    weir_status status = weir_decode_batch(context->handle, entries, n, handles, sampled, &call->error);
    if (status != WEIR_OK) return nif_status(call, status);
    ERL_NIF_TERM list = enif_make_list(call->env, 0);
    for (size_t i = n; i-- > 0;) {
        ERL_NIF_TERM token =
            sampled[i] < 0 ? nif_atom(call->env, "nil") : enif_make_int(call->env, sampled[i]);
        list = enif_make_list_cell(call->env, token, list);
    }
    return nif_ok(call->env, list);
}

/* ---- The memory of sequences ---- */

/* Locks the context that a call's first argument is. NULL: the call ends otherwise. */
static weir_context *enter_context(nif_call *call, ERL_NIF_TERM term)
{
    nif_object *context = nif_resource(call, term, NIF_CONTEXT);
    if (context == NULL || (describe_context(context->handle).n_ctx > CELLS_MAX && nif_move(call)))
        return NULL;
    return nif_lock(call, context) ? context->handle : NULL;
}

ERL_NIF_TERM nif_memory_clear(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_context *context = enter_context(call, argv[0]);
    return context == NULL ? 0 : nif_status(call, weir_context_clear(context, &call->error));
}

/* memory_seq_pos_max(context, seq): -1 if it is empty */
ERL_NIF_TERM nif_memory_seq_pos_max(nif_call *call, const ERL_NIF_TERM argv[])
{
    int32_t seq = nif_i32(call, argv[1]);
    weir_context *context = enter_context(call, argv[0]);
    return context == NULL ? 0 : enif_make_int(call->env, weir_sequence_pos_max(context, seq));
}

/* state_save(context, seq): {:ok, bytes} */
ERL_NIF_TERM nif_state_save(nif_call *call, const ERL_NIF_TERM argv[])
{
    size_t length = 0;
    ErlNifBinary bytes;
    int32_t seq = nif_i32(call, argv[1]);
    nif_object *context = nif_resource(call, argv[0], NIF_CONTEXT);
    if (!nif_lock(call, context)) return 0;
    weir_status status = weir_state_save(context->handle, seq, NULL, 0, &length, &call->error);
    if (status != WEIR_TOO_LONG) return nif_status(call, status);
    if (!enif_alloc_binary(length, &bytes)) return nif_stop(call, NIF_NO_MEMORY);
    status = weir_state_save(context->handle, seq, bytes.data, bytes.size, &length, &call->error);
    if (status != WEIR_OK) {
        enif_release_binary(&bytes);
        return nif_status(call, status);
    }
    enif_realloc_binary(&bytes, length);
    return nif_ok(call->env, enif_make_binary(call->env, &bytes));
}

/* state_load(context, seq, bytes) */
ERL_NIF_TERM nif_state_load(nif_call *call, const ERL_NIF_TERM argv[])
{
    int32_t seq = nif_i32(call, argv[1]);
    ErlNifBinary bytes = nif_bytes(call, argv[2]);
    nif_object *context = nif_resource(call, argv[0], NIF_CONTEXT);
    if (!nif_lock(call, context)) return 0;
    return nif_status(call, weir_state_load(context->handle, seq, bytes.data, bytes.size, &call->error));
}

/* ---- Embeddings ---- */

/* Above it, making the list takes longer than a normal scheduler should give. */
#define WIDTH_MAX 8192

/* embed_decode(context, tokens, seq) */
ERL_NIF_TERM nif_embed_decode(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_object *context = nif_resource(call, argv[0], NIF_CONTEXT);
    weir_tokens tokens = nif_tokens(call, argv[1]);
    int32_t seq = nif_i32(call, argv[2]);
    if (!nif_lock(call, context)) return 0;
    return nif_status(call, weir_embed_decode(context->handle, tokens.ids, tokens.n, seq, &call->error));
}

static ERL_NIF_TERM vector_term(ErlNifEnv *env, const float *values, size_t width)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (size_t i = width; i-- > 0;)
        list = enif_make_list_cell(env, enif_make_double(env, (double)values[i]), list);
    return list;
}

/* get_embeddings(context, seq, normalize): {:ok, [float]} */
ERL_NIF_TERM nif_get_embeddings(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_object *context = nif_resource(call, argv[0], NIF_CONTEXT);
    int32_t seq = nif_i32(call, argv[1]), normalize = nif_i32(call, argv[2]);
    if (call->end != NIF_RESULT) return 0;
    if (normalize != WEIR_NORMALIZE_NONE && normalize != WEIR_NORMALIZE_MAX_ABS &&
        normalize != WEIR_NORMALIZE_L2)
        return nif_error(call, WEIR_INVALID, "normalize", "`normalize` is -1 (none), 0 (max-abs) or 2 (L2)");
    size_t width = weir_embedding_width(context->handle);
    if ((width > WIDTH_MAX && nif_move(call)) || !nif_lock(call, context)) return 0;
    float *values = nif_alloc(call, width * sizeof *values);
    if (values == NULL) return 0;
    weir_status status =
        weir_embeddings(context->handle, seq, (weir_normalize)normalize, values, width, &call->error);
    return status == WEIR_OK ? nif_ok(call->env, vector_term(call->env, values, width))
                             : nif_status(call, status);
}

/* ---- Many texts ---- */

/* A caller waits until it ends, or until this time. */
typedef struct patience {
    ErlNifPid self;
    int64_t until_ns; /* INT64_MAX: no limit */
} patience;

static bool is_over(void *user)
{
    patience *p = user;
    return enif_monotonic_time(ERL_NIF_NSEC) >= p->until_ns || !enif_is_process_alive(NULL, &p->self);
}

static patience get_patience(nif_call *call, ERL_NIF_TERM term)
{
    ErlNifSInt64 ms = 0;
    patience p = {.until_ns = INT64_MAX};
    if (enif_self(call->env, &p.self) == NULL) nif_stop(call, NIF_WRONG);
    if (nif_is(call->env, term, "infinity")) return p;
    if (!enif_get_int64(call->env, term, &ms) || ms < 0 || ms > UINT32_MAX)
        nif_stop(call, NIF_WRONG);
    else
        p.until_ns = enif_monotonic_time(ERL_NIF_NSEC) + ms * 1000000;
    return p;
}

static weir_tokens *get_inputs(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    ERL_NIF_TERM head;
    weir_tokens *inputs = nif_list(call, list, sizeof *inputs, n);
    for (size_t i = 0; nif_next(call, &list, &head); i++) inputs[i] = nif_tokens(call, head);
    return inputs;
}

/* embed(context, [tokens], normalize, timeout_ms or :infinity): {:ok, [[float]]} or {:error, :timeout}. A
 * pass takes as many texts as fit. Without pooling a text's vector is that of its last token, as in
 * get_embeddings. */
ERL_NIF_TERM nif_embed(nif_call *call, const ERL_NIF_TERM argv[])
{
    size_t n, n_rows = 0;
    weir_context_info info = {.size = sizeof info};
    nif_object *context = nif_resource(call, argv[0], NIF_CONTEXT);
    const weir_tokens *inputs = get_inputs(call, argv[1], &n);
    int32_t normalize = nif_i32(call, argv[2]);
    patience caller = get_patience(call, argv[3]);
    if (!nif_lock(call, context)) return 0;
    (void)weir_context_describe(context->handle, &info);
    size_t width = weir_embedding_width(context->handle);
    bool pooled = info.pooling != WEIR_POOLING_NONE;
    for (size_t i = 0; i < n; i++) n_rows += pooled ? 1 : inputs[i].n;
    float *values = nif_alloc(call, n_rows * width * sizeof *values);
    if (values == NULL) return 0;
    weir_interrupt_set(is_over, &caller);
    weir_status status = weir_embed(context->handle, inputs, n, (weir_normalize)normalize, values,
                                    n_rows * width, NULL, &call->error);
    nif_uninterrupted();
    if (status == WEIR_ABORTED) return nif_failed(call->env, WEIR_TIMEOUT);
    if (status != WEIR_OK) return nif_status(call, status);
    ERL_NIF_TERM list = enif_make_list(call->env, 0);
    for (size_t i = n, row = n_rows; i-- > 0; row -= pooled ? 1 : inputs[i].n) {
        ERL_NIF_TERM vector = vector_term(call->env, values + (row - 1) * width, width);
        list = enif_make_list_cell(call->env, vector, list);
    }
    return nif_ok(call->env, list);
}

/* context.c: contexts, forward passes, the memory of sequences.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "nif.h"

/* Above it, a walk over all cells takes longer than a normal scheduler should give. */
#define CELLS_MAX 65536

/* context_create(model, n_ctx, n_batch, n_ubatch, n_threads, n_threads_batch, embeddings, pooling_type,
 *                n_seq_max) */
ERL_NIF_TERM nif_context_create(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_context_params params = weir_context_params_default();
    weir_error error = {0};
    weir_context *handle = NULL;
    int32_t pooling;
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !nif_get_i32(env, argv[1], &params.n_ctx) ||
        !nif_get_i32(env, argv[2], &params.n_batch) || !nif_get_i32(env, argv[3], &params.n_ubatch) ||
        !nif_get_i32(env, argv[4], &params.n_threads) ||
        !nif_get_i32(env, argv[5], &params.n_threads_batch) ||
        !nif_get_bool(env, argv[6], &params.embeddings) || !nif_get_i32(env, argv[7], &pooling) ||
        !nif_get_i32(env, argv[8], &params.n_seq_max) || pooling < WEIR_POOLING_UNSPECIFIED ||
        pooling > WEIR_POOLING_RANK)
        return enif_make_badarg(env);
    params.pooling = (weir_pooling)pooling;

    nif_context *context = nif_resource_new(NIF_CONTEXT);
    if (context == NULL) return nif_no_memory(env);
    weir_status status = weir_context_create(nif_model_handle(model), &params, &handle, &error);
    if (status == WEIR_OK) {
        context->object.handle = handle;
        context->info.size = sizeof context->info;
        context->width = params.embeddings ? weir_embedding_width(handle) : 0;
        status = weir_context_describe(handle, &context->info);
    }
    if (status != WEIR_OK) {
        nif_resource_drop(context);
        return nif_refused(env, status, &error);
    }
    return nif_ok(env, nif_resource_term(env, context));
}

ERL_NIF_TERM nif_context_n_ctx(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    const nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    return context == NULL ? enif_make_badarg(env) : enif_make_int(env, context->info.n_ctx);
}

ERL_NIF_TERM nif_context_n_seq_max(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    const nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    return context == NULL ? enif_make_badarg(env) : enif_make_int(env, context->info.n_seq_max);
}

/* ---- Forward passes ---- */

static ERL_NIF_TERM append(ErlNifEnv *env, ERL_NIF_TERM ref, ERL_NIF_TERM list, int32_t seq, bool tell)
{
    weir_error error = {0};
    nif_tokens tokens;
    int32_t n_past;
    nif_context *context = nif_resource_get(env, ref, NIF_CONTEXT);
    if (context == NULL || !nif_get_tokens(env, list, &tokens)) return enif_make_badarg(env);
    nif_lock(context, NULL);
    weir_status status =
        weir_prefill(nif_context_handle(context), tokens.ids, tokens.n, seq, &n_past, &error);
    nif_unlock(context, NULL);
    nif_free(tokens.ids);
    if (status == WEIR_OK && tell) return nif_ok(env, enif_make_int(env, n_past));
    return nif_status(env, status, &error);
}

/* decode(context, tokens): appends them to sequence 0 */
ERL_NIF_TERM nif_decode(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    return append(env, argv[0], argv[1], 0, false);
}

/* prefill(context, tokens, seq): {:ok, n_past} */
ERL_NIF_TERM nif_prefill(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    int32_t seq;
    if (!nif_get_i32(env, argv[2], &seq)) return enif_make_badarg(env);
    return append(env, argv[0], argv[1], seq, true);
}

/* decode_token(context, token, pos, seq) */
ERL_NIF_TERM nif_decode_token(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    int32_t token, pos, seq;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &token) || !nif_get_i32(env, argv[2], &pos) ||
        !nif_get_i32(env, argv[3], &seq))
        return enif_make_badarg(env);
    nif_lock(context, NULL);
    weir_status status = weir_decode_token(nif_context_handle(context), token, pos, seq, &error);
    nif_unlock(context, NULL);
    return nif_status(env, status, &error);
}

/* A list of {token, pos, seq, logits?}; NULL: it is none, or there is no memory. */
static weir_batch_entry *get_entries(ErlNifEnv *env, ERL_NIF_TERM list, size_t *n)
{
    unsigned length;
    int arity;
    ERL_NIF_TERM head;
    const ERL_NIF_TERM *at;
    if (!enif_get_list_length(env, list, &length)) return NULL;
    weir_batch_entry *entries = enif_alloc(length > 0 ? length * sizeof *entries : 1);
    if (entries == NULL) return NULL;
    for (*n = 0; enif_get_list_cell(env, list, &head, &list); (*n)++) {
        weir_batch_entry *e = &entries[*n];
        if (!enif_get_tuple(env, head, &arity, &at) || arity != 4 || !nif_get_i32(env, at[0], &e->token) ||
            !nif_get_i32(env, at[1], &e->pos) || !nif_get_i32(env, at[2], &e->seq) ||
            !nif_get_bool(env, at[3], &e->logits)) {
            nif_free(entries);
            return NULL;
        }
    }
    return entries;
}

/* batch_eval(context, entries): one forward pass */
ERL_NIF_TERM nif_batch_eval(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    size_t n;
    weir_batch_entry *entries;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || (entries = get_entries(env, argv[1], &n)) == NULL) return enif_make_badarg(env);
    nif_lock(context, NULL);
    weir_status status = weir_batch_eval(nif_context_handle(context), entries, n, &error);
    nif_unlock(context, NULL);
    nif_free(entries);
    return nif_status(env, status, &error);
}

/* What decode_batch calls the library with: a row's sampler, or NULL, at its entry's place. */
typedef struct rows {
    weir_batch_entry *entries; /* [n] */
    nif_sampler **samplers;    /* [n] of the entries */
    nif_sampler **locked;      /* [n_locked] each once, by address: two callers take them in one order */
    weir_sampler **handles;    /* [n] */
    int32_t *sampled;          /* [n] */
    size_t n, n_locked;
} rows;

static void rows_fini(rows *r)
{
    nif_free(r->entries);
    nif_free(r->samplers);
    nif_free(r->locked);
    nif_free(r->handles);
    nif_free(r->sampled);
}

/* One sampler for all entries that have logits, or a list with a sampler or nil for each entry. */
static bool get_samplers(ErlNifEnv *env, ERL_NIF_TERM term, rows *r)
{
    nif_sampler *one = nif_resource_get(env, term, NIF_SAMPLER);
    ERL_NIF_TERM head;
    for (size_t i = 0; i < r->n; i++) {
        r->samplers[i] = one;
        if (one == NULL) {
            if (!enif_get_list_cell(env, term, &head, &term)) return false;
            r->samplers[i] = nif_resource_get(env, head, NIF_SAMPLER);
            if (r->samplers[i] == NULL && !enif_is_identical(head, nif_atom(env, "nil"))) return false;
        }
        if (!r->entries[i].logits) r->samplers[i] = NULL;
        r->handles[i] = r->samplers[i] != NULL ? nif_sampler_handle(r->samplers[i]) : NULL;
    }
    return one != NULL || enif_is_empty_list(env, term) != 0;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (nif_sampler *const *)a, y = (uintptr_t) * (nif_sampler *const *)b;
    return (x > y) - (x < y);
}

static void lock_rows(nif_context *context, rows *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->samplers[i] != NULL) r->locked[n++] = r->samplers[i];
    if (n > 0) qsort(r->locked, n, sizeof(nif_sampler *), by_address);
    nif_lock(context, NULL);
    for (size_t i = 0; i < n; i++) {
        if (r->n_locked > 0 && r->locked[r->n_locked - 1] == r->locked[i]) continue;
        r->locked[r->n_locked++] = r->locked[i];
        nif_lock(NULL, r->locked[i]);
    }
}

static void unlock_rows(nif_context *context, const rows *r)
{
    for (size_t i = r->n_locked; i-- > 0;) nif_unlock(NULL, r->locked[i]);
    nif_unlock(context, NULL);
}

static ERL_NIF_TERM decode_rows(ErlNifEnv *env, nif_context *context, rows *r)
{
    weir_error error = {0};
    lock_rows(context, r);
    weir_status status =
        weir_decode_batch(nif_context_handle(context), r->entries, r->n, r->handles, r->sampled, &error);
    unlock_rows(context, r);
    if (status != WEIR_OK) return nif_refused(env, status, &error);
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (size_t i = r->n; i-- > 0;) {
        ERL_NIF_TERM token = r->sampled[i] < 0 ? nif_atom(env, "nil") : enif_make_int(env, r->sampled[i]);
        list = enif_make_list_cell(env, token, list);
    }
    return nif_ok(env, list);
}

/* decode_batch(context, sampler or [sampler or nil], entries): {:ok, [token or nil]}, one for each entry */
ERL_NIF_TERM nif_decode_batch(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    rows r = {0};
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || (r.entries = get_entries(env, argv[2], &r.n)) == NULL)
        return enif_make_badarg(env);
    r.samplers = enif_alloc((r.n + 1) * sizeof(nif_sampler *));
    r.locked = enif_alloc((r.n + 1) * sizeof(nif_sampler *));
    r.handles = enif_alloc((r.n + 1) * sizeof(weir_sampler *));
    r.sampled = enif_alloc((r.n + 1) * sizeof *r.sampled);
    bool memory = r.samplers != NULL && r.locked != NULL && r.handles != NULL && r.sampled != NULL;
    ERL_NIF_TERM result = !memory                          ? nif_no_memory(env)
                          : get_samplers(env, argv[1], &r) ? decode_rows(env, context, &r)
                                                           : enif_make_badarg(env);
    rows_fini(&r);
    return result;
}

/* ---- The memory of sequences ---- */

/* false: the call has to move to a dirty scheduler. */
static bool enter(nif_context *context)
{
    if (context->info.n_ctx > CELLS_MAX && nif_on_normal_scheduler()) return false;
    return nif_lock(context, NULL);
}

ERL_NIF_TERM nif_memory_clear(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL) return enif_make_badarg(env);
    if (!enter(context)) return nif_dirty(env, "memory_clear", nif_run_memory_clear, argc, argv);
    weir_status status = weir_context_clear(nif_context_handle(context), &error);
    nif_unlock(context, NULL);
    return nif_status(env, status, &error);
}

/* memory_seq_rm(context, seq, from, to) */
ERL_NIF_TERM nif_memory_seq_rm(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    int32_t seq, from, to;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &seq) || !nif_get_i32(env, argv[2], &from) ||
        !nif_get_i32(env, argv[3], &to))
        return enif_make_badarg(env);
    if (!enter(context)) return nif_dirty(env, "memory_seq_rm", nif_run_memory_seq_rm, argc, argv);
    weir_status status = weir_sequence_remove(nif_context_handle(context), seq, from, to, &error);
    nif_unlock(context, NULL);
    return nif_status(env, status, &error);
}

/* memory_seq_cp(context, seq, to_seq, from, to) */
ERL_NIF_TERM nif_memory_seq_cp(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    int32_t seq, to_seq, from, to;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &seq) || !nif_get_i32(env, argv[2], &to_seq) ||
        !nif_get_i32(env, argv[3], &from) || !nif_get_i32(env, argv[4], &to))
        return enif_make_badarg(env);
    if (!enter(context)) return nif_dirty(env, "memory_seq_cp", nif_run_memory_seq_cp, argc, argv);
    weir_status status = weir_sequence_copy(nif_context_handle(context), seq, to_seq, from, to, &error);
    nif_unlock(context, NULL);
    return nif_status(env, status, &error);
}

/* memory_seq_keep(context, seq) */
ERL_NIF_TERM nif_memory_seq_keep(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    int32_t seq;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &seq)) return enif_make_badarg(env);
    if (!enter(context)) return nif_dirty(env, "memory_seq_keep", nif_run_memory_seq_keep, argc, argv);
    weir_status status = weir_sequence_keep(nif_context_handle(context), seq, &error);
    nif_unlock(context, NULL);
    return nif_status(env, status, &error);
}

/* memory_seq_pos_max(context, seq): -1 when it is empty */
ERL_NIF_TERM nif_memory_seq_pos_max(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    int32_t seq;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &seq)) return enif_make_badarg(env);
    if (!enter(context)) return nif_dirty(env, "memory_seq_pos_max", nif_run_memory_seq_pos_max, argc, argv);
    int32_t pos = weir_sequence_pos_max(nif_context_handle(context), seq);
    nif_unlock(context, NULL);
    return enif_make_int(env, pos);
}

/* state_save(context, seq): {:ok, bytes} */
ERL_NIF_TERM nif_state_save(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    ErlNifBinary bytes;
    size_t length = 0;
    int32_t seq;
    ERL_NIF_TERM result = 0;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &seq)) return enif_make_badarg(env);
    nif_lock(context, NULL);
    weir_status status = weir_state_save(nif_context_handle(context), seq, NULL, 0, &length, &error);
    if (status != WEIR_TOO_LONG) {
        result = nif_refused(env, status, &error);
    } else if (!enif_alloc_binary(length, &bytes)) {
        result = nif_no_memory(env);
    } else {
        status = weir_state_save(nif_context_handle(context), seq, bytes.data, bytes.size, &length, &error);
        if (status == WEIR_OK) {
            enif_realloc_binary(&bytes, length);
            result = nif_ok(env, enif_make_binary(env, &bytes));
        } else {
            enif_release_binary(&bytes);
            result = nif_refused(env, status, &error);
        }
    }
    nif_unlock(context, NULL);
    return result;
}

/* state_load(context, seq, bytes) */
ERL_NIF_TERM nif_state_load(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    ErlNifBinary bytes;
    int32_t seq;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &seq) || !enif_inspect_binary(env, argv[2], &bytes))
        return enif_make_badarg(env);
    nif_lock(context, NULL);
    weir_status status = weir_state_load(nif_context_handle(context), seq, bytes.data, bytes.size, &error);
    nif_unlock(context, NULL);
    return nif_status(env, status, &error);
}

/* embedding.c: embeddings of texts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

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

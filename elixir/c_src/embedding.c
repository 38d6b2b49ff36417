/* embedding.c: texts' vectors.
 * SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "nif.h"

/* Above it, the list takes longer than a normal scheduler should give. */
#define WIDTH_MAX 8192

/* embed_decode(context, tokens, seq) */
ERL_NIF_TERM nif_embed_decode(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    nif_tokens tokens;
    int32_t seq;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[2], &seq) || !nif_get_tokens(env, argv[1], &tokens))
        return enif_make_badarg(env);
    nif_lock(context, NULL);
    weir_status status = weir_embed_decode(nif_context_handle(context), tokens.ids, tokens.n, seq, &error);
    nif_unlock(context, NULL);
    nif_free(tokens.ids);
    return nif_status(env, status, &error);
}

static ERL_NIF_TERM vector_term(ErlNifEnv *env, const float *values, size_t width)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (size_t i = width; i-- > 0;)
        list = enif_make_list_cell(env, enif_make_double(env, (double)values[i]), list);
    return list;
}

/* get_embeddings(context, seq, normalize): {:ok, [float]} */
ERL_NIF_TERM nif_get_embeddings(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    weir_error error = {0};
    int32_t seq, normalize;
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    if (context == NULL || !nif_get_i32(env, argv[1], &seq) || !nif_get_i32(env, argv[2], &normalize))
        return enif_make_badarg(env);
    if (normalize != WEIR_NORMALIZE_NONE && normalize != WEIR_NORMALIZE_MAX_ABS &&
        normalize != WEIR_NORMALIZE_L2)
        return nif_failed(env, "normalize is -1 (none), 0 (max-abs) or 2 (L2)");
    if ((context->width > WIDTH_MAX && nif_on_normal_scheduler()) || !nif_lock(context, NULL))
        return nif_dirty(env, "get_embeddings", nif_run_get_embeddings, argc, argv);
    float *values = enif_alloc((context->width + 1) * sizeof *values);
    weir_status status = WEIR_NO_MEMORY;
    if (values != NULL)
        status = weir_embeddings(nif_context_handle(context), seq, (weir_normalize)normalize, values,
                                 context->width, &error);
    nif_unlock(context, NULL);
    ERL_NIF_TERM result;
    if (status == WEIR_OK) {
        result = nif_ok(env, vector_term(env, values, context->width));
    } else {
        result = nif_refused(env, status, &error);
    }
    nif_free(values);
    return result;
}

/* ---- Many texts ---- */

/* How long a caller waits: until it ends, or this time comes. */
typedef struct patience {
    ErlNifPid self;
    int64_t until_ns; /* INT64_MAX: for ever */
} patience;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool is_over(void *user)
{
    patience *p = user;
    return now_ns() >= p->until_ns || !enif_is_process_alive(NULL, &p->self);
}

static bool get_patience(ErlNifEnv *env, ERL_NIF_TERM term, patience *p)
{
    ErlNifSInt64 ms;
    p->until_ns = INT64_MAX;
    if (enif_self(env, &p->self) == NULL) return false;
    if (enif_is_identical(term, nif_atom(env, "infinity"))) return true;
    if (!enif_get_int64(env, term, &ms) || ms < 0 || ms > UINT32_MAX) return false;
    p->until_ns = now_ns() + ms * 1000000;
    return true;
}

typedef struct inputs {
    nif_tokens *tokens; /* [n] */
    weir_tokens *list;  /* [n], the same */
    size_t n, n_tokens;
} inputs;

static void inputs_fini(inputs *in)
{
    for (size_t i = 0; i < in->n; i++) nif_free(in->tokens[i].ids);
    nif_free(in->tokens);
    nif_free(in->list);
}

/* false: it is no list of lists of tokens, or there is no memory. inputs_fini in any case. */
static bool get_inputs(ErlNifEnv *env, ERL_NIF_TERM list, inputs *in)
{
    unsigned length;
    ERL_NIF_TERM head;
    *in = (inputs){0};
    if (!enif_get_list_length(env, list, &length)) return false;
    in->tokens = enif_alloc(((size_t)length + 1) * sizeof *in->tokens);
    in->list = enif_alloc(((size_t)length + 1) * sizeof *in->list);
    if (in->tokens == NULL || in->list == NULL) return false;
    for (; enif_get_list_cell(env, list, &head, &list); in->n++) {
        nif_tokens *tokens = &in->tokens[in->n];
        if (!nif_get_tokens(env, head, tokens)) return false;
        in->list[in->n] = (weir_tokens){tokens->ids, tokens->n};
        in->n_tokens += tokens->n;
    }
    return true;
}

/* One vector for each text; without pooling that of its last token, as get_embeddings has it. */
static ERL_NIF_TERM vectors_term(ErlNifEnv *env, const nif_context *context, const inputs *in,
                                 const float *values)
{
    bool each = context->info.pooling == WEIR_POOLING_NONE;
    ERL_NIF_TERM list = enif_make_list(env, 0);
    size_t row = each ? in->n_tokens : in->n;
    for (size_t i = in->n; i-- > 0;) {
        list = enif_make_list_cell(env, vector_term(env, values + (row - 1) * context->width, context->width),
                                   list);
        row -= each ? in->list[i].n : 1;
    }
    return list;
}

static ERL_NIF_TERM embed(ErlNifEnv *env, nif_context *context, const inputs *in, int32_t normalize,
                          patience *caller)
{
    weir_error error = {0};
    bool each = context->info.pooling == WEIR_POOLING_NONE;
    size_t n_floats = (each ? in->n_tokens : in->n) * context->width;
    float *values = enif_alloc((n_floats + 1) * sizeof *values);
    if (values == NULL) return nif_no_memory(env);
    nif_lock(context, NULL);
    weir_interrupt_set(is_over, caller);
    weir_status status = weir_embed(nif_context_handle(context), in->list, in->n, (weir_normalize)normalize,
                                    values, n_floats, NULL, &error);
    nif_uninterrupted();
    nif_unlock(context, NULL);
    ERL_NIF_TERM result = status == WEIR_OK ? nif_ok(env, vectors_term(env, context, in, values))
                          : status == WEIR_ABORTED
                              ? enif_make_tuple2(env, nif_atom(env, "error"), nif_atom(env, "timeout"))
                              : nif_refused(env, status, &error);
    nif_free(values);
    return result;
}

/* embed(context, [tokens], normalize, timeout_ms or infinity): {:ok, [[float]]}, as many texts as fit in one
 * pass; {:error, :timeout} */
ERL_NIF_TERM nif_embed(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    int32_t normalize;
    patience caller;
    inputs in = {0};
    nif_context *context = nif_resource_get(env, argv[0], NIF_CONTEXT);
    bool right = context != NULL && nif_get_i32(env, argv[2], &normalize) &&
                 get_patience(env, argv[3], &caller) && get_inputs(env, argv[1], &in);
    ERL_NIF_TERM result = right ? embed(env, context, &in, normalize, &caller) : enif_make_badarg(env);
    inputs_fini(&in);
    return result;
}

/* drafter.h: guesses how texts go on, so that several of a stream's tokens are computed in one pass. A guess
 * changes no text: each token is sampled from its own row by the stream's own sampler, and guesses are of use
 * as long as they equal the sampled tokens (ADR 0038).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SPECULATE_DRAFTER_H
#define WEIR_SPECULATE_DRAFTER_H

#include "cache/prefix_tree.h"
#include "model/model.h"
#include "params/bounds.h"
#include "speculate/acceptance.h"

typedef struct weir__drafter weir__drafter;

/* A stream's draft and its inputs. */
typedef struct weir__draft {
    int32_t slot;
    int32_t seq;           /* of the target's context, which holds all tokens but the last */
    uint64_t text;         /* a number that no other text of this slot had: tokens of the same only grow */
    const int32_t *tokens; /* [n_tokens], during the call */
    int32_t n_tokens;
    int32_t n_prompt;          /* of these, those before the answer */
    const int32_t *prediction; /* [n_prediction] of the answer by its caller; as long as the text */
    int32_t n_prediction;
    weir__prefix_key key; /* whose texts it may be drafted from; during the call */
    bool media;           /* some tokens are below zero: cells of images and sounds */
    bool shared;          /* false: from this text alone, and no other is drafted from it */
    int32_t most;         /* 1 … WEIR__DRAFT_MAX */
    int32_t n;
    int32_t token[WEIR__DRAFT_MAX];  /* [n]; no token that ends a text is among them */
    bool predicted;                  /* its tokens are the prediction's */
    double probability;              /* that all of its tokens are right; of none: 1 */
    double undo_ns[WEIR__DRAFT_MAX]; /* [n] expected time for undoing it up to here, with the preparation */
    weir__drafter *by;               /* who made it */
} weir__draft;

/* Data that the drafts of a tick share. */
typedef struct weir__drafting {
    weir__throughput throughput;
    int64_t room; /* tokens that all drafts together may still have */
} weir__drafting;

/* One thread at a time. */
typedef struct weir__drafter_ops {
    const char *name;
    bool media; /* drafts of texts with media, too */
    /* Fills drafts, [n] of different slots with n = 0 each, by weir__drafter_add; as many as are worth it,
     * which may be none. Never fails: without memory there are no drafts. */
    void (*draft)(weir__drafter *drafter, weir__draft *const *drafts, size_t n, weir__drafting *drafting);
    /* A draft of its own was computed: its first n_right tokens were right. NULL: it finds out for itself. */
    void (*judge)(weir__drafter *drafter, const weir__draft *draft, int32_t n_drafted, int32_t n_right);
    /* The text of the slot ends with these tokens; n and most are 0. Others may be drafted from it. NULL:
     * that is of no use. */
    void (*learn)(weir__drafter *drafter, const weir__draft *draft);
    void (*destroy)(weir__drafter *drafter);
} weir__drafter_ops;

struct weir__drafter {
    const weir__drafter_ops *ops;
    weir_model *target; /* whose texts these are; outlives it */
};

/* Adds a token that is right with this probability, all before it included. False: it is not worth it, or
 * there may be no more. */
static inline bool weir__drafter_add(const weir__drafter *drafter, weir__draft *draft, int32_t token,
                                     double probability, double own_ns, weir__drafting *drafting)
{
    const weir_model *target = drafter->target;
    weir__throughput *throughput = &drafting->throughput;
    double ns = throughput->ns + throughput->row_ns + own_ns;
    if (draft->n == draft->most || drafting->room < 1 || token < 0 /* a cell of an image */ ||
        target->ops->is_eog(target->model, token) ||
        !weir__throughput_raise(throughput, draft->n, draft->probability, probability, own_ns))
        return false;
    draft->probability = probability;
    draft->undo_ns[draft->n] = throughput->ns - ns + (draft->n > 0 ? draft->undo_ns[draft->n - 1] : 0);
    draft->token[draft->n++] = token;
    drafting->room--;
    return true;
}

/* Drafts from a stream's own prompt and answer, lookup.h, and within this memory from those of others,
 * corpus.h. NULL: out of memory. */
weir__drafter *weir__drafter_lookup(weir_model *target, int32_t n_slots, uint64_t n_bytes);

/* Drafts by a smaller model. params: the context that it gets, one sequence for each slot, of texts of at
 * most n_ctx tokens. Holds the model. */
weir_status weir__drafter_model(weir_model *target, weir_model *model, const weir_context_params *params,
                                int32_t n_ctx, weir__drafter **drafter, weir_error *error);

/* Drafts by a head of the target's context: a model that is one, or the target itself for layers of its own.
 * params: the context that it gets, with the target's sequences. Holds the model. The context outlives it. */
weir_status weir__drafter_head(weir_model *target, weir__bcontext *context, weir_model *model,
                               const weir_context_params *params, int32_t n_slots, weir__drafter **drafter,
                               weir_error *error);

/* Checks that the model's tokens are the target's. Errors: INVALID, UNSUPPORTED, field "draft_model". */
weir_status weir__drafter_model_check(const weir_model *target, const weir_model *model, weir_error *error);

#endif

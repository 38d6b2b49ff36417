/* speculate.c: which slots get drafts, and how long. Each tick, the drafters are asked in their order for the
 * slots that have no draft yet. Drafts stay within the KV cells that no request needs. They are halved, the
 * longest first, until the tick is worth its time and streams without a draft do not wait much longer. Later
 * the drafters learn how many tokens were right, and the text of a request that ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/speculate.h"

#include <stdio.h>

#include "base/error.h"
#include "base/mem.h"
#include "engine/prefix.h"
#include "model/context.h"

/* The factor by which drafts may lengthen a tick while a stream without a draft waits for its token. */
#define PATIENCE 1.25
/* A row costs at least this part of a pass. The cost learned from ticks with equal rows may be lower. */
#define ROW_LEAST 0.05

/* ---- Life ---- */

/* The model that drafts besides prompt lookup: a smaller one, a head, or the target for its MTP layers. NULL:
 * none. */
static weir_status find_draft_model(weir_model *target, const weir_engine_params *params, weir_model **model,
                                    weir_error *error)
{
    *model = NULL;
    if (params->n_draft_max == 0) return WEIR_OK;
    bool whole = weir__prefix_is_whole(target);
    if (whole && params->draft_model != NULL && params->draft_model->info.is_draft_head)
        return weir__error_set(error, WEIR_UNSUPPORTED, "draft_model",
                               "a head cannot draft for a model with recurrent layers: take a draft model "
                               "or leave `draft_model` out");
    if (params->draft_model != NULL)
        *model = params->draft_model;
    else if (!whole && params->mtp && target->info.n_layer_mtp > 0)
        *model = target;
    return WEIR_OK;
}

static bool is_head(const weir_engine_params *params, const weir_model *model)
{
    return params->draft_model == NULL || model->info.is_draft_head;
}

/* The parameters of its context, beside an engine's context with this info. */
static weir_context_params context_of(const weir_engine_params *params, const weir_context_info *info,
                                      bool head)
{
    weir_context_params context = weir_context_params_default();
    context.n_ctx = info->n_ctx;
    /* A head holds the tokens of the engine's context and its drafts. */
    if (head) context.n_ctx += params->n_slots * (1 + params->n_draft_max);
    context.n_batch = head ? info->n_batch : params->n_batch;
    context.n_ubatch = params->n_ubatch;
    context.n_seq_max = head ? info->n_seq_max : params->n_slots;
    context.n_threads = params->n_threads;
    context.n_threads_batch = params->n_threads_batch;
    context.layout =
        WEIR_LAYOUT_UNIFIED; /* texts need unequal numbers of tokens; with this layout they take one pass */
    context.type_k = params->type_k;
    context.type_v = params->type_v;
    return context;
}

static weir_status open_model(const weir__speculate *all, weir__bcontext *target, weir_model *model,
                              weir__drafter **drafter, weir_error *error)
{
    const weir_engine_params *params = all->params;
    bool head = is_head(params, model);
    weir_context_params context = context_of(params, all->info, head);
    return head ? weir__drafter_head(all->model, target, model, &context, params->n_slots, drafter, error)
                : weir__drafter_model(all->model, model, &context, params->n_ctx, drafter, error);
}

/* Names, in the error of a draft model that the caller did not ask for, the parameter that leaves it out. */
static weir_status blame_parameter(const weir_engine_params *params, weir_status status,
                                   const weir_error *why, weir_error *error)
{
    if (status != WEIR_OK && params->draft_model == NULL)
        return weir__error_wrap(error, why, status, "mtp", "`mtp` is true: ");
    if (status != WEIR_OK) weir__error_copy(error, why);
    return status;
}

weir_status weir__speculate_open(weir__speculate *all, weir__bcontext *context, weir_error *error)
{
    const weir_engine_params *params = all->params;
    weir_model *model;
    weir_error why = {0};
    weir_status status = find_draft_model(all->model, params, &model, error);
    if (status != WEIR_OK || params->n_draft_max == 0) return status;
    if (!params->prompt_lookup && model == NULL) return WEIR_OK;
    if (!weir__rollback_open(&all->rollback, all->cells->memory, all->model, params->n_slots)) goto no_memory;
    all->drafts = weir__mem_calloc((size_t)params->n_slots, sizeof *all->drafts);
    all->rows = weir__mem_calloc((size_t)all->info->n_seq_max, sizeof *all->rows);
    if (all->drafts == NULL || all->rows == NULL) goto no_memory;
    if (params->prompt_lookup) {
        all->drafters[all->n] = weir__drafter_lookup(all->model, params->n_slots, params->lookup_bytes);
        if (all->drafters[all->n] == NULL)
            return weir__error_set(error, WEIR_NO_MEMORY, "lookup_bytes",
                                   "out of memory for texts to draft from");
        all->n++;
    }
    if (model == NULL) return WEIR_OK;
    status = open_model(all, context, model, &all->drafters[all->n], &why);
    all->n += status == WEIR_OK;
    return blame_parameter(params, status, &why, error);
no_memory:
    return weir__error_set(error, WEIR_NO_MEMORY, "n_draft_max", "out of memory for drafts");
}

static weir_status estimate_drafter(weir_model *target, weir_model *model, const weir_engine_params *params,
                                    const weir_context_params *context, const weir_context_info *info,
                                    weir_engine_memory *memory, weir_error *error)
{
    bool head = is_head(params, model);
    weir_context_params drafts = context_of(params, info, head);
    weir_context_info its = {.size = sizeof its};
    uint64_t kv_bytes = 0, compute_bytes = 0;
    if (head && target->ops->head_estimate == NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED, "draft_model", "models of this kind have no heads");
    if (head)
        return target->ops->head_estimate(target->model, context, model->model, &drafts, &memory->kv_bytes,
                                          &memory->compute_bytes, error);
    weir_status status = weir__context_estimate(model, &drafts, &its, &kv_bytes, &compute_bytes, error);
    memory->kv_bytes += kv_bytes;
    memory->compute_bytes += compute_bytes;
    return status;
}

weir_status weir__speculate_estimate(weir_model *target, const weir_engine_params *params,
                                     const weir_context_params *context, const weir_context_info *info,
                                     weir_engine_memory *memory, weir_error *error)
{
    weir_model *model, *outline = NULL;
    weir_error why = {0};
    weir_status status = find_draft_model(target, params, &model, error);
    if (status != WEIR_OK) return status;
    if (params->n_draft_max > 0 && (params->prompt_lookup || model != NULL))
        memory->kv_bytes += weir__rollback_bytes(target, params->n_slots);
    if (model == NULL) return status;
    if (model == target)
        outline = weir_model_hold(target);
    else {
        memory->model_bytes += model->info.n_bytes;
        status = weir__drafter_model_check(target, model, error);
        if (status == WEIR_OK) status = weir__model_outline(model->path, NULL, &outline, error);
        if (status != WEIR_OK) return status;
    }
    status = estimate_drafter(target, outline, params, context, info, memory, &why);
    weir_model_release(outline);
    return blame_parameter(params, status, &why, error);
}

void weir__speculate_name(const weir__speculate *all, char *names, size_t capacity)
{
    size_t n = 0;
    names[0] = '\0';
    for (int32_t i = 0; i < all->n && n < capacity; i++)
        n += (size_t)snprintf(names + n, capacity - n, "%s%s", i > 0 ? "+" : "", all->drafters[i]->ops->name);
}

static void destroy_drafters(weir__speculate *all)
{
    while (all->n > 0) {
        weir__drafter *drafter = all->drafters[--all->n];
        drafter->ops->destroy(drafter);
    }
}

bool weir__speculate_use(weir__speculate *all, weir__drafter *drafter)
{
    if (all->n == 0) return false;
    destroy_drafters(all);
    all->drafters[all->n++] = drafter;
    return true;
}

void weir__speculate_close(weir__speculate *all)
{
    destroy_drafters(all);
    weir__rollback_close(&all->rollback);
    weir__mem_free(all->drafts);
    weir__mem_free(all->rows);
}

/* ---- The tick so far ---- */

static bool slot_generates(const weir__speculate *all, const weir__slot *slot)
{
    return slot->state == WEIR_SLOT_GENERATING && slot->reason == WEIR_REASON_NOT_FINISHED &&
           weir__turns_has(all->turns, slot);
}

int32_t weir__speculate_passes(const weir__speculate *all, int32_t *rows)
{
    const weir_context_info *info = all->info;
    int32_t n = 0;
    if (info->layout == WEIR_LAYOUT_PER_SLOT || !weir__prefix_is_whole(all->model))
        return weir__cost_passes(rows, info->n_seq_max, info->n_ubatch, info->layout);
    /* Recurrent layers take equally many rows of each sequence, as lanes do, in a pool of any sequences. */
    for (int32_t seq = 0; seq < info->n_seq_max; seq++)
        if (rows[seq] > 0) rows[n++] = rows[seq];
    return weir__cost_passes(rows, n, info->n_ubatch, WEIR_LAYOUT_PER_SLOT);
}

/* The time of the generating slots' rows, with their drafts, and for undoing these. */
static double tick_ns(const weir__speculate *all, const weir_cost *cost)
{
    int32_t *rows = all->rows, n_rows = 0;
    double n_context_k = 0, undo_ns = 0;
    for (int32_t lane = 0; lane < all->lanes->n; lane++) {
        const weir__slot *slot = all->lanes->slot[lane];
        rows[lane] = slot != NULL && slot_generates(all, slot) ? 1 + slot->draft.n : 0;
        n_rows += rows[lane];
        if (rows[lane] > 0) n_context_k += weir__cost_context_k(slot->n_past, rows[lane]);
        if (rows[lane] > 1) undo_ns += slot->draft.undo_ns[slot->draft.n - 1];
    }
    int32_t n_passes = weir__speculate_passes(all, rows);
    return weir_cost_tick_ns(cost, n_passes, n_rows, 0, n_context_k) + undo_ns;
}

/* ---- Drafts ---- */

/* A draft for the slot, with no tokens yet. */
static weir__draft draft_of(const weir__slot *slot)
{
    const weir__request *request = slot->request;
    return (weir__draft){.slot = slot->index,
                         .seq = slot->lane,
                         .text = request->serial,
                         .tokens = request->history.tokens,
                         .n_tokens = request->history.n_tokens,
                         .n_prompt = request->history.n_prompt,
                         .prediction = request->prediction,
                         .n_prediction = request->n_prediction,
                         .key = weir__history_key(&request->history),
                         .media = request->history.n_spans > 0,
                         .probability = 1,
                         .shared = request->cache_prompt};
}

/* Prepares the slot's draft. False: it gets none, or has one that is not used yet. */
static bool prepare_draft(const weir__speculate *all, weir__slot *slot)
{
    weir__draft *draft = &slot->draft;
    const weir__request *request = slot->request;
    if (draft->text == request->serial && draft->n_tokens == request->history.n_tokens) return false;
    *draft = draft_of(slot);
    draft->most = all->params->n_draft_max;
    if (request->n_draft_max >= 0 && request->n_draft_max < draft->most) draft->most = request->n_draft_max;
    /* the row after the draft gives a token, too */
    if (draft->most > request->max_tokens - request->n_generated - 1)
        draft->most = request->max_tokens - request->n_generated - 1;
    return draft->most > 0;
}

/* Shortens drafts until the whole tick is worth its time: with lanes it may need more passes. Streams without
 * a draft shall not wait much longer. */
static void shorten_drafts(const weir__speculate *all, const weir_cost *cost, int32_t n_streams,
                           double tokens, double alone_ns)
{
    for (;;) {
        weir__slot *longest = NULL;
        int32_t n_without = 0;
        for (weir__slot *slot = all->slots.first; slot < all->slots.end; slot++) {
            if (!slot_generates(all, slot)) continue;
            n_without += slot->draft.n == 0;
            if (slot->draft.n > 0 && (longest == NULL || slot->draft.n > longest->draft.n)) longest = slot;
        }
        if (longest == NULL) return;
        double ns = tick_ns(all, cost);
        if (n_without == 0 ? tokens * alone_ns > n_streams * ns : ns <= PATIENCE * alone_ns) return;
        longest->draft.n /= 2;
    }
}

/* The first of the drafts, those of texts without media. */
static size_t without_media(weir__draft **drafts, size_t n)
{
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++)
        if (!drafts[i]->media) drafts[n_left++] = drafts[i];
    return n_left;
}

void weir__speculate_draft(weir__speculate *all)
{
    weir_cost cost = weir__cost_get(all->cost);
    size_t n = 0;
    int32_t n_streams = 0;
    double n_context_k = 0;
    all->rollback.spent_ns = 0;
    if (all->n == 0) return;
    int64_t room = all->crowded ? 0 : weir__cells_left(all->cells);
    for (weir__slot *slot = all->slots.first; slot < all->slots.end; slot++) {
        if (!slot_generates(all, slot)) continue;
        n_streams++;
        n_context_k += weir__cost_context_k(slot->n_past, 1);
        if (room > 0 && prepare_draft(all, slot)) all->drafts[n++] = &slot->draft;
        if (slot->draft.n > room)
            slot->draft.n = room > 0 ? (int32_t)room : 0; /* the room has shrunk since */
        room -= slot->draft.n;
    }
    if (n == 0) return;
    double alone_ns = tick_ns(all, &cost);
    weir__drafting drafting = {
        .room = room,
        .throughput = {.tokens = n_streams,
                       .ns = alone_ns,
                       .row_ns = cost.decode_ns + cost.context_ns * n_context_k / n_streams,
                       .replays = all->rollback.marks != NULL,
                       .mark_ns = all->rollback.mark_ns,
                       .undo_ns = all->rollback.undo_ns},
    };
    if (drafting.throughput.row_ns < ROW_LEAST * cost.pass_ns)
        drafting.throughput.row_ns = ROW_LEAST * cost.pass_ns;
    for (int32_t d = 0; d < all->n; d++) {
        weir__drafter *drafter = all->drafters[d];
        if (!drafter->ops->media) n = without_media(all->drafts, n);
        drafter->ops->draft(drafter, all->drafts, n, &drafting);
        size_t n_left = 0;
        for (size_t i = 0; i < n; i++) {
            if (all->drafts[i]->n > 0)
                all->drafts[i]->by = drafter;
            else
                all->drafts[n_left++] = all->drafts[i];
        }
        n = n_left;
    }
    shorten_drafts(all, &cost, n_streams, drafting.throughput.tokens, alone_ns);
}

bool weir__speculate_shrink(weir__speculate *all)
{
    bool drafted = false;
    for (const weir__slot *slot = all->slots.first; slot < all->slots.end; slot++)
        drafted |= slot->n_drafted > 0;
    all->crowded |= drafted;
    return drafted;
}

void weir__speculate_judge(const weir__draft *draft, int32_t n_drafted, int32_t n_right)
{
    if (draft->by->ops->judge != NULL) draft->by->ops->judge(draft->by, draft, n_drafted, n_right);
}

void weir__speculate_learn(const weir__speculate *all, const weir__slot *slot)
{
    if (slot->state != WEIR_SLOT_GENERATING || slot->reason == WEIR_REASON_ERROR) return;
    weir__draft draft = draft_of(slot);
    for (int32_t i = 0; i < all->n; i++) {
        weir__drafter *drafter = all->drafters[i];
        if (drafter->ops->learn != NULL) drafter->ops->learn(drafter, &draft);
    }
}

/* prompt_lookup.c: the drafter that looks into the stream's own text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "speculate/drafter.h"
#include "speculate/lookup.h"

typedef struct slot {
    weir__lookup lookup;
    uint64_t text; /* which one it has read; UINT64_MAX = none */
} slot;

typedef struct prompt_lookup {
    weir__drafter base;
    int32_t n_slots;
    slot slots[]; /* [n_slots] */
} prompt_lookup;

static void lookup_draft(prompt_lookup *all, weir__draft *draft, weir__drafting *drafting)
{
    slot *s = &all->slots[draft->slot];
    int32_t tokens[WEIR__DRAFT_MAX];
    double hope[WEIR__DRAFT_MAX], probability = 1;
    if (s->text != draft->text) weir__lookup_reset(&s->lookup);
    s->text = draft->text;
    if (!weir__lookup_read(&s->lookup, draft->tokens, draft->n_tokens)) return;
    int32_t n = weir__lookup_draft(&s->lookup, draft->tokens, draft->most, tokens, hope);
    for (int32_t i = 0; i < n; i++) {
        probability *= hope[i];
        if (!weir__drafter_add(&all->base, draft, tokens[i], probability, 0, drafting)) break;
    }
}

static void draft_by_lookup(weir__drafter *drafter, weir__draft *const *drafts, size_t n,
                            weir__drafting *drafting)
{
    for (size_t i = 0; i < n; i++) lookup_draft((prompt_lookup *)drafter, drafts[i], drafting);
}

static void destroy_lookup(weir__drafter *drafter)
{
    prompt_lookup *all = (prompt_lookup *)drafter;
    for (int32_t i = 0; i < all->n_slots; i++) weir__lookup_fini(&all->slots[i].lookup);
    weir__mem_free(all);
}

weir__drafter *weir__drafter_lookup(weir_model *target, int32_t n_slots)
{
    static const weir__drafter_ops ops = {
        .name = "lookup", .draft = draft_by_lookup, .destroy = destroy_lookup};
    prompt_lookup *all = weir__mem_calloc(1, sizeof *all + (size_t)n_slots * sizeof all->slots[0]);
    if (all == NULL) return NULL;
    all->base = (weir__drafter){.ops = &ops, .target = target};
    all->n_slots = n_slots;
    for (int32_t i = 0; i < n_slots; i++) {
        weir__lookup_init(&all->slots[i].lookup);
        all->slots[i].text = UINT64_MAX;
    }
    return &all->base;
}

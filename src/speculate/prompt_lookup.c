/* prompt_lookup.c: the drafter that looks into the stream's own text, those of others, and the request's
 * prediction.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "speculate/corpus.h"
#include "speculate/drafter.h"
#include "speculate/lookup.h"

typedef struct slot {
    weir__lookup own;
    weir__prediction prediction;
    weir__corpus_reader others; /* closed: the text is not shared, or there is no corpus */
    uint64_t text;              /* which one it has read; UINT64_MAX = none */
} slot;

typedef struct prompt_lookup {
    weir__drafter base;
    weir__corpus *corpus; /* NULL = from own texts only */
    int32_t n_slots;
    slot slots[]; /* [n_slots] */
} prompt_lookup;

static void leave_text(prompt_lookup *all, slot *s)
{
    weir__lookup_reset(&s->own);
    if (all->corpus != NULL) weir__corpus_close(all->corpus, &s->others);
    s->text = UINT64_MAX;
}

/* Reads on, or from the beginning if this is another text. */
static slot *read_text(prompt_lookup *all, const weir__draft *draft)
{
    slot *s = &all->slots[draft->slot];
    if (s->text != draft->text) {
        leave_text(all, s);
        s->text = draft->text;
        weir__prediction_init(&s->prediction, draft->prediction, draft->n_prediction);
        if (all->corpus != NULL && draft->shared) weir__corpus_open(all->corpus, &s->others, &draft->key);
    }
    if (s->others.key != NULL) weir__corpus_read(all->corpus, &s->others, draft->tokens, draft->n_tokens);
    weir__prediction_read(&s->prediction, draft->tokens + draft->n_prompt, draft->n_tokens - draft->n_prompt);
    return s;
}

/* The longer match is right more often; of equal ones the prediction is, and then the own text. */
static int32_t choose_draft(const prompt_lookup *all, slot *s, weir__draft *draft, int32_t *tokens,
                            double *hope)
{
    int32_t other[WEIR__DRAFT_MAX];
    double other_hope[WEIR__DRAFT_MAX];
    bool read = weir__lookup_read(&s->own, draft->tokens, draft->n_tokens);
    int32_t n = read ? weir__lookup_draft(&s->own, draft->tokens, draft->most, tokens, hope) : 0;
    int32_t n_other = s->others.key != NULL
                          ? weir__corpus_draft(all->corpus, &s->others, draft->most, other, other_hope)
                          : 0;
    int32_t length = n > 0 ? s->own.length : 0, other_length = n_other > 0 ? s->others.length : 0;
    if (s->prediction.length >= length && s->prediction.length >= other_length)
        draft->predicted = weir__prediction_draft(&s->prediction, draft->most, tokens, hope, &n);
    if (draft->predicted || n_other == 0 || length >= other_length) return n;
    memcpy(tokens, other, (size_t)n_other * sizeof *tokens);
    memcpy(hope, other_hope, (size_t)n_other * sizeof *hope);
    return n_other;
}

static void draft_text(prompt_lookup *all, weir__draft *draft, weir__drafting *drafting)
{
    int32_t tokens[WEIR__DRAFT_MAX];
    double hope[WEIR__DRAFT_MAX], probability = 1;
    int32_t n = choose_draft(all, read_text(all, draft), draft, tokens, hope);
    for (int32_t i = 0; i < n; i++) {
        probability *= hope[i];
        if (!weir__drafter_add(&all->base, draft, tokens[i], probability, 0, drafting)) break;
    }
    draft->predicted = draft->predicted && draft->n > 0;
}

static void draft_texts(weir__drafter *drafter, weir__draft *const *drafts, size_t n,
                        weir__drafting *drafting)
{
    for (size_t i = 0; i < n; i++) draft_text((prompt_lookup *)drafter, drafts[i], drafting);
}

static void learn_text(weir__drafter *drafter, const weir__draft *draft)
{
    prompt_lookup *all = (prompt_lookup *)drafter;
    leave_text(all, read_text(all, draft));
}

static void destroy_lookup(weir__drafter *drafter)
{
    prompt_lookup *all = (prompt_lookup *)drafter;
    for (int32_t i = 0; i < all->n_slots; i++) {
        leave_text(all, &all->slots[i]);
        weir__lookup_fini(&all->slots[i].own);
    }
    weir__corpus_destroy(all->corpus);
    weir__mem_free(all);
}

weir__drafter *weir__drafter_lookup(weir_model *target, int32_t n_slots, uint64_t n_bytes)
{
    static const weir__drafter_ops ops = {.name = "lookup",
                                          .media = true,
                                          .draft = draft_texts,
                                          .learn = learn_text,
                                          .destroy = destroy_lookup};
    prompt_lookup *all = weir__mem_calloc(1, sizeof *all + (size_t)n_slots * sizeof all->slots[0]);
    if (all == NULL) return NULL;
    all->base = (weir__drafter){.ops = &ops, .target = target};
    all->n_slots = n_slots;
    for (int32_t i = 0; i < n_slots; i++) {
        weir__lookup_init(&all->slots[i].own);
        all->slots[i].text = UINT64_MAX;
    }
    if (n_bytes < WEIR__CORPUS_LEAST) return &all->base;
    all->corpus = weir__corpus_create(n_bytes);
    if (all->corpus != NULL) return &all->base;
    destroy_lookup(&all->base);
    return NULL;
}

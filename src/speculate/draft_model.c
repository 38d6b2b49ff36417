/* draft_model.c: the drafter that asks a smaller model of the same vocabulary, or a head of the target.
 *
 * A model has a context of its own with a sequence for each slot. The tokens of a sequence are compared with
 * the slot's text whenever a draft is wanted: those that differ are cut off, missing ones are computed. So no
 * change of the target's sequences (moves between lanes, shared prefixes, suspension, refused drafts) needs
 * to be mirrored here.
 *
 * A head's context has the target's sequences and follows them by itself: it reads what the target's layers
 * say of a token, which is there once, when the target computes it. Here it is asked for guesses only.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "model/sampler.h"
#include "speculate/drafter.h"

/* Tokens of texts that a tick computes here besides drafts: streams wait for them. Longer texts are caught up
 * with over several ticks, which have no draft. */
#define CATCH_UP 256
/* Vocabularies of one family are padded to different lengths. */
#define PADDING 128
/* Pauses, in tokens, before one token is tried where drafts do not pay; the pause doubles with each wrong
 * one. */
#define PAUSE_LEAST 16
#define PAUSE_MOST  1024
#define NEWEST      0.1 /* weight of the newest measurement of its own cost */

/* Rates by place in the draft: a model that was right so far is likely to be right again. */
static const double prior_rates[WEIR__ACCEPTANCE_CLASSES] = {0.6, 0.7, 0.7, 0.75, 0.8, 0.8};

/* Invariant, of a model: the sequence holds held[0 … n_held - 1], and the first n_same of them are the
 * text's. */
typedef struct slot {
    int32_t *held; /* [n_ctx]; a head's: NULL */
    int32_t n_held, n_same;
    uint64_t text; /* whose acceptance this is */
    weir__acceptance acceptance;
    int32_t pause, tried_at; /* the next try is when the text has tried_at + pause tokens */
    bool trial;              /* this draft is one */
    bool done;               /* it gets no more tokens */
    int32_t row;             /* of this pass, -1 = none */
    double probability;
} slot;

typedef struct draft_model {
    weir__drafter base;
    weir_model *model;
    weir__bcontext *context;
    bool is_head;
    weir_context_info info;
    weir__bsampler *greedy;
    weir__batch batch;
    int32_t *tokens; /* the block behind the slots' */
    int32_t n_ctx;   /* positions of a slot, by the draft model */
    double token_ns; /* time for a token of a draft; 0 = not known */
    int32_t n_slots;
    slot slots[]; /* [n_slots] */
} draft_model;

static int place_class(int32_t place)
{
    return place < 3 ? place : place < 5 ? 3 : place < 9 ? 4 : 5;
}

/* ---- Text ---- */

static void meet_text(slot *s, const weir__draft *draft)
{
    if (s->text == draft->text) return;
    s->text = draft->text;
    s->n_same = 0;
    s->pause = PAUSE_LEAST;
    s->tried_at = draft->n_tokens;
    weir__acceptance_init(&s->acceptance, prior_rates);
}

/* Cuts the sequence back to the prefix it shares with the text, without the text's last token, whose row is
 * needed. False: this text cannot be read. */
static bool align_text(draft_model *m, slot *s, const weir__draft *draft)
{
    const weir__backend *ops = m->model->ops;
    int32_t most = draft->n_tokens - 1, n = s->n_same < most ? s->n_same : most;
    if (draft->n_tokens + draft->most > m->n_ctx) return false;
    while (n < s->n_held && n < most && s->held[n] == draft->tokens[n]) n++;
    for (int32_t i = n; i < draft->n_tokens; i++)
        if (draft->tokens[i] >= m->model->info.n_vocab) return false;
    if (n < s->n_held && !ops->seq_remove(m->context, draft->slot, n, -1)) {
        ops->seq_remove(m->context, draft->slot, 0, -1);
        n = 0;
    }
    s->n_held = s->n_same = n;
    return true;
}

/* Puts missing tokens into the batch, as far as there is room. */
static void feed_text(draft_model *m, slot *s, const weir__draft *draft, int32_t *room)
{
    int32_t n = draft->n_tokens - s->n_held;
    if (n > *room) n = *room;
    *room -= n;
    for (; n > 0; n--) {
        int32_t pos = s->n_held, token = draft->tokens[pos];
        bool last = pos == draft->n_tokens - 1;
        int32_t row = weir__batch_add(&m->batch, token, pos, draft->slot, last);
        if (last) s->row = row;
        s->held[s->n_held++] = token;
    }
    s->n_same = s->n_held;
}

static int32_t seq_of(const draft_model *m, const weir__draft *draft)
{
    return m->is_head ? draft->seq : draft->slot;
}

/* A head needs the row of the text's last token only. False: it lacks the states of the token before. */
static bool ask_head(draft_model *m, slot *s, const weir__draft *draft)
{
    int32_t last = draft->n_tokens - 1;
    if (m->model->ops->seq_pos_max(m->context, draft->seq) != last - 1 ||
        draft->tokens[last] >= m->model->info.n_vocab || m->batch.n == m->batch.capacity)
        return false;
    s->row = weir__batch_add(&m->batch, draft->tokens[last], last, draft->seq, true);
    return true;
}

/* Forgets the texts of the sequences, whose content is unknown after a failed pass. */
static void forget_texts(draft_model *m)
{
    m->model->ops->clear(m->context);
    for (int32_t i = 0; i < m->n_slots; i++) m->slots[i].n_held = m->slots[i].n_same = 0;
}

/* ---- Drafts ---- */

/* True if one more token is worth a pass for it. */
static bool token_pays(const draft_model *m, const slot *s, int32_t place, const weir__drafting *drafting)
{
    weir__throughput throughput = drafting->throughput;
    double probability = s->probability * weir__acceptance_rate(&s->acceptance, place_class(place));
    return weir__throughput_raise(&throughput, place, s->probability, probability, m->token_ns);
}

/* The first pass: the texts. Returns whether it takes longer than others: it catches up. */
static bool begin_drafts(draft_model *m, weir__draft *const *drafts, size_t n, const weir__drafting *drafting)
{
    int32_t room = m->batch.capacity < CATCH_UP ? m->batch.capacity : CATCH_UP;
    bool catches_up = false;
    for (size_t i = 0; i < n; i++) {
        const weir__draft *draft = drafts[i];
        slot *s = &m->slots[draft->slot];
        catches_up |= m->is_head && s->text != draft->text; /* with the part of its prompt that waits */
        meet_text(s, draft);
        s->row = -1;
        s->probability = 1;
        s->trial = !token_pays(m, s, 0, drafting);
        s->done = drafting->room < 1 || room < 1 || (s->trial && draft->n_tokens - s->tried_at < s->pause) ||
                  !(m->is_head ? ask_head(m, s, draft) : align_text(m, s, draft));
        if (!s->done && !m->is_head) feed_text(m, s, draft, &room);
    }
    return catches_up || m->batch.n > 2 * (int32_t)n;
}

/* The token that the draft's row gives, and its own row for the next pass. */
static void extend_draft(draft_model *m, slot *s, weir__draft *draft, weir__drafting *drafting)
{
    int32_t row = s->row, token;
    s->row = -1;
    s->done = true;
    if (row < 0 || m->model->ops->sample(m->greedy, m->context, row, NULL, &token, NULL) != WEIR_OK ||
        token >= m->base.target->info.n_vocab)
        return;
    weir__drafting trial = {.throughput = {.ns = 1}, .room = drafting->room};
    s->probability *= weir__acceptance_rate(&s->acceptance, place_class(draft->n));
    if (!weir__drafter_add(&m->base, draft, token, s->probability, m->token_ns, s->trial ? &trial : drafting))
        return;
    if (s->trial) drafting->room--;
    if (s->trial || draft->n == draft->most || !token_pays(m, s, draft->n, drafting)) return;
    s->done = false;
    s->row = weir__batch_add(&m->batch, token, draft->n_tokens - 1 + draft->n, seq_of(m, draft), true);
    if (!m->is_head) s->held[s->n_held++] = token;
}

/* The time for a token, from the time for all; one that catches up with its text takes longer. */
static void measure_token(draft_model *m, double ns, bool caught_up)
{
    if (m->token_ns == 0)
        m->token_ns = ns;
    else if (!caught_up || ns < m->token_ns)
        m->token_ns += NEWEST * (ns - m->token_ns);
}

static void draft_by_model(weir__drafter *drafter, weir__draft *const *drafts, size_t n,
                           weir__drafting *drafting)
{
    draft_model *m = (draft_model *)drafter;
    int64_t start = weir__clock_now_ns();
    int32_t n_drafted = 0;
    m->batch.n = 0;
    bool catches_up = begin_drafts(m, drafts, n, drafting);
    while (m->batch.n > 0) {
        if (m->model->ops->decode(m->context, &m->batch, NULL) != WEIR_OK) {
            forget_texts(m);
            break;
        }
        m->batch.n = 0;
        m->model->ops->logits_ready(m->context);
        for (size_t i = 0; i < n; i++)
            if (!m->slots[drafts[i]->slot].done)
                extend_draft(m, &m->slots[drafts[i]->slot], drafts[i], drafting);
    }
    for (size_t i = 0; i < n; i++) {
        n_drafted += drafts[i]->n;
        if (m->is_head && drafts[i]->n > 1) /* if right, the target gives the states of these tokens */
            m->model->ops->seq_remove(m->context, drafts[i]->seq, drafts[i]->n_tokens, -1);
    }
    if (n_drafted > 0) measure_token(m, (double)(weir__clock_now_ns() - start) / n_drafted, catches_up);
}

static void judge_draft(weir__drafter *drafter, const weir__draft *draft, int32_t n_drafted, int32_t n_right)
{
    slot *s = &((draft_model *)drafter)->slots[draft->slot];
    if (s->text != draft->text) return;
    for (int32_t i = 0; i < n_drafted && i <= n_right; i++)
        weir__acceptance_note(&s->acceptance, place_class(i), i < n_right);
    if (!s->trial) return;
    s->tried_at = draft->n_tokens;
    s->pause = n_right > 0 ? PAUSE_LEAST : s->pause < PAUSE_MOST ? 2 * s->pause : PAUSE_MOST;
}

/* ---- Life ---- */

static bool same_piece(const weir_model *a, const weir_model *b, int32_t token)
{
    char x[512], y[sizeof x];
    int32_t n = a->ops->piece(a->model, token, true, x, (int32_t)sizeof x);
    int32_t m = b->ops->piece(b->model, token, true, y, (int32_t)sizeof y);
    return n == m && (n <= 0 || memcmp(x, y, (size_t)n) == 0) &&
           a->ops->is_eog(a->model, token) == b->ops->is_eog(b->model, token);
}

weir_status weir__drafter_model_check(const weir_model *target, const weir_model *model, weir_error *error)
{
    int32_t n = target->info.n_vocab, other = model->info.n_vocab;
    if (!model->info.has_decoder && !model->info.is_draft_head)
        return weir__error_set(error, WEIR_UNSUPPORTED, "draft_model", "the draft model cannot generate");
    if (model->info.is_recurrent || model->info.is_hybrid)
        return weir__error_set(error, WEIR_UNSUPPORTED, "draft_model",
                               "the draft model's memory cannot be cut (%s), which drafts need: take one "
                               "without recurrent layers",
                               model->info.architecture);
    if (n - other > PADDING || other - n > PADDING)
        return weir__invalid(
            error, WEIR_ERROR_CONFLICT, "draft_model",
            "the draft model has %d tokens in its vocabulary and the model %d: they must have the same",
            other, n);
    for (int32_t i = 0; i < n && i < other; i++)
        if (!same_piece(target, model, i))
            return weir__invalid(
                error, WEIR_ERROR_CONFLICT, "draft_model",
                "token %d of the draft model is not that of the model: they must have the same vocabulary",
                i);
    return WEIR_OK;
}

static void destroy_drafter(weir__drafter *drafter)
{
    draft_model *m = (draft_model *)drafter;
    const weir__backend *ops = m->model->ops;
    if (m->greedy != NULL) ops->sampler_free(m->greedy);
    if (m->context != NULL) ops->context_free(m->context);
    weir__batch_fini(&m->batch);
    weir__mem_free(m->tokens);
    weir_model_release(m->model);
    weir__mem_free(m);
}

/* target_context: a head's target, NULL of a model. n_ctx: of a model's slots. */
static weir_status create_drafter(weir_model *target, weir__bcontext *target_context, weir_model *model,
                                  const weir_context_params *params, int32_t n_slots, int32_t n_ctx,
                                  weir__drafter **drafter, weir_error *error)
{
    static const weir__drafter_ops kinds[] = {
        {.name = "model", .draft = draft_by_model, .judge = judge_draft, .destroy = destroy_drafter},
        {.name = "eagle3", .draft = draft_by_model, .judge = judge_draft, .destroy = destroy_drafter},
        {.name = "mtp", .draft = draft_by_model, .judge = judge_draft, .destroy = destroy_drafter},
    };
    weir_sampler_params greedy = weir_sampler_params_default();
    draft_model *m = weir__mem_calloc(1, sizeof *m + (size_t)n_slots * sizeof m->slots[0]);
    if (m == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "draft_model", "out of memory for drafts");
    bool own = target_context != NULL && model == target;
    m->is_head = target_context != NULL;
    m->base = (weir__drafter){.ops = &kinds[m->is_head + own], .target = target};
    m->model = weir_model_hold(model);
    m->n_slots = n_slots;
    m->n_ctx = n_ctx;
    m->info.size = sizeof m->info;
    greedy.temp = 0;
    for (int32_t i = 0; i < n_slots; i++) m->slots[i].text = UINT64_MAX;
    weir_status status = own ? WEIR_OK : weir__drafter_model_check(target, model, error);
    if (status == WEIR_OK)
        status = m->is_head ? model->ops->head_create(target_context, model->model, params, &m->context,
                                                      &m->info, error)
                            : model->ops->context_create(model->model, params, &m->context, &m->info, error);
    if (status == WEIR_OK) status = weir__sampler_params_check(model, &greedy, "", &greedy, error);
    if (status == WEIR_OK)
        status = model->ops->sampler_create(model->model, &greedy, NULL, &m->greedy, error);
    if (status == WEIR_OK) status = weir__batch_init(&m->batch, m->info.n_batch, error);
    if (status != WEIR_OK) goto fail;
    *drafter = &m->base;
    if (m->is_head) return WEIR_OK;
    m->tokens = weir__mem_calloc((size_t)n_slots * (size_t)n_ctx, sizeof *m->tokens);
    if (m->tokens == NULL) {
        status = weir__error_set(error, WEIR_NO_MEMORY, "draft_model", "out of memory for drafts");
        goto fail;
    }
    for (int32_t i = 0; i < n_slots; i++) m->slots[i].held = m->tokens + (size_t)i * (size_t)n_ctx;
    return WEIR_OK;
fail:
    destroy_drafter(&m->base);
    return status;
}

weir_status weir__drafter_model(weir_model *target, weir_model *model, const weir_context_params *params,
                                int32_t n_ctx, weir__drafter **drafter, weir_error *error)
{
    return create_drafter(target, NULL, model, params, params->n_seq_max, n_ctx, drafter, error);
}

weir_status weir__drafter_head(weir_model *target, weir__bcontext *context, weir_model *model,
                               const weir_context_params *params, int32_t n_slots, weir__drafter **drafter,
                               weir_error *error)
{
    return create_drafter(target, context, model, params, n_slots, 0, drafter, error);
}

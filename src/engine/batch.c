/* batch.c: a plan as rows of a batch, in an order of lanes that llama.cpp computes in few passes.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "engine/driver.h"
#include "engine/prefix.h"

/* Rows of logits that a tick keeps for prompts in all slots: 12 MB with a vocabulary of 49,152. With more
 * slots each has one row, as it has one to sample from anyway. */
#define ROWS_MOST 64

int32_t weir__batch_most(const weir__driver *driver, const weir__slot *slot)
{
    if (slot->state == WEIR_SLOT_IDLE || !weir__pace_has(slot) || !weir__turns_has(&driver->turns, slot))
        return 0;
    if (slot->state == WEIR_SLOT_GENERATING) return 1 + slot->draft.n;
    if (slot->state != WEIR_SLOT_PREFILLING) return 0;
    int32_t left = slot->request->history.n_tokens - slot->n_past;
    return left < driver->params->chunk_size ? left : driver->params->chunk_size;
}

void weir__batch_show(weir__driver *driver)
{
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++)
        driver->shown[slot->index] = weir__batch_most(driver, slot);
    driver->shows = true;
}

/* The most tokens that a plan may ask for. After the view was shown, a cancel may have ended the slot or
 * removed its draft: the caller cannot know. */
static int32_t plan_limit(const weir__driver *driver, int32_t i, int32_t n_allowed)
{
    return driver->shows && driver->shown[i] > n_allowed ? driver->shown[i] : n_allowed;
}

static bool is_scored(const weir__slot *slot)
{
    return slot->state == WEIR_SLOT_PREFILLING && slot->request->history.score != NULL &&
           slot->request->history.score->n_scored < slot->request->history.score->n;
}

/* True if the row of the slot's token at `pos` is needed to score the token after it. */
static bool scores_after(const weir__slot *slot, int32_t pos)
{
    if (!is_scored(slot)) return false;
    const weir__score *score = slot->request->history.score;
    return pos + 1 >= score->n_scored && pos + 1 < score->n && score->tokens[pos + 1] >= 0;
}

/* The number of the slot's next tokens that a tick may compute, because each scored token keeps a row of
 * logits as long as the vocabulary. 0 = no limit. */
static int32_t score_limit(const weir__slots *slots, const weir__slot *slot)
{
    int32_t n_scored = 1;
    if (!is_scored(slot)) return 0;
    for (const weir__slot *other = slots->first; other < slots->end; other++)
        n_scored += other != slot && is_scored(other);
    int32_t each = n_scored < ROWS_MOST ? ROWS_MOST / n_scored : 1;
    int32_t known =
        slot->request->history.score->n_scored - 1 - slot->n_past; /* computed again, but not scored again */
    return known > 0 ? known + each : each;
}

/* Up to the next image or sound, or to its end. */
static int32_t media_limit(const weir__slot *slot)
{
    if (slot->span == NULL || slot->state != WEIR_SLOT_PREFILLING) return 0;
    return (slot->next == WEIR__NEXT_SEGMENT ? slot->span->end : slot->span->at) - slot->n_past;
}

int32_t weir__batch_limit(const weir__driver *driver, const weir__slot *slot)
{
    int32_t score = score_limit(&driver->slots, slot), media = media_limit(slot);
    if (slot->next == WEIR__NEXT_SEGMENT && media > 0) return media; /* only its last cell scores a token */
    int32_t limit = media > 0 && (score == 0 || media < score) ? media : score, pace = slot->pace.limit;
    bool paced = slot->state == WEIR_SLOT_PREFILLING && pace > 0 && pace < INT32_MAX;
    return paced && (limit == 0 || pace < limit) ? pace : limit;
}

static const weir__segment *segment_of(const weir__media_span *span)
{
    return &span->medium->prepared->segments[span->segment];
}

/* The number of tokens that a slot computes if a plan gives it n. */
static int32_t take_tokens(const weir__driver *driver, const weir__slot *slot, int32_t n)
{
    int32_t limit = weir__batch_limit(driver, slot);
    /* A segment that is not causal is computed at once, whatever the plan says. */
    if (slot->next == WEIR__NEXT_SEGMENT && !segment_of(slot->span)->causal) return limit;
    return weir__prefix_chunk(&driver->prefix, slot, limit > 0 && limit < n ? limit : n);
}

static bool take_plan(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan)
{
    int64_t total = 0;
    for (size_t i = 0; i < n_plan; i++) {
        if (plan[i].slot < 0 || plan[i].slot >= driver->params->n_slots || plan[i].n_tokens < 0) return false;
        weir__slot *slot = &driver->slots.first[plan[i].slot];
        if (plan[i].n_tokens == 0) continue;
        int32_t n = plan[i].n_tokens, n_allowed = weir__batch_most(driver, slot);
        if (slot->n_planned > 0 || n > plan_limit(driver, plan[i].slot, n_allowed)) return false;
        total += n;
        if (n_allowed == 0) continue;
        if (n > n_allowed) n = n_allowed;
        slot->n_planned = take_tokens(driver, slot, n);
        if (slot->state == WEIR_SLOT_GENERATING) slot->n_drafted = slot->n_planned - 1;
    }
    return total <= driver->params->n_batch;
}

/* The slot's planned cells are a part of a segment. */
static void fill_slice(weir__driver *driver, const weir__slot *slot)
{
    const weir__media_span *span = slot->span;
    driver->segment = *segment_of(span);
    driver->segment.embeddings = weir__encoder_rows(slot->embedding);
    driver->slice = (weir__slice){
        .segment = &driver->segment,
        .first = slot->n_past - span->at,
        .pos = weir__history_position(&slot->request->history, span->at),
    };
}

static void fill_lane(weir__driver *driver, int32_t lane)
{
    weir__slot *slot = driver->lanes.slot[lane];
    if (slot == NULL) return;
    const weir__request *request = slot->request;
    int32_t first = slot->n_planned > 0 ? weir__history_position(&request->history, slot->n_past) : 0;
    if (slot->n_planned > 0 && driver->turns.segment >= 0) fill_slice(driver, slot);
    for (int32_t i = 0; i < slot->n_planned; i++) {
        int32_t at = slot->n_past + i, past = at - request->history.n_tokens;
        /* Keep logits only for the rows that are sampled from and those that score tokens of the prompt. */
        bool sampled = past >= -1 && request->max_tokens > 0;
        bool scored = scores_after(slot, at);
        int32_t token = past < 0 ? request->history.tokens[at] : slot->draft.token[past];
        int32_t row = weir__batch_add(&driver->batch, token, first + i, lane, sampled || scored);
        if (sampled && past == -1) slot->row = row;
        if (scored && slot->n_scored++ == 0) slot->scored_row = row;
    }
}

/* The passes of some lanes alone. */
static int32_t passes_of(const weir_context_info *info, const int32_t *rows, int32_t n)
{
    int32_t copy[WEIR__SEQ_MAX];
    memcpy(copy, rows, (size_t)n * sizeof *rows);
    return weir__cost_passes(copy, n, info->n_ubatch, info->layout);
}

/* The first of the neighbours below `end` that have as many rows as the last of them. */
static int32_t group_start(const int32_t *rows, int32_t end)
{
    int32_t start = end - 1;
    while (start > 0 && rows[start - 1] == rows[end - 1]) start--;
    return start;
}

/* True if lanes are added in descending groups of neighbours with equal numbers of rows. In one pass
 * llama.cpp takes equal numbers of rows of lanes that follow each other with consecutive numbers. So in
 * ascending order a long chunk has one row in the streams' pass and the rest in another one, and both read
 * all its cells. If lanes with equal numbers of rows are neighbours, descending groups of them take no more
 * passes, and each lane is in one. */
static bool groups_apart(const weir_context_info *info, const int32_t *rows, int32_t n)
{
    int32_t n_passes = 0;
    if (info->layout != WEIR_LAYOUT_PER_SLOT) return false;
    for (int32_t end = n, start; end > 0; end = start) {
        start = group_start(rows, end);
        n_passes += passes_of(info, rows + start, end - start);
    }
    return n_passes <= passes_of(info, rows, n);
}

static void leave_out_draft(weir__slot *slot)
{
    slot->n_planned = 1;
    slot->n_drafted = 0;
}

/* Leaves out the drafts of lanes with more than one row before the last micro-batch that may take their
 * cells: once rejected, they could not be removed (ADR 0140). True: some were left out. */
static bool leave_out_drafts(weir__driver *driver, const int32_t *rows, bool apart)
{
    int32_t before[WEIR__SEQ_MAX], left[WEIR__SEQ_MAX], n = driver->lanes.n;
    bool changed = false;
    for (int32_t end = n, start; end > 0; end = start) {
        start = apart ? group_start(rows, end) : 0;
        weir__cost_before(rows + start, end - start, driver->info.n_ubatch, driver->info.layout, left,
                          before + start);
    }
    for (int32_t lane = 0; lane < n; lane++) {
        weir__slot *slot = driver->lanes.slot[lane];
        if (slot == NULL || slot->n_drafted == 0 || before[lane] <= 1) continue;
        leave_out_draft(slot);
        changed = true;
    }
    return changed;
}

/* Leaves out the drafts that could not be taken back. */
static void mark_drafts(weir__driver *driver)
{
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++)
        if (slot->n_drafted > 0 && !weir__rollback_mark(&driver->speculate.rollback, slot))
            leave_out_draft(slot);
}

static void fill_lanes(weir__driver *driver)
{
    int32_t rows[WEIR__SEQ_MAX], n = driver->lanes.n, n_drafted;
    /* A mark has the windows, too. */
    bool apart, slides = driver->model->info.n_swa > 0 && driver->speculate.rollback.marks == NULL;
    mark_drafts(driver);
    do {
        n_drafted = 0;
        for (int32_t lane = 0; lane < n; lane++) {
            const weir__slot *slot = driver->lanes.slot[lane];
            rows[lane] = slot != NULL ? slot->n_planned : 0;
            n_drafted += slot != NULL ? slot->n_drafted : 0;
        }
        apart = groups_apart(&driver->info, rows, n);
    } while (n_drafted > 0 && slides && leave_out_drafts(driver, rows, apart));
    for (int32_t end = n, start; end > 0; end = start) {
        start = apart ? group_start(rows, end) : 0;
        for (int32_t lane = start; lane < end; lane++) fill_lane(driver, lane);
    }
}

bool weir__batch_fill(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan)
{
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        slot->n_planned = slot->n_drafted = slot->n_accepted = slot->n_burst = 0;
        slot->row = -1;
        slot->n_scored = 0;
    }
    driver->batch.n = 0;
    if (n_plan > (size_t)driver->params->n_slots || !take_plan(driver, plan, n_plan)) return false;
    fill_lanes(driver);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

/* The most tokens that a plan may give the slot, 0 when it has no work, or not its turn. */
static int32_t slot_allowance(const weir_engine *engine, const weir__slot *slot)
{
    if (slot->state == WEIR_SLOT_IDLE || !weir__turn_has(&engine->turn, slot)) return 0;
    if (slot->state == WEIR_SLOT_GENERATING) return 1 + slot->draft.n;
    if (slot->state != WEIR_SLOT_PREFILLING) return 0;
    int32_t left = slot->n_tokens - slot->n_past;
    return left < engine->params.chunk_size ? left : engine->params.chunk_size;
}

void weir__batch_show(weir_engine *engine)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++)
        engine->shown[i] = slot_allowance(engine, &engine->slots[i]);
    engine->shows = true;
}

/* What a plan may give it without a mistake: since the view a cancel may have ended it, or have taken its
 * drafts. */
static int32_t plan_limit(const weir_engine *engine, int32_t i, int32_t n_allowed)
{
    return engine->shows && engine->shown[i] > n_allowed ? engine->shown[i] : n_allowed;
}

/* The most that is taken of that. */
static int32_t score_limit(const weir_engine *engine, const weir__slot *slot)
{
    int32_t limit = weir__score_limit(engine, slot);
    return limit > 0 ? limit : INT32_MAX;
}

static bool take_plan(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan)
{
    int64_t total = 0;
    for (size_t i = 0; i < n_plan; i++) {
        if (plan[i].slot < 0 || plan[i].slot >= engine->params.n_slots || plan[i].n_tokens < 0) return false;
        weir__slot *slot = &engine->slots[plan[i].slot];
        if (plan[i].n_tokens == 0) continue;
        int32_t n = plan[i].n_tokens, n_allowed = slot_allowance(engine, slot);
        if (slot->n_planned > 0 || n > plan_limit(engine, plan[i].slot, n_allowed)) return false;
        total += n;
        if (n_allowed == 0) continue;
        if (n > n_allowed) n = n_allowed;
        int32_t most_n = score_limit(engine, slot);
        slot->n_planned = weir__prefix_chunk(engine, slot, n < most_n ? n : most_n);
        if (slot->state == WEIR_SLOT_GENERATING) slot->n_drafted = slot->n_planned - 1;
    }
    return total <= engine->params.n_batch;
}

bool weir__batch_fill(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan)
{
    for (int32_t i = 0; i < engine->params.n_slots; i++) {
        weir__slot *slot = &engine->slots[i];
        slot->n_planned = slot->n_drafted = slot->n_accepted = slot->n_burst = 0;
        slot->row = -1;
        slot->n_scored = 0;
    }
    engine->batch.n = 0;
    if (n_plan > (size_t)engine->params.n_slots || !take_plan(engine, plan, n_plan)) return false;

    /* Lane order lets llama.cpp take equal rows of consecutive lanes in one pass. */
    for (int32_t lane = 0; lane < engine->info.n_seq_max; lane++) {
        weir__slot *slot = engine->lanes[lane];
        if (slot == NULL) continue;
        const weir__request *request = slot->request;
        for (int32_t i = 0; i < slot->n_planned; i++) {
            int32_t pos = slot->n_past + i, past = pos - slot->n_tokens;
            /* Only the rows that tokens are sampled from keep their logits, and those that tokens of the
             * prompt are scored by. */
            bool sampled = past >= -1 && request->max_tokens > 0;
            bool scored = weir__score_wants(slot, pos);
            int32_t token = past < 0 ? request->tokens[pos] : slot->draft.token[past];
            int32_t row = weir__batch_add(&engine->batch, token, pos, lane, sampled || scored);
            if (sampled && past == -1) slot->row = row;
            if (scored && slot->n_scored++ == 0) slot->scored_row = row;
        }
    }
    return true;
}

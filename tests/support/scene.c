/* SPDX-License-Identifier: Apache-2.0 */
#include "support/scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

void scene_start(scene *s, int32_t budget, int32_t chunk_size)
{
    memset(s, 0, sizeof *s);
    s->strategy = weir_strategy_decode_maximal();
    s->view = (weir_view){
        .slots = s->slots,
        .budget = budget,
        .chunk_size = chunk_size,
        .n_ubatch = 512,
        .layout = WEIR_LAYOUT_UNIFIED,
        .itl_target_ns = 50000000,
        .cost = {.pass_ns = 5e6, .decode_ns = 1e6, .prefill_ns = 0.5e6, .n_ticks = 100},
    };
}

static weir_slot_view *add(scene *s, weir_slot_view slot)
{
    slot.lane = slot.slot;
    slot.deadline_ns = INT64_MAX;
    s->slots[s->view.n_slots] = slot;
    return &s->slots[s->view.n_slots++];
}

weir_slot_view *scene_generating(scene *s, int32_t slot)
{
    return add(
        s, (weir_slot_view){
               .slot = slot, .state = WEIR_SLOT_GENERATING, .n_prompt = 5, .n_generated = 1, .n_past = 5});
}

weir_slot_view *scene_prefilling(scene *s, int32_t slot, int32_t left)
{
    return add(s, (weir_slot_view){.slot = slot,
                                   .state = WEIR_SLOT_PREFILLING,
                                   .n_prompt_left = left,
                                   .n_prompt = left + 3,
                                   .n_past = 3});
}

size_t scene_plan(scene *s)
{
    return s->strategy->plan(&s->view, s->plan, s->strategy->user);
}

void scene_expect(const scene *s, size_t i, int32_t slot, int32_t n_tokens)
{
    assert_int_equal(s->plan[i].slot, slot);
    assert_int_equal(s->plan[i].n_tokens, n_tokens);
}

/* scene.h: a view of a strategy, written slot by slot, and the plan for it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_SCENE_H
#define WEIR_TESTS_SCENE_H

#include "weir/more.h"

#define SCENE_SLOTS 16

typedef struct scene {
    weir_slot_view slots[SCENE_SLOTS];
    weir_plan_entry plan[SCENE_SLOTS];
    weir_view view;
    const weir_strategy *strategy;
} scene;

/* No slots; decode-maximal, an ITL target of 50 ms. A pass costs 5 ms, a decoded token 1 ms, a token of a
 * prompt 0.5 ms. */
void scene_start(scene *s, int32_t budget, int32_t chunk_size);

/* Each adds a slot: one that generates, and one that still has `left` tokens of its prompt. */
weir_slot_view *scene_generating(scene *s, int32_t slot);
weir_slot_view *scene_prefilling(scene *s, int32_t slot, int32_t left);

/* The strategy's plan: its number of entries. */
size_t scene_plan(scene *s);

/* Checks the i-th entry. */
void scene_expect(const scene *s, size_t i, int32_t slot, int32_t n_tokens);

#endif

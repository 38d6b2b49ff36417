/* rollback.h: takes back rejected drafts where memory cannot be cut: in recurrent and hybrid models.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ROLLBACK_H
#define WEIR_ENGINE_ROLLBACK_H

#include "cache/memory.h"
#include "engine/slot.h"

/* The part of a slot's sequence that cannot be cut, as it was before a pass with a draft. */
typedef struct weir__mark {
    void *bytes; /* [capacity], kept for the next mark */
    size_t capacity, length;
    int32_t n; /* tokens that the sequence had */
} weir__mark;

/* The driver's. Where memory can be cut, it has no marks, and undo is a cut. */
typedef struct weir__rollback {
    weir__memory *memory;
    weir__mark *marks; /* [n_slots]; NULL: the memory can be cut */
    int32_t n_slots;
    double mark_ns, undo_ns; /* recent means; 0 = not known yet */
    int64_t spent_ns;        /* on both in this tick */
} weir__rollback;

/* False: out of memory. Free with close in any case. */
bool weir__rollback_open(weir__rollback *rollback, weir__memory *memory, const weir_model *model,
                         int32_t n_slots);
void weir__rollback_close(weir__rollback *rollback);

/* The bytes of all marks, without the windows of models that have both. model: may be an outline. */
uint64_t weir__rollback_bytes(const weir_model *model, int32_t n_slots);

/* Prepares undo, before the pass with the slot's draft. False: not possible, the slot can have no draft. */
bool weir__rollback_mark(weir__rollback *rollback, const weir__slot *slot);

/* Takes back what the pass has added behind slot->n_past; after a mark, all that it has added, so that n_past
 * is lower. False: that cannot be done. Then the sequence is unchanged, or empty with n_past = 0. */
bool weir__rollback_undo(weir__rollback *rollback, weir__slot *slot);

#endif

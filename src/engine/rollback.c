/* rollback.c: rejected drafts where memory cannot be cut: the sequence goes back to the state before the
 * pass, and the tokens that were right are computed again.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A recurrent state is the sum of all tokens. So it is copied before a pass with a draft, one copy for each
 * slot. A hybrid model's other layers keep their cells, which are cut. ADR 0142 weighs this against the
 * alternatives. */
#include "engine/rollback.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/prefix.h"

#define NEWEST 0.1 /* weight of the newest time in the means */

bool weir__rollback_open(weir__rollback *rollback, weir__memory *memory, const weir_model *model,
                         int32_t n_slots)
{
    *rollback = (weir__rollback){.memory = memory, .n_slots = n_slots};
    if (!weir__prefix_is_whole(model)) return true;
    rollback->marks = weir__mem_calloc((size_t)n_slots, sizeof *rollback->marks);
    return rollback->marks != NULL;
}

void weir__rollback_close(weir__rollback *rollback)
{
    for (int32_t i = 0; rollback->marks != NULL && i < rollback->n_slots; i++)
        weir__mem_free(rollback->marks[i].bytes);
    weir__mem_free(rollback->marks);
    rollback->marks = NULL;
}

uint64_t weir__rollback_bytes(const weir_model *model, int32_t n_slots)
{
    if (!weir__prefix_is_whole(model)) return 0;
    return (uint64_t)n_slots * model->ops->part_bytes(model->model);
}

/* Adds the time since `start` to the tick's, and to the mean. */
static void note_time(weir__rollback *rollback, int64_t start, double *mean)
{
    int64_t ns = weir__clock_now_ns() - start;
    rollback->spent_ns += ns;
    *mean += (*mean == 0 ? 1 : NEWEST) * ((double)ns - *mean);
}

/* A state that has grown, as those with windows do with the text, gets twice the room. */
static bool reserve_bytes(weir__mark *mark, size_t n)
{
    if (n <= mark->capacity) return true;
    if (n < 2 * mark->capacity) n = 2 * mark->capacity;
    weir__mem_free(mark->bytes);
    mark->bytes = weir__mem_alloc(n);
    mark->capacity = mark->bytes != NULL ? n : 0;
    return mark->bytes != NULL;
}

static bool save_state(weir__memory *memory, int32_t lane, weir__mark *mark)
{
    size_t n = weir__memory_part_size(memory, lane);
    if (n == 0 || !reserve_bytes(mark, n)) return false;
    mark->length = weir__memory_part_save(memory, lane, mark->bytes, n);
    mark->n = memory->n[lane];
    return mark->length > 0;
}

bool weir__rollback_mark(weir__rollback *rollback, const weir__slot *slot)
{
    if (rollback->marks == NULL) return true;
    int64_t start = weir__clock_now_ns();
    bool done = save_state(rollback->memory, slot->lane, &rollback->marks[slot->index]);
    if (done) note_time(rollback, start, &rollback->mark_ns);
    return done;
}

bool weir__rollback_undo(weir__rollback *rollback, weir__slot *slot)
{
    const weir__history *history = &slot->request->history;
    if (rollback->marks == NULL)
        return weir__memory_cut(rollback->memory, slot->lane, slot->n_past,
                                weir__history_position(history, slot->n_past));
    const weir__mark *mark = &rollback->marks[slot->index];
    int64_t start = weir__clock_now_ns();
    bool done =
        weir__memory_resume(rollback->memory, slot->lane, mark->n, weir__history_position(history, mark->n),
                            mark->bytes, mark->length, NULL) == WEIR_OK;
    note_time(rollback, start, &rollback->undo_ns);
    slot->n_past = done ? mark->n : 0;
    return done;
}

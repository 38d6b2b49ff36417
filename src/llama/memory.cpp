/* memory.cpp: the sequences in the memory of a llama.cpp context and of its draft head. No exception leaves
 * it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sequences are cut, copied, saved and loaded as llama.cpp's kind of memory allows it, and a draft head
 * follows or forgets. */
#include "llama/cells.h"
#include "llama/internal.h"

/* A header that llama.cpp does not install: llama.h has no kinds of windows. */
#include <../src/llama-model.h>

extern "C" {
#include "base/error.h"
#include "base/mem.h"
}

int32_t weir__llama_seq_pos_max(const weir__bcontext *c, int32_t seq)
{
    if (c->following != nullptr) return weir__llama_head_known(c, seq);
    return c->has_memory ? llama_memory_seq_pos_max(llama_get_memory(c->context), seq) : -1;
}

void weir__llama_clear(weir__bcontext *c)
{
    if (c->following != nullptr) weir__llama_head_forget(c);
    if (c->head != nullptr) weir__llama_head_forget(c->head);
    weir::clear_cells(c->context);
}

/* The lowest position that a token at `pos` attends to in layers with a sliding window; below 0: all. */
static int32_t window_start(const llama_model *model, int32_t pos)
{
    const auto window = static_cast<int32_t>(model->hparams.n_swa);
    switch (model->hparams.swa_type) {
    case LLAMA_SWA_TYPE_CHUNKED: return pos / window * window;
    case LLAMA_SWA_TYPE_SYMMETRIC: return pos - window / 2;
    default: return pos - window + 1;
    }
}

/* True if a sequence can be cut to its first n positions and continued: a sliding window must still hold all
 * that the next token attends to. llama.cpp drops only the lowest positions of a sequence, so all from the
 * first one on are there (ADR 0140). */
bool weir__llama_can_end_at(weir__bcontext *c, int32_t seq, int32_t n)
{
    int32_t last = weir__llama_seq_pos_max(c, seq);
    if (n > last || n == 0) return true;
    if (c->model->whole_sequences) return false;
    if (c->model->info.n_swa == 0) return true;
    int32_t first = llama_memory_seq_pos_min(llama_get_memory(c->context), seq);
    return first == 0 || first <= window_start(c->model->model, n);
}

bool weir__llama_seq_remove(weir__bcontext *c, int32_t seq, int32_t from, int32_t to)
{
    if (c->following != nullptr) {
        weir__llama_head_cut(c, seq, from);
        return true;
    }
    if (c->head != nullptr) weir__llama_head_removed(c->head, seq, from); /* a head's sequence has no holes */
    int32_t last = weir__llama_seq_pos_max(c, seq);
    if (last < 0 || from > last || (to >= 0 && to <= from)) return true;
    bool to_end = to < 0 || to > last;
    if (from == 0 && to_end) return weir::remove_cells(c->context, seq, -1, -1);
    if (c->model->whole_sequences) return false;
    if (to_end && !weir__llama_can_end_at(c, seq, from)) return false;
    return weir::remove_cells(c->context, seq, from, to_end ? -1 : to);
}

/* Copies positions of a sequence. Between lanes llama.cpp copies all of seq's cells, and does so in the next
 * pass. */
static bool copy_sequence(weir__bcontext *c, int32_t seq, int32_t to_seq, int32_t from, int32_t to)
{
    bool lanes = !c->unified && c->n_seq_max > 1;
    if (c->model->whole_sequences) from = to = -1;
    if (!weir::remove_cells(c->context, to_seq, -1, -1)) return false;
    if (!weir::copy_cells(c->context, seq, to_seq, lanes ? -1 : from, lanes ? -1 : to)) return false;
    if (!lanes) return true;
    c->copy_pending = true;
    bool cut = (from <= 0 || weir::remove_cells(c->context, to_seq, 0, from)) &&
               (to < 0 || weir::remove_cells(c->context, to_seq, to, -1));
    weir__hook_copies(c->context, to_seq);
    return cut;
}

weir_status weir__llama_share(weir__bcontext *c, int32_t from, int32_t to, int32_t n, weir_error *error)
{
    int32_t last = weir__llama_seq_pos_max(c, from);
    if (n < 0 || (n > last + 1 && !c->model->m_rope)) /* an image's cells may end before its last position */
        return weir__error_numbers(error, WEIR_INVALID, "n", n, 0, last + 1,
                                   "%d positions of a sequence that has %d", n, last + 1);
    if (!weir__llama_can_end_at(c, from, n))
        return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                               "this model's memory cannot be cut at position %d", n);
    bool done = true;
    if (from == to)
        done = n > last || weir::remove_cells(c->context, to, n > 0 ? n : -1, -1);
    else if (n == 0)
        done = weir::remove_cells(c->context, to, -1, -1);
    else
        done = copy_sequence(c, from, to, 0, n > last ? -1 : n);
    if (done && c->head != nullptr) weir__llama_head_shared(c->head, from, to, n);
    if (done) return WEIR_OK;
    return weir__error_set(error, WEIR_BACKEND, nullptr, "sequence %d could not be copied to %d", from, to);
}

bool weir__llama_seq_copy(weir__bcontext *c, int32_t seq, int32_t to_seq, int32_t from, int32_t to)
{
    if (!c->has_memory || seq == to_seq) return true;
    int32_t last = weir__llama_seq_pos_max(c, seq);
    if (from > last || (to >= 0 && to <= from)) return weir::remove_cells(c->context, to_seq, -1, -1);
    if (to > last) to = -1;
    if (c->model->whole_sequences && (from > 0 || to >= 0)) return false; /* it can only be copied whole */
    if (to >= 0 && !weir__llama_can_end_at(c, seq, to)) return false;
    return copy_sequence(c, seq, to_seq, from, to);
}

size_t weir__llama_state_size(weir__bcontext *c, int32_t seq)
{
    size_t head = c->head != nullptr ? weir__llama_head_state_size(c->head, seq) : 0;
    return c->has_memory ? weir::state_size(c->context, seq, false) + head : 0;
}

size_t weir__llama_state_save(weir__bcontext *c, int32_t seq, void *bytes, size_t capacity)
{
    if (!c->has_memory) return 0;
    size_t n = weir::save_state(c->context, seq, false, bytes, capacity);
    if (weir__llama_model_check(c->model, nullptr) != WEIR_OK)
        return 0; /* cells of a lost worker are zeroes */
    if (n == 0 || n > capacity || c->head == nullptr) return n;
    size_t head = weir__llama_head_state_save(c->head, seq, (char *)bytes + n, capacity - n);
    return head > 0 ? n + head : 0;
}

weir_status weir__llama_state_load(weir__bcontext *c, int32_t seq, const void *bytes, size_t length,
                                   weir_error *error)
{
    if (!c->has_memory) return weir__error_set(error, WEIR_UNSUPPORTED, nullptr, "this model has no memory");
    weir_status status = WEIR_OK;
    /* Loading first clears the sequence, so a copy is kept. */
    size_t n_before = weir__llama_seq_pos_max(c, seq) >= 0 ? weir::state_size(c->context, seq, false) : 0;
    void *before = nullptr;
    if (n_before > 0) {
        before = weir__mem_alloc(n_before);
        if (before == nullptr || weir::save_state(c->context, seq, false, before, n_before) != n_before) {
            status = weir__error_set(error, WEIR_NO_MEMORY, nullptr,
                                     "no memory to keep the sequence's tokens; clear it before");
            goto out;
        }
    }
    status = weir::load_state(c->context, seq, false, bytes, length, error);
    if (status == WEIR_OK && c->head != nullptr) weir__llama_head_state_load(c->head, seq, bytes, length);
    if (status == WEIR_OK) goto out;
    if (c->head != nullptr) weir__llama_head_removed(c->head, seq, 0);
    weir::remove_cells(c->context, seq, -1, -1);
    if (before != nullptr && weir::load_state(c->context, seq, false, before, n_before, nullptr) != WEIR_OK)
        status = weir__error_set(error, WEIR_BACKEND, nullptr,
                                 "the state could not be loaded, and the sequence is lost");

out:
    weir__mem_free(before);
    return status;
}

/* ---- The part of a state that keeps a sequence from being cut ---- */

uint64_t weir__llama_part_bytes(const weir__bmodel *model)
{
    const llama_hparams &has = model->model->hparams;
    uint64_t n = 0;
    for (uint32_t layer = 0; layer < has.n_layer(); layer++)
        n += llama_model_is_recurrent(model->model) || has.is_recr(layer) ? has.n_embd_r() + has.n_embd_s()
                                                                          : 0;
    return n * sizeof(float);
}

/* llama.cpp knows no part of a recurrent model's state: it saves and loads all of it. */
static bool has_parts(const weir__bcontext *c)
{
    return c->has_memory && (c->model->whole_sequences || c->model->info.n_swa > 0);
}

size_t weir__llama_part_size(weir__bcontext *c, int32_t seq)
{
    return has_parts(c) ? weir::state_size(c->context, seq, true) : 0;
}

size_t weir__llama_part_save(weir__bcontext *c, int32_t seq, void *bytes, size_t capacity)
{
    if (!has_parts(c)) return 0;
    size_t n = weir::save_state(c->context, seq, true, bytes, capacity);
    return weir__llama_model_check(c->model, nullptr) == WEIR_OK ? n : 0; /* as in state_save */
}

weir_status weir__llama_part_load(weir__bcontext *c, int32_t seq, int32_t n, const void *bytes, size_t length,
                                  weir_error *error)
{
    if (!has_parts(c))
        return weir__error_set(error, WEIR_UNSUPPORTED, nullptr, "this model's states have no such part");
    if (c->head != nullptr) weir__llama_head_removed(c->head, seq, n);
    weir_status status = weir::load_state(c->context, seq, true, bytes, length, error);
    /* The windows and recurrent states end there now; this cuts the other layers. */
    bool cut = status == WEIR_OK && weir::remove_cells(c->context, seq, n, -1);
    int32_t last = weir__llama_seq_pos_max(c, seq);
    if (cut && last >= 0 && last < n) return WEIR_OK;
    /* A sequence without windows or recurrent states seems to be empty, but other layers have its cells. */
    weir::remove_cells(c->context, seq, -1, -1);
    if (status != WEIR_OK) return status;
    return weir__error_set(error, WEIR_BACKEND, nullptr, "the sequence could not be cut at position %d", n);
}

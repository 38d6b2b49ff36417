/* cells.h: the cells of one llama.cpp context, without those of its draft head. The hook learns of each
 * change.
 *
 * The functions are inline, since operations and draft heads, which have a context of their own, call
 * llama.cpp through them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_LLAMA_CELLS_H
#define WEIR_LLAMA_CELLS_H

#include "hook/hook.h"
#include "llama/guard.h"

#include <llama.h>

namespace weir
{

/* False: it threw, or the memory does not support it. */
inline bool remove_cells(llama_context *context, int32_t seq, int32_t from, int32_t to)
{
    weir__hook_changes(context, seq, from);
    return attempt(false, [&] {
        llama_memory_t memory = llama_get_memory(context);
        bool removed = llama_memory_seq_rm(memory, seq, from, to);
        /* The next token comes into a hole before `from`, if there was one. */
        weir__hook_changes(context, seq, llama_memory_seq_pos_max(memory, seq) + 1);
        return removed;
    });
}

inline bool copy_cells(llama_context *context, int32_t seq, int32_t to_seq, int32_t from, int32_t to)
{
    weir__hook_changes(context, to_seq, 0);
    return attempt(false, [&] {
        llama_memory_t memory = llama_get_memory(context);
        llama_memory_seq_cp(memory, seq, to_seq, from, to);
        if (from <= 0) weir__hook_repeats(context, seq, to_seq, llama_memory_seq_pos_max(memory, to_seq) + 1);
        return true;
    });
}

inline void clear_cells(llama_context *context)
{
    weir__hook_changes(context, -1, 0);
    attempt(false, [&] {
        llama_memory_clear(llama_get_memory(context), false);
        return true;
    });
}

inline llama_state_seq_flags flags_of(bool part)
{
    return part ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : LLAMA_STATE_SEQ_FLAGS_NONE;
}

/* The bytes of a sequence's state, or only of the part of it that keeps the sequence from being cut: windows
 * and recurrent states. 0: failure. */
inline size_t state_size(llama_context *context, int32_t seq, bool part)
{
    capture said;
    return attempt<size_t>(0, [&] { return llama_state_seq_get_size_ext(context, seq, flags_of(part)); });
}

inline size_t save_state(llama_context *context, int32_t seq, bool part, void *bytes, size_t capacity)
{
    capture said;
    return attempt<size_t>(0, [&] {
        return llama_state_seq_get_data_ext(context, static_cast<uint8_t *>(bytes), capacity, seq,
                                            flags_of(part));
    });
}

/* Loading a part leaves the other cells as they are. */
inline weir_status load_state(llama_context *context, int32_t seq, bool part, const void *bytes,
                              size_t length, weir_error *error)
{
    weir__hook_changes(context, seq, 0);
    return guard(error, WEIR_FORMAT, "the state cannot be loaded", [&] {
        capture said;
        if (llama_state_seq_set_data_ext(context, static_cast<const uint8_t *>(bytes), length, seq,
                                         flags_of(part)) != 0)
            return WEIR_OK;
        if (said.says("available cells"))
            return weir__error_set(error, WEIR_NO_SPACE, nullptr,
                                   "the state cannot be loaded: no KV cells are left");
        return refuse_unknown(error, WEIR_FORMAT, "bytes", "the state cannot be loaded", said.length > 0);
    });
}

} // namespace weir

#endif

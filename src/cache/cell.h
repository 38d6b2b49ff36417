/* cell.h: the ids of KV cells in a text: a token, or below zero a cell of an image or a sound.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_CELL_H
#define WEIR_CACHE_CELL_H

#include <stdbool.h>
#include <stdint.h>

/* An id below zero has 30 bits of a hash and the flag `still`: the next cell has the same position as this
 * one. With M-RoPE an image has more cells than positions; the difference is the number of still cells (ADR
 * 0074). */
#define WEIR__CELL_MOVES (1 << 30)

static inline int32_t weir__cell_id(uint32_t hash, bool still)
{
    return (int32_t)((hash & (WEIR__CELL_MOVES - 1)) | (still ? 0 : WEIR__CELL_MOVES)) + INT32_MIN;
}

static inline bool weir__cell_is_still(int32_t id)
{
    return id < INT32_MIN + WEIR__CELL_MOVES;
}

/* The position behind the first n cells of a text; they do not end within an image. */
static inline int32_t weir__cell_position(const int32_t *ids, int32_t n)
{
    int32_t pos = n;
    for (int32_t i = 0; i < n; i++) pos -= weir__cell_is_still(ids[i]);
    return pos;
}

#endif

/* lane_text.h: which lanes of a context begin with the same cells, because one was copied to the other.
 *
 * A lane is a sequence of a context in which each sequence has cells of its own.
 *
 * A lane's text is divided into parts, each with an id. Lanes that have a position in parts of the same id
 * hold the same cell there. Whatever changes cells begins a part with an id that no lane has ever had, before
 * it changes them. So there are no notes that could become stale.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HOOK_LANE_TEXT_H
#define WEIR_HOOK_LANE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* The most parts of a lane. Instead of one more, the last one gets a new id. */
#define WEIR__LANE_PARTS 8

/* Cells from a position up to the next part, or of all further tokens. */
typedef struct weir__lane_part {
    uint64_t id;
    int32_t from;
} weir__lane_part;

/* Invariant: parts ascend. At most one lane has an id in its last part, which grows with the lane. */
typedef struct weir__lane_text {
    int32_t n;
    weir__lane_part parts[WEIR__LANE_PARTS];
} weir__lane_text;

typedef struct weir__lane_texts {
    int32_t n;
    uint64_t last_id;
    weir__lane_text *lanes; /* [n] */
} weir__lane_texts;

/* False: out of memory. */
bool weir__lane_texts_init(weir__lane_texts *texts, int32_t n);
void weir__lane_texts_fini(weir__lane_texts *texts);

/* Cuts the lane's text: its cells will change from this position on. */
void weir__lane_texts_cut(weir__lane_texts *texts, int32_t lane, int32_t from);

/* `to` becomes a copy of the n tokens of `from`. */
void weir__lane_texts_copy(weir__lane_texts *texts, int32_t from, int32_t to, int32_t n);

/* The position up to which two different lanes hold the same cells, as far as both have tokens. */
int32_t weir__lane_texts_common(const weir__lane_texts *texts, int32_t a, int32_t b);

/* An order in which lanes with a common text are neighbours: < 0, 0, > 0. */
int weir__lane_texts_compare(const weir__lane_texts *texts, int32_t a, int32_t b);

#endif

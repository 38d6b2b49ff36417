/* speculate.h: chooses which streams get drafts, and their length.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SPECULATE_H
#define WEIR_ENGINE_SPECULATE_H

#include "engine/cells.h"
#include "engine/rollback.h"
#include "engine/slot.h"
#include "schedule/cost.h"
#include "speculate/drafter.h"

#define WEIR__DRAFTERS_MAX 2 /* a draft model and prompt lookup */

/* The driver's. */
typedef struct weir__speculate {
    weir_model *model;
    const weir_engine_params *params;
    const weir_context_info *info;
    weir__slots slots;
    const weir__cells *cells;
    const weir__lanes *lanes;
    const weir__turns *turns;
    const weir__cost *cost;
    weir__rollback rollback;
    weir__drafter
        *drafters[WEIR__DRAFTERS_MAX]; /* [n]; for each stream, the first one that has a draft makes it */
    int32_t n;                         /* 0 = no drafts */
    weir__draft **drafts;              /* [n_slots] scratch */
    int32_t *rows;                     /* [n_seq_max] scratch */
    bool crowded;                      /* no drafts until a request ends: no room, or one stayed */
} weir__speculate;

/* Set before: the members up to `rollback`. Creates the drafters that the parameters ask for; context: the
 * engine's. Free with close in any case. */
weir_status weir__speculate_open(weir__speculate *all, weir__bcontext *context, weir_error *error);
void weir__speculate_close(weir__speculate *all);

/* Adds their memory to *memory. target: an outline; `context` and `info` are of its context. Prompt
 * lookup is left out. */
weir_status weir__speculate_estimate(weir_model *target, const weir_engine_params *params,
                                     const weir_context_params *context, const weir_context_info *info,
                                     weir_engine_memory *memory, weir_error *error);

/* The drafters' names, as in weir_engine_stats. */
void weir__speculate_name(const weir__speculate *all, char *names, size_t capacity);

/* Replaces the drafters, for tests and replays, by this one, which is destroyed with the engine. False: the
 * engine has no drafts, nothing was done. */
bool weir__speculate_use(weir__speculate *all, weir__drafter *drafter);

/* Makes drafts, before the view, for generating slots where they save time. They take free cells only. */
void weir__speculate_draft(weir__speculate *all);

/* A pass ran out of cells, or a rejected draft could not be removed. True: it had drafts, and there are none
 * until a request ends. */
bool weir__speculate_shrink(weir__speculate *all);

/* The parts in which llama.cpp computes a pass with so many rows of each sequence. rows: [n_seq_max],
 * overwritten. */
int32_t weir__speculate_passes(const weir__speculate *all, int32_t *rows);

/* Judges a draft after sampling: n_drafted of its tokens were computed, and the first n_right of them were
 * right. */
void weir__speculate_judge(const weir__draft *draft, int32_t n_drafted, int32_t n_right);

/* Learns a slot's text before it ends: it may serve others' drafts. */
void weir__speculate_learn(const weir__speculate *all, const weir__slot *slot);

#endif

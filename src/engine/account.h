/* account.h: the engine's statistics and its record of ticks. Other files report events here; account.c
 * counts them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ACCOUNT_H
#define WEIR_ENGINE_ACCOUNT_H

#include "engine/cells.h"
#include "engine/encoder.h"
#include "engine/shared.h"
#include "engine/slot.h"
#include "schedule/cost.h"

/* The driver's. Other threads read the copy in `shared`. Invariant: planned[i] is slot i's part in the
 * current tick, or its slot is -1 and it means nothing. */
typedef struct weir__account {
    weir__shared *shared;
    weir__slots slots;
    const weir__cells *cells;
    const weir__cost *cost;
    weir__encoder *encoder; /* NULL: the model has no projector */
    const weir_model *model;
    weir_engine_stats counts;
    weir__rates rates;
    weir_tick tick;          /* the current one */
    weir_tick_slot *planned; /* [n_slots] */
    uint64_t n_failed;       /* n_failed_ticks before this tick */
    uint64_t n_abandoned;    /* likewise */
} weir__account;

/* Set before: the members up to `counts`. False: out of memory. Freed with fini in any case. */
bool weir__account_init(weir__account *account);
void weir__account_fini(weir__account *account);

void weir__account_begin(weir__account *account, int64_t start);

/* A request has got a slot, with the state that was restored. resumed: it had a slot before. */
void weir__account_admit(weir__account *account, const weir__slot *slot, bool resumed);

/* A request is going to lose its slot, which still has everything. */
void weir__account_suspend(weir__account *account, const weir__slot *slot);

/* The batch is filled and its shape is known, but it is not computed yet. */
void weir__account_plan(weir__account *account, const weir__shape *shape, int32_t n_batch);

/* The request has one more token; after first_ns is set. */
void weir__account_token(weir__account *account, const weir__request *request);

/* A chunk may have been sent. */
void weir__account_chunk(weir__account *account, weir__request *request, int64_t now);

/* A request ends: its slot is settled, but not finished yet. Slot -1 stands for the queue. */
void weir__account_finish(weir__account *account, const weir__slot *slot, int64_t now);

/* The tick is over. Also publishes. work_ns: the time that the cost model learned from, 0 = none. */
void weir__account_end(weir__account *account, const weir_report *report, int64_t work_ns);

/* Copies the driver's counters to where other threads read them. */
void weir__account_publish(weir__account *account);

#endif

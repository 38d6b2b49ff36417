/* driver.h: the state of the thread that drives an engine (context, slots, batch), and the functions that its
 * tick consists of.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_DRIVER_H
#define WEIR_ENGINE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "engine/account.h"
#include "engine/cells.h"
#include "engine/encoder.h"
#include "engine/prefix.h"
#include "engine/queue.h"
#include "engine/shared.h"
#include "engine/slot.h"
#include "engine/speculate.h"
#include "engine/waker.h"
#include "schedule/schedule.h"
#include "weir/more.h"

/* The pass that is being computed; pace.c writes it. */
typedef struct weir__pass_watch {
    int64_t end_ns;     /* when the pass will end, as predicted */
    int64_t checked_ns; /* when the queue was last searched */
    int64_t rest_ns;    /* until then, prompts that yield to other engines rest; of an earlier pass */
    bool rests;         /* one of them rests in this tick */
    uint32_t rises;     /* weir__peers_rises() before the pass */
} weir__pass_watch;

/* Belongs to the driver: the engine's thread, or in a manual engine the thread that has set `driven`. The
 * members up to `shared` are constant after create; of these, other threads use `prefix`, whose cache has its
 * own lock. */
typedef struct weir__driver {
    weir_model *model;
    const weir_engine_params *params; /* complete */
    weir_context_info info;           /* of the context that was created */
    weir_strategy strategy;
    weir__waker *waker;
    weir__prefix prefix;
    weir__shared *shared;

    weir__bcontext *context;
    weir__memory memory; /* the contents of its sequences */
    weir__lanes lanes;
    weir__cells cells;
    weir__batch batch;
    weir__slots slots;
    weir__slot **sampling;      /* [n_slots] the slots that this tick samples */
    weir__thread_pool *threads; /* NULL until sampling takes long enough to share */
    uint32_t cancels_seen;
    int64_t transfer_due_ns; /* until when a transfer waits for a file; 0 = none does */
    bool file_came;          /* a file had been read when this tick began */
    weir__emit_scratch scratch;
    weir__account account;
    weir_slot_view *view_slots; /* [n_slots] */
    /* [n_slots] the most that a plan may give each by the last weir_engine_view; shows: no tick since */
    int32_t *shown;
    bool shows;
    weir_plan_entry *plan; /* [n_slots] */
    weir_view view;
    weir__cost cost;
    weir__shape shape; /* of this tick's batch */
    weir__turns turns;
    weir__pass_watch watch; /* of this tick's pass */
    weir__peer peer;        /* in no list if the engine is manual */
    weir__encoder *encoder; /* NULL: the model has no projector */
    weir__segment segment;  /* of this tick, if it computes one, with its embeddings */
    weir__slice slice;
    weir__speculate speculate;
} weir__driver;

/* Set before: the constants without `prefix`, and the context; all else is zero. Free with close in any case.
 * NO_MEMORY, and the errors of the cache's folder and of the draft model. */
weir_status weir__driver_open(weir__driver *driver, weir_error *error);
void weir__driver_close(weir__driver *driver);

/* ---- step.c: the tick ---- */

/* Runs one tick; docs/architecture.md describes its phases. plan NULL: the strategy plans. */
void weir__step_tick(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan, weir_report *report);

/* The first three phases of a tick: collect, finish and, if `admits`, admit. */
void weir__step_prepare(weir__driver *driver, bool admits, int64_t now);

/* Describes the slots that have work in driver->view, oldest request first. */
void weir__step_view(weir__driver *driver, int64_t now);

/* ---- admit.c: who gets a slot, keeps it, and ends ---- */

/* Makes room before a pass: evicts cached prefixes, then suspends requests, until the slots' tokens fit. One
 * request always fits. True: some were suspended. */
bool weir__admit_relieve(weir__driver *driver, int64_t now);

/* Fills free slots from the queue, and lets requests preempt those that they outrank. now: the start of the
 * tick, so that ages, and with them the order, follow from the record of ticks (ADR 0020). */
void weir__admit(weir__driver *driver, int64_t now);

/* Ends requests in slots and in the queue that were cancelled or whose deadline has passed. */
void weir__finish_collect(weir__driver *driver, int64_t now);

/* Latches the reasons of slots and does no more. Also called between a pass and its sampling: a cancel or
 * deadline has precedence over an end by that pass. */
void weir__finish_collect_slots(const weir__slots *slots, int64_t now);

/* Ends the requests of slots that have a reason. */
void weir__finish_latched(weir__driver *driver);

/* Ends all requests, in slots and in the queue, with WEIR_STOPPED. */
void weir__finish_all(weir__driver *driver);

/* Lets the encoder, if it is idle, encode media of slots, then of queued requests, as far as its budget goes.
 * now: as in weir__admit. */
void weir__media_look_ahead(weir__driver *driver, int64_t now);

/* ---- reuse.c: tokens that need not be computed ---- */

/* Gives the slot, after weir__slot_start, a lane with those of the request's tokens that are available, or
 * makes it JOINED, without a lane. */
void weir__reuse_start(weir__driver *driver, weir__slot *slot);

/* Drops the cells of a running slot; no other slot finds its text any more. */
void weir__reuse_drop(weir__driver *driver, weir__slot *slot);

/* The same, and starts the slot again with the best that is cached of its text. */
void weir__reuse_restart(weir__driver *driver, weir__slot *slot);

/* Starts the JOINED slots whose leader has computed their tokens or is gone, or whose file has been read or
 * does not come in time. */
void weir__reuse_rejoin(weir__driver *driver);

/* Carries out a transfer that a caller waits for: gives or takes the state of a cached prefix. */
void weir__reuse_transfer(weir__driver *driver);

/* ---- pace.c: how far prompts go on ---- */

#define WEIR__PACE_TURN 4 /* one tick in this many belongs to an outranked prompt */

/* Watches passes: from now on, a pass that need not finish ends early. */
void weir__pace_watch(weir__driver *driver);

/* The target for the length of a tick: the least of the streams that generate; a set of adapters has its
 * share. */
int64_t weir__pace_target_ns(const weir__driver *driver);

/* Sets the limits of this tick. A second call in the same tick sets the same limits, except for slots that
 * have ended since. */
void weir__pace_choose(weir__driver *driver, int64_t now);

/* True if the slot may be planned in this tick. */
static inline bool weir__pace_has(const weir__slot *slot)
{
    return slot->state != WEIR_SLOT_PREFILLING || slot->pace.limit > 0;
}

/* The pass begins: the batch is filled and its shape known. */
void weir__pace_begin(weir__driver *driver, int64_t now);

/* The time until which prompts wait for other engines' requests; WEIR__CLOCK_NEVER = none waits. */
int64_t weir__pace_rest_ns(const weir__driver *driver);

/* The pass took ns, whether or not it was abandoned: bills the tenants. */
void weir__pace_bill(weir__driver *driver, int64_t ns, int64_t now);

/* The pass was computed. */
void weir__pace_advance(const weir__slots *slots);

/* The pass was abandoned: removes its cells, so that its tokens are computed again. */
void weir__pace_restart(weir__driver *driver);

/* ---- batch.c: a plan as a batch ---- */

/* The caller gets the view as it is now. Its next plan is judged by it. */
void weir__batch_show(weir__driver *driver);

/* The most tokens that a plan may give the slot; 0 if it has no work or its adapters' turn has not come. */
int32_t weir__batch_most(const weir__driver *driver, const weir__slot *slot);

/* The tokens of its prompt that the slot may have in this tick; 0 = as many as it has. */
int32_t weir__batch_limit(const weir__driver *driver, const weir__slot *slot);

/* Writes the plan into the batch, each lane's rows together. False: the plan breaks a rule (see
 * weir_strategy), nothing was written. Leaves out slots of the shown view that are gone. */
bool weir__batch_fill(weir__driver *driver, const weir_plan_entry *plan, size_t n_plan);

#endif

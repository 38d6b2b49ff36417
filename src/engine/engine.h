/* engine.h: the engine's internals, shared by its files: engine.c (create, destroy, submit, threads), step.c
 * (the tick), admit.c, prefix.c, suspend.c, lanes.c and finish.c (phases of the tick), forecast.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/crew.h"
#include "cache/cache.h"
#include "engine/account.h"
#include "engine/doorbell.h"
#include "engine/flight.h"
#include "engine/shared.h"
#include "engine/slot.h"
#include "engine/speculate.h"
#include "engine/turn.h"
#include "engine/wheel.h"
#include "schedule/schedule.h"

/* Who may touch what:
 *   - Any thread: `shared`, by the functions of shared.h.
 *   - Everything from `context` to `speculate` belongs to the driver: the engine's thread, or in a manual
 *     engine whoever has set `driven`.
 *   - The rest is constant after create. */
struct weir_engine {
    weir_model *model;
    weir_engine_params params; /* complete */
    weir_context_info info;    /* what was allotted */
    weir__limits limits;
    weir_strategy strategy;
    weir__doorbell *bell;
    weir__flights *flights; /* has its own lock */

    weir__shared shared; /* with callers' threads; has its own lock */

    atomic_bool driven;
    weir__wheel wheel; /* of whoever has set driven */

    weir__bcontext *context;
    weir__memory memory; /* what its sequences hold */
    weir__cache *cache;  /* has its own lock; other threads look things up in it */
    bool caching;        /* prefixes are kept */
    bool exact;          /* the model's memory cannot be cut */
    int32_t least;       /* tokens of a prefix that is worth keeping */
    weir__batch batch;
    weir__slot *slots;     /* [n_slots] */
    weir__slot **lanes;    /* [n_seq_max] the slot of each sequence, NULL = free or a cached prefix's */
    bool *wanted;          /* [n_seq_max] scratch */
    weir__slot **sampling; /* [n_slots] those that this tick samples */
    weir__crew *crew;      /* NULL until sampling takes long enough to be shared */
    uint32_t cancels_seen;
    int64_t
        n_room; /* cells that slots may fill: a pool's, fewer after the backend found none; lanes: no limit */
    weir__rates rates; /* published into shared */
    weir__emit_scratch scratch;
    weir__account account;
    weir_engine_stats counts;   /* the driver's own; published into shared */
    weir_slot_view *view_slots; /* [n_slots] */
    /* [n_slots]; the most that weir_engine_view has said a plan may give each; shows: no tick was since */
    int32_t *shown;
    bool shows;
    weir_plan_entry *plan; /* [n_slots] */
    weir_view view;
    weir__cost cost;
    weir__shape shape; /* of this tick's batch */
    weir__turn turn;
    weir__speculate speculate;

    pthread_mutex_t stop_mutex; /* held while stop joins the thread; taken before mutex */
    pthread_t thread;
    bool has_thread; /* under stop_mutex */
};

/* weir_engine_submit, or with `choices` submit_n, and for weir_generate: results [n] are filled and counted
 * off on the ticket. */
weir_status weir__engine_submit(weir_engine *engine, const weir_request *requests, size_t n, bool choices,
                                weir_stream *const *streams, weir_result *results, weir__ticket *ticket,
                                weir_error *error);

/* For calls that wait for the engine. STATE: on this thread it would be for ever, as it runs one of the
 * engine's callbacks, or is in a child of fork(). */
weir_status weir__engine_check_caller(const weir_engine *engine, weir_error *error);

/* One tick; docs/architecture.md describes its phases. The caller drives. plan NULL: the strategy's. */
void weir__step_tick(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan, weir_report *report);

/* The tick's first three phases: collect, finish, and, where that may change who has a slot, admit. */
void weir__step_prepare(weir_engine *engine, bool admits, int64_t now);

/* Describes the slots that have work, oldest first, in engine->view. */
void weir__step_view(weir_engine *engine, int64_t now);

/* Reads cancels and deadlines, of slots and of the queue, and ends what they concern. */
void weir__finish_collect(weir_engine *engine, int64_t now);

/* Those of the slots alone; also between a pass and its sampling, where they beat the pass's end. */
void weir__finish_collect_slots(weir_engine *engine, int64_t now);

/* Closes the slots that have a reason. */
void weir__finish_latched(weir_engine *engine);

/* Ends everything, slots and queue, with WEIR_STOPPED. */
void weir__finish_all(weir_engine *engine);

/* Gives free slots to the queue, and slots of lower priority to requests that outrank them. now: the start of
 * the tick, so that ages, and with them the order, follow from its record (ADR 0020). */
void weir__admit(weir_engine *engine, int64_t now);

/* Suspends the slot's request: saves its cells if it may, frees them, and puts it into the queue. */
void weir__suspend(weir_engine *engine, weir__slot *slot);

/* After weir__lanes_enter: brings back what was saved. Without it the tokens are computed again. */
void weir__suspend_restore(weir_engine *engine, weir__slot *slot);

/* Forgets what was saved. */
void weir__suspend_drop(weir_engine *engine, weir__request *request);

/* The slot to suspend first: of those that `by` outranks (NULL: all) the youngest of the lowest priority. */
weir__slot *weir__suspend_victim(weir_engine *engine, const weir__request *by, int64_t now);

/* Cells that a request of so many tokens needs to be worth a slot. */
int64_t weir__suspend_cells_wanted(const weir__request *request, int32_t n_tokens);

/* Before a pass: evicts cached prefixes, then suspends, until what the slots hold fits. The last one
 * always does. True: some were suspended. */
bool weir__suspend_relieve(weir_engine *engine, int64_t now);

/* The backend has fewer cells than was counted: until a request ends, less is filled. False: there is but one
 * slot in use, and for it they are too few. */
bool weir__suspend_shrink(weir_engine *engine);
void weir__suspend_reset(weir_engine *engine);

/* Whether a model's memory can be cut at the end of a sequence only, and not at any token. */
bool weir__prefix_is_exact(const weir_model *model);

/* Makes memory and cache of a context. */
weir_status weir__prefix_open(weir_engine *engine, weir_error *error);

/* After weir__slot_start: a lane with what is there of the request's tokens; or the slot is JOINED and has
 * none. */
void weir__prefix_start(weir_engine *engine, weir__slot *slot);

/* Starts the JOINED slots that have nothing to wait for any longer. */
void weir__prefix_rejoin(weir_engine *engine);

/* How many of n tokens the slot may compute at once. */
int32_t weir__prefix_chunk(const weir_engine *engine, const weir__slot *slot, int32_t n);

/* The slot has computed up to n_past. */
void weir__prefix_advance(weir_engine *engine, weir__slot *slot);

/* Nobody finds the slot's tokens any longer. */
void weir__prefix_leave(weir_engine *engine, weir__slot *slot);

/* The same of a slot that has ended; the cache may take over its lane. */
void weir__prefix_keep(weir_engine *engine, weir__slot *slot);

/* Tokens of a prompt that would not be computed. Any thread. */
int32_t weir__prefix_known(weir_engine *engine, const weir__request *request);

/* The first lane that holds nothing, -1 = none; the slot's lane; its cells freed and its lane given back. */
int32_t weir__lanes_free(const weir_engine *engine);
void weir__lanes_enter(weir_engine *engine, weir__slot *slot, int32_t lane);
void weir__lanes_leave(weir_engine *engine, weir__slot *slot);

/* Closes a gap between lanes, one move a tick. */
void weir__lanes_compact(weir_engine *engine);

static inline int64_t weir__ageing_ns(const weir_engine *engine)
{
    return engine->params.ageing_ms * WEIR__NS_PER_MS;
}

/* Samples the slots that have a row; each slot's token or failure is then in the slot. */
void weir__sample(weir_engine *engine);

/* The caller was shown the view as it is: a plan is judged by that. */
void weir__batch_show(weir_engine *engine);

/* Writes the plan into the batch: rows in lane order. False: the plan breaks a rule (see weir_strategy),
 * nothing was written. What the plan has of the view, and what is not there any more, is left out. */
bool weir__batch_fill(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan);

#endif

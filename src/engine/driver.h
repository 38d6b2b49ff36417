/* driver.h: the state of the thread that drives an engine: context, slots, batch.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_DRIVER_H
#define WEIR_ENGINE_DRIVER_H

#include "base/clock.h"
#include "base/thread_pool.h"
#include "cache/cache.h"
#include "engine/account.h"
#include "engine/cells.h"
#include "engine/encoder.h"
#include "engine/peers.h"
#include "engine/prefix.h"
#include "engine/shared.h"
#include "engine/slot.h"
#include "engine/speculate.h"
#include "engine/waker.h"
#include "schedule/schedule.h"

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

#endif

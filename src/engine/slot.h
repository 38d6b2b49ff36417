/* slot.h: the place of a running request in the batch, which slots have their turn in a tick, and the images
 * and sounds that they need next.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_SLOT_H
#define WEIR_ENGINE_SLOT_H

#include "cache/cache.h"
#include "engine/encoder.h"
#include "engine/request.h"
#include "model/logprob.h"
#include "speculate/drafter.h"

/* A token sampled in this tick. */
typedef struct weir__sampled {
    int32_t token;
    size_t before_call;  /* text_before_call's */
    int32_t n_reasoning; /* of the answer up to here, the tokens of reasoning */
    float logprob;       /* valid if the request is scored, as is the next member */
    weir_logprob top[WEIR__LOGPROBS_MAX];
} weir__sampled;

/* Invariants, which debug builds check after each tick. IDLE: no request, no lane. JOINED: n_past == 0, no
 * lane; another slot computes the first n_promised tokens, or they are in a file that is to be read.
 * PREFILLING: n_past < n_tokens; after a suspension they may include generated tokens. GENERATING: n_prompt
 * <= n_past == n_tokens - 1: the last token was sampled and not yet computed. The lane holds exactly
 * positions 0 … n_past - 1. */
typedef enum weir__cells_next {
    WEIR__NEXT_TOKEN,
    WEIR__NEXT_AWAITED, /* a segment whose embeddings are not there yet */
    WEIR__NEXT_SEGMENT,
} weir__cells_next;

/* The pace of a prompt: how far it may go on beside requests of higher priority (ADR 0086). It is outranked
 * while a request that might preempt it is in another slot. */
typedef struct weir__pace {
    int32_t limit;        /* prompt tokens in this tick, at most; 0 = none, INT32_MAX = no limit */
    int32_t n_skipped;    /* ticks in a row with a limit of 0 */
    int64_t outranked_ns; /* when it was outranked the last time; 0 = never */
    bool yields;          /* a request of another engine goes before it */
} weir__pace;

typedef struct weir__slot {
    int32_t index; /* its number in plans and views: never changes */
    int32_t lane;  /* the sequence with its cells; changes when lanes are compacted; -1 = none */
    weir_slot_state state;
    weir__request *request;
    int32_t n_past;
    int32_t n_planned;  /* tokens in this tick's batch */
    int32_t n_unbilled; /* generated tokens that its tenant does not count yet */
    int32_t row;        /* the first batch row to sample from, followed by the draft's; -1 = none */
    weir__draft draft;  /* tokens that may follow its last one */
    int32_t n_drafted;  /* tokens of the draft in this tick's batch */
    int32_t n_accepted; /* those of them that became part of the answer */
    int32_t n_burst;    /* tokens sampled in this tick */
    weir__sampled burst[WEIR__DRAFT_MAX + 1];
    weir_status failed; /* why there are no more of them; see `error` */
    int32_t scored_row; /* the first of n_scored batch rows that score tokens of the prompt */
    int32_t n_scored;
    weir_reason reason; /* written once: the first cause wins */
    weir_error error;
    int64_t sample_ns;            /* the time of its last sampling; 0 = none yet */
    weir__prefix_end live;        /* its place in the prefix tree */
    uint64_t served;              /* when its adapters had their last turn; smaller is earlier */
    weir__cells_next next;        /* how a prompt continues in this tick */
    const weir__media_span *span; /* the prompt's next one; NULL = none */
    weir__embedding *embedding;   /* of this span; held */
    weir__pace pace;
    int32_t spacing;    /* of its prompt's checkpoints: see weir__prefix_spacing */
    int32_t n_promised; /* tokens that it will get from the cache or the leader */
    int32_t leader;     /* JOINED: the slot that computes them, of the request leader_serial; -1 = none does,
                         * they are in a file */
    uint64_t leader_serial;
    weir__cache_wait wait; /* for files */
} weir__slot;

/* An engine's slots, in the order of their indices. */
typedef struct weir__slots {
    weir__slot *first, *end;
} weir__slots;

void weir__slot_init(weir__slot *slot, int32_t index);

/* The slot takes over the request. None of its cells are there. */
void weir__slot_start(weir__slot *slot, weir__request *request, int64_t now);

/* Ends the slot for this reason, unless it already has one. */
void weir__slot_latch(weir__slot *slot, weir_reason reason);
void weir__slot_fail(weir__slot *slot, weir_status status, const weir_error *error);

/* Appends a sampled token with its logprobs to the request. False: out of memory. */
bool weir__slot_append(weir__slot *slot, const weir__sampled *sampled);

/* The request has all of its tokens: releases held-back text and settles the reason. */
void weir__slot_settle(weir__slot *slot, weir__emit_scratch *scratch);

/* Delivers the last chunk and the result, after settle. The slot becomes idle; the caller has freed its
 * cells. */
void weir__slot_finish(weir__slot *slot, int64_t now);

int32_t weir__slot_count_active(const weir__slots *slots);

/* The time when the next slot ends its wait or its request, if nothing can be computed because slots wait for
 * embeddings or files. Otherwise 0: the driver has work. WEIR__CLOCK_NEVER: never. */
int64_t weir__slot_deadline(const weir__slots *slots);

/* True if the slot waits for a file that has its tokens. */
static inline bool weir__slot_awaits_file(const weir__slot *slot)
{
    return slot->state == WEIR_SLOT_JOINED && slot->leader < 0;
}

/* True if the slot, or the one that computes its tokens, waits for something outside the engine: an embedding
 * or a file. Then it computes nothing, and nobody stands back for it. */
bool weir__slot_awaits(const weir__slots *slots, const weir__slot *slot);

/* True if the slot has a stream that flows: it generates, or it computes the end of its answer again, as many
 * tokens as a draft may have, after it was rejected (ADR 0142). */
static inline bool weir__slot_flows(const weir__slot *slot)
{
    if (slot->state != WEIR_SLOT_PREFILLING) return slot->state == WEIR_SLOT_GENERATING;
    const weir__history *history = &slot->request->history;
    return slot->request->n_generated > 0 && slot->n_past >= history->n_prompt &&
           history->n_tokens - slot->n_past <= 1 + WEIR__DRAFT_MAX;
}

/* The state as others see it: a stream that flows generates. */
static inline weir_slot_state weir__slot_shown(const weir__slot *slot)
{
    return weir__slot_flows(slot) ? WEIR_SLOT_GENERATING : slot->state;
}

/* Tokens that are in the memory, or will be once the leader has computed them. */
static inline int32_t weir__slot_n_there(const weir__slot *slot)
{
    return slot->state == WEIR_SLOT_JOINED ? slot->n_promised : slot->n_past;
}

/* ---- Images and sounds ---- */

/* Asks for the embeddings that slots need next, and notes which are there. True: some slots have failed,
 * because there will be none. encoder NULL: does nothing. */
bool weir__media_collect(weir__encoder *encoder, const weir__slots *slots);

/* The slot gives back the embeddings that it needs now. */
void weir__media_leave(weir__encoder *encoder, weir__slot *slot);

/* The request ends: gives back those that were encoded ahead. */
void weir__media_drop(weir__encoder *encoder, weir__request *request);

/* ---- Turns of adapters ---- */

/* Chooses the set of adapters for a tick: a pass has one set, so requests with different sets take turns. The
 * driver's. Segments of images and sounds are a set of their own, of which a tick computes one (ADR
 * 0074). The set whose slot with work was served or admitted longest ago is next. So none waits for more
 * ticks than there are sets, whatever arrives meanwhile. */
typedef struct weir__turns {
    uint64_t key;            /* of the set that is served */
    int32_t segment;         /* the slot whose segment is computed; -1 = tokens are */
    int32_t n_sets;          /* sets with work, including this one */
    uint64_t stamp;          /* for the next slot that is served or admitted */
    weir__adapters adapters; /* of the context */
} weir__turns;

/* True if the slot may be planned in this tick. */
static inline bool weir__turns_has(const weir__turns *turns, const weir__slot *slot)
{
    if (turns->segment >= 0) return slot->index == turns->segment;
    return slot->next == WEIR__NEXT_TOKEN && slot->request->history.adapters.key == turns->key;
}

/* The slot has got a request. */
static inline void weir__turns_enter(weir__turns *turns, weir__slot *slot)
{
    slot->served = turns->stamp++;
}

/* Chooses the set. Called again in the same tick, it chooses the same one, as long as that has work. */
void weir__turns_choose(weir__turns *turns, const weir__slots *slots);

/* The tick is over: its slots go to the end of the line. */
void weir__turns_pass(weir__turns *turns, const weir__slots *slots);

#endif

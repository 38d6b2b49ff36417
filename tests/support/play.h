/* play.h: one random schedule: its engine, its requests, and the chunks that their readers must see.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_PLAY_H
#define WEIR_TESTS_PLAY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "model/fake.h"
#include "support/guess.h"
#include "support/wish.h"

#define PLAY_JOBS   40 /* requests of one schedule */
#define PLAY_SPARES 4
#define PLAY_SETS   4 /* of adapters: none, two of one, two together */
#define PLAY_TRACE  (1 << 16)

/* Where an event happens. Which other ends may win against a cancel depends on it. */
typedef enum place { BETWEEN, DECODING, SAMPLING, READY } place;

/* The action of a ready callback. */
typedef enum on_ready { COUNT_ONLY, TAKE, CANCEL, RELEASE, ACT } on_ready;

/* A request that was given to the engine. */
typedef struct job {
    struct play *play;
    wish w;
    reader r;
    weir_stream *stream; /* NULL: nobody reads, or released */
    bool accepted;
    bool generated; /* weir_generate has its result */
    bool done;      /* its end was seen, or nobody is left who could */
    bool counted;   /* its end stands in play->seen */
    int32_t slow;   /* takes chunks at one of `slow` occasions */
    bool with_descriptor;
    bool watched; /* has a ready callback */
    on_ready on_ready;
    int n_ready;           /* its calls since the last take */
    int32_t least, most;   /* of all intervals that it had */
    uint64_t empty_turn;   /* the turn after which nothing was there */
    uint64_t n_since;      /* chunks taken since then */
    uint64_t cancel_turn;  /* 0 = not cancelled */
    bool must_cancel;      /* the cancel came in time */
    int64_t due_ns;        /* by then its deadline has passed */
    uint64_t good, n_good; /* ticks before it was accepted; ticks in which it must end */
    uint64_t planned;      /* plans taken before it was accepted */
    uint64_t n_rejected;   /* drafts rejected before it was accepted */
} job;

typedef struct play {
    dice d;
    uint64_t seed;
    long live; /* blocks before it */
    weir_model *model;
    weir__fake *fake;
    weir_engine *engine;
    weir_engine_params params;
    weir_strategy strategy;
    bool adapted;              /* requests have adapters */
    weir_adapter *adapters[2]; /* that these are made of */
    weir_adapter_use uses[PLAY_SETS][2];
    guess guess; /* who drafts; half of the engines that have drafts look them up instead */
    wish_limits limits;
    weir_engine_stats first; /* right after create */
    job jobs[PLAY_JOBS];
    int n_jobs;
    weir_stream *spares[PLAY_SPARES]; /* streams of refused submits, fresh again */
    int n_spares;
    int act_rate;   /* one event at act_rate hooks */
    bool deadlines; /* some requests have one */
    bool ranked;    /* requests have priorities and salts */
    bool scarce;    /* allocations fail */
    bool disturbed; /* passes and samples fail */
    bool closed;    /* stopped or draining */
    bool stopped;   /* from within a tick */

    place place;
    uint64_t turns;     /* chances to put a chunk */
    uint64_t n_acts;    /* events that a plan does not foresee */
    bool generating;    /* inside weir_generate */
    uint64_t n_passes;  /* of the fake when its ticks were counted last */
    uint64_t n_good;    /* ticks that made progress for the oldest */
    uint64_t n_planned; /* ticks with a plan that was taken: each may spend a set's turn on nothing */
    bool strategy_bad;  /* the strategy's last plan breaks a rule */

    uint64_t n_accepted, n_refused, n_seen_tokens;
    uint64_t n_forks;
    bool scores;      /* a prompt may be scored */
    uint64_t seen[8]; /* ends by reason */
    uint64_t n_prefill, n_bad_plans, n_decodes, n_failed, n_suspensions;
    uint64_t n_drafted, n_drafted_right;           /* as the engine counted in the end */
    uint64_t n_cached_tokens, n_joined, n_evicted; /* as the engine counted in the end */
    uint64_t n_adapter_changes;                    /* the same */
    uint64_t n_parts;                              /* as the fake counted */

    /* of the present tick */
    weir_engine_stats at_decode;
    int32_t batch_seqs, batch_drafts; /* sequences of the batch, tokens of drafts */
    int32_t calm;                     /* ticks in a row that began with the same requests */
    int32_t n_led;                    /* of the last tick's, those that waited for another one's prefix */
    bool cancelled_inside;

    char trace[PLAY_TRACE];
    size_t n_trace;
} play;

#define MUST(p, condition, ...)                                                                              \
    do {                                                                                                     \
        if (condition) break;                                                                                \
        say(p, "turn %llu, " #condition ":", (unsigned long long)(p)->turns);                                \
        say(p, __VA_ARGS__);                                                                                 \
        show(p);                                                                                             \
        fail_msg("schedule %llu: " #condition, (unsigned long long)(p)->seed);                               \
    } while (0)

/* Adds a line to the trace. */
void say(play *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes trace and seed to stderr. Safe in a signal handler. */
void show(const play *p);

/* Its number in the trace. */
int job_number(const job *j);

/* The job was accepted: its reader's expectations from here on. before: its stream's interval until then. */
void job_accept(job *j, int32_t before, int64_t now);

/* Tokens of rejected drafts so far, in models where what cannot be taken back starts its request again. */
uint64_t job_rejected(play *p);

/* Takes up to `most` chunks and judges them, and all of them when the last is the terminal one. */
void job_take(job *j, int most);

/* It ended for this reason, which its stream, if it has one, reports. */
void job_end(job *j, weir_reason reason);

void job_cancel(job *j);

/* Releases the stream, whatever its state. */
void job_let_go(job *j);

/* The ready callback; user is the job. */
void job_ready(weir_stream *stream, void *user);
void job_watch(job *j, bool on);

weir_engine_stats play_stats(play *p);
uint64_t play_n_finished(const weir_engine_stats *stats);

#endif

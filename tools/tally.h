/* tally.h: the results of a load: counts, and times in memory that does not grow with the load.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_TALLY_H
#define WEIR_BENCH_TALLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Ways in which a request can end: name, key in reports. */
#define CLI_FATE_MAP(X)                                                                                      \
    X(ANSWERED, "answered")   /* to the end */                                                               \
    X(LEFT, "left")           /* the client left on purpose */                                               \
    X(CONNECT, "connect")     /* no connection */                                                            \
    X(BUSY, "busy")           /* refused as busy (429, 503), tries used up */                                \
    X(REFUSED, "refused")     /* with another status of 4xx */                                               \
    X(FAILED, "failed")       /* with a status of 5xx, or an error within the stream */                      \
    X(TIMEOUT, "timeout")     /* took longer than --timeout */                                               \
    X(CUT, "cut")             /* the connection ended before the answer */                                   \
    X(MALFORMED, "malformed") /* the answer is not in the API's format */                                    \
    X(STOPPED, "stopped")     /* under way when the load was interrupted */

typedef enum cli_fate {
#define X(name, key) CLI_FATE_##name,
    CLI_FATE_MAP(X)
#undef X
        CLI_N_FATES,
} cli_fate;

extern const char *const cli_fate_keys[CLI_N_FATES];

/* One request, times in ns since the load began. */
typedef struct cli_record {
    uint64_t index; /* CLI_TRAFFIC_LATE for the late one */
    cli_fate fate;
    int32_t n_tries;
    int64_t sent_ns, first_ns, last_ns, end_ns; /* first, last: pieces of text, 0 = none */
    int64_t worst_gap_ns;
    int32_t n_pieces;
    int64_t n_first; /* tokens of the first piece, if the server says it there; else 1 */
    int64_t n_prompt, n_generated, n_cached; /* as the server counts; -1 = unknown */
    bool ended_by_itself;                    /* not by its length */
} cli_record;

/* Times by their logarithm, each bucket about 1 % wide. */
enum { CLI_SPREAD_BUCKETS = 2304 };
typedef struct cli_spread {
    uint64_t n;
    double sum, least, most;
    uint64_t buckets[CLI_SPREAD_BUCKETS];
} cli_spread;

void cli_spread_add(cli_spread *spread, double ms);
/* The p-th part, 0 … 1, to 1 %; the ends are exact. 0: there are none. */
double cli_spread_part(const cli_spread *spread, double p);

/* The longest gap in each stretch of time; stretches double when the load goes on for longer than all of
 * them. */
enum { CLI_TIMELINE_MAX = 512 };
typedef struct cli_timeline {
    int64_t stretch_ns;
    double gap_ms[CLI_TIMELINE_MAX]; /* 0 = no token came */
} cli_timeline;

typedef struct cli_tally {
    uint64_t n_sent, n_retries;
    uint64_t n_ended[CLI_N_FATES];
    uint64_t n_unsent;               /* arrivals that found no free connection */
    char examples[CLI_N_FATES][192]; /* the first message of each fate */
    uint64_t n_prompt, n_cached, n_generated;
    uint64_t n_uncounted;      /* of n_generated, pieces of answers whose tokens the server did not count */
    uint64_t n_cached_counted; /* requests whose server counted cached tokens */
    uint64_t n_by_itself, n_not_json; /* answers that ended by themselves; of those, with a schema, no JSON */
    /* ms; without the late request. itl: between pieces; tpot: per token after the first, of each answer */
    cli_spread ttft, itl, tpot, worst, total;
    cli_timeline timeline;
    bool has_late;
    cli_record late;
    int64_t last_ns; /* the latest end */
} cli_tally;

/* 18 KB × 5 and more: not for stacks. Zeroed, then: */
void cli_tally_init(cli_tally *tally);

/* A piece of an answer came. */
void cli_tally_piece(cli_tally *tally, cli_record *record, int64_t now_ns);

/* Counts the end of an answer. message may be "". */
void cli_tally_end(cli_tally *tally, const cli_record *record, const char *message);

uint64_t cli_tally_errors(const cli_tally *tally);

/* The rate of generated tokens, and of those with prompts, per second from the first request to the last
 * end. */
double cli_tally_rate(const cli_tally *tally, bool with_prompts);

/* All of it. NULL: out of memory. */
json_t *cli_tally_json(const cli_tally *tally);

#endif

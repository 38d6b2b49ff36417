/* exchange.h: requests under way, their carrier, and the loop that sends them when the traffic says so. One
 * thread; an exchange is a few hundred bytes and its carrier's data.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_EXCHANGE_H
#define WEIR_BENCH_EXCHANGE_H

#include <stdio.h>

#include "cli/lib/options.h"
#include "cli/lib/text.h"
#include "tally.h"
#include "traffic.h"

typedef struct cli_exchanges cli_exchanges;
typedef struct cli_carrier cli_carrier;

typedef struct cli_exchange {
    cli_exchanges *exchanges;
    size_t place; /* in exchanges->all */
    cli_record record;
    cli_planned planned;
    cli_text prompt;
    cli_text answer;     /* with a schema: its text, as far as ANSWER_MAX */
    int64_t retry_at_ns; /* since the load began; 0 = it is being carried */
    void *carried;       /* the carrier's */
} cli_exchange;

/* The exchange has ended, and is gone when this returns. retry_ms >= 0: with BUSY, when to try
 * again. */
void cli_exchange_end(cli_exchange *exchange, cli_fate fate, const char *message, int64_t retry_ms);

struct cli_exchanges {
    const cli_args *args;
    cli_traffic traffic;
    cli_carrier *carrier;
    cli_tally *tally;
    FILE *csv;          /* a line for each request; NULL = none */
    int32_t n_clients;  /* of a closed loop */
    uint64_t n_planned; /* requests; UINT64_MAX = until duration_ns is over */
    int64_t duration_ns;
    int32_t n_tries;
    /* The loop's own. */
    cli_exchange **all; /* [n] */
    size_t n, capacity;
    size_t n_waiting; /* to be sent again */
    uint64_t next;
    int64_t started_ns, arrival_ns, shown_ns;
    bool late_sent;
};

extern const char cli_exchanges_csv_head[];

/* Nanoseconds since the load began. */
int64_t cli_exchanges_now(const cli_exchanges *exchanges);

/* ---- The carrier: sends requests to a server, and records their answers ---- */

/* NULL after a message: no libcurl in this build, or something is wrong with URL or options (*code). */
cli_carrier *cli_carrier_create(const cli_args *args, const char *url, cli_exit *code);
void cli_carrier_destroy(cli_carrier *carrier);

/* Exchanges that it can carry at a time. */
int32_t cli_carrier_limit(const cli_carrier *carrier);

/* Sends it. May end it at once. */
void cli_carrier_start(cli_carrier *carrier, cli_exchange *exchange);

/* Takes received bytes, waiting for them, or for a signal, up to timeout_ms. */
void cli_carrier_wait(cli_carrier *carrier, int timeout_ms);

/* Lets go of an exchange that is being carried; it is not ended by this. */
void cli_carrier_drop(cli_exchange *exchange);

#endif

/* traffic.h: which requests a load consists of: a pure function of the options, the seed among them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_TRAFFIC_H
#define WEIR_BENCH_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/lib/text.h"

/* A length, or one between two that each request draws for itself. */
typedef struct cli_span {
    int32_t least, most;
} cli_span;

/* "100" or "50-200", both from 1 to `limit`. False: it is neither. */
bool cli_span_parse(const char *text, int32_t limit, cli_span *span);

typedef struct cli_traffic {
    uint32_t seed;
    double rate; /* arrivals each second, apart by exponentially distributed times; 0 = none: a closed loop */
    cli_span prompt;  /* words, each about a token */
    cli_span answer;  /* tokens at the most */
    int32_t n_shared; /* words before each prompt that are the same for all */
    int32_t n_late;   /* words of the late prompt */
    double leave;     /* the part of the clients that leave before the end */
} cli_traffic;

typedef struct cli_planned {
    int32_t n_words;     /* of the prompt, shared ones included */
    int32_t n_answer;    /* tokens at the most */
    int32_t leave_after; /* pieces of the answer; 0 = the client stays */
    double gap_s;        /* from the arrival before to this one */
} cli_planned;

/* The late request, in place of an index. It stays to its end. */
#define CLI_TRAFFIC_LATE UINT64_MAX

/* Request i. */
cli_planned cli_traffic_plan(const cli_traffic *traffic, uint64_t i);

/* Adds the prompt of request i: words, one blank apart. Those that have nothing in common on purpose differ
 * from the first words on. */
void cli_traffic_prompt(const cli_traffic *traffic, uint64_t i, cli_text *text);

#endif

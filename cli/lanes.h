/* lanes.h: the screen of weir stream: a lane of fixed height for each request, one of them in focus.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   weir stream  requests.json  2 running, 1 queued, 1 done             96.4 tok/s
 *   ▶ 1 rivers ──────────────────────────── generating ── 45 tokens ── 12.3 tok/s
 *     The Rhine rises in the Alps and
 *     2 lakes ───────────────────────────────────────────────────────── prefilling
 *
 *   Tab ↓ j next   ↑ k back   s skip   q cancel all */
#ifndef WEIR_CLI_LANES_H
#define WEIR_CLI_LANES_H

#include "text.h"

#include <weir/weir.h>

typedef enum cli_lane_state {
    CLI_LANE_QUEUED,
    CLI_LANE_PREFILLING,
    CLI_LANE_GENERATING,
    CLI_LANE_FINISHED,
} cli_lane_state;

typedef struct cli_lane {
    const char *name; /* the caller's */
    cli_lane_state state;
    weir_reason reason; /* when finished */
    weir_usage usage;
    bool cancelling;
    /* The text as it is shown, and where its lines begin when wrapped at `width`; lines [n_lines], the last
     * one may grow. laid bytes have been wrapped so far. */
    cli_text shown;
    size_t *lines;
    size_t n_lines, lines_capacity;
    size_t laid, blank; /* blank: after the last blank of the last line, 0 = none */
    int column, width;
} cli_lane;

typedef struct cli_lanes {
    const char *title;
    cli_lane *lanes; /* [n] */
    size_t n;
    size_t focus, first; /* first: the topmost lane on the screen */
    int columns, rows;
    char **drawn; /* [n_drawn] what each row of the screen holds */
    int n_drawn;
    uint64_t n_tokens; /* generated so far, all lanes */
    double rate;
    int64_t measured_ns;
    uint64_t measured_tokens;
} cli_lanes;

void cli_lanes_init(cli_lanes *lanes, const char *title, size_t n);
void cli_lanes_fini(cli_lanes *lanes);

/* Adds text to a lane. */
void cli_lanes_add(cli_lane *lane, const char *text, size_t length);

/* Moves the focus. Returns whether the key was one for that. */
bool cli_lanes_key(cli_lanes *lanes, int key);

/* The window has another size, or its contents are lost. */
void cli_lanes_resize(cli_lanes *lanes);

/* Brings the screen up to date: rows that changed are written. */
void cli_lanes_draw(cli_lanes *lanes);

#endif

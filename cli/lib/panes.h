/* panes.h: the screen of weir stream: a pane of fixed height for each request, one of them in focus.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   weir stream  requests.json  2 running, 1 queued, 1 done             96.4 tok/s
 *   ▶ 1 rivers ──────────────────────────── generating ── 45 tokens ── 12.3 tok/s
 *     The Rhine rises in the Alps and
 *     2 lakes ───────────────────────────────────────────────────────── prefilling
 *
 *   Tab ↓ j next   ↑ k back   s skip   q cancel all */
#ifndef WEIR_CLI_PANES_H
#define WEIR_CLI_PANES_H

#include "text.h"

#include <weir/weir.h>

typedef enum cli_pane_state {
    CLI_PANE_QUEUED,
    CLI_PANE_PREFILLING,
    CLI_PANE_GENERATING,
    CLI_PANE_FINISHED,
} cli_pane_state;

typedef struct cli_pane {
    const char *name; /* the caller's */
    cli_pane_state state;
    weir_reason reason; /* when finished */
    weir_usage usage;
    bool cancelling;
    cli_text shown;
    /* The first of the last n_lines lines of `width` columns: earlier ones are not needed again. */
    size_t from, n_lines;
    int width;
} cli_pane;

typedef struct cli_panes {
    const char *title;
    cli_pane *panes; /* [n] */
    size_t n;
    size_t focus, first; /* first: the topmost pane on the screen */
    int columns, rows;   /* of the screen, when it was drawn last */
    uint64_t n_tokens;   /* generated so far, all panes */
    double rate;
    int64_t measured_ns;
    uint64_t measured_tokens;
} cli_panes;

void cli_panes_init(cli_panes *panes, const char *title, size_t n);
void cli_panes_fini(cli_panes *panes);

/* Adds text to a pane. */
void cli_panes_add(cli_pane *pane, const char *text, size_t length);

/* Moves the focus. Returns whether the key, of cli_screen_key, was one for that. */
bool cli_panes_key(cli_panes *panes, int key);

/* Brings the screen (screen.h) up to date. */
void cli_panes_draw(cli_panes *panes);

#endif

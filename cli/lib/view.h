/* view.h: a running server's state, read from its events, and the lines that show it.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   models    coder                     loaded      4.7 GB  2 running  pinned
 *             small                     sleeping    1.2 GB
 *   requests  2 running (1 reading, 1 writing), 3 waiting; 8 slots
 *   rates     123 tok/s written, 1,234 tok/s read
 *   latency   first token 45.0 / 120 ms  (p50 / p99)
 *             per token 3.10 / 4.00 ms, between pieces 8.10 / 15.0 ms
 *   cells     ██████░░░░░░░░░░░░░░ 1,234 of 4,096
 *   cache     12 prompts kept, 3.4 MB of states; 12,345 of 18,345 prompt tokens found there
 *   ticks     ▁▁▃▇▂▁▁▁▁▂▁ 12.3 ms, at most 45.6 ms
 *
 *   slot  state            prompt  answer  cached  priority
 *      0  generating          120      45     100         0 */
#ifndef WEIR_CLI_VIEW_H
#define WEIR_CLI_VIEW_H

#include <jansson.h>

#include "text.h"

#define CLI_VIEW_TICKS 512

/* Zeroed at the start. */
typedef struct cli_view {
    json_t *event;                 /* the last one; NULL = none came yet */
    float tick_ms[CLI_VIEW_TICKS]; /* a ring: [n_ticks % CLI_VIEW_TICKS] is the next one's */
    uint64_t n_ticks;
} cli_view;

void cli_view_fini(cli_view *view);

size_t cli_view_n_slots(const cli_view *view);

/* Takes the data of an event. False: it is no object as a server sends it; nothing has changed. */
bool cli_view_event(cli_view *view, const char *data, size_t length);

/* All of it, without figures of the moment; a new reference. */
json_t *cli_view_json(const cli_view *view);

/* Lines of at most `columns` where they can be shortened, with marks (cli_mark). `live`: with rates and
 * ticks, which a single event does not have. */
void cli_view_head(const cli_view *view, int columns, bool live, cli_text *text);

/* A headline, and a line for each slot, or for those that are busy. */
void cli_view_table(const cli_view *view, int columns, bool idle, cli_text *text);

#endif

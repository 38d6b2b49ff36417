/* record.h: an engine's last ticks as a file of JSON lines, for replays and other programs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_RECORD_H
#define WEIR_CLI_RECORD_H

#include <weir/more.h>

/* Ticks ascend without gaps, their times too; ticks[i].first_slot is a position in parts. Parts behind the
 * last tick's are of requests that ended after it. */
typedef struct cli_record {
    char strategy[64];         /* its name */
    weir_engine_params engine; /* the effective parameters that decide plans; the rest are defaults */
    weir_arrival *arrivals;    /* [n_arrivals], weir__mem as the next two */
    size_t n_arrivals, arrivals_capacity;
    weir_tick *ticks; /* [n_ticks] */
    size_t n_ticks, ticks_capacity;
    weir_tick_slot *parts; /* [n_parts] */
    size_t n_parts, parts_capacity;
} cli_record;

void cli_record_fini(cli_record *record);

/* Reads a whole file. Errors: FORMAT (line, field and allowed values), NO_MEMORY. Freed with fini in any
 * case. */
weir_status cli_record_read(cli_record *record, const char *content, size_t length, weir_error *error);

/* The file's text, NUL-terminated, freed with weir__mem_free. NULL: out of memory. */
char *cli_record_write(const cli_record *record, size_t *length);

#endif

/* commands.h: the commands of weir-bench, and how they report. Their options and help stand with those of
 * weir (cli/help.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_COMMANDS_H
#define WEIR_BENCH_COMMANDS_H

#include <jansson.h>

#include "cli/lib/options.h"

cli_exit bench_engine(cli_args *args);
cli_exit bench_kernels(cli_args *args);
cli_exit bench_http(cli_args *args);
cli_exit bench_schedule(cli_args *args);
cli_exit bench_replay(cli_args *args);

/* ---- report.c: the result of a command: a JSON object, or the same as text ---- */

/* A column of a table: its title, and where its value is in a row, such as "weir.decode_per_second". */
typedef struct bench_column {
    const char *title, *path;
} bench_column;

/* Prints the report, which is freed; NULL: out of memory. As text a line has a member's name and value;
 * members that are objects of numbers are the rows of a table, as are the objects of an array. Arrays of
 * other values are in the JSON only. columns [n]: of the array "rows". */
void bench_report(const cli_args *args, json_t *report, const bench_column *columns, size_t n);

#endif

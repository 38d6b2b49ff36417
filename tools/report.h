/* report.h: the result of a command of weir-bench: a JSON object, or the same as text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_REPORT_H
#define WEIR_BENCH_REPORT_H

#include <jansson.h>

#include "cli/lib/options.h"

/* A column of a table: its title, and where its value is in a row, such as "weir.decode_per_second". */
typedef struct bench_column {
    const char *title, *path;
} bench_column;

/* Prints the report, which is freed; NULL: out of memory. As text a line has a member's name and value;
 * members that are objects of numbers are the rows of a table, as are the objects of an array. Arrays of
 * other values are in the JSON only. columns [n]: of the array "rows". */
void bench_report(const cli_args *args, json_t *report, const bench_column *columns, size_t n);

#endif

/* bench.h: the commands of `weir bench`. They are a program of their own, weir-bench: it looks into the
 * engine, and most people never need it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_BENCH_H
#define WEIR_CLI_BENCH_H

#include "cli/lib/cli.h"

/* Replaces this process by weir-bench, with the same words. Returns after a message if that fails. */
cli_exit cli_bench_exec(char **argv);

#endif

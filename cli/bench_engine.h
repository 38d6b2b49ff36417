/* bench_engine.h: the part of weir bench engine that has a file of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_BENCH_ENGINE_H
#define WEIR_CLI_BENCH_ENGINE_H

#include "options.h"

/* --emit: weir's own time for each token and its memory, on the fake backend. */
cli_exit cli_bench_emit(cli_args *args);

#endif

/* commands.h: the commands of weir-bench. Their options and help stand with those of weir (cli/help.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_COMMANDS_H
#define WEIR_BENCH_COMMANDS_H

#include "cli/lib/options.h"

cli_exit bench_engine(cli_args *args);
cli_exit bench_kernels(cli_args *args);
cli_exit bench_http(cli_args *args);
cli_exit bench_schedule(cli_args *args);
cli_exit bench_replay(cli_args *args);

#endif

/* main.c: weir-bench, which `weir bench` starts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands.h"
#include "commands.h"

static cli_exit run_command(cli_args *args, char **argv)
{
    (void)argv;
    switch (args->command->bit) {
    case CLI_BENCH: return bench_engine(args);
    case CLI_KERNELS: return bench_kernels(args);
    case CLI_HTTP: return bench_http(args);
    case CLI_SCHEDULE: return bench_schedule(args);
    case CLI_REPLAY: return bench_replay(args);
    default: return cli_fail(CLI_USAGE, "weir-bench has only the commands of weir bench");
    }
}

int main(int argc, char **argv)
{
    return cli_program(argc, argv, run_command);
}

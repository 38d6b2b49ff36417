/* main.c: weir, the command line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

static cli_exit run_command(cli_args *args, char **argv)
{
    return args->command->run != NULL ? args->command->run(args) : cli_bench_exec(argv);
}

int main(int argc, char **argv)
{
    return cli_program(argc, argv, run_command);
}

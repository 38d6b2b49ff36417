/* weir bench schedule: placeholder */
#include "options.h"
void cli_bench_schedule_defaults(cli_args *args)
{
    (void)args;
}
cli_exit cli_bench_schedule(cli_args *args)
{
    (void)args;
    return CLI_OK;
}

/* weir rpc: a worker for models of other machines.
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>

#include "cli/lib/load.h"
#include "cli/lib/options.h"
#include "cli/lib/term.h"

cli_exit cli_rpc(cli_args *args)
{
    weir_rpc_params params = weir_rpc_params_default();
    weir_error error = {0};
    cli_load_log(args);
    if (args->listen != NULL) params.listen = args->listen;
    params.devices = args->devices;
    params.n_threads = args->engine.n_threads;
    params.insecure = args->insecure_rpc;
    cli_note("starting a worker on %s; Ctrl-C ends it", params.listen);
    /* The worker waits for sockets, and has nothing to end in order. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    weir_status status = weir_rpc_run(&params, &error);
    cli_load_log_flush();
    return cli_fail_error(args, status == WEIR_INVALID ? CLI_USAGE : CLI_FAILED, "cannot serve", &error);
}

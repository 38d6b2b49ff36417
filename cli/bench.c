/* bench.c: finds weir-bench beside this program, and runs it in this one's place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "cli/lib/options.h"

void cli_bench_engine_defaults(cli_args *args)
{
    args->repeat = 3;
}

void cli_bench_http_defaults(cli_args *args)
{
    args->concurrency = 8;
    args->n_requests = 64;
    args->repeat = 1;
    args->n_tries = 4;
    args->timeout_s = 600;
    args->seed = 1;
}

void cli_bench_kernels_defaults(cli_args *args)
{
    args->repeat = 10;
    args->memory_mb = 256;
}

void cli_bench_schedule_defaults(cli_args *args)
{
    args->engine.n_slots = 64;
    args->n_nodes = 10000;
    args->n_requests = 5000;
}

/* The folder of this program, without the last slash. */
static bool own_folder(char path[PATH_MAX])
{
#ifdef __APPLE__
    char link[PATH_MAX]; /* Homebrew starts programs through one */
    uint32_t size = sizeof link;
    if (_NSGetExecutablePath(link, &size) != 0 || realpath(link, path) == NULL) return false;
#else
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n < 0) return false;
    path[n] = '\0';
#endif
    char *slash = strrchr(path, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    return true;
}

cli_exit cli_bench_exec(char **argv)
{
    /* Beside this program in a build, below the prefix when installed. */
    static const char *const places[] = {"weir-bench", "../libexec/weir/weir-bench"};
    char folder[PATH_MAX];
    int failed = ENOENT;
    for (size_t i = 0; i < sizeof places / sizeof *places && own_folder(folder); i++) {
        char *path = cli_format("%s/%s", folder, places[i]);
        execv(path, argv);
        if (errno != ENOENT) failed = errno;
        cli_free(path);
    }
    if (failed == ENOENT)
        return cli_fail(CLI_FAILED,
                        "weir bench needs the program weir-bench beside this one or in ../libexec/weir; make "
                        "install puts it there");
    return cli_fail(CLI_FAILED, "cannot start weir-bench: %s", strerror(failed));
}

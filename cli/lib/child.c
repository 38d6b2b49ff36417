/* child.c: runs a program on weir's terminal, which it lends and takes back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli.h"

extern char **environ;

static bool start_child(const char *command, const char *argument, int input, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults; /* weir ignores these, and exec would leave them ignored */
    char *script = cli_format(argument != NULL ? "%s \"$1\"" : "%s", command);
    char *words[] = {(char *)"sh", (char *)"-c", script, (char *)"weir", (char *)argument, NULL};
    if (posix_spawn_file_actions_init(&actions) != 0) cli_no_memory();
    if (posix_spawnattr_init(&attributes) != 0) cli_no_memory();
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    if (input >= 0) posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    bool started = posix_spawn(child, "/bin/sh", &actions, &attributes, words, environ) == 0;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    cli_free(script);
    return started;
}

/* Ctrl-Z stops the child; then weir stops itself, because the shell waits for weir. */
static int await_child(pid_t child)
{
    for (;;) {
        int status;
        pid_t got = waitpid(child, &status, WUNTRACED);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (WIFEXITED(status)) return WEXITSTATUS(status);
        if (WIFSIGNALED(status)) return -1;
        raise(SIGSTOP);
        kill(child, SIGCONT);
    }
}

int cli_child_run(const char *command, const char *argument, const char *input, size_t n)
{
    int ends[2] = {-1, -1};
    pid_t child;
    if (input != NULL && pipe(ends) != 0) return -1;
    for (int i = 0; i < 2 && input != NULL; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    bool started = start_child(command, argument, ends[0], &child);
    if (input != NULL) close(ends[0]);
    if (input != NULL && started) weir__file_send(ends[1], input, n);
    if (input != NULL) close(ends[1]);
    return started ? await_child(child) : -1;
}

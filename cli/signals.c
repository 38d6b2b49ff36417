/* SPDX-License-Identifier: Apache-2.0 */
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "term.h"

static int pipe_ends[2] = {-1, -1};
static volatile sig_atomic_t ended;
static volatile sig_atomic_t resized;
static volatile sig_atomic_t suspended;
static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t hung_up;
static bool had_terminal;

static void ring(void)
{
    int error = errno;
    ssize_t n = write(pipe_ends[1], "", 1); /* a full pipe is readable already */
    (void)n;
    errno = error;
}

static void on_end(int signal)
{
    if (ended != 0) {
        cli_term_rescue();
        _exit(128 + signal);
    }
    ended = signal;
    ring();
}

static void on_resize(int signal)
{
    (void)signal;
    resized = 1;
    ring();
}

static void on_suspend(int signal)
{
    (void)signal;
    suspended = 1;
    ring();
}

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
    ring();
}

static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static void on_hangup(int signal)
{
    int error = errno;
    if (had_terminal && !has_terminal()) { /* it was closed */
        on_end(signal);
    } else {
        hung_up = 1;
        ring();
    }
    errno = error;
}

/* SA_RESETHAND has restored the default: raised again, it ends the program as it would have. */
static void on_crash(int signal)
{
    cli_term_rescue();
    raise(signal);
}

static void handle(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

bool cli_signals_init(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    if (pipe(pipe_ends) != 0) {
        fprintf(stderr, "weir: no pipe for signals: %s\n", strerror(errno));
        return false;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(pipe_ends[i], F_SETFL, O_NONBLOCK);
        fcntl(pipe_ends[i], F_SETFD, FD_CLOEXEC);
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction before;
        /* No SA_RESTART: a read that waits for the prompt is to return. */
        if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            handle(ends[i], on_end, 0);
    }
    handle(SIGPIPE, SIG_IGN, 0);
    handle(SIGXFSZ, SIG_IGN, 0); /* a file that becomes too large is an error of the write */
    return true;
}

int cli_signals_descriptor(void)
{
    return pipe_ends[0];
}

void cli_signals_drain(void)
{
    char bytes[64];
    while (read(pipe_ends[0], bytes, sizeof bytes) > 0) continue;
}

int cli_signals_ended(void)
{
    return ended;
}

void cli_signals_end(int signal)
{
    if (ended == 0) ended = signal;
    ring();
}

void cli_signals_forget(void)
{
    ended = 0;
}

bool cli_signals_resized(void)
{
    bool was = resized != 0;
    resized = 0;
    return was;
}

bool cli_signals_suspended(void)
{
    bool was = suspended != 0;
    suspended = 0;
    return was;
}

void cli_signals_interrupts(bool on)
{
    struct sigaction before;
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        handle(SIGINT, on ? on_interrupt : on_end, 0);
    handle(SIGWINCH, on ? on_resize : SIG_DFL, SA_RESTART);
    handle(SIGTSTP, on ? on_suspend : SIG_DFL, SA_RESTART);
}

bool cli_signals_interrupted(void)
{
    bool was = interrupted != 0;
    interrupted = 0;
    return was;
}

void cli_signals_hangups(void)
{
    struct sigaction before;
    had_terminal = has_terminal();
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) handle(SIGHUP, on_hangup, 0);
}

bool cli_signals_hung_up(void)
{
    bool was = hung_up != 0;
    hung_up = 0;
    return was;
}

bool cli_signals_noted(void)
{
    return interrupted != 0 || resized != 0 || suspended != 0;
}

void cli_signals_screen(bool on)
{
    static const int crashes[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    handle(SIGWINCH, on ? on_resize : SIG_DFL, SA_RESTART);
    handle(SIGTSTP, on ? on_suspend : SIG_DFL, SA_RESTART);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        handle(crashes[i], on ? on_crash : SIG_DFL, (int)SA_RESETHAND | SA_NODEFER);
}

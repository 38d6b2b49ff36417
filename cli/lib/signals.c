/* signals.c: handlers that write a byte into a pipe, and those for files that were cut and for crashes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/ascii.h"
#include "base/file.h"
#include "term.h"

#define LINE_BYTES 1024 /* of a line of /proc/self/maps */

static int pipe_ends[2] = {-1, -1};
static volatile sig_atomic_t end_signal;
static volatile sig_atomic_t noted_signals[NSIG]; /* by signal */
static bool had_terminal;
static atomic_flag crash_flag = ATOMIC_FLAG_INIT;

static void ring_pipe(void)
{
    int error = errno;
    ssize_t n = write(pipe_ends[1], "", 1); /* a full pipe is readable already */
    (void)n;
    errno = error;
}

static void on_end(int signal)
{
    if (end_signal != 0) {
        cli_term_rescue();
        _exit(128 + signal);
    }
    end_signal = signal;
    ring_pipe();
}

static void on_note(int signal)
{
    noted_signals[signal] = 1;
    ring_pipe();
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
    bool closed = had_terminal && !has_terminal();
    errno = error;
    (closed ? on_end : on_note)(signal);
}

static void set_handler(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

/* No SA_RESTART: a read that waits for the prompt is to return. */
static void handle_unless_ignored(int signal, void (*handler)(int))
{
    struct sigaction before;
    if (sigaction(signal, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        set_handler(signal, handler, 0);
}

/* ---- A file that becomes shorter while it is mapped ---- */

/* A hexadecimal number, and the position behind it. */
static uintptr_t read_hex(const char **at)
{
    uintptr_t value = 0;
    for (int digit; (digit = weir__ascii_hex(**at)) >= 0; ++*at) value = value << 4 | (uintptr_t)digit;
    return value;
}

/* The file's path in a line of /proc/self/maps that has the address; NULL: it has not, or there is no
 * file. */
static const char *mapped_file(const char *line, uintptr_t address)
{
    uintptr_t from = read_hex(&line);
    if (*line++ != '-' || address < from || address >= read_hex(&line)) return NULL;
    return strchr(line, '/');
}

/* The path of the file that is mapped at the address, where the system says so. Calls only functions that a
 * handler may call. */
static const char *find_file(uintptr_t address, char line[LINE_BYTES])
{
    char piece[4096];
    size_t n = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    const char *path = NULL;
    for (ssize_t got; fd >= 0 && path == NULL && (got = read(fd, piece, sizeof piece)) > 0;) {
        for (ssize_t i = 0; i < got && path == NULL; i++) {
            if (piece[i] != '\n') {
                if (n + 1 < LINE_BYTES) line[n++] = piece[i];
                continue;
            }
            line[n] = '\0';
            n = 0;
            path = mapped_file(line, address);
        }
    }
    if (fd >= 0) close(fd);
    return path != NULL ? path : "a file";
}

/* Writes a message about the file that was cut, in one write, as other threads may log meanwhile. */
static void say_cut(const char *path)
{
    static const char before[] = "weir: ";
    static const char after[] =
        " became shorter while it was in use, or cannot be read: the program ends. To "
        "replace a model, rename the new file to the old one's name.\n";
    char said[sizeof before + LINE_BYTES + sizeof after];
    size_t n = sizeof before - 1, n_path = strnlen(path, LINE_BYTES);
    memcpy(said, before, n);
    memcpy(said + n, path, n_path);
    memcpy(said + n + n_path, after, sizeof after);
    weir__file_send(STDERR_FILENO, said, n + n_path + sizeof after - 1);
}

/* Pages that a file lost, or that its disk does not give, cannot be computed with. */
static void on_bus(int signal, siginfo_t *info, void *context)
{
    char line[LINE_BYTES];
    (void)context;
    while (atomic_flag_test_and_set(&crash_flag))
        pause(); /* only the first thread that found it reports it */
    cli_term_rescue();
    if (info->si_code != BUS_ADRERR) {
        set_handler(SIGBUS, SIG_DFL, 0);
        raise(signal);
        return;
    }
    say_cut(find_file((uintptr_t)info->si_addr, line));
    _exit(CLI_FAILED);
}

static void handle_bus(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

/* SA_RESETHAND has restored the default: raised again, it ends the program as it would have. */
static void on_crash(int signal)
{
    cli_term_rescue();
    raise(signal);
}

/* ---- Functions of signals.h ---- */

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
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) handle_unless_ignored(ends[i], on_end);
    set_handler(SIGPIPE, SIG_IGN, 0);
    handle_bus();
    set_handler(SIGXFSZ, SIG_IGN, 0); /* a file that becomes too large is an error of the write */
    return true;
}

int cli_signals_descriptor(void)
{
    return pipe_ends[0];
}

void cli_signals_wake(void)
{
    ring_pipe();
}

void cli_signals_drain(void)
{
    char bytes[64];
    while (read(pipe_ends[0], bytes, sizeof bytes) > 0) continue;
}

int cli_signals_ended(void)
{
    return end_signal;
}

void cli_signals_end(int signal)
{
    if (end_signal == 0) end_signal = signal;
    ring_pipe();
}

cli_exit cli_signals_exit(void)
{
    return end_signal == 0 ? CLI_OK : (cli_exit)(128 + end_signal);
}

void cli_signals_forget(void)
{
    end_signal = 0;
}

bool cli_signals_took(int signal)
{
    bool was = noted_signals[signal] != 0;
    noted_signals[signal] = 0;
    return was;
}

/* A changed window, and Ctrl-Z. */
static void note_window(bool on)
{
    set_handler(SIGWINCH, on ? on_note : SIG_DFL, SA_RESTART);
    set_handler(SIGTSTP, on ? on_note : SIG_DFL, SA_RESTART);
}

/* A crash puts the terminal in order first. */
static void rescue_crashes(bool on)
{
    static const int crashes[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGFPE, SIGILL}; /* SIGBUS does so by itself */
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        set_handler(crashes[i], on ? on_crash : SIG_DFL, (int)SA_RESETHAND | SA_NODEFER);
}

void cli_signals_interrupts(bool on)
{
    handle_unless_ignored(SIGINT, on ? on_note : on_end);
    note_window(on);
    rescue_crashes(on);
}

void cli_signals_hangups(void)
{
    struct sigaction before;
    bool ignored = sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
    had_terminal = !ignored && has_terminal(); /* with nohup the server outlives its terminal */
    set_handler(SIGHUP, on_hangup, 0);
}

bool cli_signals_noted(void)
{
    return noted_signals[SIGINT] != 0 || noted_signals[SIGWINCH] != 0 || noted_signals[SIGTSTP] != 0;
}

void cli_signals_screen(bool on)
{
    note_window(on);
    rescue_crashes(on);
}

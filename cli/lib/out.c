/* out.c: writes to stdout with a wait for slow readers, and remembers that a reader has left.
 * SPDX-License-Identifier: Apache-2.0 */
#include "out.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "signals.h"

#define PIECE    512  /* POSIX's least PIPE_BUF: a pipe that polls writable takes that without blocking */
#define GRACE_MS 2000 /* after a signal, for a reader that takes nothing */

static bool reader_left;
static int failure_errno; /* errno of another failure */
static int64_t given_up;  /* when a signal's grace is over; 0 = no signal yet */
static bool is_abandoned; /* after a signal, the reader took nothing for GRACE_MS */

/* True if stdout takes a piece now. */
static bool is_writable(void)
{
    for (;;) {
        struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
        int n = poll(&out, 1, CLI_LOOK_MS);
        if (n > 0) return true; /* also for errors: write() returns which */
        if (n < 0 && errno != EINTR) return true;
        if (cli_signals_ended() == 0) continue;
        if (given_up == 0) given_up = weir__clock_deadline_ns(GRACE_MS);
        if (weir__clock_now_ns() >= given_up) return false;
    }
}

bool cli_out(const char *bytes, size_t n)
{
    while (n > 0) {
        if (reader_left || failure_errno != 0 || is_abandoned) return false;
        if (!is_writable()) {
            is_abandoned = true;
            return false;
        }
        ssize_t written = write(STDOUT_FILENO, bytes, n < PIECE ? n : PIECE);
        if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (written < 0) {
            reader_left = errno == EPIPE;
            failure_errno = reader_left ? 0 : errno;
            return false;
        }
        bytes += written;
        n -= (size_t)written;
    }
    return !reader_left && failure_errno == 0 && !is_abandoned;
}

bool cli_out_text(weir__text *text)
{
    bool written = cli_out(text->bytes, text->n);
    weir__text_fini(text);
    return written;
}

bool cli_out_json(json_t *json)
{
    /* Six digits are more than any measurement has. */
    char *line = json == NULL ? NULL : json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(json);
    if (line == NULL) cli_no_memory();
    bool written = cli_out(line, strlen(line)) && cli_out("\n", 1);
    free(line); /* jansson's own memory */
    return written;
}

bool cli_out_closed(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = 0};
    if (!reader_left && failure_errno == 0 && poll(&out, 1, 0) > 0 && (out.revents & POLLERR))
        reader_left = true;
    return reader_left || failure_errno != 0 || is_abandoned;
}

cli_exit cli_out_finish(cli_exit code)
{
    if (failure_errno != 0) {
        int error = failure_errno;
        failure_errno = 0;
        code = cli_fail(CLI_FAILED, "cannot write to stdout: %s", strerror(error));
    }
    if (cli_signals_ended() != 0) return cli_signals_exit();
    return reader_left ? CLI_OK : code;
}

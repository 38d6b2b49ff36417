/* remote.h: a running weir serve, asked over HTTP or a Unix socket: its events as they come. All in
 * the caller's thread; nothing blocks but cli_remote_wait.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_REMOTE_H
#define WEIR_CLI_REMOTE_H

#include "options.h"
#include "sse.h"

typedef struct cli_remote cli_remote;

typedef enum cli_remote_state {
    CLI_REMOTE_IDLE,    /* nothing was begun, or it has ended well */
    CLI_REMOTE_WAITING, /* for the answer's first bytes */
    CLI_REMOTE_OPEN,
    CLI_REMOTE_LOST,    /* cli_remote_problem returns why; another try may help */
    CLI_REMOTE_REFUSED, /* no other try would */
} cli_remote_state;

/* The server that --url and --api-key name. NULL after a message: *code. */
cli_remote *cli_remote_create(const cli_args *args, cli_exit *code);
void cli_remote_destroy(cli_remote *remote);

/* Begins to read /events, anew where that was under way: each goes to on_event. */
void cli_remote_listen(cli_remote *remote, cli_sse_fn on_event, void *user);

/* The state of the request for events. */
cli_remote_state cli_remote_listening(const cli_remote *remote);

/* Half a sentence about the loss: "cannot connect; is weir serve running?". */
const char *cli_remote_problem(const cli_remote *remote);

/* Waits up to timeout_ms, or for bytes, a signal, or something to read from the descriptor `keys` (-1 =
 * none), and takes the bytes. */
void cli_remote_wait(cli_remote *remote, int keys, int timeout_ms);

#endif

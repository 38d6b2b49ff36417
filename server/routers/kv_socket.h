/* kv_socket.h: one of the two sockets at which routers read what is published, and their connections. A
 * reader has a place in what is kept and nothing of its own: one that does not read costs a few kilobytes.
 * One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ROUTERS_KV_SOCKET_H
#define WEIR_SERVER_ROUTERS_KV_SOCKET_H

#include <poll.h>
#include <weir/weir.h>

#include "server/settings/params.h"
#include "zmtp.h"

#define SERVE_KV_POLLS       (SERVE_KV_PEERS + 1) /* descriptors of a socket */
#define SERVE_KV_HANDSHAKE_S 10
#define SERVE_KV_SILENT_S    60

typedef struct serve_kv_socket serve_kv_socket;

typedef struct serve_kv_socket_stats {
    uint64_t n;         /* connections */
    uint64_t n_reading; /* replays that are being sent, or subscribers */
    uint64_t n_bytes;   /* memory that these take beyond what is kept */
    uint64_t n_dropped; /* connections closed since the start for silence, or for breaking the protocol */
} serve_kv_socket_stats;

/* Listens at "tcp://HOST:PORT" or "ipc://FILE". replays: readers ask for what is kept, from a number on;
 * otherwise they subscribe to topics, and get what is published afterwards. field: of errors. INVALID (no
 * address), IO, NO_MEMORY. */
weir_status serve_kv_socket_open(const char *address, bool replays, const char *field, serve_kv_socket **out,
                                 weir_error *error);
void serve_kv_socket_close(serve_kv_socket *sock); /* NULL is ignored */

/* Writes what to wait for; descriptors that are not used are -1. */
void serve_kv_socket_poll(const serve_kv_socket *sock, const serve_kv_kept *kept, int64_t now_ns,
                          struct pollfd polls[SERVE_KV_POLLS]);

/* Accepts, reads and writes as far as it can without waiting, and closes connections that have been silent
 * too long. published: all changes until now are in what is kept, so replays may begin. polls: of the call
 * above, which poll() has filled in. */
void serve_kv_socket_work(serve_kv_socket *sock, const serve_kv_kept *kept, bool published, int64_t now_ns,
                          const struct pollfd polls[SERVE_KV_POLLS]);

/* The sequence has begun anew: all readers go on at its start. */
void serve_kv_socket_restart(serve_kv_socket *sock);

serve_kv_socket_stats serve_kv_socket_get_stats(const serve_kv_socket *sock);

#endif

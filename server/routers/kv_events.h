/* kv_events.h: publishes which blocks of tokens the prefix caches hold, over ZeroMQ and in vLLM's format, for
 * routers that send a request where its prefix is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ROUTERS_KV_EVENTS_H
#define WEIR_SERVER_ROUTERS_KV_EVENTS_H

#include "server/settings/params.h"

typedef struct serve_kv_events serve_kv_events;

typedef struct serve_kv_events_stats {
    uint64_t n_bytes_kept;               /* of what a replay sends */
    uint64_t n_bytes_readers;            /* memory of the connections, beyond what is kept */
    uint64_t n_subscribers, n_replayers; /* connections of the two sockets */
    uint64_t n_replays;                  /* of these, replays that are being sent */
    uint64_t n_dropped;                  /* connections that the server closed */
} serve_kv_events_stats;

/* Binds a PUB socket, and a ROUTER socket for replays if `replay` is not NULL; starts the thread that
 * publishes. Addresses are ZeroMQ's: "tcp://127.0.0.1:5557", "ipc://FILE". endpoint: "HOST:PORT" at which
 * routers find the server, a part of each topic. INVALID (kv_events, kv_events_replay: not an address), IO
 * (it cannot be bound), NO_MEMORY. */
weir_status serve_kv_events_create(const char *address, const char *replay, const char *endpoint,
                                   serve_kv_events **out, weir_error *error);
void serve_kv_events_destroy(serve_kv_events *events); /* NULL is ignored */

/* Publishes the changes of an engine's cache from now on, under the model's name. The engine has cache_block
 * SERVE_KV_BLOCK. False: out of memory. Any thread. */
bool serve_kv_events_join(serve_kv_events *events, const char *model, weir_engine *engine);

/* The engine may be destroyed afterwards. Publishes that its blocks are gone. Any thread. */
void serve_kv_events_leave(serve_kv_events *events, const weir_engine *engine);

serve_kv_events_stats serve_kv_events_get_stats(serve_kv_events *events); /* any thread */

#endif

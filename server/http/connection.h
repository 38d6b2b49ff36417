/* connection.h: a client's socket: unread input, the request that is read or answered, and unsent output.
 * Service thread only. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_HTTP_CONNECTION_H
#define WEIR_SERVER_HTTP_CONNECTION_H

#include <llhttp.h>

#include "server/request/serve.h"
#include "server/system/tls.h"

#define SERVE_HEAD_BYTES  ((size_t)16 << 10) /* of a request's first line and fields */
#define SERVE_AHEAD_BYTES ((size_t)64 << 10) /* read ahead while a request is answered (pipelining) */

typedef enum serve_stage {
    SERVE_SHAKING, /* TLS handshake */
    SERVE_IDLE,    /* no byte of a request has arrived */
    SERVE_REQUEST, /* a request is arriving */
    SERVE_BUSY,    /* the request is processed and answered */
    SERVE_PARTING, /* the last answer was sent; further input is dropped */
} serve_stage;

/* A request's head. bytes: the target, then names and values in turn, each with a NUL. */
typedef struct serve_head {
    llhttp_t parser;
    weir__text bytes;
    size_t n_read;  /* of the head, as it was sent */
    size_t n_extra; /* bytes of a chunked body besides its data */
    bool complete;  /* the head is complete */
    bool expects;   /* its client waits for "100 Continue" */
    bool ended;     /* the request is complete */
} serve_head;

struct serve_connection {
    serve_watch watch;
    serve_server *server;
    serve_connection *before, *after; /* of all, the newest first */
    serve_connection *next_due;       /* those that have something to do in this turn */
    bool due;
    bool dead;         /* closed, and freed at the turn's end */
    bool local;        /* by a Unix socket */
    bool starved;      /* a call could not be made */
    bool crowded;      /* beyond the limit: only probes are served */
    char address[46];  /* the client's; "" = a Unix socket */
    serve_owner owner; /* whom the address belongs to */
    SSL *tls;          /* NULL = none */
    serve_stage stage;
    int64_t deadline_ns; /* of every stage but BUSY */
    weir__text in;       /* [in_at .. n) is unread input */
    size_t in_at;
    size_t n_dropped;
    bool ended;   /* the client sends no more */
    bool doubted; /* it was checked since whether the client is still there */
    bool probed;  /* it was sent the beginning of its answer, to see whether it is still there */
    bool blocked; /* the socket takes no more at the moment */
    serve_head head;
    serve_call *call; /* from the end of a request's head to the end of its answer */
};

/* Owns the descriptor, even on failure. */
void serve_connection_open(serve_server *server, int fd, const char *address, bool local, bool crowded);

/* Works on the connections that are due, and frees closed ones. True: some are due again. */
bool serve_connections_work(serve_server *server);

/* Closes connections whose deadline has passed. */
void serve_connections_sweep(serve_server *server, int64_t now_ns);
void serve_connections_close(serve_server *server);

/* ---- socket.c ---- */

/* Schedules the connection for this turn: it can read or send. Service thread. */
void serve_connection_due(serve_connection *connection);

/* The number of bytes that went out, or SERVE_TLS_AGAIN or _GONE. */
int serve_connection_send(serve_connection *connection, const void *bytes, size_t n);

/* Writes these few bytes at once. False: nothing of them went out, or the connection is closed: it failed, or
 * its TLS keeps the rest. */
bool serve_connection_say(serve_connection *connection, const char *bytes, size_t n);

void serve_connection_close(serve_connection *connection);

/* ---- http.c ---- */

void serve_http_reset(serve_connection *connection);

/* Parses the input, up to the end of a request at most. */
void serve_http_read(serve_connection *connection);

/* Refuses a request whose head did not arrive in time. */
void serve_http_late(serve_connection *connection);

/* ---- gate.c ---- */

/* The first header of this name; NULL: none. *n: how many there are. */
const char *serve_gate_field(const serve_connection *connection, const char *name, int *n);

/* Decides by the head whether the request is allowed. close: no other one will follow. False: the call has
 * its answer. */
bool serve_gate_pass(serve_call *call, bool close);

/* ---- listener.c: the sockets that the server listens on ---- */

weir_status serve_listener_open(serve_server *server, weir_error *error);
void serve_listener_close(serve_server *server);
void serve_listener_go_on(serve_server *server); /* accepts again after descriptors ran out */

#endif

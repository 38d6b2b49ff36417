/* connection.h: a client's socket: what came and is not read yet, the request that is read or answered, what
 * goes out. The service thread's alone. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_CONNECTION_H
#define WEIR_SERVER_CONNECTION_H

#include <llhttp.h>

#include "serve.h"
#include "tls.h"

#define SERVE_HEAD_BYTES  ((size_t)16 << 10) /* of a request's first line and fields */
#define SERVE_AHEAD_BYTES ((size_t)64 << 10) /* that are taken of what follows a request before its answer */

typedef enum serve_stage {
    SERVE_SHAKING, /* TLS begins */
    SERVE_IDLE,    /* nothing of a request has come */
    SERVE_REQUEST, /* a request comes */
    SERVE_BUSY,    /* it is worked on and answered */
    SERVE_PARTING, /* the last answer has gone out; what the client still sends is dropped */
} serve_stage;

/* What a request's head says: names and values one behind the other, each with a NUL, after the target. */
typedef struct serve_head {
    llhttp_t parser;
    weir__text bytes;
    size_t n_read;  /* of the head, as it was sent */
    size_t n_extra; /* of what a body in chunks has beside them */
    bool complete;  /* the head is */
    bool expects;   /* its client waits for "100 Continue" */
    bool ended;     /* and the request */
} serve_head;

struct serve_connection {
    serve_watch watch;
    serve_server *server;
    serve_connection *before, *after; /* of all, the newest first */
    serve_connection *next_due;       /* those that have something to do in this turn */
    bool due;
    bool dead;        /* closed, and freed at the turn's end */
    bool local;       /* by a Unix socket */
    bool crowded;     /* too many are there: it may ask for probes alone */
    char address[46]; /* the client's; "" = a Unix socket */
    SSL *tls;         /* NULL = none */
    serve_stage stage;
    int64_t deadline_ns; /* of every stage but BUSY */
    weir__text in;       /* [in_at .. n) has come and is not read */
    size_t in_at;
    size_t n_dropped;
    bool ended;   /* the client sends no more */
    bool doubted; /* whether the client is still there was asked since */
    bool probed;  /* it was sent the beginning of its answer, to see whether it is still there */
    bool blocked; /* it does not take more at the moment */
    serve_head head;
    serve_call *call; /* from the end of a request's head to the end of its answer */
};

/* Takes the descriptor, also when it fails. */
void serve_connection_open(serve_server *server, int fd, const char *address, bool local, bool crowded);
void serve_connection_close(serve_connection *connection);

/* Works on those that are due; and frees what was closed. True: some are due again. */
bool serve_connections_work(serve_server *server);

/* Ends what has taken too long. */
void serve_connections_sweep(serve_server *server, int64_t now_ns);
void serve_connections_close(serve_server *server);

/* Writes these few bytes at once. False: nothing of them went out, or the connection is closed: it failed, or
 * its TLS keeps what could not be sent. */
bool serve_connection_say(serve_connection *connection, const char *bytes, size_t n);

/* ---- http.c ---- */

void serve_http_reset(serve_connection *connection);

/* Reads what has come, to the end of a request at most. */
void serve_http_read(serve_connection *connection);

/* The head did not come in time. */
void serve_http_late(serve_connection *connection);

/* A field of the request's head; NULL: there is none. The first one, and how many there are. */
const char *serve_http_field(const serve_connection *connection, const char *name, int *n);

/* ---- gate.c ---- */

/* Whether this request may ask what it asks, by its head. close: no other one will follow. False: the call
 * has its answer. */
bool serve_gate_pass(serve_call *call, bool close);

#endif

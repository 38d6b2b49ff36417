/* connection.c: a client's socket: reads requests, sends answers, and notices that the client has left. All
 * runs on the service thread, in turns: a turn receives at most READ_BYTES, reads one request as far as it is
 * there, and sends at most one piece of its answer; what is left makes the connection due for another turn,
 * after the others. A connection has one request at a time, and reads only a little ahead of it. After the
 * last answer it parts from the client, and drops input for a moment.
 * SPDX-License-Identifier: Apache-2.0 */
#include "connection.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/api/common/answer.h"
#include "server/api/common/call_end.h"
#include "server/api/common/tape.h"
#include "server/request/workers.h"

#define READ_BYTES        ((size_t)16 << 10) /* in one turn: others get theirs */
#define IDLE_S            75                 /* between two requests */
#define EMPTY_LINES_BYTES 64                 /* of them */
#define PARTING_S         2
#define AGAIN             SERVE_TLS_AGAIN
#define GONE              SERVE_TLS_GONE

static const char beginning[] = "HTTP/1.1 "; /* of every answer */
#define N_BEGINNING (sizeof beginning - 1)

/* ---- Bytes ---- */

static int receive_bytes(serve_connection *connection, void *bytes, size_t n)
{
    if (connection->tls != NULL) return serve_tls_read(connection->tls, bytes, n);
    ssize_t got = recv(connection->watch.fd, bytes, n, 0);
    if (got >= 0) return (int)got;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? AGAIN : GONE;
}

static size_t unread_bytes(const serve_connection *connection)
{
    return connection->in.n - connection->in_at;
}

static void set_deadline(serve_connection *connection, int32_t seconds)
{
    connection->deadline_ns = weir__clock_deadline_ns((int64_t)seconds * 1000);
}

/* Announces the end, and drops bytes that the client still sends for a moment: closing at once would lose the
 * end of the answer. */
static void part_from_client(serve_connection *connection)
{
    if (connection->tls != NULL) SSL_shutdown(connection->tls);
    if (connection->ended) {
        serve_connection_close(connection);
        return;
    }
    shutdown(connection->watch.fd, SHUT_WR);
    connection->stage = SERVE_PARTING;
    connection->n_dropped = unread_bytes(connection);
    connection->blocked = false;
    weir__text_fini(&connection->in);
    connection->in_at = 0;
    set_deadline(connection, PARTING_S);
}

/* ---- Without memory ---- */

static const char no_memory[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 132\r\n"
    "Retry-After: 1\r\nX-Should-Retry: true\r\nConnection: close\r\n\r\n"
    "{\"error\":{\"message\":\"the server is out of memory for this request\",\"type\":\"unavailable_error\","
    "\"param\":null,\"code\":\"out_of_memory\"}}\n";

/* Answers 503 with bytes that need no memory, unless an answer has begun, and parts from the client. */
static void starve_connection(serve_connection *connection)
{
    serve_call *call = connection->call;
    size_t at = connection->probed ? N_BEGINNING : 0;
    if (call != NULL && call->n_sent > 0) {
        serve_connection_close(connection);
        return;
    }
    if (!serve_connection_say(connection, no_memory + at, sizeof no_memory - 1 - at)) {
        serve_connection_close(connection);
        return;
    }
    connection->call = NULL;
    connection->starved = false;
    if (call != NULL) call->starved = true;
    if (call != NULL) serve_call_leave(call);
    part_from_client(connection);
}

/* ---- Who leaves ---- */

/* The client has closed its side: it may wait for its answer, or be gone. If it is gone, its system says so
 * when something is sent to it: the beginning of every answer, or a comment. */
static void probe_client(serve_connection *connection)
{
    serve_call *call = connection->call;
    if (connection->doubted) return;
    connection->doubted = true;
    if (call->state != SERVE_WORKING && call->begun) {
        if (call->out.n == call->out_at && serve_answer_comment(call)) serve_call_send(call);
    } else {
        connection->probed = serve_connection_say(connection, beginning, N_BEGINNING);
    }
}

/* ---- Reading ---- */

static bool is_read(const serve_connection *connection)
{
    return !connection->ended && unread_bytes(connection) < SERVE_AHEAD_BYTES;
}

static void end_input(serve_connection *connection)
{
    connection->ended = true;
    if (connection->stage == SERVE_BUSY)
        probe_client(connection);
    else if (unread_bytes(connection) == 0 || connection->stage == SERVE_PARTING)
        serve_connection_close(connection);
}

static void drop_input(serve_connection *connection)
{
    serve_server *server = connection->server;
    int n = receive_bytes(connection, server->scratch, sizeof server->scratch);
    if (n > 0) connection->n_dropped += (size_t)n;
    if (n == 0 || n == GONE || connection->n_dropped > (size_t)server->params.live.body_bytes)
        serve_connection_close(connection);
}

/* Receives as much as one turn may bring. */
static void receive_input(serve_connection *connection)
{
    weir__text *in = &connection->in;
    if (connection->stage == SERVE_PARTING) {
        drop_input(connection);
        return;
    }
    if (!is_read(connection)) return;
    if (!weir__text_reserve(in, READ_BYTES)) {
        starve_connection(connection);
        return;
    }
    int n = receive_bytes(connection, in->bytes + in->n, READ_BYTES);
    if (n > 0) in->n += (size_t)n;
    if (n == 0) end_input(connection);
    if (n == GONE) serve_connection_close(connection);
}

static void forget_read(serve_connection *connection)
{
    if (unread_bytes(connection) == 0) {
        weir__text_fini(&connection->in);
        connection->in_at = 0;
    } else if (connection->in_at > READ_BYTES) {
        memmove(connection->in.bytes, connection->in.bytes + connection->in_at, unread_bytes(connection));
        connection->in.n -= connection->in_at;
        connection->in_at = 0;
    }
}

/* Empty lines before a request are no beginning of one (RFC 9112, 2.2); they count as a part of its head. */
static void skip_empty_lines(serve_connection *connection)
{
    while (connection->stage == SERVE_IDLE && unread_bytes(connection) > 0 &&
           connection->head.n_read < EMPTY_LINES_BYTES) {
        char byte = connection->in.bytes[connection->in_at];
        if (byte != '\r' && byte != '\n') break;
        connection->in_at++;
        connection->head.n_read++;
    }
}

/* Reads one request, as far as it is there. */
static void read_request(serve_connection *connection)
{
    skip_empty_lines(connection);
    if (connection->stage == SERVE_IDLE && unread_bytes(connection) > 0) {
        connection->stage = SERVE_REQUEST;
        set_deadline(connection, connection->server->params.live.head_s);
    }
    if (connection->stage == SERVE_REQUEST) serve_http_read(connection);
    if (connection->starved && !connection->dead) starve_connection(connection);
    if (connection->dead) return;
    forget_read(connection);
    if (connection->stage == SERVE_REQUEST && connection->call != NULL &&
        (connection->head.ended || connection->call->begun))
        connection->stage = SERVE_BUSY;
    if (!connection->ended) return;
    if (connection->stage == SERVE_REQUEST || connection->stage == SERVE_IDLE)
        serve_connection_close(connection); /* the rest will not come */
    else if (connection->stage == SERVE_BUSY)
        probe_client(connection);
}

/* ---- Writing ---- */

static void complete_call(serve_connection *connection)
{
    serve_call *call = connection->call;
    bool close = call->close || connection->server->draining;
    connection->call = NULL;
    serve_call_destroy(call);
    connection->probed = connection->doubted = false;
    if (close || (connection->ended && unread_bytes(connection) == 0)) {
        part_from_client(connection);
        return;
    }
    connection->stage = SERVE_IDLE;
    serve_http_reset(connection);
    set_deadline(connection, IDLE_S);
    if (unread_bytes(connection) > 0 || (connection->tls != NULL && SSL_pending(connection->tls) > 0))
        serve_connection_due(connection);
}

static void forget_sent(serve_call *call)
{
    if (call->out_at == call->out.n) {
        call->out.n = call->out_at = 0;
    } else if (call->out_at > SERVE_BUFFER_MAX / 2 && call->out_at >= call->out.n - call->out_at) {
        /* Moved only once half of it is gone, so that a long answer is not moved again for each piece. */
        memmove(call->out.bytes, call->out.bytes + call->out_at, call->out.n - call->out_at);
        call->out.n -= call->out_at;
        call->out_at = 0;
    }
}

/* False: nothing more goes out at the moment. */
static bool send_output(serve_connection *connection)
{
    serve_call *call = connection->call;
    if (connection->probed && call->n_sent == 0) call->out_at = call->n_sent = N_BEGINNING;
    size_t n = call->out.n - call->out_at;
    /* Prefixes go out in larger pieces; a TLS record has no more than one of the others. */
    if (n > SERVE_WRITE_MAX && (call->snapshot == NULL || connection->tls != NULL)) n = SERVE_WRITE_MAX;
    int sent = n > 0 ? serve_connection_send(connection, call->out.bytes + call->out_at, n) : 0;
    if (sent == GONE) serve_connection_close(connection);
    connection->blocked = sent == AGAIN;
    if (sent < 0) return false;
    call->out_at += (size_t)sent;
    call->n_sent += (uint64_t)sent;
    if (sent > 0) call->moved_ns = weir__clock_now_ns();
    return true;
}

static void answer_request(serve_connection *connection)
{
    serve_call *call = connection->call;
    if (call == NULL || call->state != SERVE_ANSWERING || connection->blocked) return;
    if (call->out.failed) {
        starve_connection(connection);
        return;
    }
    if (call->out.n > call->out_at) {
        if (!send_output(connection)) return;
        forget_sent(call);
        if (call->answer != NULL && call->answer->starved) serve_answer_pump(call->answer);
        if (connection->call != call) return; /* refused, and gone */
        if (call->tape != NULL) serve_tape_feed(call);
        if (call->feed != NULL) call->feed(call);
    }
    if (call->out.n > call->out_at)
        serve_connection_due(connection);
    else if (call->ended)
        complete_call(connection);
}

/* ---- Turns ---- */

static void shake_hands(serve_connection *connection)
{
    int result = serve_tls_shake(connection->tls);
    if (result == GONE) serve_connection_close(connection);
    if (result > 0) connection->stage = SERVE_IDLE;
}

static void watch_connection(serve_connection *connection)
{
    unsigned want = 0;
    if (connection->stage == SERVE_SHAKING)
        want = SSL_want_write(connection->tls) ? SERVE_LOOP_WRITE : SERVE_LOOP_READ;
    else if (is_read(connection))
        want |= SERVE_LOOP_READ;
    if (connection->blocked) want |= SERVE_LOOP_WRITE;
    serve_loop_want(connection->server->loop, &connection->watch, want);
}

static void work_connection(serve_connection *connection, bool readable)
{
    bool more =
        connection->tls != NULL && connection->stage != SERVE_SHAKING && SSL_pending(connection->tls) > 0;
    if (connection->stage == SERVE_SHAKING) shake_hands(connection);
    if (!connection->dead && connection->stage != SERVE_SHAKING && (readable || more))
        receive_input(connection);
    if (!connection->dead && connection->stage != SERVE_PARTING && connection->stage != SERVE_SHAKING)
        read_request(connection);
    if (!connection->dead && connection->stage == SERVE_BUSY) answer_request(connection);
    if (connection->dead) return;
    if (connection->tls != NULL && SSL_pending(connection->tls) > 0 && is_read(connection))
        serve_connection_due(connection);
    watch_connection(connection);
}

static void on_ready(serve_watch *watch, unsigned what)
{
    serve_connection *connection = (serve_connection *)(void *)watch; /* its first member */
    if ((what & SERVE_LOOP_GONE) != 0) {
        serve_connection_close(connection);
        return;
    }
    if ((what & SERVE_LOOP_WRITE) != 0) connection->blocked = false;
    work_connection(connection, (what & SERVE_LOOP_READ) != 0);
}

bool serve_connections_work(serve_server *server)
{
    serve_connection *connection = server->due, *next;
    server->due = NULL;
    for (; connection != NULL; connection = next) {
        next = connection->next_due;
        connection->due = false;
        if (connection->dead)
            weir__mem_free(connection);
        else
            work_connection(connection, false);
    }
    return server->due != NULL;
}

void serve_connection_open(serve_server *server, int fd, const char *address, bool local, bool crowded)
{
    serve_connection *connection = weir__mem_calloc(1, sizeof *connection);
    if (connection == NULL) {
        if (server->params.tls_cert == NULL || local) send(fd, no_memory, sizeof no_memory - 1, 0);
        close(fd);
        return;
    }
    connection->watch = (serve_watch){.fd = fd, .want = SERVE_LOOP_READ, .ready = on_ready};
    connection->server = server;
    connection->local = local;
    connection->crowded = crowded;
    snprintf(connection->address, sizeof connection->address, "%s", address);
    connection->owner = serve_owner_of(-1, address);
    bool tls = server->params.tls_cert != NULL && !local;
    if (tls) {
        pthread_mutex_lock(&server->mutex);
        connection->tls = serve_tls_accept(server->tls, fd);
        pthread_mutex_unlock(&server->mutex);
    }
    if ((tls && connection->tls == NULL) || !serve_loop_watch(server->loop, &connection->watch)) {
        SSL_free(connection->tls);
        close(fd);
        weir__mem_free(connection);
        return;
    }
    connection->stage = tls ? SERVE_SHAKING : SERVE_IDLE;
    set_deadline(connection, server->params.live.head_s);
    serve_http_reset(connection);
    connection->after = server->connections;
    if (server->connections != NULL) server->connections->before = connection;
    server->connections = connection;
    server->n_connections++;
}

void serve_connections_sweep(serve_server *server, int64_t now_ns)
{
    for (serve_connection *connection = server->connections, *next; connection != NULL; connection = next) {
        next = connection->after;
        if (connection->stage == SERVE_BUSY || connection->call != NULL || now_ns < connection->deadline_ns)
            continue;
        if (connection->stage == SERVE_REQUEST)
            serve_http_late(connection);
        else
            serve_connection_close(connection);
        if (connection->starved && !connection->dead) starve_connection(connection);
    }
}

void serve_connections_close(serve_server *server)
{
    while (server->connections != NULL) serve_connection_close(server->connections);
    while (serve_connections_work(server)) continue;
}

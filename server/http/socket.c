/* socket.c: a connection's output, its turn, and its end. SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"
#include "server/api/common/call_end.h"

int serve_connection_send(serve_connection *connection, const void *bytes, size_t n)
{
    if (connection->tls != NULL) return serve_tls_write(connection->tls, bytes, n);
    ssize_t sent = send(connection->watch.fd, bytes, n, 0);
    if (sent >= 0) return (int)sent;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? SERVE_TLS_AGAIN : SERVE_TLS_GONE;
}

bool serve_connection_say(serve_connection *connection, const char *bytes, size_t n)
{
    int sent = serve_connection_send(connection, bytes, n);
    if (sent == (int)n) return true;
    /* TLS has taken the rest, and would send it before the answer. */
    if (sent != SERVE_TLS_AGAIN || connection->tls != NULL) serve_connection_close(connection);
    return false;
}

void serve_connection_due(serve_connection *connection)
{
    serve_server *server = connection->server;
    if (connection->due || connection->dead) return;
    connection->due = true;
    connection->next_due = server->due;
    server->due = connection;
}

void serve_connection_close(serve_connection *connection)
{
    serve_server *server = connection->server;
    serve_call *call = connection->call;
    int fd = connection->watch.fd;
    if (connection->dead) return;
    serve_loop_forget(server->loop, &connection->watch);
    connection->call = NULL;
    if (call != NULL) serve_call_leave(call);
    SSL_free(connection->tls);
    connection->tls = NULL;
    close(fd);
    *(connection->before != NULL ? &connection->before->after : &server->connections) = connection->after;
    if (connection->after != NULL) connection->after->before = connection->before;
    server->n_connections--;
    weir__text_fini(&connection->in);
    weir__text_fini(&connection->head.bytes);
    serve_connection_due(connection);
    connection->dead = true;
}

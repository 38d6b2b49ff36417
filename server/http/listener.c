/* listener.c: the sockets that the server listens on: TCP, a Unix socket, and those of systemd; and the limit
 * of connections. SPDX-License-Identifier: Apache-2.0 */
#include "connection.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "server/access/keys.h"
#include "server/system/bind.h"
#include "server/system/log.h"

#define ACCEPTS_MAX 64 /* of one callback: others get their turn */
#define SYSTEMD_FD  3  /* the first descriptor that systemd hands over */
#define N_LISTENERS (sizeof((serve_server *)0)->listeners / sizeof(serve_listener))
#define FILES       64 /* descriptors for all else but routers: the model, adapters, files */
#define PROBES      16 /* connections that may only ask /health and /metrics, where there are too many */
/* The time without a shortage of descriptors after which the next shortage is logged again. */
#define LOG_NS (60 * WEIR__NS_PER_S)

static weir_status fail_listener(weir_error *error, const char *field, const char *what, const char *where)
{
    return weir__error_set(error, WEIR_IO, field, "%s %s: %s", what, where, strerror(errno));
}

static void on_ready(serve_watch *watch, unsigned what);

/* Takes the socket, also when it fails. */
static weir_status adopt_socket(serve_server *server, int fd, weir_error *error)
{
    if (server->n_listeners == (int32_t)N_LISTENERS) {
        close(fd);
        return weir__error_set(error, WEIR_INVALID, "host", "there are more than %d addresses to listen on",
                               (int)N_LISTENERS);
    }
    serve_listener *listener = &server->listeners[server->n_listeners];
    *listener =
        (serve_listener){.watch = {.fd = fd, .want = SERVE_LOOP_READ, .ready = on_ready}, .server = server};
    if (!serve_loop_watch(server->loop, &listener->watch)) {
        close(fd);
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the server");
    }
    server->n_listeners++;
    server->reachable = server->reachable || !serve_reach_is_local(fd);
    return WEIR_OK;
}

static void keep_address(serve_server *server, int fd)
{
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    char host[256], port[16];
    if (server->address[0] != '\0' || getsockname(fd, (struct sockaddr *)&address, &n) != 0) return;
    if (address.ss_family == AF_UNIX) return;
    if (getnameinfo((struct sockaddr *)&address, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    bool v6 = address.ss_family == AF_INET6;
    snprintf(server->address, sizeof server->address, "http%s://%s%s%s:%s", server->tls != NULL ? "s" : "",
             v6 ? "[" : "", host, v6 ? "]" : "", port);
}

/* ---- TCP ---- */

static weir_status open_tcp(serve_server *server, weir_error *error)
{
    const char *host = server->params.host;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list = NULL;
    char port[16], where[300];
    weir_status status = WEIR_OK;
    int n = 0;
    if (host == NULL || host[0] == '\0') return WEIR_OK;
    snprintf(port, sizeof port, "%d", server->params.port);
    snprintf(where, sizeof where, "%s, port %s", host, port);
    int code = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, port, &hints, &list);
    if (code != 0)
        return weir__error_set(error, WEIR_IO, "host", "cannot listen on %s: %s", host, gai_strerror(code));
    for (const struct addrinfo *at = list; at != NULL && status == WEIR_OK; at = at->ai_next) {
        int fd = serve_bind_tcp(at);
        if (fd < 0) {
            /* An address that this machine lacks is no error where the name has several. */
            if (at->ai_next == NULL && n == 0)
                status = fail_listener(error, "port", "cannot listen on", where);
            continue;
        }
        n++;
        keep_address(server, fd);
        status = adopt_socket(server, fd, error);
        if (server->params.port == 0) break; /* the others would get other ports */
    }
    freeaddrinfo(list);
    return status;
}

/* ---- Unix ---- */

static weir_status open_unix(serve_server *server, weir_error *error)
{
    const char *path = server->params.unix_path;
    const size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (path == NULL) return WEIR_OK;
    if (path[0] == '\0' || strlen(path) > most)
        return weir__error_range(error, WEIR_INVALID, "unix_path", (double)strlen(path), 1, (double)(most),
                                 "the socket's path has %zu bytes", strlen(path));
    int fd = serve_bind_unix(path);
    if (fd < 0) return fail_listener(error, "unix_path", "cannot listen on", path);
    server->unix_path = weir__mem_strdup(path);
    if (server->address[0] == '\0') snprintf(server->address, sizeof server->address, "unix:%s", path);
    return adopt_socket(server, fd, error);
}

/* ---- systemd ---- */

/* Like sd_listen_fds(3): LISTEN_FDS descriptors from 3 on, when LISTEN_PID is this process. */
static weir_status take_systemd(serve_server *server, int *n, weir_error *error)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    weir_status status = WEIR_OK;
    *n = 0;
    if (pid == NULL || count == NULL || strtol(pid, NULL, 10) != (long)getpid()) return WEIR_OK;
    *n = (int)strtol(count, NULL, 10);
    if (*n < 0 || *n > (int)N_LISTENERS) *n = 0;
    for (int i = 0; i < *n && status == WEIR_OK; i++) {
        int fd = SYSTEMD_FD + i, listens = 0;
        socklen_t size = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens)
            return weir__error_set(error, WEIR_IO, NULL,
                                   "descriptor %d from systemd is not a listening socket", fd);
        serve_bind_quiet(fd);
        keep_address(server, fd);
        status = adopt_socket(server, fd, error);
    }
    return status;
}

static int32_t most_connections(const serve_params *params)
{
    const int32_t reserved = FILES + PROBES + (params->kv_events != NULL ? 2 * (SERVE_KV_PEERS + 1) : 0);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT32_MAX)
        return INT32_MAX;
    int32_t all = (int32_t)limit.rlim_cur, others = all / 2 < reserved ? all / 2 : reserved;
    return all - others;
}

weir_status serve_listener_open(serve_server *server, weir_error *error)
{
    int n = 0;
    server->most_connections = most_connections(&server->params);
    weir_status status = take_systemd(server, &n, error);
    if (status == WEIR_OK && n > 0) {
        server->inherited = true;
        if (server->address[0] == '\0') strcpy(server->address, "sockets from systemd");
        return WEIR_OK;
    }
    if (status == WEIR_OK) status = open_tcp(server, error);
    if (status == WEIR_OK) status = open_unix(server, error);
    if (status == WEIR_OK && server->n_listeners == 0)
        status = weir__error_set(error, WEIR_INVALID, "host", "there is no address to listen on");
    return status;
}

void serve_listener_close(serve_server *server)
{
    for (int32_t i = 0; i < server->n_listeners; i++) {
        int fd = server->listeners[i].watch.fd;
        serve_loop_forget(server->loop, &server->listeners[i].watch);
        close(fd);
    }
    server->n_listeners = 0;
    if (server->unix_path != NULL) unlink(server->unix_path);
    weir__mem_free(server->unix_path);
    server->unix_path = NULL;
}

/* ---- Connections ---- */

/* Pauses the listeners, which stay readable without descriptors: they are not looked at for a while, so that
 * the loop does not spin. Who asks meanwhile waits in the kernel's backlog. */
static void pause_listeners(serve_server *server)
{
    server->full = true;
    for (int32_t i = 0; i < server->n_listeners; i++)
        serve_loop_want(server->loop, &server->listeners[i].watch, 0);
}

void serve_listener_go_on(serve_server *server)
{
    if (!server->full) return;
    server->full = false;
    for (int32_t i = 0; i < server->n_listeners; i++)
        serve_loop_want(server->loop, &server->listeners[i].watch, SERVE_LOOP_READ);
}

static void log_full(serve_server *server)
{
    int64_t now_ns = weir__clock_now_ns();
    if (server->logged_full_ns == 0 || now_ns - server->logged_full_ns > LOG_NS)
        serve_log("info", "full", "%d connections are open, and there is no descriptor for more",
                  server->n_connections);
    server->logged_full_ns = now_ns;
}

/* The oldest connection that waits for a request, or for the rest of one's head; of this owner, unless that
 * is NULL. It has had the most time. */
static serve_connection *oldest_waiting(serve_server *server, const serve_owner *owner)
{
    serve_connection *found = NULL;
    for (serve_connection *c = server->connections; c != NULL; c = c->after)
        if (c->call == NULL && (owner == NULL || serve_owner_is(c->owner, *owner))) found = c;
    return found;
}

/* True if the owner has half of all connections: one owner has no more, unless others may come by its
 * address, a proxy's. */
static bool has_its_share(const serve_server *server, const char *address, serve_owner owner)
{
    int32_t n = 0;
    if (server->n_connections < server->most_connections / 2 || address[0] == '\0' ||
        strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0)
        return false;
    for (const serve_connection *c = server->connections; c != NULL; c = c->after)
        n += serve_owner_is(c->owner, owner);
    return n >= server->most_connections / 2;
}

/* Makes room for one more. False: only the room reserved for probes is left. */
static bool make_room(serve_server *server, const char *address)
{
    const serve_owner owner = serve_owner_of(-1, address);
    bool share = has_its_share(server, address, owner);
    if (!share && server->n_connections < server->most_connections) return true;
    serve_connection *victim = oldest_waiting(server, share ? &owner : NULL);
    if (victim != NULL) serve_connection_close(victim);
    if (!share) log_full(server);
    return victim != NULL;
}

static void welcome_client(serve_server *server, int fd, const struct sockaddr *from, socklen_t n)
{
    char address[46] = "";
    int on = 1;
    bool local = from->sa_family == AF_UNIX;
    serve_bind_quiet(fd);
    if (!local) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* an event is to leave at once */
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        if (getnameinfo(from, n, address, sizeof address, NULL, 0, NI_NUMERICHOST) != 0) strcpy(address, "?");
    }
    bool crowded = !make_room(server, address);
    if (crowded && server->n_connections >= server->most_connections + PROBES) {
        close(fd);
        return;
    }
    serve_connection_open(server, fd, address, local, crowded);
}

static void on_ready(serve_watch *watch, unsigned what)
{
    serve_server *server = ((serve_listener *)(void *)watch)->server; /* its first member */
    (void)what;
    for (int i = 0; i < ACCEPTS_MAX && watch->fd >= 0; i++) {
        struct sockaddr_storage from;
        socklen_t n = sizeof from;
        int fd = accept(watch->fd, (struct sockaddr *)&from, &n);
        if (fd >= 0) {
            welcome_client(server, fd, (struct sockaddr *)&from, n);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_full(server);
            pause_listeners(server);
        }
        return;
    }
}

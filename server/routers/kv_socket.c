/* kv_socket.c: a socket at which routers read what is published, and its connections. It speaks ZeroMQ's
 * protocol, as PUB for subscribers or as ROUTER for replays, on the thread of the events. Messages are kept
 * once and counted by reference: a connection has only the number of its next one. So a slow reader takes no
 * memory but a place; it is dropped when it takes nothing for some time. Input, subscriptions and commands
 * that wait have limits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kv_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/ascii.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "server/system/bind.h"
#include "zmtp.h"

#define INPUT_MOST   ((size_t)1 << 10)   /* bytes of a frame from outside */
#define TOPICS_MOST  ((size_t)4 << 10)   /* bytes of a connection's subscriptions */
#define ANSWERS_MOST ((size_t)1 << 10)   /* bytes of commands that wait to be sent */
#define TURN_MOST    ((size_t)256 << 10) /* bytes that one connection gets before the others */
#define KERNEL_BYTES (64 << 10)          /* that the kernel buffers for a connection, as SO_SNDBUF counts */
#define PAUSE_NS     WEIR__NS_PER_S      /* without accepting, when there are no descriptors */

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* the thread blocks SIGPIPE */
#endif

/* Invariant: while `message` is set, bytes [at .. n) of it are unsent, and nothing else is sent. */
typedef struct peer {
    int fd;
    bool greeted, ready; /* the other side sent its greeting; its READY */
    unsigned char in[INPUT_MOST];
    size_t n_in;
    weir__text out; /* this side's greeting and commands; unsent from out_at on */
    size_t out_at;
    size_t n_frames;   /* of the message that is arriving */
    weir__text topics; /* subscriptions: two bytes of length and the bytes, each */
    bool reads;        /* it has subscriptions, or gets a replay */
    size_t next;       /* number of the message that it gets next */
    serve_kv_message *message;
    size_t at;
    int64_t moved_ns; /* when it last took something; until it is ready: when it came */
} peer;

struct serve_kv_socket {
    int fd;
    bool replays;
    char *path;            /* the socket's file; NULL: TCP */
    serve_kv_message *end; /* the message that ends a replay */
    peer *all[SERVE_KV_PEERS];
    size_t n;
    int64_t paused_ns; /* nothing is accepted before */
    uint64_t n_dropped;
};

/* ---- Listening ---- */

static weir_status fail_address(const char *field, const char *address, weir_error *error)
{
    return weir__error_set(error, WEIR_INVALID, field,
                           "\"%.128s\" is not an address; use tcp://HOST:PORT or ipc://FILE", address);
}

/* HOST:PORT, [HOST]:PORT for IPv6, or *:PORT. */
static weir_status open_tcp(serve_kv_socket *sock, const char *where, const char *field, const char *address,
                            weir_error *error)
{
    struct addrinfo hints = {.ai_family = AF_INET,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list = NULL;
    char host[256];
    const char *colon = strrchr(where, ':');
    size_t n = colon != NULL ? (size_t)(colon - where) : 0;
    if (n == 0 || n >= sizeof host || weir__ascii_port(colon + 1, strlen(colon + 1)) == 0)
        return fail_address(field, address, error);
    bool v6 = where[0] == '[' && where[n - 1] == ']';
    if (v6) hints.ai_family = AF_INET6;
    snprintf(host, sizeof host, "%.*s", (int)(v6 ? n - 2 : n), where + v6);
    int code = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, colon + 1, &hints, &list);
    if (code != 0)
        return weir__error_set(error, WEIR_IO, field, "cannot listen at %.128s: %s", address,
                               gai_strerror(code));
    sock->fd = serve_bind_tcp(list);
    int why = errno;
    freeaddrinfo(list);
    errno = why;
    return WEIR_OK;
}

static weir_status open_ipc(serve_kv_socket *sock, const char *path, const char *field, const char *address,
                            weir_error *error)
{
    if (path[0] == '\0') return fail_address(field, address, error);
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return weir__error_range(error, WEIR_INVALID, field, (double)strlen(path), 1,
                                 (double)(sizeof((struct sockaddr_un *)0)->sun_path - 1),
                                 "the socket's path has %zu bytes", strlen(path));
    if ((sock->path = weir__mem_strdup(path)) == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, field, "out of memory");
    sock->fd = serve_bind_unix(path);
    return WEIR_OK;
}

weir_status serve_kv_socket_open(const char *address, bool replays, const char *field, serve_kv_socket **out,
                                 weir_error *error)
{
    weir_status status;
    serve_kv_socket *sock = weir__mem_calloc(1, sizeof *sock);
    if (sock == NULL || (sock->end = serve_kv_message_create("", UINT64_MAX, "", 0)) == NULL) {
        weir__mem_free(sock);
        return weir__error_set(error, WEIR_NO_MEMORY, field, "out of memory");
    }
    sock->fd = -1;
    sock->replays = replays;
    sock->end->kept = true;
    if (strncmp(address, "tcp://", 6) == 0)
        status = open_tcp(sock, address + 6, field, address, error);
    else if (strncmp(address, "ipc://", 6) == 0)
        status = open_ipc(sock, address + 6, field, address, error);
    else
        status = fail_address(field, address, error);
    if (status == WEIR_OK && sock->fd < 0)
        status =
            weir__error_set(error, WEIR_IO, field, "cannot listen at %.128s: %s", address, strerror(errno));
    if (status == WEIR_OK)
        *out = sock;
    else
        serve_kv_socket_close(sock);
    return status;
}

static void close_peer(serve_kv_socket *sock, size_t i)
{
    peer *p = sock->all[i];
    close(p->fd);
    weir__text_fini(&p->out);
    weir__text_fini(&p->topics);
    serve_kv_message_release(p->message);
    weir__mem_free(p);
    sock->all[i] = sock->all[--sock->n];
}

void serve_kv_socket_close(serve_kv_socket *sock)
{
    if (sock == NULL) return;
    while (sock->n > 0) close_peer(sock, 0);
    if (sock->fd >= 0) {
        close(sock->fd);
        if (sock->path != NULL) unlink(sock->path);
    }
    serve_kv_message_release(sock->end);
    weir__mem_free(sock->path);
    weir__mem_free(sock);
}

static void welcome_peer(serve_kv_socket *sock, int fd, int64_t now_ns)
{
    int on = 1, n_kernel = KERNEL_BYTES;
    unsigned char greeting[SERVE_ZMTP_GREETING];
    peer *p = weir__mem_calloc(1, sizeof *p);
    serve_zmtp_greet(greeting);
    if (p == NULL || !weir__text_add(&p->out, (const char *)greeting, sizeof greeting)) {
        weir__mem_free(p);
        close(fd);
        return;
    }
    serve_bind_quiet(fd);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n_kernel, sizeof n_kernel);
    if (sock->path == NULL) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    p->fd = fd;
    p->moved_ns = now_ns;
    sock->all[sock->n++] = p;
}

/* Accepts all that find a place; the others wait in the kernel's backlog. */
static void accept_peers(serve_kv_socket *sock, int64_t now_ns)
{
    while (sock->n < SERVE_KV_PEERS) {
        int fd = accept(sock->fd, NULL, NULL);
        if (fd >= 0) {
            welcome_peer(sock, fd, now_ns);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            sock->paused_ns = now_ns + PAUSE_NS;
        return;
    }
}

/* ---- Input ---- */

static size_t topic_length(const peer *p, size_t at)
{
    return (size_t)(unsigned char)p->topics.bytes[at] << 8 | (unsigned char)p->topics.bytes[at + 1];
}

static bool subscribe_topic(peer *p, const serve_kv_kept *kept, const unsigned char *topic, size_t n)
{
    const char head[2] = {(char)(n >> 8), (char)n};
    if (p->topics.n + sizeof head + n > TOPICS_MOST) return false;
    if (!weir__text_reserve(&p->topics, sizeof head + n)) return false;
    weir__text_add(&p->topics, head, sizeof head);
    weir__text_add(&p->topics, (const char *)topic, n);
    if (!p->reads) p->next = kept->n;
    p->reads = true;
    return true;
}

static void unsubscribe_topic(peer *p, const unsigned char *topic, size_t n)
{
    for (size_t at = 0, size; at < p->topics.n; at += size) {
        char *one = p->topics.bytes + at;
        size = 2 + topic_length(p, at);
        if (size != 2 + n || memcmp(one + 2, topic, n) != 0) continue;
        memmove(one, one + size, p->topics.n - at - size);
        weir__text_cut(&p->topics, p->topics.n - size);
        p->reads = p->topics.n > 0;
        return;
    }
}

/* A subscriber's message is 1 or 0 and a topic; a request for a replay is ["", number]. All else is
 * ignored. False: there are too many subscriptions. */
static bool take_frame(const serve_kv_socket *sock, peer *p, const serve_kv_kept *kept,
                       const serve_zmtp_frame *frame)
{
    bool last = (frame->flags & SERVE_ZMTP_MORE) == 0;
    size_t i = p->n_frames;
    p->n_frames = last ? 0 : i < 2 ? i + 1 : 2;
    if (!last) return true;
    if (sock->replays && i == 1 && frame->n == 8) {
        uint64_t from = 0;
        for (int k = 0; k < 8; k++) from = from << 8 | frame->body[k];
        p->next = from < kept->n ? (size_t)from : kept->n;
        p->reads = true;
    }
    if (sock->replays || i > 0 || frame->n == 0) return true;
    if (frame->body[0] == 1) return subscribe_topic(p, kept, frame->body + 1, frame->n - 1);
    if (frame->body[0] == 0) unsubscribe_topic(p, frame->body + 1, frame->n - 1);
    return true;
}

static bool take_command(peer *p, const serve_zmtp_frame *frame)
{
    const unsigned char *rest;
    size_t n;
    if (!p->ready) return p->ready = serve_zmtp_is(frame, "READY", &rest, &n);
    if (serve_zmtp_is(frame, "PING", &rest, &n)) serve_zmtp_pong(&p->out, rest, n);
    return true;
}

/* True if input is looked at: a connection has one replay at a time, and reads the answers to its
 * commands. */
static bool listens_to(const serve_kv_socket *sock, const peer *p)
{
    return p->out.n - p->out_at < ANSWERS_MOST && !(sock->replays && (p->reads || p->message != NULL));
}

static void drop_input(peer *p, size_t n)
{
    p->n_in -= n;
    memmove(p->in, p->in + n, p->n_in);
}

static bool take_greeting(const serve_kv_socket *sock, peer *p)
{
    if (!serve_zmtp_greets(p->in)) return false;
    drop_input(p, SERVE_ZMTP_GREETING);
    serve_zmtp_ready(&p->out, sock->replays ? "ROUTER" : "PUB");
    return p->greeted = true;
}

/* Acts on what has arrived. False: the other side breaks the protocol, or memory is out. */
static bool take_input(const serve_kv_socket *sock, peer *p, const serve_kv_kept *kept, bool published)
{
    serve_zmtp_frame frame;
    if (!p->greeted && p->n_in < SERVE_ZMTP_GREETING) return true;
    if (!p->greeted && !take_greeting(sock, p)) return false;
    while (listens_to(sock, p) && (published || !sock->replays || !p->ready)) {
        serve_zmtp_status status = serve_zmtp_read(p->in, p->n_in, sizeof p->in, &frame);
        if (status == SERVE_ZMTP_CUT) return true;
        if (status == SERVE_ZMTP_BAD) return false;
        bool command = (frame.flags & SERVE_ZMTP_COMMAND) != 0;
        if (command ? !take_command(p, &frame) : !p->ready || !take_frame(sock, p, kept, &frame))
            return false;
        drop_input(p, frame.n_all);
    }
    return !p->out.failed;
}

/* ---- Output ---- */

static bool wants_topic(const peer *p, const serve_kv_message *message)
{
    for (size_t at = 0, n; at < p->topics.n; at += 2 + n) {
        n = topic_length(p, at);
        if (n <= message->n_topic && memcmp(p->topics.bytes + at + 2, message->topic, n) == 0) return true;
    }
    return false;
}

/* The message that comes next; NULL: none yet. */
static serve_kv_message *next_message(const serve_kv_socket *sock, peer *p, const serve_kv_kept *kept)
{
    while (p->reads && p->next < kept->n) {
        serve_kv_message *message = kept->all[p->next++];
        if (sock->replays || wants_topic(p, message)) return message;
    }
    if (!sock->replays || !p->reads) return NULL;
    p->reads = false;
    return sock->end;
}

static bool has_output(const serve_kv_socket *sock, const peer *p, const serve_kv_kept *kept)
{
    return p->message != NULL || p->out_at < p->out.n || (p->reads && (sock->replays || p->next < kept->n));
}

/* Begins the next message, if there is one and the last one is out. */
static void begin_message(const serve_kv_socket *sock, peer *p, const serve_kv_kept *kept, int64_t now_ns)
{
    serve_kv_message *next = next_message(sock, p, kept);
    weir__text_clear(&p->out);
    p->out_at = 0;
    if (next == NULL) return;
    p->message = serve_kv_message_hold(next);
    p->at = sock->replays ? 0 : SERVE_KV_ENVELOPE;
    p->moved_ns = now_ns;
}

static void count_sent(peer *p, size_t n, int64_t now_ns)
{
    if (p->ready) p->moved_ns = now_ns;
    if (p->message == NULL) {
        p->out_at += n;
    } else if ((p->at += n) == p->message->n) {
        serve_kv_message_release(p->message);
        p->message = NULL;
    }
}

/* False: the other side has gone. */
static bool send_output(const serve_kv_socket *sock, peer *p, const serve_kv_kept *kept, int64_t now_ns)
{
    for (size_t room = TURN_MOST; room > 0;) {
        if (p->message == NULL && p->out_at == p->out.n) begin_message(sock, p, kept, now_ns);
        const char *bytes = p->message != NULL ? p->message->bytes + p->at : p->out.bytes + p->out_at;
        size_t n = p->message != NULL ? p->message->n - p->at : p->out.n - p->out_at;
        if (n == 0) return true;
        ssize_t sent = send(p->fd, bytes, n < room ? n : room, MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        count_sent(p, (size_t)sent, now_ns);
        room -= (size_t)sent;
    }
    return true;
}

/* ---- Work ---- */

typedef enum peer_end { PEER_STAYS, PEER_LEFT, PEER_DROPPED } peer_end;

static peer_end receive_input(peer *p)
{
    ssize_t n = recv(p->fd, p->in + p->n_in, sizeof p->in - p->n_in, 0);
    if (n == 0) return PEER_LEFT;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? PEER_STAYS : PEER_LEFT;
    p->n_in += (size_t)n;
    return PEER_STAYS;
}

/* Input that waited for the end of a replay is looked at after it. */
static peer_end work_peer(const serve_kv_socket *sock, peer *p, const serve_kv_kept *kept, bool published,
                          int64_t now_ns, unsigned what)
{
    size_t before;
    if ((what & (POLLERR | POLLHUP | POLLNVAL)) != 0) return PEER_LEFT;
    if ((what & POLLIN) != 0 && receive_input(p) == PEER_LEFT) return PEER_LEFT;
    do {
        before = p->n_in;
        if (!take_input(sock, p, kept, published)) return PEER_DROPPED;
        if (!send_output(sock, p, kept, now_ns)) return PEER_LEFT;
    } while (p->n_in < before);
    int64_t limit_s = p->ready ? SERVE_KV_SILENT_S : SERVE_KV_HANDSHAKE_S;
    bool waits = !p->ready || has_output(sock, p, kept);
    return waits && now_ns - p->moved_ns > limit_s * WEIR__NS_PER_S ? PEER_DROPPED : PEER_STAYS;
}

void serve_kv_socket_poll(const serve_kv_socket *sock, const serve_kv_kept *kept, int64_t now_ns,
                          struct pollfd polls[SERVE_KV_POLLS])
{
    bool open = sock->n < SERVE_KV_PEERS && now_ns >= sock->paused_ns;
    polls[0] = (struct pollfd){.fd = sock->fd, .events = open ? POLLIN : 0};
    for (size_t i = 0; i < sock->n; i++) {
        const peer *p = sock->all[i];
        bool in = p->n_in < sizeof p->in && listens_to(sock, p), out = has_output(sock, p, kept);
        polls[i + 1] =
            (struct pollfd){.fd = p->fd, .events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0))};
    }
    for (size_t i = sock->n + 1; i < SERVE_KV_POLLS; i++) polls[i] = (struct pollfd){.fd = -1};
}

/* Backwards, because a connection that is closed gives its place to the last one. */
void serve_kv_socket_work(serve_kv_socket *sock, const serve_kv_kept *kept, bool published, int64_t now_ns,
                          const struct pollfd polls[SERVE_KV_POLLS])
{
    for (size_t i = sock->n; i-- > 0;) {
        peer_end end = work_peer(sock, sock->all[i], kept, published, now_ns, (unsigned)polls[i + 1].revents);
        if (end == PEER_DROPPED) sock->n_dropped++;
        if (end != PEER_STAYS) close_peer(sock, i);
    }
    if (polls[0].revents != 0) accept_peers(sock, now_ns);
}

void serve_kv_socket_restart(serve_kv_socket *sock)
{
    for (size_t i = 0; i < sock->n; i++) sock->all[i]->next = 0;
}

/* True if a connection before this one is in the middle of the same message. */
static bool is_counted(const serve_kv_socket *sock, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (sock->all[k]->message == sock->all[i]->message) return true;
    return false;
}

serve_kv_socket_stats serve_kv_socket_get_stats(const serve_kv_socket *sock)
{
    serve_kv_socket_stats stats = {.n = sock->n, .n_dropped = sock->n_dropped};
    for (size_t i = 0; i < sock->n; i++) {
        const peer *p = sock->all[i];
        stats.n_reading += p->reads || p->message != NULL;
        stats.n_bytes += sizeof *p + p->out.capacity + p->topics.capacity;
        if (p->message != NULL && !p->message->kept && !is_counted(sock, i)) stats.n_bytes += p->message->n;
    }
    return stats;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv_socket.h"
#include "zmtp.h"

#define N_MESSAGES 40
#define N_PAYLOAD  50000
#define S          WEIR__NS_PER_S

/* A socket, what is kept, and time that the test passes. */
typedef struct rig {
    char path[64];
    serve_kv_socket *sock;
    serve_kv_kept kept;
    int64_t now_ns;
    long live; /* blocks of memory before */
} rig;

static rig own;

static void turn(rig *r)
{
    struct pollfd polls[SERVE_KV_POLLS];
    serve_kv_socket_poll(r->sock, &r->kept, r->now_ns, polls);
    poll(polls, SERVE_KV_POLLS, 0);
    serve_kv_socket_work(r->sock, &r->kept, true, r->now_ns, polls);
}

static void turns(rig *r)
{
    for (int i = 0; i < 20; i++) turn(r);
}

static void keep(rig *r, const char *topic, char fill)
{
    static char payload[N_PAYLOAD];
    memset(payload, fill, sizeof payload);
    serve_kv_message *message = serve_kv_message_create(topic, r->kept.n, payload, sizeof payload);
    assert_non_null(message);
    message->kept = true;
    r->kept.n_bytes += message->n;
    r->kept.all[r->kept.n++] = message;
}

static void forget(rig *r)
{
    for (size_t i = 0; i < r->kept.n; i++) {
        r->kept.all[i]->kept = false;
        serve_kv_message_release(r->kept.all[i]);
    }
    r->kept.n = r->kept.n_bytes = 0;
}

static rig *begin(bool replays)
{
    char address[80];
    weir_error error;
    rig *r = &own;
    *r = (rig){.now_ns = 1000 * S, .live = weir__mem_live()};
    snprintf(r->path, sizeof r->path, "/tmp/weir-kv-socket-%ld", (long)getpid());
    snprintf(address, sizeof address, "ipc:///tmp/weir-kv-socket-%ld", (long)getpid());
    r->kept.all = weir__mem_calloc(N_MESSAGES, sizeof *r->kept.all);
    if (serve_kv_socket_open(address, replays, "f", &r->sock, &error) != WEIR_OK)
        fail_msg("%s", error.message);
    return r;
}

static void end(rig *r)
{
    serve_kv_socket_close(r->sock);
    forget(r);
    weir__mem_free(r->kept.all);
    assert_int_equal(weir__mem_live(), r->live);
    assert_int_equal(access(r->path, F_OK), -1);
}

/* ---- A router ---- */

static int join(rig *r)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", r->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    turn(r);
    return fd;
}

static void say(rig *r, int fd, const weir__text *text)
{
    assert_int_equal(send(fd, text->bytes, text->n, MSG_NOSIGNAL), (ssize_t)text->n);
    turn(r);
}

static int greet(rig *r, const char *type)
{
    unsigned char greeting[SERVE_ZMTP_GREETING];
    weir__text text = {0};
    int fd = join(r);
    serve_zmtp_greet(greeting);
    weir__text_add(&text, (const char *)greeting, sizeof greeting);
    serve_zmtp_ready(&text, type);
    say(r, fd, &text);
    weir__text_fini(&text);
    return fd;
}

static int ask_replay(rig *r)
{
    weir__text text = {0};
    int fd = greet(r, "DEALER");
    serve_zmtp_write(&text, SERVE_ZMTP_MORE, NULL, 0);
    serve_zmtp_write(&text, 0, "\0\0\0\0\0\0\0\0", 8);
    say(r, fd, &text);
    weir__text_fini(&text);
    return fd;
}

static int subscribe(rig *r, const char *topic)
{
    char body[64] = "\1";
    weir__text text = {0};
    int fd = greet(r, "SUB");
    snprintf(body + 1, sizeof body - 1, "%s", topic);
    serve_zmtp_write(&text, 0, body, strlen(body));
    say(r, fd, &text);
    weir__text_fini(&text);
    return fd;
}

/* Reads until nothing comes; the number of bytes. */
static size_t drain(rig *r, int fd, char *last)
{
    static char bytes[1 << 16];
    size_t sum = 0;
    for (ssize_t n; (n = recv(fd, bytes, sizeof bytes, 0)) > 0; turn(r)) {
        sum += (size_t)n;
        *last = bytes[n - 1];
    }
    return sum;
}

static bool is_open(int fd)
{
    char byte;
    ssize_t n;
    while ((n = recv(fd, &byte, 1, 0)) == 1) {
    }
    return n < 0;
}

/* ---- Tests ---- */

static void test_a_silent_reader_costs_no_copy(void **state)
{
    (void)state;
    rig *r = begin(true);
    char last;
    for (int i = 0; i < N_MESSAGES; i++) keep(r, "t", (char)i);
    int fds[30];
    for (int i = 0; i < 30; i++) fds[i] = ask_replay(r);
    turns(r);
    serve_kv_socket_stats stats = serve_kv_socket_get_stats(r->sock);
    assert_int_equal(stats.n, 30);
    assert_int_equal(stats.n_reading, 30);
    assert_true(stats.n_bytes <= 30 * 4096);
    int reader = ask_replay(r);
    size_t n = drain(r, reader, &last);
    assert_true(n >= r->kept.n_bytes && n <= r->kept.n_bytes + 200);
    assert_int_equal(last, 0); /* the end's empty payload: its length */
    assert_int_equal(serve_kv_socket_get_stats(r->sock).n_reading, 30);
    for (int i = 0; i < 30; i++) close(fds[i]);
    turns(r);
    stats = serve_kv_socket_get_stats(r->sock);
    assert_int_equal(stats.n, 1);
    assert_int_equal(stats.n_reading, 0);
    assert_int_equal(stats.n_dropped, 0);
    close(reader);
    end(r);
}

/* A replay that is in the middle of a message when the sequence begins anew: it ends this one, and goes on at
 * the new start. Only what it holds beyond the kept is counted, once for all who hold it. */
static void test_a_new_sequence(void **state)
{
    (void)state;
    rig *r = begin(true);
    char last;
    for (int i = 0; i < N_MESSAGES; i++) keep(r, "t", 'a');
    int one = ask_replay(r), two = ask_replay(r);
    turns(r);
    uint64_t before = serve_kv_socket_get_stats(r->sock).n_bytes;
    forget(r);
    serve_kv_socket_restart(r->sock);
    keep(r, "t", 'b');
    turns(r);
    serve_kv_socket_stats stats = serve_kv_socket_get_stats(r->sock);
    assert_true(stats.n_bytes > before && stats.n_bytes <= before + 2 * (N_PAYLOAD + 100));
    size_t n = drain(r, one, &last);
    assert_true(n > N_PAYLOAD && n < (size_t)N_MESSAGES * N_PAYLOAD);
    close(one);
    close(two);
    turns(r);
    assert_int_equal(serve_kv_socket_get_stats(r->sock).n_bytes, 0);
    end(r);
}

static void test_silence_ends(void **state)
{
    (void)state;
    rig *r = begin(true);
    for (int i = 0; i < N_MESSAGES; i++) keep(r, "t", 'a');
    char last;
    int silent = ask_replay(r), slow = ask_replay(r), idle = greet(r, "DEALER"), strange = join(r);
    turns(r);
    r->now_ns += (SERVE_KV_HANDSHAKE_S - 1) * S;
    turns(r);
    assert_int_equal(serve_kv_socket_get_stats(r->sock).n, 4);
    r->now_ns += 2 * S;
    turns(r);
    assert_int_equal(serve_kv_socket_get_stats(r->sock).n, 3); /* without the one that never greeted */
    assert_false(is_open(strange));
    for (int i = 0; i < 4; i++) {
        char bytes[4096];
        for (int k = 0; k < 100; k++) (void)!recv(slow, bytes, sizeof bytes, 0);
        r->now_ns += SERVE_KV_SILENT_S * S / 2;
        turns(r);
    }
    serve_kv_socket_stats stats = serve_kv_socket_get_stats(r->sock);
    assert_int_equal(stats.n, 2);
    assert_int_equal(stats.n_reading, 1);
    assert_int_equal(stats.n_dropped, 2);
    assert_true(drain(r, slow, &last) > 0);
    assert_true(is_open(slow) && is_open(idle));
    assert_false(is_open(silent));
    close(silent);
    close(slow);
    close(idle);
    close(strange);
    end(r);
}

/* Subscribers get what is published after they came, of their topics, and lose nothing when they are slow. */
static void test_subscribers(void **state)
{
    (void)state;
    rig *r = begin(false);
    char last;
    keep(r, "kv@a", 'a');
    int all = subscribe(r, "kv@"), one = subscribe(r, "kv@b"), silent = subscribe(r, "");
    turns(r);
    assert_true(drain(r, all, &last) < 200);
    assert_true(drain(r, one, &last) < 200);
    for (int i = 1; i < N_MESSAGES; i++) keep(r, i % 2 == 0 ? "kv@a" : "kv@b", 'b');
    turns(r);
    assert_true(drain(r, all, &last) >= (N_MESSAGES - 1) * N_PAYLOAD);
    size_t n = drain(r, one, &last);
    assert_true(n >= N_MESSAGES / 2 * N_PAYLOAD && n < (N_MESSAGES / 2 + 1) * N_PAYLOAD);
    assert_int_equal(last, 'b');
    assert_true(serve_kv_socket_get_stats(r->sock).n_bytes <= 3 * 4096);
    r->now_ns += (SERVE_KV_SILENT_S + 1) * S;
    turns(r);
    assert_int_equal(serve_kv_socket_get_stats(r->sock).n, 2); /* who has read all may stay */
    close(all);
    close(one);
    close(silent);
    end(r);
}

static void test_no_memory(void **state)
{
    (void)state;
    rig *r = begin(true);
    keep(r, "t", 'a');
    for (long n = 0; n < 4; n++) {
        weir__mem_fail_after(n);
        int fd = join(r); /* allocates nothing of its own */
        turns(r);
        weir__mem_fail_after(-1);
        if (n < 2) assert_false(is_open(fd));
        close(fd);
        turns(r);
        assert_int_equal(serve_kv_socket_get_stats(r->sock).n, 0);
    }
    end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_silent_reader_costs_no_copy),
        cmocka_unit_test(test_a_new_sequence),
        cmocka_unit_test(test_silence_ends),
        cmocka_unit_test(test_subscribers),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

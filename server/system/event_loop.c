/* event_loop.c: waits for descriptors, times and other threads, by epoll or poll.
 * SPDX-License-Identifier: Apache-2.0 */
#include "event_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif

#include "base/clock.h"
#include "base/mem.h"

#define EVENTS_MAX 256 /* of one turn */

/* The loop. With epoll: watches and polled stay NULL. With poll: [n], and an entry that was forgotten is NULL
 * until the next turn. */
struct serve_loop {
    int epoll; /* -1: poll */
    int pipe[2];
    serve_watch waker;
    serve_timer *timers;
    serve_watch **watches;
    struct pollfd *polled;
    size_t n, capacity, polled_capacity;
};

/* ---- Waking ---- */

static void on_waker(serve_watch *watch, unsigned what)
{
    char bytes[64];
    (void)what;
    while (read(watch->fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes) continue;
}

void serve_loop_wake(serve_loop *loop)
{
    while (write(loop->pipe[1], "", 1) < 0 && errno == EINTR) continue; /* full: it is awake */
}

/* ---- Epoll ---- */

#ifdef __linux__

static struct epoll_event epoll_event_of(serve_watch *watch)
{
    struct epoll_event event = {.data = {.ptr = watch}};
    if ((watch->want & SERVE_LOOP_READ) != 0) event.events |= EPOLLIN;
    if ((watch->want & SERVE_LOOP_WRITE) != 0) event.events |= EPOLLOUT;
    return event;
}

static bool epoll_set(const serve_loop *loop, int what, serve_watch *watch)
{
    struct epoll_event event = epoll_event_of(watch);
    return epoll_ctl(loop->epoll, what, watch->fd, &event) == 0;
}

static void epoll_turn(const serve_loop *loop, int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(loop->epoll, events, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < n; i++) {
        serve_watch *watch = events[i].data.ptr;
        unsigned what = 0;
        if (watch->fd < 0) continue; /* forgotten in this turn */
        if ((events[i].events & EPOLLIN) != 0) what |= SERVE_LOOP_READ;
        if ((events[i].events & EPOLLOUT) != 0) what |= SERVE_LOOP_WRITE;
        if ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0) what |= SERVE_LOOP_GONE;
        watch->ready(watch, what);
    }
}

static int epoll_open(bool plain)
{
    return plain ? -1 : epoll_create1(EPOLL_CLOEXEC);
}

#define epoll_add(loop, watch)    epoll_set(loop, EPOLL_CTL_ADD, watch)
#define epoll_change(loop, watch) epoll_set(loop, EPOLL_CTL_MOD, watch)
#define epoll_remove(loop, watch) epoll_set(loop, EPOLL_CTL_DEL, watch)

#else

#define epoll_open(plain)         ((void)(plain), -1)
#define epoll_add(loop, watch)    false
#define epoll_change(loop, watch) false
#define epoll_remove(loop, watch) false
#define epoll_turn(loop, timeout) (void)0

#endif

/* ---- Poll ---- */

static short poll_events(unsigned want)
{
    return (short)(((want & SERVE_LOOP_READ) != 0 ? POLLIN : 0) |
                   ((want & SERVE_LOOP_WRITE) != 0 ? POLLOUT : 0));
}

static bool poll_add(serve_loop *loop, serve_watch *watch)
{
    if (!weir__mem_grow(&loop->watches, &loop->capacity, loop->n + 1, sizeof(serve_watch *)) ||
        !weir__mem_grow(&loop->polled, &loop->polled_capacity, loop->n + 1, sizeof *loop->polled))
        return false;
    watch->place = loop->n;
    loop->watches[loop->n] = watch;
    loop->polled[loop->n++] = (struct pollfd){.fd = watch->fd, .events = poll_events(watch->want)};
    return true;
}

static void poll_tidy(serve_loop *loop)
{
    for (size_t i = 0; i < loop->n;) {
        if (loop->watches[i] != NULL) {
            i++;
            continue;
        }
        loop->watches[i] = loop->watches[--loop->n];
        loop->polled[i] = loop->polled[loop->n];
        if (loop->watches[i] != NULL) loop->watches[i]->place = i;
    }
}

static void poll_turn(serve_loop *loop, int timeout_ms)
{
    poll_tidy(loop);
    size_t n = loop->n;
    if (poll(loop->polled, (nfds_t)n, timeout_ms) <= 0) return;
    for (size_t i = 0; i < n; i++) {
        int events = loop->polled[i].revents;
        unsigned what = 0;
        if (loop->watches[i] == NULL || events == 0) continue;
        if ((events & POLLIN) != 0) what |= SERVE_LOOP_READ;
        if ((events & POLLOUT) != 0) what |= SERVE_LOOP_WRITE;
        if ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0) what |= SERVE_LOOP_GONE;
        loop->watches[i]->ready(loop->watches[i], what);
    }
}

/* ---- Watches ---- */

bool serve_loop_watch(serve_loop *loop, serve_watch *watch)
{
    return loop->epoll >= 0 ? epoll_add(loop, watch) : poll_add(loop, watch);
}

void serve_loop_want(serve_loop *loop, serve_watch *watch, unsigned want)
{
    if (watch->want == want) return;
    watch->want = want;
    if (loop->epoll >= 0)
        (void)epoll_change(loop, watch);
    else
        loop->polled[watch->place].events = poll_events(want);
}

void serve_loop_forget(serve_loop *loop, serve_watch *watch)
{
    if (loop->epoll >= 0)
        (void)epoll_remove(loop, watch);
    else
        loop->watches[watch->place] = NULL;
    watch->fd = -1;
}

/* ---- Times ---- */

void serve_loop_set(serve_loop *loop, serve_timer *timer, int64_t after_us)
{
    serve_timer **at = &loop->timers;
    timer->at_ns = weir__clock_now_ns() + after_us * 1000;
    while (*at != NULL && (*at)->at_ns <= timer->at_ns) at = &(*at)->next;
    timer->next = *at;
    *at = timer;
}

static int until_next_ms(const serve_loop *loop)
{
    if (loop->timers == NULL) return -1;
    int64_t ns = loop->timers->at_ns - weir__clock_now_ns();
    return ns <= 0 ? 0 : (int)((ns + WEIR__NS_PER_MS - 1) / WEIR__NS_PER_MS);
}

static void fire_timers(serve_loop *loop)
{
    int64_t now_ns = weir__clock_now_ns();
    while (loop->timers != NULL && loop->timers->at_ns <= now_ns) {
        serve_timer *timer = loop->timers;
        loop->timers = timer->next;
        timer->fire(timer);
    }
}

void serve_loop_turn(serve_loop *loop, bool hurry)
{
    int timeout_ms = hurry ? 0 : until_next_ms(loop);
    if (loop->epoll >= 0)
        epoll_turn(loop, timeout_ms);
    else
        poll_turn(loop, timeout_ms);
    fire_timers(loop);
}

/* ---- Life ---- */

serve_loop *serve_loop_create(bool plain)
{
    serve_loop *loop = weir__mem_calloc(1, sizeof *loop);
    if (loop == NULL) return NULL;
    loop->epoll = epoll_open(plain);
    if (pipe(loop->pipe) != 0) {
        loop->pipe[0] = loop->pipe[1] = -1;
        serve_loop_destroy(loop);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(loop->pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(loop->pipe[i], F_SETFD, FD_CLOEXEC);
    }
    loop->waker = (serve_watch){.fd = loop->pipe[0], .want = SERVE_LOOP_READ, .ready = on_waker};
    if (serve_loop_watch(loop, &loop->waker)) return loop;
    serve_loop_destroy(loop);
    return NULL;
}

void serve_loop_destroy(serve_loop *loop)
{
    if (loop == NULL) return;
    if (loop->epoll >= 0) close(loop->epoll);
    for (int i = 0; i < 2; i++)
        if (loop->pipe[i] >= 0) close(loop->pipe[i]);
    weir__mem_free(loop->watches);
    weir__mem_free(loop->polled);
    weir__mem_free(loop);
}

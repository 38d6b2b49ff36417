/* event_loop.h: waits for descriptors, times and other threads, on one thread: with epoll where there is
 * that, else with poll. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_EVENT_LOOP_H
#define WEIR_SERVER_SYSTEM_EVENT_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVE_LOOP_READ  1u
#define SERVE_LOOP_WRITE 2u
#define SERVE_LOOP_GONE  4u /* an error, or both directions are closed; reported without being asked for */

typedef struct serve_loop serve_loop;

/* A watch. Its owner keeps it where it is until the turn in which it was forgotten is over. */
typedef struct serve_watch {
    int fd;
    unsigned want; /* READ, WRITE */
    void (*ready)(struct serve_watch *watch, unsigned what);
    size_t place; /* the loop's */
} serve_watch;

typedef struct serve_timer {
    int64_t at_ns;
    void (*fire)(struct serve_timer *timer);
    struct serve_timer *next;
} serve_timer;

/* plain: with poll in any case. NULL: out of memory, or of descriptors. */
serve_loop *serve_loop_create(bool plain);
void serve_loop_destroy(serve_loop *loop);

/* False: out of memory. Watches are forgotten before their descriptors are closed. */
bool serve_loop_watch(serve_loop *loop, serve_watch *watch);
void serve_loop_want(serve_loop *loop, serve_watch *watch, unsigned want);
void serve_loop_forget(serve_loop *loop, serve_watch *watch);

/* Fires once, in a turn after that time. A timer is set once at a time. */
void serve_loop_set(serve_loop *loop, serve_timer *timer, int64_t after_us);

/* Ends the turn that waits, or the next one. Any thread. */
void serve_loop_wake(serve_loop *loop);

/* Waits until a watch or timer is due, or the loop is woken (with `hurry`: does not wait), and calls the
 * functions of those that are due. */
void serve_loop_turn(serve_loop *loop, bool hurry);

#endif

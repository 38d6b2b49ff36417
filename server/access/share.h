/* share.h: who holds how much of a store that callers share and that has a bound (ADR 0097). Any thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ACCESS_SHARE_H
#define WEIR_SERVER_ACCESS_SHARE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The owner of a share: an API key, or an address where there is none. Zeroes: a Unix socket. */
typedef struct serve_owner {
    uint64_t kind, value;
} serve_owner;

/* The owner of this key, or with -1 of the address: as text, "" for a Unix socket. Of IPv6, all addresses of
 * a /64 are one. */
serve_owner serve_owner_of(int32_t key, const char *address);
bool serve_owner_is(serve_owner a, serve_owner b);

#define SERVE_OWNER_NAME 48

/* A name that no other owner has. */
void serve_owner_name(serve_owner owner, char name[SERVE_OWNER_NAME]);

typedef struct serve_holder {
    serve_owner owner;
    size_t held;
} serve_holder;

/* Invariant: each owner that holds something is there once, no other one is, and used is the sum. */
typedef struct serve_share {
    pthread_mutex_t mutex; /* all below; taken last */
    serve_holder *holders; /* [n] */
    size_t n, capacity, used;
} serve_share;

void serve_share_init(serve_share *share);
void serve_share_fini(serve_share *share);

/* Counts n more for the owner: of a store that makes room by what serve_share_largest says. False: out of
 * memory. */
bool serve_share_hold(serve_share *share, serve_owner owner, size_t n);
void serve_share_release(serve_share *share, serve_owner owner, size_t n);

typedef enum serve_share_result {
    SERVE_SHARE_OK,
    SERVE_SHARE_FULL,
    SERVE_SHARE_NO_MEMORY
} serve_share_result;

/* Counts n more for the owner of a store whose entries stay until they end, and which has `most` in all.
 * FULL: it may not hold n more, by serve_share_admits. */
serve_share_result serve_share_take(serve_share *share, serve_owner owner, size_t n, size_t most);

size_t serve_share_used(serve_share *share);
size_t serve_share_held(serve_share *share, serve_owner owner);

/* The owner that holds most: the one whose entries go where the store is over its bound. Then it holds more
 * than its equal share, whatever the others do. False: nobody holds anything. */
bool serve_share_largest(serve_share *share, serve_owner *owner);

/* True if an owner that holds so many may have n more, where `used` of `most` are taken: one that has less
 * than three times what is free may take one more. So an owner alone has three quarters, and there is room
 * for the next one. */
static inline bool serve_share_admits(size_t held, size_t n, size_t used, size_t most)
{
    return n == 0 || (used <= most && n <= most - used && held + n <= 3 * (most - used - n) + 3);
}

/* The most that an owner that is alone may hold. */
static inline size_t serve_share_alone(size_t most)
{
    return most - most / 4;
}

#endif

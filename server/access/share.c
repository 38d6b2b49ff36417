/* share.c: what each owner holds of a store that callers share (ADR 0097).
 * SPDX-License-Identifier: Apache-2.0 */
#include "share.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Kinds of owners. */
enum { UNIX_SOCKET, KEY, IPV4, IPV6, UNKNOWN };

static uint64_t address_number(const unsigned char *bytes, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value = value << 8 | bytes[i];
    return value;
}

serve_owner serve_owner_of(int32_t key, const char *address)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    unsigned char bytes[16];
    char plain[64];
    if (key >= 0) return (serve_owner){KEY, (uint64_t)key};
    if (address[0] == '\0') return (serve_owner){UNIX_SOCKET, 0};
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(address, "%"), address); /* without an interface */
    if (inet_pton(AF_INET, plain, bytes) == 1) return (serve_owner){IPV4, address_number(bytes, 4)};
    if (inet_pton(AF_INET6, plain, bytes) != 1) return (serve_owner){UNKNOWN, 0};
    if (memcmp(bytes, mapped, sizeof mapped) == 0) return (serve_owner){IPV4, address_number(bytes + 12, 4)};
    return (serve_owner){IPV6, address_number(bytes, 8)};
}

bool serve_owner_is(serve_owner a, serve_owner b)
{
    return a.kind == b.kind && a.value == b.value;
}

void serve_owner_name(serve_owner owner, char name[SERVE_OWNER_NAME])
{
    snprintf(name, SERVE_OWNER_NAME, "owner %llu %llx", (unsigned long long)owner.kind,
             (unsigned long long)owner.value);
}

void serve_share_init(serve_share *share)
{
    *share = (serve_share){0};
    pthread_mutex_init(&share->mutex, NULL);
}

void serve_share_fini(serve_share *share)
{
    pthread_mutex_destroy(&share->mutex);
    weir__mem_free(share->holders);
    share->holders = NULL;
}

/* The owner's holder. Under the mutex, as the next one. NULL: it holds nothing. */
static serve_holder *find_holder(const serve_share *share, serve_owner owner)
{
    for (size_t i = 0; i < share->n; i++)
        if (serve_owner_is(share->holders[i].owner, owner)) return &share->holders[i];
    return NULL;
}

static bool add_held(serve_share *share, serve_owner owner, size_t n)
{
    serve_holder *holder = find_holder(share, owner);
    if (n == 0) return true;
    if (holder == NULL) {
        if (!weir__mem_grow(&share->holders, &share->capacity, share->n + 1, sizeof *holder)) return false;
        holder = &share->holders[share->n++];
        *holder = (serve_holder){.owner = owner};
    }
    holder->held += n;
    share->used += n;
    return true;
}

bool serve_share_hold(serve_share *share, serve_owner owner, size_t n)
{
    pthread_mutex_lock(&share->mutex);
    bool held = add_held(share, owner, n);
    pthread_mutex_unlock(&share->mutex);
    return held;
}

void serve_share_release(serve_share *share, serve_owner owner, size_t n)
{
    pthread_mutex_lock(&share->mutex);
    serve_holder *holder = find_holder(share, owner);
    assert(n == 0 || (holder != NULL && holder->held >= n));
    if (holder != NULL) {
        holder->held -= n;
        share->used -= n;
        if (holder->held == 0) *holder = share->holders[--share->n];
    }
    pthread_mutex_unlock(&share->mutex);
}

serve_share_result serve_share_take(serve_share *share, serve_owner owner, size_t n, size_t most)
{
    pthread_mutex_lock(&share->mutex);
    const serve_holder *holder = find_holder(share, owner);
    serve_share_result result = SERVE_SHARE_FULL;
    if (serve_share_admits(holder != NULL ? holder->held : 0, n, share->used, most))
        result = add_held(share, owner, n) ? SERVE_SHARE_OK : SERVE_SHARE_NO_MEMORY;
    pthread_mutex_unlock(&share->mutex);
    return result;
}

size_t serve_share_used(serve_share *share)
{
    pthread_mutex_lock(&share->mutex);
    size_t used = share->used;
    pthread_mutex_unlock(&share->mutex);
    return used;
}

size_t serve_share_held(serve_share *share, serve_owner owner)
{
    pthread_mutex_lock(&share->mutex);
    const serve_holder *holder = find_holder(share, owner);
    size_t held = holder != NULL ? holder->held : 0;
    pthread_mutex_unlock(&share->mutex);
    return held;
}

bool serve_share_largest(serve_share *share, serve_owner *owner)
{
    const serve_holder *largest = NULL;
    pthread_mutex_lock(&share->mutex);
    for (size_t i = 0; i < share->n; i++)
        if (largest == NULL || share->holders[i].held > largest->held) largest = &share->holders[i];
    if (largest != NULL) *owner = largest->owner;
    pthread_mutex_unlock(&share->mutex);
    return largest != NULL;
}

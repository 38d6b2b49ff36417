/* keys.c: API keys, how much each may ask for, and who operates the server: without keys, everybody if
 * only this machine can reach it, and nobody otherwise.
 * SPDX-License-Identifier: Apache-2.0 */
#include "keys.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "server/system/secret.h"

#define DIGEST        64 /* hexadecimal digits */
#define PRIORITY_MOST 100

/* The owner of each key, and one for everybody where there are none. Its digest and place never change, and
 * it lives as long as the table: calls and tapes know it by its number. */
typedef struct owner {
    char digest[DIGEST + 1];
    bool revoked, operates;
    int32_t limit, rate, priority;
    int32_t n_live;
    double tokens; /* of the bucket that `rate` fills, up to a minute's worth */
    int64_t filled_ns;
} owner;

struct serve_keys {
    pthread_mutex_t mutex; /* all below */
    bool wanted;
    owner everybody;
    int32_t n;
    size_t capacity;
    owner **owners; /* [n] */
};

/* Compares all digests to the end: the time reveals nothing about a key. */
static int32_t find_key(const serve_keys *keys, const char *hex)
{
    int32_t found = -1;
    for (int32_t i = 0; i < keys->n; i++)
        if (serve_secret_is(hex, keys->owners[i]->digest, DIGEST)) found = i;
    return found;
}

static int32_t or_else(int32_t value, int32_t standard)
{
    return value != SERVE_UNSAID ? value : standard;
}

static void set_limits(owner *o, const serve_params *params, const serve_key *key, bool wanted)
{
    const serve_key unsaid = {.priority = SERVE_UNSAID, .requests = SERVE_UNSAID, .rate = SERVE_UNSAID};
    if (key == NULL) key = &unsaid;
    o->limit = or_else(key->requests, params->live.key_requests);
    o->rate = or_else(key->rate, params->live.key_rate);
    o->priority = or_else(key->priority, or_else(params->live.max_priority, wanted ? 0 : PRIORITY_MOST));
}

static owner *add_owner(serve_keys *keys, const char *hex)
{
    owner *o = weir__mem_calloc(1, sizeof *o);
    if (o == NULL || !weir__mem_grow(&keys->owners, &keys->capacity, (size_t)keys->n + 1, sizeof(owner *))) {
        weir__mem_free(o);
        return NULL;
    }
    memcpy(o->digest, hex, sizeof o->digest);
    o->revoked = true; /* until it is set */
    keys->owners[keys->n++] = o;
    return o;
}

bool serve_keys_reserve(serve_keys *keys, const serve_params *params)
{
    char hex[DIGEST + 1];
    bool ok = true;
    pthread_mutex_lock(&keys->mutex);
    for (size_t i = 0; i < params->live.n_keys && ok; i++) {
        serve_secret_of_key(params->live.keys[i].text, strlen(params->live.keys[i].text), hex);
        ok = find_key(keys, hex) >= 0 || add_owner(keys, hex) != NULL;
    }
    pthread_mutex_unlock(&keys->mutex);
    return ok;
}

void serve_keys_set(serve_keys *keys, const serve_params *params)
{
    char hex[DIGEST + 1];
    pthread_mutex_lock(&keys->mutex);
    keys->wanted = params->live.n_keys > 0;
    for (int32_t i = 0; i < keys->n; i++) {
        keys->owners[i]->revoked = true;
        keys->owners[i]->operates = false;
    }
    for (size_t i = 0; i < params->live.n_keys; i++) {
        serve_secret_of_key(params->live.keys[i].text, strlen(params->live.keys[i].text), hex);
        owner *o = keys->owners[find_key(keys, hex)];
        o->revoked = false;
        o->operates = o->operates || params->live.keys[i].operates; /* one of its lines says so */
        set_limits(o, params, &params->live.keys[i], true);
    }
    set_limits(&keys->everybody, params, NULL, keys->wanted);
    pthread_mutex_unlock(&keys->mutex);
}

serve_keys *serve_keys_create(const serve_params *params)
{
    serve_keys *keys = weir__mem_calloc(1, sizeof *keys);
    if (keys == NULL) return NULL;
    pthread_mutex_init(&keys->mutex, NULL);
    if (!serve_keys_reserve(keys, params)) {
        serve_keys_destroy(keys);
        return NULL;
    }
    serve_keys_set(keys, params);
    return keys;
}

void serve_keys_destroy(serve_keys *keys)
{
    if (keys == NULL) return;
    for (int32_t i = 0; i < keys->n; i++) weir__mem_free(keys->owners[i]);
    weir__mem_free(keys->owners);
    pthread_mutex_destroy(&keys->mutex);
    weir__mem_free(keys);
}

bool serve_keys_are_wanted(serve_keys *keys)
{
    pthread_mutex_lock(&keys->mutex);
    bool wanted = keys->wanted;
    pthread_mutex_unlock(&keys->mutex);
    return wanted;
}

int32_t serve_keys_find(serve_keys *keys, const char *given, size_t n)
{
    char hex[DIGEST + 1];
    serve_secret_of_key(given, n, hex);
    pthread_mutex_lock(&keys->mutex);
    int32_t found = find_key(keys, hex);
    if (found >= 0 && keys->owners[found]->revoked) found = -1;
    pthread_mutex_unlock(&keys->mutex);
    return found;
}

/* The owner with this key. Under the mutex. */
static owner *owner_of(serve_keys *keys, int32_t key)
{
    return key >= 0 ? keys->owners[key] : &keys->everybody;
}

bool serve_keys_are_valid(serve_keys *keys, int32_t key)
{
    pthread_mutex_lock(&keys->mutex);
    bool valid = key >= 0 ? !keys->owners[key]->revoked : !keys->wanted;
    pthread_mutex_unlock(&keys->mutex);
    return valid;
}

bool serve_keys_operate(serve_keys *keys, int32_t key)
{
    pthread_mutex_lock(&keys->mutex);
    bool operates = key >= 0 && !keys->owners[key]->revoked && keys->owners[key]->operates;
    pthread_mutex_unlock(&keys->mutex);
    return operates;
}

const char *serve_keys_salt(serve_keys *keys, int32_t key)
{
    pthread_mutex_lock(&keys->mutex);
    const char *salt = owner_of(keys, key)->digest;
    pthread_mutex_unlock(&keys->mutex);
    return salt;
}

int32_t serve_keys_priority(serve_keys *keys, int32_t key)
{
    pthread_mutex_lock(&keys->mutex);
    int32_t priority = owner_of(keys, key)->priority;
    pthread_mutex_unlock(&keys->mutex);
    return priority;
}

/* Fills the bucket, and takes one out of it. */
static bool take_token(owner *o, int64_t now_ns, int32_t *retry_s)
{
    double per_ns = o->rate / (60.0 * (double)WEIR__NS_PER_S);
    o->tokens += (double)(now_ns - o->filled_ns) * per_ns;
    if (o->tokens > o->rate || o->filled_ns == 0) o->tokens = o->rate;
    o->filled_ns = now_ns;
    if (o->tokens < 1) {
        *retry_s = (int32_t)((1 - o->tokens) * 60 / o->rate) + 1;
        return false;
    }
    o->tokens -= 1;
    return true;
}

bool serve_keys_enter(serve_keys *keys, int32_t key, int64_t now_ns, int32_t *retry_s, const char **why)
{
    pthread_mutex_lock(&keys->mutex);
    owner *o = owner_of(keys, key);
    bool crowded = o->limit > 0 && o->n_live >= o->limit;
    bool ok = !crowded && (o->rate == 0 || take_token(o, now_ns, retry_s));
    if (crowded) *retry_s = 1;
    if (!ok)
        *why = crowded ? "this API key has as many running requests as it may have; wait until one ends"
                       : "this API key has sent too many requests in the last minute; wait and try again";
    o->n_live += ok;
    pthread_mutex_unlock(&keys->mutex);
    return ok;
}

bool serve_keys_more(serve_keys *keys, int32_t key, int32_t n, int32_t *most)
{
    pthread_mutex_lock(&keys->mutex);
    owner *o = owner_of(keys, key);
    bool ok = o->limit == 0 || n <= o->limit - o->n_live;
    if (ok) o->n_live += n;
    *most = o->limit;
    pthread_mutex_unlock(&keys->mutex);
    return ok;
}

void serve_keys_leave(serve_keys *keys, int32_t key, int32_t n)
{
    pthread_mutex_lock(&keys->mutex);
    owner_of(keys, key)->n_live -= n;
    pthread_mutex_unlock(&keys->mutex);
}

/* ---- Operators ---- */

static bool is_loopback_v6(const struct in6_addr *address)
{
    if (IN6_IS_ADDR_V4MAPPED(address)) return address->s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(address);
}

bool serve_reach_is_local(int fd)
{
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (getsockname(fd, (struct sockaddr *)&address, &n) != 0) return false;
    switch (address.ss_family) {
    case AF_UNIX: return true;
    case AF_INET: memcpy(&v4, &address, sizeof v4); return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    case AF_INET6: memcpy(&v6, &address, sizeof v6); return is_loopback_v6(&v6.sin6_addr);
    default: return false;
    }
}

bool serve_reach_is_open(bool reachable, serve_keys *keys)
{
    return reachable && !serve_keys_are_wanted(keys);
}

/* keys.c: API keys, and how much each may ask for. SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "serve.h"

#define DIGEST 64 /* hexadecimal digits */

/* One for each key; without keys one for everybody. */
typedef struct owner {
    char digest[DIGEST + 1];
    int32_t n_live;
    double tokens; /* of the bucket that `key_rate` fills, up to a minute's worth */
    int64_t filled_ns;
} owner;

struct serve_keys {
    int32_t limit, rate;
    bool wanted;
    int32_t n;
    owner owners[];
};

static void digest(const char *bytes, size_t n, char hex[DIGEST + 1])
{
    weir__sha256 state;
    weir__sha256_init(&state);
    weir__sha256_feed(&state, "weir key ", 9); /* the digest is also a salt: not what others keep of a key */
    weir__sha256_feed(&state, bytes, n);
    weir__sha256_hex(&state, hex);
}

serve_keys *serve_keys_create(const serve_params *params)
{
    size_t n = params->n_keys > 0 ? params->n_keys : 1;
    serve_keys *keys = weir__mem_calloc(1, sizeof *keys + n * sizeof *keys->owners);
    if (keys == NULL) return NULL;
    keys->n = (int32_t)n;
    keys->wanted = params->n_keys > 0;
    keys->limit = params->key_requests;
    keys->rate = params->key_rate;
    for (size_t i = 0; i < n; i++) {
        keys->owners[i].tokens = params->key_rate;
        if (keys->wanted) digest(params->keys[i], strlen(params->keys[i]), keys->owners[i].digest);
    }
    return keys;
}

void serve_keys_destroy(serve_keys *keys)
{
    weir__mem_free(keys);
}

bool serve_keys_are_wanted(const serve_keys *keys)
{
    return keys->wanted;
}

/* Compares digests, and all of them to the end: the time tells nothing about a key. */
int32_t serve_keys_find(const serve_keys *keys, const char *given, size_t n)
{
    char hex[DIGEST + 1];
    int32_t found = -1;
    digest(given, n, hex);
    for (int32_t i = 0; keys->wanted && i < keys->n; i++) {
        unsigned char difference = 0;
        for (int k = 0; k < DIGEST; k++) difference |= (unsigned char)(hex[k] ^ keys->owners[i].digest[k]);
        found = difference == 0 ? i : found;
    }
    return found;
}

const char *serve_keys_salt(const serve_keys *keys, int32_t key)
{
    return key >= 0 && keys->wanted ? keys->owners[key].digest : "";
}

static owner *of(serve_keys *keys, int32_t key)
{
    return &keys->owners[key >= 0 ? key : 0];
}

bool serve_keys_enter(serve_keys *keys, int32_t key, int64_t now_ns, int32_t *retry_s, const char **why)
{
    owner *o = of(keys, key);
    if (keys->limit > 0 && o->n_live >= keys->limit) {
        *retry_s = 1;
        *why = "too many requests of this key run at the moment";
        return false;
    }
    if (keys->rate > 0) {
        double per_ns = keys->rate / (60.0 * (double)WEIR__NS_PER_S);
        o->tokens += (double)(now_ns - o->filled_ns) * per_ns;
        if (o->tokens > keys->rate || o->filled_ns == 0) o->tokens = keys->rate;
        o->filled_ns = now_ns;
        if (o->tokens < 1) {
            *retry_s = (int32_t)((1 - o->tokens) * 60 / keys->rate) + 1;
            *why = "this key has asked too often in the last minute";
            return false;
        }
        o->tokens -= 1;
    }
    o->n_live++;
    return true;
}

void serve_keys_leave(serve_keys *keys, int32_t key)
{
    of(keys, key)->n_live--;
}

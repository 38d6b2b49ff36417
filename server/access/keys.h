/* keys.h: API keys, how much each may ask for, and who operates the server. Any thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ACCESS_KEYS_H
#define WEIR_SERVER_ACCESS_KEYS_H

#include "server/settings/params.h"

typedef struct serve_keys serve_keys;

serve_keys *serve_keys_create(const serve_params *params);
void serve_keys_destroy(serve_keys *keys);

/* Allocates all that set needs for these keys. False: out of memory; nothing has changed for any request. */
bool serve_keys_reserve(serve_keys *keys, const serve_params *params);

/* Sets these keys and limits, after reserve with the same keys: they apply from now on. A key that was there
 * keeps its number and its usage; a removed one is no longer found. */
void serve_keys_set(serve_keys *keys, const serve_params *params);

bool serve_keys_are_wanted(serve_keys *keys);

/* A key's number for the others, which also take -1: nobody's, where no keys are wanted. -1 = no such key. */
int32_t serve_keys_find(serve_keys *keys, const char *given, size_t n);

/* True if requests of this number may still come: since then its key may have been removed, or keys may be
 * wanted by now. */
bool serve_keys_are_valid(serve_keys *keys, int32_t key);

/* True if it is an operator's key. */
bool serve_keys_operate(serve_keys *keys, int32_t key);

/* The key's salt in the cache: 64 hexadecimal digits, or "" without a key. Valid as long as the table. */
const char *serve_keys_salt(serve_keys *keys, int32_t key);

/* The highest that its requests may ask for. */
int32_t serve_keys_priority(serve_keys *keys, int32_t key);

/* Counts one more request; false: too many, *retry_s is the time until a retry. */
bool serve_keys_enter(serve_keys *keys, int32_t key, int64_t now_ns, int32_t *retry_s, const char **why);

/* Counts n more answers of a request that has entered. False: the key may have no more than *most at a
 * time. */
bool serve_keys_more(serve_keys *keys, int32_t key, int32_t n, int32_t *most);

/* n of the counted answers have ended. */
void serve_keys_leave(serve_keys *keys, int32_t key, int32_t n);

/* ---- Operators ---- */

/* True if strangers have access: the server is reachable from other machines, and it has no keys. Any
 * thread. */
bool serve_reach_is_open(bool reachable, serve_keys *keys);

/* True if only this machine can reach the listening socket. */
bool serve_reach_is_local(int fd);

#endif

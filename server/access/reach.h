/* reach.h: from where the server can be reached, and by whom. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ACCESS_REACH_H
#define WEIR_SERVER_ACCESS_REACH_H

#include "keys.h"

/* True if strangers have access: the server is reachable from other machines, and it has no keys. Any
 * thread. */
bool serve_reach_is_open(bool reachable, serve_keys *keys);

/* True if requests with this key (-1: without one) are an operator's: the key is one, or there
 * are no keys and only this machine reaches the server (ADR 0095); not pages of other origins, which are
 * `foreign` (ADR 0132). It may change with a reload. Any thread. */
bool serve_reach_operates(bool reachable, bool foreign, serve_keys *keys, int32_t key);

/* True if only this machine can reach the listening socket. */
bool serve_reach_is_local(int fd);

#endif

/* bind.h: sockets that listen. Their descriptors neither block nor are inherited. Any thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_BIND_H
#define WEIR_SERVER_SYSTEM_BIND_H

#include <netdb.h>

/* Makes a descriptor such a one. */
void serve_bind_quiet(int fd);

/* Binds an address that getaddrinfo gave. -1: errno says why. */
int serve_bind_tcp(const struct addrinfo *at);

/* Binds a path shorter than a sockaddr_un's. Replaces the file that a killed server left; only its user and
 * group may connect. -1: errno says why, and no file is left. */
int serve_bind_unix(const char *path);

#endif

/* reach.c: from where the server can be reached, and who operates it. SPDX-License-Identifier: Apache-2.0 */
#include "reach.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "keys.h"

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

bool serve_reach_operates(bool reachable, bool foreign, serve_keys *keys, int32_t key)
{
    if (serve_keys_are_wanted(keys)) return serve_keys_operate(keys, key);
    return !reachable && !foreign;
}

bool serve_reach_is_open(bool reachable, serve_keys *keys)
{
    return reachable && !serve_keys_are_wanted(keys);
}

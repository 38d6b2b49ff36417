/* sources.c: the hosts from which images may be fetched (--media-host).
 * SPDX-License-Identifier: Apache-2.0 */
#include "sources.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ascii.h"

/* ---- Entries ---- */

typedef struct source {
    char host[256]; /* without brackets */
    uint16_t port;  /* 0 = the scheme's own */
} source;

const char *serve_sources_split(const char *authority, char *host, size_t capacity)
{
    bool bracketed = authority[0] == '[';
    const char *begin = authority + bracketed;
    size_t n = strcspn(begin, bracketed ? "]" : ":");
    const char *rest = begin + n;
    if (bracketed && *rest++ != ']') return NULL;
    if (n == 0 || n >= capacity || (*rest != '\0' && *rest != ':')) return NULL;
    memcpy(host, begin, n);
    host[n] = '\0';
    return rest;
}

static bool read_source(const char *entry, source *is)
{
    *is = (source){.port = 0};
    const char *rest = serve_sources_split(entry, is->host, sizeof is->host);
    if (rest == NULL) return false;
    if (*rest == ':') is->port = weir__ascii_port(rest + 1, strlen(rest + 1));
    return *rest == '\0' || is->port != 0;
}

bool serve_sources_is_address(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

bool serve_sources_check(const char *entry)
{
    source is;
    struct in6_addr address;
    if (!read_source(entry, &is)) return false;
    if (entry[0] == '[') return inet_pton(AF_INET6, is.host, &address) == 1;
    const char *name = is.host;
    if (strcmp(name, "*") == 0) return true;
    if (strncmp(name, "*.", 2) == 0) name += 2;
    for (const char *c = name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("-._", *c) == NULL) return false;
    return name[0] != '\0' && name[0] != '.' && name[strlen(name) - 1] != '.';
}

/* True if two hosts are the same. IPv6 addresses are compared by value, because one has several spellings. */
static bool same_host(const char *a, const char *b)
{
    unsigned char x[16], y[16];
    if (inet_pton(AF_INET6, a, x) == 1) return inet_pton(AF_INET6, b, y) == 1 && memcmp(x, y, 16) == 0;
    return strcasecmp(a, b) == 0;
}

static bool has_host(const source *is, const char *host)
{
    size_t n = strlen(host), n_end = strlen(is->host) - 1; /* of ".example.com" */
    if (strcmp(is->host, "*") == 0) return true;
    if (strncmp(is->host, "*.", 2) == 0)
        return n > n_end && strcasecmp(host + n - n_end, is->host + 1) == 0 &&
               !serve_sources_is_address(host);
    return same_host(is->host, host);
}

bool serve_sources_have(const char *const *entries, size_t n, const char *host, uint16_t port,
                        bool is_default_port)
{
    for (size_t i = 0; i < n; i++) {
        source is;
        if (read_source(entries[i], &is) && (is.port == 0 ? is_default_port : is.port == port) &&
            has_host(&is, host))
            return true;
    }
    return false;
}

/* ---- Addresses ---- */

/* The networks of IANA's registry of special addresses that are not globally reachable, multicast, and those
 * that stand for an IPv4 address elsewhere (6to4, Teredo). */
static const struct network {
    uint8_t bytes[4];
    int n_bits;
} special_4[] = {
    {{0}, 8},
    {{10}, 8},
    {{100, 64}, 10},
    {{127}, 8},
    {{169, 254}, 16},
    {{172, 16}, 12},
    {{192, 0, 0}, 24},
    {{192, 0, 2}, 24},
    {{192, 88, 99}, 24},
    {{192, 168}, 16},
    {{198, 18}, 15},
    {{198, 51, 100}, 24},
    {{203, 0, 113}, 24},
    {{224}, 4},
    {{240}, 4},
};

static bool is_in_network(const uint8_t *address, const uint8_t *network, int n_bits)
{
    int whole = n_bits / 8, rest = n_bits % 8;
    return memcmp(address, network, (size_t)whole) == 0 &&
           (rest == 0 || (address[whole] ^ network[whole]) >> (8 - rest) == 0);
}

static bool is_public_4(const uint8_t *address)
{
    for (size_t i = 0; i < sizeof special_4 / sizeof *special_4; i++)
        if (is_in_network(address, special_4[i].bytes, special_4[i].n_bits)) return false;
    return true;
}

/* The IPv4 address in an IPv6 one (mapped, or NAT64's); NULL: there is none. */
static const uint8_t *four_in_6(const uint8_t *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, translated[12] = {0, 0x64, 0xff, 0x9b};
    bool has = memcmp(address, mapped, 12) == 0 || memcmp(address, translated, 12) == 0;
    return has ? address + 12 : NULL;
}

/* True if an address is global unicast, without 2001::/23, 2001:db8::/32, 2002::/16 and 3fff::/20. */
static bool is_public_6(const uint8_t *address)
{
    return is_in_network(address, (const uint8_t[]){0x20}, 3) &&
           !is_in_network(address, (const uint8_t[]){0x20, 1, 0}, 23) &&
           !is_in_network(address, (const uint8_t[]){0x20, 1, 0x0d, 0xb8}, 32) &&
           !is_in_network(address, (const uint8_t[]){0x20, 2}, 16) &&
           !is_in_network(address, (const uint8_t[]){0x3f, 0xff, 0}, 20);
}

/* True if the address is one of this machine's: the system binds sockets only to these. In doubt it is. */
static bool is_own(int family, const void *address, socklen_t n)
{
    int fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0) return errno != EAFNOSUPPORT;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    bool own = bind(fd, address, n) == 0 || errno != EADDRNOTAVAIL;
    close(fd);
    return own;
}

static bool is_own_4(const uint8_t *bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    memcpy(&address.sin_addr, bytes, 4);
    return is_own(AF_INET, &address, sizeof address);
}

static bool is_own_6(const uint8_t *bytes)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};
    memcpy(&address.sin6_addr, bytes, 16);
    return is_own(AF_INET6, &address, sizeof address);
}

bool serve_sources_reach(const char *const *entries, size_t n, const struct sockaddr *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    char text[INET6_ADDRSTRLEN];
    uint16_t port;
    if (address->sa_family == AF_INET) {
        memcpy(&four, address, sizeof four);
        const uint8_t *bytes = (const uint8_t *)&four.sin_addr;
        if (is_public_4(bytes) && !is_own_4(bytes)) return true;
        port = ntohs(four.sin_port);
        inet_ntop(AF_INET, &four.sin_addr, text, sizeof text);
    } else if (address->sa_family == AF_INET6) {
        memcpy(&six, address, sizeof six);
        const uint8_t *bytes = six.sin6_addr.s6_addr, *inner = four_in_6(bytes);
        if (inner != NULL ? is_public_4(inner) && !is_own_4(inner) : is_public_6(bytes) && !is_own_6(bytes))
            return true;
        port = ntohs(six.sin6_port);
        inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text);
    } else {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        source is;
        if (read_source(entries[i], &is) && serve_sources_is_address(is.host) && same_host(is.host, text) &&
            (is.port == 0 ? port == 80 || port == 443 : is.port == port))
            return true;
    }
    return false;
}

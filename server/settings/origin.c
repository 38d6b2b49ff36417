/* origin.c: scheme, host and port of another server, compared. SPDX-License-Identifier: Apache-2.0 */
#include "origin.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/ascii.h"
#include "hub/transfer/transfer.h"
#include "sources.h"

static bool read_origin(const char *text, weir__transfer_url *origin)
{
    char url[320];
    bool bare = strstr(text, "://") == NULL;
    if (snprintf(url, sizeof url, "%s%s", bare ? "http://" : "", text) >= (int)sizeof url) return false;
    const char *rest = strstr(url, "://") + 3;
    rest += strcspn(rest, "/?#");
    return (rest[0] == '\0' || strcmp(rest, "/") == 0) && weir__transfer_read_url(url, origin);
}

bool serve_origin_check(const char *entry)
{
    weir__transfer_url origin;
    const char *host = strstr(entry, "://");
    host = host != NULL ? host + 3 : entry;
    const char *bracket = strchr(host, ']'); /* an IPv6 address has colons before its port */
    return strchr(bracket != NULL ? bracket : host, ':') != NULL && read_origin(entry, &origin);
}

bool serve_origin_is(const char *entry, const char *url)
{
    weir__transfer_url a, b;
    return read_origin(entry, &a) && read_origin(url, &b) && strcmp(a.host, b.host) == 0 &&
           a.port == b.port && a.secure == b.secure;
}

/* port: the scheme's own. */
static bool read_host(const char *text, uint16_t port, char host[256], uint16_t *is)
{
    const char *rest = serve_sources_split(text, host, 256);
    if (rest == NULL) return false;
    *is = rest[0] == '\0' || rest[1] == '\0' ? port : weir__ascii_port(rest + 1, strlen(rest + 1));
    return *is != 0;
}

bool serve_origin_is_at(const char *origin, const char *authority, bool *secure)
{
    char a[256], b[256];
    uint16_t a_port, b_port;
    *secure = strncasecmp(origin, "https://", 8) == 0;
    if (!*secure && strncasecmp(origin, "http://", 7) != 0) return false;
    uint16_t own = *secure ? 443 : 80;
    return read_host(origin + 7 + *secure, own, a, &a_port) && read_host(authority, own, b, &b_port) &&
           a_port == b_port && strcasecmp(a, b) == 0;
}

bool serve_origin_is_page(const char *entry)
{
    static const char *const own_ports[] = {"http:80", "https:443"};
    char host[256], own[300];
    size_t n = strspn(entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+.-");
    if (strcmp(entry, "null") == 0) return true;
    if (n == 0 || strncmp(entry + n, "://", 3) != 0 || strpbrk(entry + n + 3, "/?#@* ") != NULL) return false;
    const char *port = serve_sources_split(entry + n + 3, host, sizeof host);
    if (port == NULL || (*port == ':' && weir__ascii_port(port + 1, strlen(port + 1)) == 0)) return false;
    snprintf(own, sizeof own, "%.*s%s", (int)n, entry, port);
    for (size_t i = 0; i < sizeof own_ports / sizeof *own_ports; i++)
        if (strcasecmp(own, own_ports[i]) == 0) return false;
    return true;
}

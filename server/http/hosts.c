/* hosts.c: by which names the server may be asked. A page of another site can give its own name this server's
 * address (DNS rebinding), and its requests then look like those of one origin; but they carry that name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hosts.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "server/settings/sources.h"

/* The name in "name", "name:port", "[address]:port". False: it is none of these. */
static bool read_name(const char *authority, char *name, size_t capacity)
{
    const char *rest = serve_sources_split(authority, name, capacity);
    if (rest == NULL) return false;
    if (*rest == ':' && (rest[1 + strspn(rest + 1, "0123456789")] != '\0' || strlen(rest) > 6)) return false;
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && strchr(authority[0] == '[' ? ":.%" : "-._", name[i]) == NULL)
            return false;
    if (name[n - 1] == '.') name[n - 1] = '\0'; /* the root's */
    return name[0] != '\0';
}

/* True if a name is this server's own. local: over a Unix socket, where a proxy asks. Without other settings
 * it gives its own name of this server, such as that of nginx's `upstream`, which has no dot. No page of
 * another site has such a name: those of the public DNS have dots. */
static bool is_own(const serve_params *params, const char *name, bool local)
{
    char host[256];
    size_t n = strlen(name);
    if (local && strchr(name, '.') == NULL) return true;
    if (serve_sources_is_address(name) || strcasecmp(name, "localhost") == 0) return true;
    if (n > 10 && strcasecmp(name + n - 10, ".localhost") == 0) return true;
    if (params->host != NULL && strcasecmp(params->host, name) == 0) return true;
    host[sizeof host - 1] = '\0';
    return gethostname(host, sizeof host - 1) == 0 && strcasecmp(host, name) == 0;
}

serve_host serve_hosts_find(const serve_params *params, const char *authority, bool local)
{
    char name[256];
    if (!read_name(authority, name, sizeof name)) return SERVE_HOST_NONE;
    if (is_own(params, name, local)) return SERVE_HOST_OWN;
    for (size_t i = 0; i < params->live.n_hosts; i++)
        if (strcmp(params->live.hosts[i], "*") == 0 || strcasecmp(params->live.hosts[i], name) == 0)
            return SERVE_HOST_OWN;
    return SERVE_HOST_OTHER;
}

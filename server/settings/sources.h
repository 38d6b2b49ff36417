/* sources.h: the hosts from which images may be fetched (--media-host).
 *
 * An entry is a name ("example.com"), all names of a domain ("*.example.com", without the domain itself),
 * any host ("*") or an address ("203.0.113.7", "[2001:db8::7]"), each with a port or not (":8443");
 * without one the scheme's own port is meant. Addresses that are not public (loopback, private,
 * link-local, …) or that are this machine's own may be connected to only if an entry is that address
 * itself, whatever the name that led there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SETTINGS_SOURCES_H
#define WEIR_SERVER_SETTINGS_SOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;

/* The host of "host", "host:port" or "[address]:port", without brackets. Returns the part behind it: nothing,
 * or from the colon on; NULL: it is none of these. */
const char *serve_sources_split(const char *authority, char *host, size_t capacity);

/* True if a name is an address: nobody else can point it elsewhere. */
bool serve_sources_is_address(const char *host);

/* True if a text is such an entry. */
bool serve_sources_check(const char *entry);

/* True if a URL's host and port are in the list of entries [n]. host: lower case, without brackets. */
bool serve_sources_have(const char *const *entries, size_t n, const char *host, uint16_t port,
                        bool is_default_port);

/* True if the address is public and another machine's, or itself in the list. */
bool serve_sources_reach(const char *const *entries, size_t n, const struct sockaddr *address);

#endif

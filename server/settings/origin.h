/* origin.h: scheme, host and port of another server, as --prefix-peer or a request names it, and of pages.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SETTINGS_ORIGIN_H
#define WEIR_SERVER_SETTINGS_ORIGIN_H

#include <stdbool.h>

/* True if an entry is HOST:PORT, http://HOST:PORT or https://HOST:PORT, with or without a final "/". */
bool serve_origin_check(const char *entry);

/* True if a request's URL, which has no path but "/", has the origin of an entry. */
bool serve_origin_is(const char *entry, const char *url);

/* True if a page's origin is http://HOST or https://HOST (*secure) with the host and port of an authority
 * as a Host header has it, whose port is the scheme's own if it has none. */
bool serve_origin_is_at(const char *origin, const char *authority, bool *secure);

/* True if an entry is what the pages of one site send as Origin: SCHEME://HOST, or with a port that is not
 * the scheme's own; or "null", which pages without a site send. */
bool serve_origin_is_page(const char *entry);

#endif

/* origin.h: another server's scheme, host and port, as an entry of --prefix-peer or a request names them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ORIGIN_H
#define WEIR_SERVER_ORIGIN_H

#include <stdbool.h>

/* Whether an entry is HOST:PORT, http://HOST:PORT or https://HOST:PORT, with or without a final "/". */
bool serve_origin_check(const char *entry);

/* Whether a request's URL, which has no path but "/", has the origin of an entry. */
bool serve_origin_is(const char *entry, const char *url);

#endif

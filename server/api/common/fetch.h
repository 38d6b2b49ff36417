/* fetch.h: images that a request names by URL, from the hosts of --media-host alone.
 *
 * Calls that may name one run on threads of their own (server->fetchers): a slow host delays no request that
 * needs nothing from it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_FETCH_H
#define WEIR_SERVER_API_COMMON_FETCH_H

#include "server/request/serve.h"

/* All that one request fetches. */
typedef struct serve_fetches {
    int32_t n;
    size_t n_bytes;
} serve_fetches;

/* The threads for the call's job. The body must be there. Service thread. */
serve_workers *serve_fetch_workers(serve_call *call);

/* Fetches the image at `url`, a field of the request, into *bytes, which the caller frees in any case and
 * gives back with serve_call_drop_media. False: the call has its answer. */
bool serve_fetch(serve_call *call, const char *field, const char *url, serve_fetches *all, weir__text *bytes);

#endif

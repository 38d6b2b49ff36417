/* transfer.h: libcurl's handle for one request to a server, as all commands ask one. Only where there is
 * libcurl.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_TRANSFER_H
#define WEIR_CLI_TRANSFER_H

#ifdef WEIR_CURL
#include <curl/curl.h>

/* A GET over HTTP/1.1 that is yet to begin; bytes of its answer go to on_bytes with `user`, which is
 * CURLOPT_PRIVATE, too. No proxy is used, since servers are near or measured; certificates are trusted as
 * curl's command would. headers must outlive it. */
CURL *cli_transfer_create(const char *url, struct curl_slist *headers, curl_write_callback on_bytes,
                          void *user);
#endif

#endif

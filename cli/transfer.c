/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer.h"

#include "cli.h"

#ifdef WEIR_CURL

#include "base/trust.h"

#define CONNECT_MS 10000

CURL *cli_transfer_create(const char *url, struct curl_slist *headers, curl_write_callback on_bytes,
                          void *user)
{
    const char *file, *folder;
    CURL *easy = curl_easy_init();
    if (easy == NULL) cli_no_memory();
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, user);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, user);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "weir/" WEIR_VERSION);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    weir__trust_find(&file, &folder);
    if (file != NULL) curl_easy_setopt(easy, CURLOPT_CAINFO, file);
    if (folder != NULL) curl_easy_setopt(easy, CURLOPT_CAPATH, folder);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    return easy;
}

#endif

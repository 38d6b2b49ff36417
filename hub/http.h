/* http.h: GET over libcurl, for the hub: redirects, ranges, retries and the reasons of failures.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HUB_HTTP_H
#define WEIR_HUB_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "name.h"

/* A connection that is kept between requests. One thread at a time. */
typedef struct weir__http weir__http;

/* UNSUPPORTED: built without libcurl. config must outlive it. */
weir_status weir__http_create(const weir__config *config, weir__http **out, weir_error *error);
void weir__http_destroy(weir__http *http);

typedef struct weir__http_answer {
    long code;             /* of the last hop; 0 = none came */
    uint64_t begin;        /* the first byte that the body has: 0, or more with 206 */
    int64_t total;         /* bytes of the whole, -1 = unknown */
    int64_t retry_after_s; /* 0 = unknown */
    char etag[160];        /* strong and with its quotes, fit for If-Range; "" = none */
    char linked_etag[160]; /* the hub's own tag of the contents, not that of the store behind it; "" = none */
    char error_code[64];   /* X-Error-Code */
    char reason[200];      /* why there is no whole answer */
    bool distrusted;       /* because the other side's certificate proves nothing */
} weir__http_answer;

typedef struct weir__http_request {
    const char *url;
    uint64_t from;        /* the first byte wanted */
    const char *if_range; /* ETag that the bytes before `from` had; "" = unknown */
    /* Called before the first byte of a body (200 or 206), and for each piece of it; false ends the
     * request. */
    bool (*begin)(const weir__http_answer *answer, void *user);
    bool (*write)(const void *bytes, size_t n, void *user);
    bool (*tick)(void *user); /* some ten times a second; false ends the request */
    void *user;
} weir__http_request;

/* One try. OK: an answer came, of whatever code, and its body, if it was 200 or 206, whole. IO: no answer, or
 * only a part of one (answer->reason). ABORTED: a callback said no. NO_MEMORY. The token goes to the
 * endpoint's host only, and an https request is not redirected to http. */
weir_status weir__http_get(weir__http *http, const weir__http_request *request, weir__http_answer *answer);

/* State between tries. Zeroed at the start. */
typedef struct weir__http_retry {
    int32_t n; /* tries in a row that got no further */
} weir__http_retry;

/* True if another try may help. */
bool weir__http_may_retry(weir_status status, const weir__http_answer *answer);

/* Waits before another try, as the hub asks or longer each time. ABORTED: tick said no. IO: enough. */
weir_status weir__http_wait(weir__http_retry *retry, const weir__config *config,
                            const weir__http_answer *answer, bool (*tick)(void *user), void *user);

/* Sets *error for an answer that is no 200 or 206, or for none; `what` is "OWNER/REPO" or a path; kept: a
 * part of it came and stays. Returns its code. */
weir_status weir__http_explain(const weir__config *config, const weir__http_answer *answer, const char *what,
                               bool kept, weir_error *error);

/* GETs a text of at most `max` bytes, with retries; NUL-terminated, freed with weir__mem_free. */
weir_status weir__http_text(weir__http *http, const weir__config *config, const char *url, size_t max,
                            const char *what, int32_t n_retries, char **out, size_t *length,
                            weir_error *error);

/* fetch.c: downloads a file's blob into the cache where it is not there yet, under its lock. Errors as
 * weir_hub_download. */
weir_status weir__fetch(weir__http *http, const weir__config *config, const weir__name_file *file,
                        const char *commit, weir_error *error);

#endif

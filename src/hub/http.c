/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/trust.h"

#define RETRY_AFTER_MAX_S 60  /* who is told to wait for longer is told so, rather than left waiting */
#define BACKOFF_MS        200 /* doubles */
#define BACKOFF_MAX_MS    10000
#define TICK_MS           100 /* how soon a wait notices that the caller gives up */

/* ---- What answers mean ---- */

bool weir__http_may_retry(weir_status status, const weir__http_answer *answer)
{
    if (status != WEIR_OK) return status == WEIR_IO && !answer->distrusted;
    return answer->code == 408 || answer->code == 429 || answer->code >= 500;
}

static int64_t wait_ms(const weir__http_retry *retry, const weir__http_answer *answer)
{
    if (answer->retry_after_s > 0) return answer->retry_after_s * 1000;
    int shift = retry->n < 1 ? 0 : retry->n < 7 ? retry->n - 1 : 6;
    int64_t ms = (int64_t)BACKOFF_MS << shift;
    return ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
}

weir_status weir__http_wait(weir__http_retry *retry, const weir__config *config,
                            const weir__http_answer *answer, bool (*tick)(void *user), void *user)
{
    if (++retry->n > config->n_retries || answer->retry_after_s > RETRY_AFTER_MAX_S) return WEIR_IO;
    int64_t end = weir__clock_now_ns() + wait_ms(retry, answer) * WEIR__NS_PER_MS;
    for (int64_t now; (now = weir__clock_now_ns()) < end;) {
        int64_t left = end - now, step = TICK_MS * WEIR__NS_PER_MS;
        struct timespec nap = weir__clock_timespec(left < step ? left : step);
        if (tick != NULL && !tick(user)) return WEIR_ABORTED;
        nanosleep(&nap, NULL);
    }
    return WEIR_OK;
}

static weir_status explain_denied(const weir__config *config, const char *what, bool gated, weir_error *error)
{
    if (config->token == NULL)
        return weir__error_set(
            error, WEIR_DENIED, "token",
            "%s is %s: open its page at %s, log in%s, make an access token in the settings of your "
            "account, and set HF_TOKEN to it",
            what, gated ? "gated" : "gated or private", config->endpoint,
            gated ? " and accept its terms" : "");
    return weir__error_set(
        error, WEIR_DENIED, "token",
        "%s is %s, and the token gives no access to it: open its page at %s with the token's account "
        "and ask for access, or set HF_TOKEN to a token that may read it",
        what, gated ? "gated" : "gated or private", config->endpoint);
}

weir_status weir__http_explain(const weir__config *config, const weir__http_answer *answer, const char *what,
                               weir_error *error)
{
    const char *code = answer->error_code;
    if (answer->distrusted)
        return weir__error_set(
            error, WEIR_IO, "name",
            "%s was not asked for, since %.100s cannot be trusted: %s; where that is meant to "
            "be, CURL_CA_BUNDLE or SSL_CERT_FILE names a file of certificates to trust",
            what, config->endpoint, answer->reason);
    if (answer->code == 0 || answer->code == 200 || answer->code == 206)
        return weir__error_set(
            error, WEIR_IO, "name",
            "%s could not be had from %.100s: %s; what came is kept: try again, or use what is in "
            "the cache with HF_HUB_OFFLINE=1",
            what, config->endpoint, answer->reason[0] != '\0' ? answer->reason : "it broke off");
    if (strcmp(code, "GatedRepo") == 0) return explain_denied(config, what, true, error);
    if (strcmp(code, "RevisionNotFound") == 0)
        return weir__error_set(error, WEIR_NOT_FOUND, "revision", "%s has no revision %.100s", what,
                               config->revision);
    if (answer->code == 404 || strcmp(code, "RepoNotFound") == 0)
        return weir__error_set(error, WEIR_NOT_FOUND, "name",
                               "%s is not at %.100s, in revision %.60s: see that its name is right%s", what,
                               config->endpoint, config->revision,
                               config->token == NULL ? "; if it is private, set HF_TOKEN"
                                                     : ", and the token's rights");
    if (answer->code == 401 || answer->code == 403) return explain_denied(config, what, false, error);
    if (answer->code == 429 && answer->retry_after_s > 0)
        return weir__error_set(error, WEIR_IO, "name",
                               "%.100s limits how much is asked of it: try again in %lld s%s",
                               config->endpoint, (long long)answer->retry_after_s,
                               config->token == NULL ? ", or set HF_TOKEN, which allows more" : "");
    if (answer->code == 429)
        return weir__error_set(error, WEIR_IO, "name",
                               "%.100s limits how much is asked of it: try again later%s", config->endpoint,
                               config->token == NULL ? ", or set HF_TOKEN, which allows more" : "");
    return weir__error_set(error, WEIR_IO, "name", "%.100s answers %ld to the request for %s%s%s",
                           config->endpoint, answer->code, what,
                           answer->reason[0] != '\0' ? ": " : "; try again later", answer->reason);
}

/* ---- A text ---- */

struct collected {
    char *bytes;
    size_t n, capacity, max;
    bool too_long, no_memory;
    weir_hub_progress_fn progress;
    void *user;
};

static bool collect_begin(const weir__http_answer *answer, void *user)
{
    struct collected *text = user;
    (void)answer;
    text->n = 0;
    return true;
}

static bool collect(const void *bytes, size_t n, void *user)
{
    struct collected *text = user;
    text->too_long = n > text->max - text->n;
    if (text->too_long) return false;
    text->no_memory = !weir__mem_grow(&text->bytes, &text->capacity, text->n + n + 1, 1);
    if (text->no_memory) return false;
    memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    return true;
}

static bool collect_tick(void *user)
{
    const struct collected *text = user;
    const weir_hub_progress progress = {.file = "", .shard = 1, .n_shards = 1};
    return text->progress == NULL || text->progress(&progress, text->user);
}

weir_status weir__http_text(weir__http *http, const weir__config *config, const char *url, size_t max,
                            const char *what, int32_t n_retries, char **out, size_t *length,
                            weir_error *error)
{
    struct collected text = {.max = max, .progress = config->progress, .user = config->progress_user};
    const weir__http_request request = {.url = url,
                                        .if_range = "",
                                        .begin = collect_begin,
                                        .write = collect,
                                        .tick = collect_tick,
                                        .user = &text};
    weir__http_answer answer;
    weir__http_retry retry = {.n = config->n_retries - n_retries};
    weir_status status, waited;
    for (;;) {
        status = weir__http_get(http, &request, &answer);
        if (!weir__http_may_retry(status, &answer)) break;
        if ((waited = weir__http_wait(&retry, config, &answer, collect_tick, &text)) == WEIR_OK) continue;
        status = waited;
        break;
    }
    if (text.no_memory) status = WEIR_NO_MEMORY;
    if (text.too_long)
        status =
            weir__error_set(error, WEIR_TOO_LONG, "name", "what %.100s says of %s has more than %zu bytes",
                            config->endpoint, what, max);
    else if (status == WEIR_ABORTED)
        weir__error_set(error, status, "progress", "the caller's callback asked to stop");
    else if (status == WEIR_NO_MEMORY)
        weir__error_set(error, status, "name", "out of memory for what the hub says of %s", what);
    else if (status != WEIR_OK || answer.code != 200)
        status = weir__http_explain(config, &answer, what, error);
    if (status == WEIR_OK && text.bytes == NULL && (text.bytes = weir__mem_alloc(1)) == NULL) {
        weir__error_set(error, WEIR_NO_MEMORY, "name", "out of memory");
        return WEIR_NO_MEMORY;
    }
    if (status != WEIR_OK) {
        weir__mem_free(text.bytes);
        return status;
    }
    text.bytes[text.n] = '\0';
    *out = text.bytes;
    *length = text.n;
    return WEIR_OK;
}

#ifndef WEIR_CURL

weir_status weir__http_create(const weir__config *config, weir__http **out, weir_error *error)
{
    (void)config;
    (void)out;
    return weir__error_set(
        error, WEIR_UNSUPPORTED, "name",
        "this weir was built without libcurl, which downloads need; models that are in the cache "
        "work with HF_HUB_OFFLINE=1");
}

void weir__http_destroy(weir__http *http)
{
    (void)http;
}

weir_status weir__http_get(weir__http *http, const weir__http_request *request, weir__http_answer *answer)
{
    (void)http;
    (void)request;
    *answer = (weir__http_answer){.total = -1};
    return WEIR_IO;
}

#else

#include <curl/curl.h>

#define HOPS_MAX       10    /* redirects: a hub and its store need two or three */
#define ERROR_BODY_MAX 65536 /* of what is thrown away anyway */

struct weir__http {
    CURL *curl;
    const weir__config *config;
    char problem[CURL_ERROR_SIZE];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool curl_works;

static void init_once(void)
{
    curl_works = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

static bool set_up(weir__http *http)
{
    const weir__config *config = http->config;
    CURL *curl = http->curl;
    const char *file, *folder;
    weir__trust_find(&file, &folder);
    bool ok =
        curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, http->problem) == CURLE_OK &&
        curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
        curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
        curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L) == CURLE_OK &&
        curl_easy_setopt(curl, CURLOPT_USERAGENT, "weir/" WEIR_VERSION) == CURLE_OK &&
        curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)config->timeout_ms) == CURLE_OK &&
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK &&
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)(config->timeout_ms + 999) / 1000) == CURLE_OK;
#if LIBCURL_VERSION_NUM >= 0x075500
    ok = ok && curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    ok = ok && curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS) == CURLE_OK;
#endif
    if (config->proxy != NULL) ok = ok && curl_easy_setopt(curl, CURLOPT_PROXY, config->proxy) == CURLE_OK;
    if (config->no_proxy != NULL)
        ok = ok && curl_easy_setopt(curl, CURLOPT_NOPROXY, config->no_proxy) == CURLE_OK;
    if (file != NULL) ok = ok && curl_easy_setopt(curl, CURLOPT_CAINFO, file) == CURLE_OK;
    if (folder != NULL) ok = ok && curl_easy_setopt(curl, CURLOPT_CAPATH, folder) == CURLE_OK;
    return ok;
}

weir_status weir__http_create(const weir__config *config, weir__http **out, weir_error *error)
{
    pthread_once(&once, init_once);
    weir__http *http = weir__mem_calloc(1, sizeof *http);
    if (http == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "name", "out of memory");
    http->config = config;
    http->curl = curl_works ? curl_easy_init() : NULL;
    if (http->curl == NULL || !set_up(http)) {
        weir__http_destroy(http);
        return weir__error_set(error, WEIR_NO_MEMORY, "name", "libcurl does not start");
    }
    *out = http;
    return WEIR_OK;
}

void weir__http_destroy(weir__http *http)
{
    if (http == NULL) return;
    if (http->curl != NULL) curl_easy_cleanup(http->curl);
    weir__mem_free(http);
}

/* One request on its way. */
struct flight {
    weir__http *http;
    const weir__http_request *request;
    weir__http_answer *answer;
    size_t n_thrown;
    bool begun, refused, enough;
};

static void copy_value(char *to, size_t capacity, const char *value, size_t n)
{
    if (n >= capacity) return; /* none of these is that long */
    memcpy(to, value, n);
    to[n] = '\0';
}

/* A header's value, where the line has that name. */
static const char *value_of(const char *line, size_t n, const char *name, size_t *length)
{
    size_t n_name = strlen(name);
    if (n <= n_name || line[n_name] != ':' || strncasecmp(line, name, n_name) != 0) return NULL;
    const char *value = line + n_name + 1, *end = line + n;
    while (value < end && (*value == ' ' || *value == '\t')) value++;
    while (end > value && (unsigned char)end[-1] <= ' ') end--;
    *length = (size_t)(end - value);
    return value;
}

/* "bytes 100-199/200" */
static void read_range(weir__http_answer *answer, const char *value, size_t n)
{
    char text[100];
    unsigned long long first, last, total;
    if (n >= sizeof text) return;
    copy_value(text, sizeof text, value, n);
    int found = sscanf(text, "bytes %llu-%llu/%llu", &first, &last, &total); /* NOLINT(cert-err34-c) */
    if (found < 2) return;
    answer->begin = first;
    if (found == 3 && total <= INT64_MAX) answer->total = (int64_t)total;
}

static size_t on_header(char *line, size_t one, size_t n, void *user)
{
    const struct flight *flight = user;
    weir__http_answer *answer = flight->answer;
    size_t length;
    const char *value;
    (void)one;
    if (n > 5 && memcmp(line, "HTTP/", 5) == 0) { /* a new answer begins; 100 may come before another */
        answer->etag[0] = answer->error_code[0] = '\0';
        answer->begin = 0;
        answer->total = -1;
    } else if ((value = value_of(line, n, "etag", &length)) != NULL) {
        if (length > 2 && value[0] == '"') copy_value(answer->etag, sizeof answer->etag, value, length);
    } else if ((value = value_of(line, n, "x-linked-etag", &length)) != NULL) {
        if (length > 2 && value[0] == '"')
            copy_value(answer->linked_etag, sizeof answer->linked_etag, value + 1, length - 2);
    } else if ((value = value_of(line, n, "x-error-code", &length)) != NULL)
        copy_value(answer->error_code, sizeof answer->error_code, value, length);
    else if ((value = value_of(line, n, "content-range", &length)) != NULL)
        read_range(answer, value, length);
    return n;
}

/* Whether the body is what was asked for; tells begin() when that is so for the first time. */
static bool begin(struct flight *flight)
{
    weir__http_answer *answer = flight->answer;
    curl_off_t length = -1;
    if (flight->begun) return true;
    flight->begun = true;
    if (answer->code == 200) {
        answer->begin = 0;
        curl_easy_getinfo(flight->http->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
        answer->total = length;
    }
    flight->refused = !flight->request->begin(answer, flight->request->user);
    return !flight->refused;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *user)
{
    struct flight *flight = user;
    (void)one;
    curl_easy_getinfo(flight->http->curl, CURLINFO_RESPONSE_CODE, &flight->answer->code);
    if (flight->answer->code != 200 && flight->answer->code != 206) {
        flight->n_thrown += n;
        flight->enough = flight->n_thrown > ERROR_BODY_MAX;
        return flight->enough ? 0 : n;
    }
    if (!begin(flight)) return 0;
    flight->refused = !flight->request->write(bytes, n, flight->request->user);
    return flight->refused ? 0 : n;
}

static int on_tick(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct flight *flight = user;
    (void)a, (void)b, (void)c, (void)d;
    if (!flight->request->tick(flight->request->user)) flight->refused = true;
    return flight->refused;
}

/* Scheme, host and port; NULL: it has none. Freed with weir__mem_free. */
static char *origin(const char *address)
{
    char *scheme = NULL, *host = NULL, *port = NULL, *text = NULL;
    CURLU *url = curl_url();
    if (url != NULL && curl_url_set(url, CURLUPART_URL, address, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK)
        text = weir__config_format("%s://%s:%s", scheme, host, port);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(url);
    return text;
}

static bool same_origin(const char *a, const char *b)
{
    char *x = origin(a), *y = origin(b);
    bool same = x != NULL && y != NULL && strcasecmp(x, y) == 0;
    weir__mem_free(x);
    weir__mem_free(y);
    return same;
}

static bool append(struct curl_slist **list, char *line)
{
    struct curl_slist *more = line != NULL ? curl_slist_append(*list, line) : NULL;
    weir__mem_free(line);
    if (more != NULL) *list = more;
    return more != NULL;
}

/* One hop. */
static weir_status fly(struct flight *flight, const char *url)
{
    CURL *curl = flight->http->curl;
    const weir__config *config = flight->http->config;
    const weir__http_request *request = flight->request;
    struct curl_slist *headers = NULL;
    bool ok = true;
    if (config->token != NULL && same_origin(url, config->endpoint))
        ok = append(&headers, weir__config_format("Authorization: Bearer %s", config->token));
    if (request->from > 0)
        ok = ok &&
             append(&headers, weir__config_format("Range: bytes=%llu-", (unsigned long long)request->from));
    if (request->from > 0 && request->if_range[0] != '\0')
        ok = ok && append(&headers, weir__config_format("If-Range: %s", request->if_range));
    flight->answer->code = 0;
    flight->http->problem[0] = '\0';
    ok = ok && curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
         curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
         curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
         curl_easy_setopt(curl, CURLOPT_HEADERDATA, flight) == CURLE_OK &&
         curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
         curl_easy_setopt(curl, CURLOPT_WRITEDATA, flight) == CURLE_OK &&
         curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_tick) == CURLE_OK &&
         curl_easy_setopt(curl, CURLOPT_XFERINFODATA, flight) == CURLE_OK &&
         curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L) == CURLE_OK;
    CURLcode result = ok ? curl_easy_perform(curl) : CURLE_OUT_OF_MEMORY;
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &flight->answer->code);
    if (flight->refused) return WEIR_ABORTED;
    if (result == CURLE_OUT_OF_MEMORY) return WEIR_NO_MEMORY;
    if (result == CURLE_OK || flight->enough) return WEIR_OK;
    flight->answer->distrusted = result == CURLE_PEER_FAILED_VERIFICATION ||
                                 result == CURLE_SSL_CACERT_BADFILE || result == CURLE_SSL_ISSUER_ERROR;
    snprintf(flight->answer->reason, sizeof flight->answer->reason, "%.199s",
             flight->http->problem[0] != '\0' ? flight->http->problem : curl_easy_strerror(result));
    return WEIR_IO;
}

static bool is_redirect(long code)
{
    return code == 301 || code == 302 || code == 303 || code == 307 || code == 308;
}

weir_status weir__http_get(weir__http *http, const weir__http_request *request, weir__http_answer *answer)
{
    char *url = weir__mem_strdup(request->url);
    weir_status status = url != NULL ? WEIR_OK : WEIR_NO_MEMORY;
    *answer = (weir__http_answer){.total = -1};
    for (int hop = 0; status == WEIR_OK; hop++) {
        struct flight flight = {.http = http, .request = request, .answer = answer};
        char *next = NULL;
        if ((status = fly(&flight, url)) != WEIR_OK) break;
        if (!is_redirect(answer->code)) {
            curl_off_t after = 0;
            if ((answer->code == 200 || answer->code == 206) && !begin(&flight)) status = WEIR_ABORTED;
            curl_easy_getinfo(http->curl, CURLINFO_RETRY_AFTER, &after);
            answer->retry_after_s = after > 0 ? after : 0;
            break;
        }
        curl_easy_getinfo(http->curl, CURLINFO_REDIRECT_URL, &next);
        bool weaker =
            next != NULL && strncasecmp(url, "https:", 6) == 0 && strncasecmp(next, "https:", 6) != 0;
        if (next == NULL || weaker || hop == HOPS_MAX) {
            snprintf(answer->reason, sizeof answer->reason, "%s",
                     next == NULL ? "it redirects to nowhere"
                     : weaker     ? "it redirects from https to something else"
                                  : "it redirects too often");
            break;
        }
        next = weir__mem_strdup(next);
        weir__mem_free(url);
        url = next;
        if (url == NULL) status = WEIR_NO_MEMORY;
    }
    weir__mem_free(url);
    return status;
}

#endif

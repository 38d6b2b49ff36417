/* transfer.c: transfers by libcurl's multi interface.
 * SPDX-License-Identifier: Apache-2.0
 *
 * weir__transfers_wait polls all connections and the caller's descriptors, lets libcurl work, and ends what
 * is done; on_end is called there. libcurl opens sockets by a function here, which may bar an address. A
 * secret goes to the origin that it is meant for and to no other, and redirects are left to the caller.
 * Without libcurl all functions fail. */
#include "transfer.h"

#ifndef WEIR_CURL

const bool weir__transfer_exists = false;

weir__transfers *weir__transfers_create(long most)
{
    (void)most;
    return NULL;
}

void weir__transfers_destroy(weir__transfers *transfers)
{
    (void)transfers;
}

weir__transfer *weir__transfers_start(weir__transfers *transfers, const weir__transfer_request *request)
{
    (void)transfers, (void)request;
    return NULL;
}

unsigned weir__transfers_wait(weir__transfers *transfers, const int *fds, unsigned n, int timeout_ms)
{
    (void)transfers, (void)fds, (void)n, (void)timeout_ms;
    return 0;
}

weir_status weir__transfers_run(weir__transfers *transfers, const weir__transfer_request *request,
                                bool (*on_tick)(void *user))
{
    (void)transfers, (void)request, (void)on_tick;
    return WEIR_NO_MEMORY;
}

void weir__transfer_drop(weir__transfer *transfer)
{
    (void)transfer;
}

bool weir__transfer_read_url(const char *url, weir__transfer_url *parts)
{
    (void)url, (void)parts;
    return false;
}

#else

#include <ctype.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/mem.h"

#define TICK_MS 100

const bool weir__transfer_exists = true;

struct weir__transfers {
    CURLM *multi;
};

struct weir__transfer {
    weir__transfers *transfers;
    weir__transfer_request request; /* its texts are libcurl's by now, but for the body */
    CURL *easy;
    struct curl_slist *headers;
    bool left, barred;
    bool *ended; /* is set at the end; NULL = nobody asks */
    char detail[CURL_ERROR_SIZE];
};

/* ---- Life ---- */

static pthread_once_t init_guard = PTHREAD_ONCE_INIT;
static bool curl_works;

static void init_once(void)
{
    curl_works = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

weir__transfers *weir__transfers_create(long most)
{
    pthread_once(&init_guard, init_once);
    weir__transfers *transfers = weir__mem_calloc(1, sizeof *transfers);
    if (transfers == NULL) return NULL;
    transfers->multi = curl_works ? curl_multi_init() : NULL;
    if (transfers->multi != NULL &&
        (most == 0 || curl_multi_setopt(transfers->multi, CURLMOPT_MAXCONNECTS, most) == CURLM_OK))
        return transfers;
    weir__transfers_destroy(transfers);
    return NULL;
}

void weir__transfers_destroy(weir__transfers *transfers)
{
    if (transfers == NULL) return;
    curl_multi_cleanup(transfers->multi);
    weir__mem_free(transfers);
}

void weir__transfer_drop(weir__transfer *transfer)
{
    if (transfer == NULL) return;
    if (transfer->easy != NULL) {
        curl_multi_remove_handle(transfer->transfers->multi, transfer->easy);
        curl_easy_cleanup(transfer->easy);
    }
    curl_slist_free_all(transfer->headers);
    weir__mem_free(transfer);
}

static weir__transfer_head head_of(const weir__transfer *t)
{
    weir__transfer_head head = {0};
    curl_off_t length = -1;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &head.status);
    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_TYPE, &head.type);
    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    head.length = (int64_t)length;
    return head;
}

/* ---- Beginning ---- */

/* libcurl's: taking less than came ends the transfer. */
static size_t take_header(char *line, size_t one, size_t n, void *user)
{
    weir__transfer *t = user;
    (void)one;
    t->left = t->request.on_header != NULL && !t->request.on_header(line, n, t->request.user);
    return t->left ? 0 : n;
}

static size_t take_bytes(char *bytes, size_t one, size_t n, void *user)
{
    weir__transfer *t = user;
    const weir__transfer_head head = head_of(t);
    (void)one;
    t->left = !t->request.on_bytes(&head, bytes, n, t->request.user);
    return t->left ? 0 : n;
}

static const char *environment_of(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* libcurl itself reads none of these variables; without them its build says whom it trusts. */
static bool set_trust(CURL *easy)
{
    const char *bundle = environment_of("CURL_CA_BUNDLE");
    const char *file = bundle != NULL ? bundle : environment_of("SSL_CERT_FILE");
    const char *folder = bundle != NULL ? NULL : environment_of("SSL_CERT_DIR");
    return (file == NULL || curl_easy_setopt(easy, CURLOPT_CAINFO, file) == CURLE_OK) &&
           (folder == NULL || curl_easy_setopt(easy, CURLOPT_CAPATH, folder) == CURLE_OK);
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    char *x = NULL, *y = NULL;
    bool same = curl_url_get(a, part, &x, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                curl_url_get(b, part, &y, CURLU_DEFAULT_PORT) == CURLUE_OK && strcasecmp(x, y) == 0;
    curl_free(x);
    curl_free(y);
    return same;
}

static bool same_origin(const char *a, const char *b)
{
    CURLU *x = curl_url(), *y = curl_url();
    bool same = x != NULL && y != NULL && curl_url_set(x, CURLUPART_URL, a, 0) == CURLUE_OK &&
                curl_url_set(y, CURLUPART_URL, b, 0) == CURLUE_OK && same_part(x, y, CURLUPART_SCHEME) &&
                same_part(x, y, CURLUPART_HOST) && same_part(x, y, CURLUPART_PORT);
    curl_url_cleanup(x);
    curl_url_cleanup(y);
    return same;
}

/* A part of a URL into text [capacity]; "" if it has none. False: it does not fit. */
static bool part_of(CURLU *url, CURLUPart part, unsigned flags, char *text, size_t capacity)
{
    char *value = NULL;
    text[0] = '\0';
    if (curl_url_get(url, part, &value, flags) != CURLUE_OK) return true;
    size_t n = strlen(value);
    if (n < capacity) memcpy(text, value, n + 1);
    curl_free(value);
    return n < capacity;
}

static void tidy_host(char *host)
{
    size_t n = strlen(host);
    if (host[0] == '[' && host[n - 1] == ']') {
        memmove(host, host + 1, n - 2);
        n -= 2;
    } else if (n > 0 && host[n - 1] == '.') {
        n--;
    }
    host[n] = '\0';
    for (char *c = host; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
}

bool weir__transfer_read_url(const char *text, weir__transfer_url *parts)
{
    char scheme[8], port[8], user[2], password[2];
    CURLU *url = curl_url();
    bool ok = url != NULL && curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK &&
              part_of(url, CURLUPART_SCHEME, 0, scheme, sizeof scheme) &&
              part_of(url, CURLUPART_HOST, 0, parts->host, sizeof parts->host) && parts->host[0] != '\0' &&
              part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT, port, sizeof port) &&
              part_of(url, CURLUPART_USER, 0, user, sizeof user) && user[0] == '\0' &&
              part_of(url, CURLUPART_PASSWORD, 0, password, sizeof password) && password[0] == '\0';
    curl_url_cleanup(url);
    if (!ok) return false;
    parts->secure = strcmp(scheme, "https") == 0;
    parts->port = (uint16_t)atoi(port);
    parts->is_default_port = parts->port == (parts->secure ? 443 : 80);
    tidy_host(parts->host);
    return parts->secure || strcmp(scheme, "http") == 0;
}

/* libcurl's: a socket for a connection to an address that it has resolved. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *to)
{
    weir__transfer *t = user;
    (void)purpose;
    if (!t->request.may_connect(&to->addr, t->request.user)) {
        t->barred = true;
        return CURL_SOCKET_BAD;
    }
    curl_socket_t made = socket(to->family, to->socktype, to->protocol);
    if (made != CURL_SOCKET_BAD) (void)fcntl(made, F_SETFD, FD_CLOEXEC);
    return made;
}

static bool add_header(weir__transfer *t, const char *line)
{
    struct curl_slist *more = curl_slist_append(t->headers, line);
    if (more != NULL) t->headers = more;
    return more != NULL;
}

static bool set_request(weir__transfer *t, const weir__transfer_request *r)
{
    CURL *easy = t->easy;
    for (const char *const *line = r->headers; line != NULL && *line != NULL; line++)
        if (!add_header(t, *line)) return false;
    if (r->secret != NULL && same_origin(r->url, r->secret_for) && !add_header(t, r->secret)) return false;
    return curl_easy_setopt(easy, CURLOPT_URL, r->url) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, r->unix_path) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, t->headers) == CURLE_OK &&
           (r->proxy == NULL || curl_easy_setopt(easy, CURLOPT_PROXY, r->proxy) == CURLE_OK) &&
           (r->no_proxy == NULL || curl_easy_setopt(easy, CURLOPT_NOPROXY, r->no_proxy) == CURLE_OK) &&
           (r->may_connect == NULL ||
            (curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
             curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, t) == CURLE_OK)) &&
           (r->buffer_bytes == 0 ||
            curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, r->buffer_bytes) == CURLE_OK) &&
           (r->body == NULL || curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->body) == CURLE_OK) &&
           curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, r->connect_ms) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, r->total_ms) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, r->idle_ms > 0 ? 1L : 0L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (r->idle_ms + 999) / 1000) == CURLE_OK;
}

static bool set_up(weir__transfer *t)
{
    CURL *easy = t->easy;
    bool ok = curl_easy_setopt(easy, CURLOPT_PRIVATE, t) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->detail) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_HEADERDATA, t) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_WRITEDATA, t) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_USERAGENT, "weir/" WEIR_VERSION) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK;
#if LIBCURL_VERSION_NUM >= 0x075500
    ok = ok && curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    ok =
        ok && curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS)) == CURLE_OK;
#endif
    return ok && set_trust(easy) && set_request(t, &t->request);
}

weir__transfer *weir__transfers_start(weir__transfers *transfers, const weir__transfer_request *request)
{
    weir__transfer *t = weir__mem_calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->transfers = transfers;
    t->request = *request;
    t->easy = curl_easy_init();
    if (t->easy != NULL && set_up(t) && curl_multi_add_handle(transfers->multi, t->easy) == CURLM_OK)
        return t;
    weir__transfer_drop(t);
    return NULL;
}

/* ---- Going on ---- */

static weir__transfer_end end_meaning(const weir__transfer *t, CURLcode code)
{
    double ready = 0; /* 0: it never came to sending */
    if (t->left) return WEIR__TRANSFER_LEFT;
    if (t->barred && code == CURLE_COULDNT_CONNECT) return WEIR__TRANSFER_BARRED;
    switch (code) {
    case CURLE_OK: return WEIR__TRANSFER_WHOLE;
    case CURLE_OUT_OF_MEMORY: return WEIR__TRANSFER_NO_MEMORY;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return WEIR__TRANSFER_BAD_URL;
    case CURLE_COULDNT_CONNECT: return WEIR__TRANSFER_CLOSED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_SSL_CONNECT_ERROR: return WEIR__TRANSFER_UNREACHED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR: return WEIR__TRANSFER_DISTRUSTED;
    case CURLE_WEIRD_SERVER_REPLY: return WEIR__TRANSFER_NOT_HTTP;
    case CURLE_OPERATION_TIMEDOUT:
        curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME, &ready);
        return ready > 0 ? WEIR__TRANSFER_LATE : WEIR__TRANSFER_UNREACHED;
    default: return WEIR__TRANSFER_CUT;
    }
}

static void end_transfer(weir__transfer *t, CURLcode code)
{
    char *next = NULL;
    curl_off_t retry_s = 0;
    curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &next);
    curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &retry_s);
    const weir__transfer_result result = {
        .end = end_meaning(t, code),
        .head = head_of(t),
        .problem = curl_easy_strerror(code),
        .detail = t->detail[0] != '\0' ? t->detail : curl_easy_strerror(code),
        .next = next,
        .retry_s = retry_s > 0 ? (int64_t)retry_s : 0,
    };
    t->request.on_end(&result, t->request.user);
    if (t->ended != NULL) *t->ended = true;
    weir__transfer_drop(t);
}

unsigned weir__transfers_wait(weir__transfers *transfers, const int *fds, unsigned n, int timeout_ms)
{
    struct curl_waitfd waits[2] = {{0}};
    unsigned readable = 0;
    int n_running, n_left;
    for (unsigned i = 0; i < n; i++)
        waits[i] = (struct curl_waitfd){.fd = fds[i], .events = CURL_WAIT_POLLIN};
    curl_multi_poll(transfers->multi, waits, n, timeout_ms, NULL);
    for (unsigned i = 0; i < n; i++)
        if (waits[i].revents != 0) readable |= 1U << i;
    curl_multi_perform(transfers->multi, &n_running);
    for (CURLMsg *message; (message = curl_multi_info_read(transfers->multi, &n_left)) != NULL;) {
        char *t = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
        end_transfer((weir__transfer *)(void *)t, code);
    }
    return readable;
}

weir_status weir__transfers_run(weir__transfers *transfers, const weir__transfer_request *request,
                                bool (*on_tick)(void *user))
{
    bool ended = false;
    weir__transfer *transfer = weir__transfers_start(transfers, request);
    if (transfer == NULL) return WEIR_NO_MEMORY;
    transfer->ended = &ended;
    while (!ended) {
        weir__transfers_wait(transfers, NULL, 0, TICK_MS);
        if (ended || on_tick(request->user)) continue;
        weir__transfer_drop(transfer);
        return WEIR_ABORTED;
    }
    return WEIR_OK;
}

#endif

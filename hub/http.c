/* http.c: GET with redirects, ranges and retries.
 * SPDX-License-Identifier: Apache-2.0
 *
 * weir__http_get makes one request for each hop, follows redirects itself, and refuses those from https to
 * anything else. Headers say where the body begins and what its checksum is; the caller's `begin` judges
 * these before the first byte reaches `write`. Which answers may be tried again, how often, and how long to
 * wait before, is decided here; the caller makes the tries, and begins the count anew after progress. What
 * has failed is explained in terms of the hub: a gated model, a missing revision, a token without rights. */
#include "http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include "hub/transfer/transfer.h"

#define RETRY_AFTER_MAX_S 60  /* a longer wait is reported, not waited for */
#define BACKOFF_MS        200 /* doubles */
#define BACKOFF_MAX_MS    10000
#define TICK_MS           100 /* how soon a wait notices that the caller gives up */

/* ---- Errors of answers ---- */

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
            what, gated ? "gated" : "gated or private", config->shown, gated ? " and accept its terms" : "");
    return weir__error_set(
        error, WEIR_DENIED, "token",
        "%s is %s, and the token gives no access to it: open its page at %s with the token's account "
        "and ask for access, or set HF_TOKEN to a token that may read it",
        what, gated ? "gated" : "gated or private", config->shown);
}

weir_status weir__http_explain(const weir__config *config, const weir__http_answer *answer, const char *what,
                               bool kept, weir_error *error)
{
    const char *code = answer->error_code;
    if (answer->distrusted)
        return weir__error_set(
            error, WEIR_IO, config->field,
            "%s was not requested, because the certificate of %.100s cannot be verified: %s; if this server "
            "is the right one, set CURL_CA_BUNDLE or SSL_CERT_FILE to a file with the certificates to trust",
            what, config->shown, answer->reason);
    if (answer->code == 0 || answer->code == 200 || answer->code == 206)
        return weir__error_set(
            error, WEIR_IO, config->field,
            "%s could not be downloaded from %.100s: %s; %stry again, or, if the cache has it, set "
            "HF_HUB_OFFLINE=1",
            what, config->shown, answer->reason[0] != '\0' ? answer->reason : "it broke off",
            kept ? "the part so far is kept: " : "");
    if (strcmp(code, "GatedRepo") == 0) return explain_denied(config, what, true, error);
    if (strcmp(code, "RevisionNotFound") == 0)
        return weir__error_set(error, WEIR_NOT_FOUND, "revision", "%s has no revision %.100s", what,
                               config->revision);
    if (answer->code == 404 || strcmp(code, "RepoNotFound") == 0)
        return weir__error_set(
            error, WEIR_NOT_FOUND, config->field, "%s is not at %.100s, in revision %.60s: check the name%s",
            what, config->shown, config->revision,
            config->token == NULL ? "; if it is private, set HF_TOKEN" : " and the token's rights");
    if (answer->code == 401 || answer->code == 403) return explain_denied(config, what, false, error);
    if (answer->code == 429 && answer->retry_after_s > 0)
        return weir__error_set(error, WEIR_IO, config->field,
                               "%.100s limits the rate of requests: try again in %lld s%s", config->shown,
                               (long long)answer->retry_after_s,
                               config->token == NULL ? ", or set HF_TOKEN, which allows more" : "");
    if (answer->code == 429)
        return weir__error_set(error, WEIR_IO, config->field,
                               "%.100s limits the rate of requests: try again later%s", config->shown,
                               config->token == NULL ? ", or set HF_TOKEN, which allows more" : "");
    return weir__error_set(error, WEIR_IO, config->field, "%.100s answers %ld to the request for %s%s%s",
                           config->shown, answer->code, what,
                           answer->reason[0] != '\0' ? ": " : "; try again later", answer->reason);
}

/* ---- A text ---- */

struct collected {
    weir__text text;
    size_t max;
    bool too_long;
    weir_hub_progress_fn progress;
    void *user;
};

static bool collect_begin(const weir__http_answer *answer, void *user)
{
    struct collected *to = user;
    (void)answer;
    weir__text_clear(&to->text);
    return true;
}

static bool collect_bytes(const void *bytes, size_t n, void *user)
{
    struct collected *to = user;
    to->too_long = n > to->max - to->text.n;
    return !to->too_long && weir__text_add(&to->text, bytes, n);
}

static bool collect_tick(void *user)
{
    const struct collected *to = user;
    const weir_hub_progress progress = {.file = "", .shard = 1, .n_shards = 1, .sha256 = ""};
    return to->progress == NULL || to->progress(&progress, to->user);
}

weir_status weir__http_text(weir__http *http, const weir__config *config, const char *url, size_t max,
                            const char *what, int32_t n_retries, char **out, size_t *length,
                            weir_error *error)
{
    struct collected to = {.max = max, .progress = config->progress, .user = config->progress_user};
    const weir__http_request request = {.url = url,
                                        .if_range = "",
                                        .begin = collect_begin,
                                        .write = collect_bytes,
                                        .tick = collect_tick,
                                        .user = &to};
    weir__http_answer answer;
    weir__http_retry retry = {.n = config->n_retries - n_retries};
    weir_status status, waited = WEIR_OK;
    do {
        status = weir__http_get(http, &request, &answer);
    } while (weir__http_may_retry(status, &answer) &&
             (waited = weir__http_wait(&retry, config, &answer, collect_tick, &to)) == WEIR_OK);
    if (waited != WEIR_OK) status = waited;
    if (status == WEIR_OK && !to.text.failed)
        (void)weir__text_add(&to.text, "", 0); /* also of no bytes a text */
    if (to.text.failed || status == WEIR_NO_MEMORY)
        status = weir__error_set(error, WEIR_NO_MEMORY, config->field,
                                 "out of memory for the hub's answer about %s", what);
    else if (to.too_long)
        status = weir__error_set(error, WEIR_TOO_LONG, config->field,
                                 "the answer of %.100s about %s has more than %zu bytes", config->shown, what,
                                 max);
    else if (status == WEIR_ABORTED)
        weir__error_set(error, status, "progress", "the caller's callback asked to stop");
    else if (status != WEIR_OK || answer.code != 200)
        status = weir__http_explain(config, &answer, what, false, error);
    if (status != WEIR_OK) {
        weir__text_fini(&to.text);
        return status;
    }
    *out = to.text.bytes;
    *length = to.text.n;
    return WEIR_OK;
}

/* ---- Requests ---- */

#define HOPS_MAX       10    /* redirects: a hub and its store need two or three */
#define ERROR_BODY_MAX 65536 /* of a body that is thrown away */

struct weir__http {
    weir__transfers *transfers;
    const weir__config *config;
};

weir_status weir__http_create(const weir__config *config, weir__http **out, weir_error *error)
{
    if (!weir__transfer_exists)
        return weir__error_set(
            error, WEIR_UNSUPPORTED, config->field,
            "this weir was built without libcurl, which downloads need; models that are in the cache "
            "work with HF_HUB_OFFLINE=1");
    weir__http *http = weir__mem_calloc(1, sizeof *http);
    if (http == NULL) return weir__error_set(error, WEIR_NO_MEMORY, config->field, "out of memory");
    http->config = config;
    http->transfers = weir__transfers_create(0);
    if (http->transfers == NULL) {
        weir__http_destroy(http);
        return weir__error_set(error, WEIR_NO_MEMORY, config->field, "libcurl does not start");
    }
    *out = http;
    return WEIR_OK;
}

void weir__http_destroy(weir__http *http)
{
    if (http == NULL) return;
    weir__transfers_destroy(http->transfers);
    weir__mem_free(http);
}

/* One request on its way. */
struct flight {
    const weir__http_request *request;
    weir__http_answer *answer;
    size_t n_thrown;
    bool begun, refused, enough;
    weir__transfer_end end;
    int64_t length; /* of the body, -1 = unknown */
    char *next;     /* where a redirect points, owned; NULL = it is none */
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

static bool on_header(const char *line, size_t n, void *user)
{
    const struct flight *flight = user;
    weir__http_answer *answer = flight->answer;
    size_t length;
    const char *value;
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
    return true;
}

/* True if the body is the requested one; calls begin() when that is so for the first time. length: of the
 * body. */
static bool begin_body(struct flight *flight, int64_t length)
{
    weir__http_answer *answer = flight->answer;
    if (flight->begun) return true;
    flight->begun = true;
    if (answer->code == 200) {
        answer->begin = 0;
        answer->total = length;
    }
    flight->refused = !flight->request->begin(answer, flight->request->user);
    return !flight->refused;
}

static bool on_bytes(const weir__transfer_head *head, const char *bytes, size_t n, void *user)
{
    struct flight *flight = user;
    flight->answer->code = head->status;
    if (flight->answer->code != 200 && flight->answer->code != 206) {
        flight->n_thrown += n;
        flight->enough = flight->n_thrown > ERROR_BODY_MAX;
        return !flight->enough;
    }
    if (!begin_body(flight, head->length)) return false;
    flight->refused = !flight->request->write(bytes, n, flight->request->user);
    return !flight->refused;
}

static void on_end(const weir__transfer_result *result, void *user)
{
    struct flight *flight = user;
    weir__http_answer *answer = flight->answer;
    flight->end = result->end;
    answer->code = result->head.status;
    answer->retry_after_s = result->retry_s;
    answer->distrusted = result->end == WEIR__TRANSFER_DISTRUSTED;
    flight->length = result->head.length;
    if (result->end != WEIR__TRANSFER_WHOLE && result->end != WEIR__TRANSFER_LEFT)
        snprintf(answer->reason, sizeof answer->reason, "%.199s", result->detail);
    if (result->next == NULL) return;
    flight->next = weir__mem_strdup(result->next);
    if (flight->next == NULL) flight->end = WEIR__TRANSFER_NO_MEMORY;
}

static bool on_tick(void *user)
{
    const weir__http_request *request = ((struct flight *)user)->request;
    return request->tick(request->user);
}

static weir_status run_transfer(weir__http *http, struct flight *flight, const weir__transfer_request *wanted)
{
    weir_status status = weir__transfers_run(http->transfers, wanted, on_tick);
    if (status != WEIR_OK) return status;
    if (flight->refused) return WEIR_ABORTED;
    if (flight->end == WEIR__TRANSFER_NO_MEMORY) return WEIR_NO_MEMORY;
    return flight->end == WEIR__TRANSFER_WHOLE || flight->enough ? WEIR_OK : WEIR_IO;
}

/* One hop. */
static weir_status request_once(weir__http *http, struct flight *flight, const char *url)
{
    const weir__config *config = http->config;
    const weir__http_request *request = flight->request;
    const char *lines[3] = {NULL};
    weir__text token = {0}, range = {0}, condition = {0};
    flight->answer->code = 0;
    if (config->token != NULL) weir__text_printf(&token, "Authorization: Bearer %s", config->token);
    if (request->from > 0) {
        weir__text_printf(&range, "Range: bytes=%llu-", (unsigned long long)request->from);
        if (request->if_range[0] != '\0') weir__text_printf(&condition, "If-Range: %s", request->if_range);
        lines[0] = range.bytes;
        lines[1] = condition.bytes;
    }
    const weir__transfer_request wanted = {
        .url = url,
        .headers = lines,
        .secret = token.bytes,
        .secret_for = config->endpoint,
        .proxy = config->proxy,
        .no_proxy = config->no_proxy,
        .connect_ms = config->timeout_ms,
        .idle_ms = config->timeout_ms,
        .on_header = on_header,
        .on_bytes = on_bytes,
        .on_end = on_end,
        .user = flight,
    };
    bool failed = token.failed || range.failed || condition.failed;
    weir_status status = failed ? WEIR_NO_MEMORY : run_transfer(http, flight, &wanted);
    weir__text_fini(&condition);
    weir__text_fini(&range);
    weir__text_fini(&token);
    return status;
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
        struct flight flight = {.request = request, .answer = answer};
        status = request_once(http, &flight, url);
        char *next = flight.next;
        if (status != WEIR_OK || !is_redirect(answer->code)) {
            bool body = status == WEIR_OK && (answer->code == 200 || answer->code == 206);
            if (body && !begin_body(&flight, flight.length)) status = WEIR_ABORTED; /* one of no bytes */
            weir__mem_free(next);
            break;
        }
        bool weaker =
            next != NULL && strncasecmp(url, "https:", 6) == 0 && strncasecmp(next, "https:", 6) != 0;
        weir__mem_free(url);
        url = next;
        if (next == NULL || weaker || hop == HOPS_MAX) {
            snprintf(answer->reason, sizeof answer->reason, "%s",
                     next == NULL ? "it redirects to nowhere"
                     : weaker     ? "it redirects from https to something else"
                                  : "it redirects too often");
            break;
        }
    }
    weir__mem_free(url);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "error.h"
#include "field.h"
#include "hub/transfer/transfer.h"
#include "server/request/call.h"
#include "server/request/workers.h"
#include "server/settings/sources.h"

#define URLS_MAX      16    /* of a request */
#define REDIRECTS_MAX 3     /* of a URL */
#define FETCH_MS      10000 /* for all URLs of a request, and the wait for a thread */
#define LEFT_MS       5000  /* of these, when the thread begins; else too many requests wait */
#define CONNECT_MS    5000
#define QUEUE_MAX     64 /* calls that wait for a thread */

/* ---- Threads ---- */

static const char *skip_space_back(const char *at, const char *begin)
{
    while (at > begin && strchr(" \t\r\n", at[-1]) != NULL) at--;
    return at;
}

/* Whether the string at this quotation mark is the value of a member whose name ends with "url". */
static bool is_of_url(const char *quote, const char *begin)
{
    const char *at = skip_space_back(quote, begin);
    if (at == begin || *--at != ':') return false;
    at = skip_space_back(at, begin);
    return at - begin > 4 && memcmp(at - 4, "url\"", 4) == 0;
}

/* Whether a URL of the JSON begins with "http". One with escapes in these letters or in the member's name is
 * refused later. */
static bool has_url(const weir__text *body)
{
    const char *at = body->bytes, *end = at + body->n;
    while (at != NULL && (at = memchr(at, '"', (size_t)(end - at))) != NULL) {
        if (end - at > 4 && strncasecmp(at + 1, "http", 4) == 0 && is_of_url(at, body->bytes)) return true;
        at++;
    }
    return false;
}

serve_workers *serve_fetch_workers(serve_call *call)
{
    serve_server *server = call->server;
    if (server->fetchers == NULL || !has_url(&call->body)) return server->workers;
    if (!serve_workers_have_room(server->fetchers, call, QUEUE_MAX)) return server->workers;
    call->fetch_by_ns = weir__clock_deadline_ns(FETCH_MS);
    return server->fetchers;
}

/* Of a request's first URL. */
static bool may_fetch(serve_call *call, const char *field)
{
    if (call->server->fetchers == NULL)
        return serve_call_refuse(call, 400, field, "unsupported_value",
                                 "%s must be a data: URL with base64 (\"data:image/png;base64,…\"); this "
                                 "server fetches nothing",
                                 field);
    if (call->fetch_by_ns - weir__clock_now_ns() > (int64_t)LEFT_MS * 1000000) return true;
    if (call->fetch_by_ns == 0 && !has_url(&call->body))
        return serve_field_refuse(call, field, "a URL whose first letters are written without escapes");
    return serve_call_refuse(call, 503, field, "too_many_media",
                             "too many requests wait for images from other hosts");
}

/* ---- One URL ---- */

typedef struct fetch {
    serve_call *call;
    serve_fetches *all;
    weir__text *bytes;
    long status;
    bool too_large, too_many;
    weir__transfer_end end;
    char detail[256];
    char next[2048]; /* where a redirect points; "" = it is none */
} fetch;

static bool may_connect(const struct sockaddr *address, void *user)
{
    const serve_params *params = &((fetch *)user)->call->server->params;
    return serve_sources_reach(params->media_hosts, params->n_media_hosts, address);
}

static bool on_bytes(const weir__transfer_head *head, const char *bytes, size_t n, void *user)
{
    fetch *f = user;
    size_t most = (size_t)f->call->body_most;
    bool wanted = head->status == 200;
    f->status = head->status;
    f->too_large = n > most - f->all->n_bytes || head->length > (int64_t)most;
    f->too_many = wanted && !f->too_large && !serve_call_hold_media(f->call, n);
    if (f->too_large || f->too_many) return false;
    f->all->n_bytes += n;
    if (wanted) weir__text_add(f->bytes, bytes, n);
    return !f->bytes->failed;
}

static void on_end(const weir__transfer_result *result, void *user)
{
    fetch *f = user;
    f->end = result->end;
    if (result->head.status != 0) f->status = result->head.status;
    snprintf(f->detail, sizeof f->detail, "%s", result->detail);
    if (result->next != NULL && snprintf(f->next, sizeof f->next, "%s", result->next) >= (int)sizeof f->next)
        f->next[0] = '\0';
}

static bool is_redirect(const fetch *f)
{
    return f->next[0] != '\0' && f->status >= 300 && f->status < 400;
}

static bool refuse_source(const fetch *f, const char *field, const weir__transfer_url *to, bool redirected)
{
    bool six = strchr(to->host, ':') != NULL;
    return serve_call_refuse(
        f->call, 400, field, "unsupported_value",
        "%s %s %s%.200s%s:%u; this server fetches nothing from there (--media-host names "
        "the hosts)",
        field, redirected ? "redirects to" : "is at", six ? "[" : "", to->host, six ? "]" : "", to->port);
}

static bool refuse_status(const fetch *f, const char *field)
{
    return serve_call_refuse(f->call, 400, field, "invalid_value",
                             "%s cannot be fetched: its host answered with status %ld", field, f->status);
}

/* False: the call has its answer. */
static bool check_fetched(const fetch *f, const char *field)
{
    serve_call *call = f->call;
    if (f->bytes->failed || f->end == WEIR__TRANSFER_NO_MEMORY) return serve_call_no_memory(call);
    if (f->too_many)
        return serve_call_refuse(call, 503, NULL, "too_many_media",
                                 "the images and sounds of other requests take the memory for them");
    if (f->too_large)
        return serve_call_refuse(call, 413, field, "media_too_large",
                                 "the files that this request names by URL have more than %lld bytes "
                                 "(--max-body)",
                                 (long long)call->body_most);
    if (f->end == WEIR__TRANSFER_BARRED)
        return serve_call_refuse(call, 400, field, "unsupported_value",
                                 "%s is at an address that is not public, or this machine's, and that "
                                 "--media-host does not name",
                                 field);
    if (f->status != 0 && f->status != 200) return refuse_status(f, field);
    if (f->end == WEIR__TRANSFER_LATE)
        return serve_call_refuse(
            call, 400, field, "invalid_value",
            "%s cannot be fetched: its host took too long; all URLs of a request have %d s", field,
            FETCH_MS / 1000);
    return f->end == WEIR__TRANSFER_WHOLE ||
           serve_call_refuse(call, 400, field, "invalid_value", "%s cannot be fetched: %s", field, f->detail);
}

/* Of f->next, once. False: the call has its answer. */
static bool get(fetch *f, const char *field, weir__transfers *transfers)
{
    int64_t rest_ms = (f->call->fetch_by_ns - weir__clock_now_ns()) / 1000000;
    char url[sizeof f->next];
    snprintf(url, sizeof url, "%s", f->next);
    const weir__transfer_request request = {
        .url = url,
        .proxy = "",
        .connect_ms = rest_ms < CONNECT_MS ? (long)(rest_ms > 0 ? rest_ms : 1) : CONNECT_MS,
        .total_ms = rest_ms > 0 ? (long)rest_ms : 1,
        .may_connect = may_connect,
        .on_bytes = on_bytes,
        .on_end = on_end,
        .user = f,
    };
    weir_error error = {.code = WEIR_ABORTED};
    f->next[0] = '\0';
    f->status = 0;
    weir_status status = weir__transfers_run(transfers, &request, serve_workers_go_on);
    if (status == WEIR_NO_MEMORY) return serve_call_no_memory(f->call);
    if (status != WEIR_OK) return serve_call_passes(f->call, status, &error);
    return is_redirect(f) || check_fetched(f, field);
}

/* Follows redirects to hosts of the list. False: the call has its answer. */
static bool get_all(fetch *f, const char *field, weir__transfers *transfers)
{
    const serve_params *params = &f->call->server->params;
    for (int i = 0; f->next[0] != '\0'; i++) {
        weir__transfer_url to;
        if (!weir__transfer_read_url(f->next, &to))
            return serve_field_refuse(f->call, field, "an http or https URL without a user and a password");
        if (!serve_sources_have(params->media_hosts, params->n_media_hosts, to.host, to.port,
                                to.is_default_port))
            return refuse_source(f, field, &to, i > 0);
        if (i > REDIRECTS_MAX) return refuse_status(f, field);
        if (!get(f, field, transfers)) return false;
    }
    return true;
}

bool serve_fetch(serve_call *call, const char *field, const char *url, serve_fetches *all, weir__text *bytes)
{
    fetch f = {.call = call, .all = all, .bytes = bytes};
    if (all->n++ == 0 && !may_fetch(call, field)) return false;
    if (all->n > URLS_MAX)
        return serve_call_refuse(call, 400, field, "unsupported_value",
                                 "%s is one more than the %d URLs that a request may have", field, URLS_MAX);
    if (snprintf(f.next, sizeof f.next, "%s", url) >= (int)sizeof f.next)
        return serve_field_refuse(call, field, "a URL of at most 2,047 bytes");
    weir__transfers *transfers = weir__transfers_create(1);
    if (transfers == NULL) return serve_call_no_memory(call);
    bool ok = get_all(&f, field, transfers);
    weir__transfers_destroy(transfers);
    return ok;
}

/* prefix.c: fetches cached prefixes from other servers (ADR 0089). SPDX-License-Identifier: Apache-2.0 */
#include "prefix.h"

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "base/clock.h"
#include "base/mem.h"
#include "error.h"
#include "hub/transfer/transfer.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/models/tokens.h"
#include "server/request/workers.h"
#include "server/settings/origin.h"
#include "server/system/log.h"

#define LEAST      64 /* tokens that are to be computed otherwise: fewer are not worth a fetch */
#define CONNECT_MS 2000
#define QUEUE_MAX  64 /* calls that wait for a thread */
#define PATH       "/v1/prefixes"
#define BUFFER     ((long)512 << 10) /* bytes that libcurl reads at once */

/* ---- Hints ---- */

static const char *const end_names[SERVE_PREFIX_ENDS] = {
    [SERVE_PREFIX_NONE] = "",         [SERVE_PREFIX_FETCHED] = "fetched", [SERVE_PREFIX_KNOWN] = "known",
    [SERVE_PREFIX_ABSENT] = "absent", [SERVE_PREFIX_REFUSED] = "refused", [SERVE_PREFIX_LATE] = "late",
    [SERVE_PREFIX_BUSY] = "busy",     [SERVE_PREFIX_FAILED] = "failed",
};

const char *serve_prefix_end_name(serve_prefix_end how)
{
    return end_names[how];
}

static void end_peer(serve_call *call, serve_prefix_end how)
{
    call->prefix_end = end_names[how];
    atomic_fetch_add_explicit(&call->server->prefixes.n_ends[how], 1, memory_order_relaxed);
}

void serve_prefix_hint(serve_call *call, const char *url)
{
    const serve_params *params = &call->server->params;
    if (call->server->carriers == NULL || params->n_prefix_peers == 0) return;
    for (size_t i = 0; i < params->n_prefix_peers; i++)
        if (serve_origin_is(params->prefix_peers[i], url)) call->peer = params->prefix_peers[i];
    if (call->peer != NULL) return;
    end_peer(call, SERVE_PREFIX_REFUSED);
    /* The log never has the URL itself: it may have a password or a key. */
    weir__transfer_url parts = {.host = "?"};
    (void)weir__transfer_read_url(url, &parts);
    serve_log("warning", "prefix",
              "a request names the server %.100s (port %u), which no --prefix-peer names", parts.host,
              parts.port);
}

bool serve_prefix_is_key(const serve_server *server, const char *key)
{
    char own[SERVE_PREFIX_KEY_MAX + 1] = {0}, given[SERVE_PREFIX_KEY_MAX + 1] = {0};
    if (server->params.prefix_key == NULL || key == NULL || strlen(key) > SERVE_PREFIX_KEY_MAX) return false;
    snprintf(own, sizeof own, "%s", server->params.prefix_key);
    snprintf(given, sizeof given, "%s", key);
    return serve_secret_is(own, given, sizeof own);
}

serve_workers *serve_prefix_workers(serve_call *call)
{
    serve_server *server = call->server;
    if (call->route->peer && server->carriers != NULL) return server->carriers;
    serve_workers *workers = serve_ask_media_workers(call);
    if (call->peer == NULL || workers != server->workers) return workers;
    if (!serve_workers_have_room(server->carriers, call, QUEUE_MAX)) {
        call->peer = NULL;
        end_peer(call, SERVE_PREFIX_BUSY);
        return workers;
    }
    /* The time starts here, also for a call that waited for its model. The request keeps half of a worker's
     * time. */
    int64_t most_ms = (int64_t)server->params.prefix_s * 1000;
    int64_t half_ms = (int64_t)server->params.work_s * 500;
    call->peer_by_ns = weir__clock_deadline_ns(most_ms < half_ms ? most_ms : half_ms);
    return server->carriers;
}

/* ---- Fetching ---- */

typedef struct fetch {
    serve_call *call;
    weir_snapshot *snapshot;
    weir_error error; /* of the snapshot */
    long rest_ms;     /* at least 1 */
    long status;
    weir__transfer_end end;
    char detail[512];
} fetch;

static bool on_bytes(const weir__transfer_head *head, const char *bytes, size_t n, void *user)
{
    fetch *f = user;
    f->status = head->status;
    return f->status == 200 && weir_snapshot_write(f->snapshot, bytes, n, &f->error) == WEIR_OK;
}

static void on_end(const weir__transfer_result *result, void *user)
{
    fetch *f = user;
    f->end = result->end;
    if (result->head.status != 0) f->status = result->head.status;
    snprintf(f->detail, sizeof f->detail, "%.160s%s", result->detail,
             result->end == WEIR__TRANSFER_DISTRUSTED
                 ? "; CURL_CA_BUNDLE or SSL_CERT_FILE names a file of certificates to trust"
                 : "");
}

static bool write_body(const serve_call *call, const weir_request *request, const int32_t *tokens, size_t n,
                       int32_t n_known, weir__text *body)
{
    weir__text_add_string(body, "{");
    weir__json_string(body, "model", call->model->name);
    if (request->cache_salt != NULL && request->cache_salt[0] != '\0')
        weir__json_string(body, "salt", request->cache_salt);
    weir__text_printf(body, ",\"more_than\":%d,\"tokens\":[", n_known);
    for (size_t i = 0; i < n && !body->failed; i++) weir__text_printf(body, i > 0 ? ",%d" : "%d", tokens[i]);
    return weir__text_add_string(body, "]}");
}

static int64_t rest_ms(const serve_call *call)
{
    return (call->peer_by_ns - weir__clock_now_ns()) / 1000000;
}

/* False: the job is to end, or memory ran out. */
static bool transfer_prefix(fetch *f, const char *body)
{
    const serve_params *params = &f->call->server->params;
    char url[320 + sizeof PATH], key[SERVE_PREFIX_KEY_MAX + 32];
    const char *peer = f->call->peer;
    size_t n = strlen(peer);
    snprintf(url, sizeof url, "%s%.*s%s", strstr(peer, "://") == NULL ? "http://" : "",
             (int)(peer[n - 1] == '/' ? n - 1 : n), peer, PATH);
    snprintf(key, sizeof key, "Authorization: Bearer %s", params->prefix_key);
    const char *const headers[] = {"Content-Type: application/json", "Expect:", key, NULL};
    const weir__transfer_request request = {
        .url = url,
        .body = body,
        .headers = headers,
        .proxy = "",
        .connect_ms = f->rest_ms < CONNECT_MS ? f->rest_ms : CONNECT_MS,
        .total_ms = f->rest_ms,
        .buffer_bytes = BUFFER,
        .on_bytes = on_bytes,
        .on_end = on_end,
        .user = f,
    };
    weir__transfers *transfers = weir__transfers_create(1);
    if (transfers == NULL) return false;
    weir_status status = weir__transfers_run(transfers, &request, serve_workers_go_on);
    weir__transfers_destroy(transfers);
    return status == WEIR_OK;
}

/* The reason why the transfer brought no prefix; NULL: it did. *how: the same in short. */
static const char *judge_transfer(fetch *f, serve_prefix_end *how)
{
    *how = SERVE_PREFIX_FAILED;
    if (f->end == WEIR__TRANSFER_LEFT && f->status == 200) {
        if (f->error.code == WEIR_UNSUPPORTED || f->error.code == WEIR_TOO_LONG) *how = SERVE_PREFIX_REFUSED;
        weir_error_text(&f->error, NULL, NULL, f->detail, sizeof f->detail);
        return f->detail;
    }
    switch (f->status) {
    case 0: break;
    case 200: break;
    case 404: *how = SERVE_PREFIX_ABSENT; return "it has no more of the prompt";
    case 401:
    case 403: *how = SERVE_PREFIX_REFUSED; return "it refuses this server (--prefix-key, --allowed-hosts)";
    case 413:
        *how = SERVE_PREFIX_REFUSED;
        return "prefix or prompt is too large for it (--max-prefix, --max-body)";
    case 503: *how = SERVE_PREFIX_BUSY; return "it is busy";
    default: return "it answered with another status than 200";
    }
    if (f->end == WEIR__TRANSFER_LATE) {
        *how = SERVE_PREFIX_LATE;
        return "it took longer than --prefix-timeout";
    }
    return f->end == WEIR__TRANSFER_WHOLE ? NULL : f->detail;
}

static void report_transfer(const serve_call *call, serve_prefix_end how, const char *why)
{
    serve_log(how == SERVE_PREFIX_ABSENT ? "info" : "warning", "prefix",
              "no cached prefix came from %s, so it is computed here: %s", call->peer, why);
}

/* Into the engine's cache. */
static serve_prefix_end fetch_into(serve_call *call, weir_snapshot *snapshot, const char *body)
{
    fetch f = {.call = call, .snapshot = snapshot, .rest_ms = (long)rest_ms(call)};
    serve_prefix_end how;
    weir_error error = {0};
    int64_t began = weir__clock_now_ns();
    if (f.rest_ms < 1) {
        report_transfer(call, SERVE_PREFIX_LATE, "other requests fetch from servers");
        return SERVE_PREFIX_LATE;
    }
    if (!transfer_prefix(&f, body)) return SERVE_PREFIX_FAILED;
    const char *why = judge_transfer(&f, &how);
    int64_t rest = rest_ms(call);
    if (why == NULL) {
        weir_status status =
            weir_snapshot_import(snapshot, call->loaded->engine, rest > 0 ? (int)rest : 0, &error);
        how = status == WEIR_OK        ? SERVE_PREFIX_FETCHED
              : status == WEIR_TIMEOUT ? SERVE_PREFIX_LATE
                                       : SERVE_PREFIX_FAILED;
        weir_error_text(&error, NULL, NULL, f.detail, sizeof f.detail);
        why = f.detail;
    }
    if (how != SERVE_PREFIX_FETCHED) {
        report_transfer(call, how, why);
        return how;
    }
    atomic_fetch_add_explicit(&call->server->prefixes.n_bytes_fetched, weir_snapshot_bytes(snapshot),
                              memory_order_relaxed);
    serve_log("info", "prefix", "%d tokens, %llu bytes from %s in %.1f ms", weir_snapshot_length(snapshot),
              (unsigned long long)weir_snapshot_bytes(snapshot), call->peer,
              (double)(weir__clock_now_ns() - began) / 1e6);
    return how;
}

bool serve_prefix_fetch(serve_call *call, const weir_request *request)
{
    weir_engine *engine = call->loaded->engine;
    weir_snapshot *snapshot = NULL;
    weir__text body = {0};
    int32_t *tokens = NULL;
    size_t n = 0;
    serve_prefix_end how = SERVE_PREFIX_KNOWN;
    bool plain = request->source == NULL && request->n_adapters == 0 && request->n_media == 0 &&
                 !request->prompt_logprobs && request->truncate_prompt == 0 && request->cache_prompt;
    if (call->peer == NULL || !plain) return true;
    if (serve_tokens_of_prompt(call->loaded, request, &tokens, &n, NULL) != WEIR_OK || n < 2 ||
        weir_snapshot_create(engine, tokens, n - 1, request->cache_salt, WEIR_NUL,
                             (uint64_t)call->server->params.prefix_bytes, &snapshot, NULL) != WEIR_OK)
        goto done; /* the submit reports the error */
    int32_t n_known = weir_snapshot_known(snapshot, engine);
    if ((int32_t)n - 1 - n_known >= LEAST)
        how = write_body(call, request, tokens, n - 1, n_known, &body)
                  ? fetch_into(call, snapshot, body.bytes)
                  : SERVE_PREFIX_FAILED;
    end_peer(call, how);
done:
    weir_snapshot_destroy(snapshot);
    weir__text_fini(&body);
    weir__mem_free(tokens);
    weir_error error = {.code = WEIR_ABORTED};
    return serve_workers_go_on(NULL) || serve_call_passes(call, WEIR_ABORTED, &error);
}

/* prefix.c: cached prefixes, which this server fetches from others and gives to them (ADR 0089).
 * SPDX-License-Identifier: Apache-2.0
 *
 * A request names a server in a header, which must be one of --prefix-peer. Its call then goes to threads of
 * its own (carriers). Before the submit, such a thread sends that server the prompt's tokens and how many of
 * them are known here, and imports what comes into the engine's cache. If nothing comes in time, the prompt
 * is computed here. The other side exports the longest cached beginning of the tokens, or of the tokens of a
 * block, as a whole into memory; the service thread sends it piece by piece. So only AT_ONCE prefixes are
 * sent at a time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "hub/transfer/transfer.h"
#include "router.h"
#include "server/api/common/ask.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/models/tokens.h"
#include "server/request/body.h"
#include "server/request/call.h"
#include "server/request/workers.h"
#include "server/settings/origin.h"
#include "server/system/log.h"

#define LEAST      64 /* tokens that are to be computed otherwise: fewer are not worth a fetch */
#define CONNECT_MS 2000
#define QUEUE_MAX  64 /* calls that wait for a thread */
#define PATH       "/v1/prefixes"
#define AT_ONCE    2                 /* prefixes that are being sent, each in memory as a whole */
#define BUFFER     ((long)512 << 10) /* bytes that libcurl reads at once */

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

/* ---- Fetching ---- */

typedef struct fetch {
    serve_call *call;
    weir_snapshot *snapshot;
    weir_error error; /* of the snapshot */
    long rest_ms;     /* at least 1 */
    long status;
    weir__transfer_end end;
    char detail[512];
    char span[SERVE_SPAN_ID + 1]; /* in which the other server is asked */
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

#define URL_MAX (320 + sizeof PATH)

static void write_url(const char *peer, char url[URL_MAX])
{
    size_t n = strlen(peer);
    snprintf(url, URL_MAX, "%s%.*s%s", strstr(peer, "://") == NULL ? "http://" : "",
             (int)(peer[n - 1] == '/' ? n - 1 : n), peer, PATH);
}

/* False: the job is to end, or memory ran out. */
static bool transfer_prefix(fetch *f, const char *body)
{
    const serve_params *params = &f->call->server->params;
    char url[URL_MAX], key[SERVE_PREFIX_KEY_MAX + 32];
    write_url(f->call->peer, url);
    snprintf(key, sizeof key, "Authorization: Bearer %s", params->prefix_key);
    char parent[SERVE_TRACE_HEADER], state[SERVE_TRACE_HEADER_STATE];
    serve_trace_headers(f->call->trace, f->span[0] != '\0' ? f->span : NULL, parent, state);
    const char *headers[6] = {"Content-Type: application/json", "Expect:", key};
    size_t n_headers = 3;
    if (parent[0] != '\0') headers[n_headers++] = parent;
    if (state[0] != '\0') headers[n_headers++] = state;
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

/* whole: the transfer was not ended from here. */
static void trace_transfer(const fetch *f, bool whole, int64_t began_ns)
{
    serve_trace *trace = f->call->trace;
    char url[URL_MAX], status[16];
    weir__transfer_url parts;
    if (!serve_span_begin(trace, "POST " PATH, SERVE_SPAN_CLIENT, f->span[0] != '\0' ? f->span : NULL, NULL,
                          began_ns, weir__clock_now_ns()))
        return;
    serve_span_text(trace, "http.request.method", "POST");
    write_url(f->call->peer, url);
    if (weir__transfer_read_url(url, &parts)) {
        serve_span_text(trace, "server.address", parts.host);
        serve_span_int(trace, "server.port", parts.port);
    }
    if (f->status != 0) serve_span_int(trace, "http.response.status_code", f->status);
    if (!whole || f->end != WEIR__TRANSFER_WHOLE || f->status != 200) {
        const bool answered = f->status != 0 && f->status != 200;
        snprintf(status, sizeof status, "%ld", f->status);
        serve_span_text(trace, "error.type", answered ? status : "_OTHER");
        serve_span_fail(trace);
    }
    serve_span_end(trace);
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
    if (call->trace != NULL) (void)serve_span_make(f.span);
    const bool whole = transfer_prefix(&f, body);
    trace_transfer(&f, whole, began);
    if (!whole) return SERVE_PREFIX_FAILED;
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

/* Fetches the prefix of the request's prompt from the server that the call's header named, if that is worth
 * it, and waits for it. The request can be submitted then, with or without it. */
static bool fetch_prefix(serve_call *call, const weir_request *request)
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

/* ---- Hints ---- */

void serve_prefix_hint(serve_call *call, const char *url)
{
    const serve_params *params = &call->server->params;
    if (call->server->carriers == NULL || params->n_prefix_peers == 0) return;
    for (size_t i = 0; i < params->n_prefix_peers; i++)
        if (serve_origin_is(params->prefix_peers[i], url)) call->peer = params->prefix_peers[i];
    if (call->peer != NULL) {
        call->fetch = fetch_prefix;
        return;
    }
    end_peer(call, SERVE_PREFIX_REFUSED);
    /* The log never has the URL itself: it may have a password or a key. */
    weir__transfer_url parts = {.host = "?"};
    (void)weir__transfer_read_url(url, &parts);
    serve_log("warning", "prefix",
              "a request names the server %.100s (port %u), which no --prefix-peer names", parts.host,
              parts.port);
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

/* ---- Giving ---- */

/* True if this is the key of --prefix-key. */
static bool is_key(const serve_server *server, const char *key)
{
    char own[SERVE_PREFIX_KEY_MAX + 1] = {0}, given[SERVE_PREFIX_KEY_MAX + 1] = {0};
    if (key == NULL || strlen(key) > SERVE_PREFIX_KEY_MAX) return false;
    snprintf(own, sizeof own, "%s", server->params.prefix_key);
    snprintf(given, sizeof given, "%s", key);
    return serve_secret_is(own, given, sizeof own);
}

bool serve_prefix_admits(serve_call *call, const char *key)
{
    if (call->server->params.prefix_key == NULL)
        return serve_call_refuse(call, 403, NULL, "no_prefixes",
                                 "this server gives no prefixes to others (it has no --prefix-key)");
    return is_key(call->server, key) || serve_call_refuse(call, 401, NULL, "invalid_prefix_key",
                                                          "the key is not this server's --prefix-key");
}

/* The request's fields. */
typedef struct wish {
    const json_t *tokens;
    const char *salt;
    int32_t more_than;
    const json_t *model;
} wish;

static bool read_more_than(serve_call *call, void *to, const char *name, const json_t *value)
{
    json_int_t n;
    bool whole = serve_json_whole(value, &n);
    ((wish *)to)->more_than = (int32_t)n;
    return (whole && n >= 0 && n <= INT32_MAX) ||
           serve_field_refuse(call, name, "a number of tokens, 0 or more");
}

static const serve_field fields[] = {
    SERVE_FIELD("tokens", 1u, VALUE, wish, tokens), SERVE_FIELD("salt", 1u, STRING, wish, salt),
    SERVE_FIELD_BY("more_than", 1u, read_more_than),
    SERVE_FIELD("model", 1u, VALUE, wish, model), /* of several; one alone may have another name there */
};

static const serve_field_table table = SERVE_FIELD_TABLE(fields);

static bool read_wish(serve_call *call, json_t **json, wish *w)
{
    *w = (wish){0};
    return serve_call_read_json(call, json) && serve_fields_read(call, &table, 1u, *json, w);
}

/* Leaves the place; memory goes first: another prefix takes the place at once. */
static void leave_place(serve_call *call)
{
    weir_snapshot_destroy(call->snapshot);
    call->snapshot = NULL;
    atomic_fetch_sub(&call->server->prefixes.n_giving, 1);
}

/* Takes one of the AT_ONCE places. False: the call has its answer. */
static bool enter_place(serve_call *call)
{
    if (atomic_fetch_add(&call->server->prefixes.n_giving, 1) < AT_ONCE) {
        call->leave = leave_place;
        return true;
    }
    atomic_fetch_sub(&call->server->prefixes.n_giving, 1);
    return serve_call_refuse(call, 503, NULL, "too_many_prefixes",
                             "%d other prefixes are being sent; ask again later", AT_ONCE);
}

static bool status_passes(serve_call *call, weir_status status, weir_error *error)
{
    if (status == WEIR_NOT_FOUND)
        return serve_call_refuse(call, 404, NULL, "prefix_not_cached",
                                 "no more of the prompt is cached here");
    if (status == WEIR_BUSY || status == WEIR_TIMEOUT || status == WEIR_NO_SPACE)
        return serve_call_refuse(call, 503, NULL, "engine_busy", "the engine has no time or room for it: %s",
                                 weir__error_words(error).text);
    if (status == WEIR_TOO_LONG)
        return serve_call_refuse(call, 413, NULL, "prefix_too_large", "%s (--max-prefix)",
                                 weir__error_words(error).text);
    return serve_call_passes(call, status, error);
}

/* Sends more of the prefix, once bytes of it were sent. Service thread. */
static void feed_prefix(serve_call *call)
{
    if (call->ended || call->out.n > call->out_at) return;
    if (weir__text_reserve(&call->out, SERVE_BUFFER_MAX)) {
        size_t n = weir_snapshot_read(call->snapshot, call->snapshot_at, call->out.bytes + call->out.n,
                                      SERVE_BUFFER_MAX);
        call->out.n += n;
        call->snapshot_at += n;
    }
    call->ended = call->snapshot_at == weir_snapshot_bytes(call->snapshot);
}

/* Answers with the longest cached beginning of the tokens. */
static void give_prefix(serve_call *call, const int32_t *tokens, size_t n, const char *salt,
                        int32_t more_than)
{
    const serve_params *params = &call->server->params;
    weir_engine *engine = call->loaded->engine;
    serve_prefixes *prefixes = &call->server->prefixes;
    weir_error error = {0};
    weir_engine_stats stats = {.size = sizeof stats};
    /* The other server's contexts may be longer. */
    if (weir_engine_get_stats(engine, &stats) == WEIR_OK && n > (size_t)stats.n_ctx) n = (size_t)stats.n_ctx;
    if (!enter_place(call) ||
        !status_passes(call,
                       weir_snapshot_create(engine, tokens, n, salt, WEIR_NUL, (uint64_t)params->prefix_bytes,
                                            &call->snapshot, &error),
                       &error))
        return;
    weir_status status =
        weir_snapshot_export(call->snapshot, engine, more_than, params->prefix_s * 1000, &error);
    if (!status_passes(call, status, &error)) return;
    uint64_t n_bytes = weir_snapshot_bytes(call->snapshot);
    call->send_by_ns = weir__clock_deadline_ns((int64_t)params->prefix_s * 1000);
    atomic_fetch_add(&prefixes->n_given, 1);
    atomic_fetch_add(&prefixes->n_bytes_given, n_bytes);
    call->feed = feed_prefix;
    serve_call_begin_sized(call, "application/octet-stream", n_bytes);
}

/* The number of a block, as KV events have it. */
static bool read_id(serve_call *call, uint64_t *id)
{
    const char *text = call->name;
    char *after;
    errno = 0;
    *id = strtoull(text, &after, 10);
    return (text[0] >= '0' && text[0] <= '9' && *after == '\0' && errno == 0) ||
           serve_call_refuse(call, 400, NULL, "invalid_value",
                             "\"%.64s\" is not the id of a block, a number of 64 bits", text);
}

static void give_block(serve_call *call)
{
    uint64_t id;
    size_t n = 0;
    weir_engine *engine = call->loaded->engine;
    int32_t *tokens = NULL;
    if (!read_id(call, &id)) return;
    weir_status status = weir_engine_block_tokens(engine, id, NULL, 0, &n);
    if (status == WEIR_TOO_LONG) {
        tokens = weir__mem_calloc(n, sizeof *tokens);
        status = tokens == NULL ? WEIR_NO_MEMORY : weir_engine_block_tokens(engine, id, tokens, n, &n);
    }
    if (status == WEIR_NO_MEMORY)
        serve_call_no_memory(call);
    else if (status != WEIR_OK)
        serve_call_refuse(call, 404, NULL, "prefix_not_cached", "the block %llu is not cached here",
                          (unsigned long long)id);
    else
        give_prefix(call, tokens, n, NULL, (int32_t)n - 1);
    weir__mem_free(tokens);
}

static void give_tokens(serve_call *call)
{
    wish w;
    json_t *json = NULL;
    int32_t *tokens = NULL;
    size_t n = 0;
    if (read_wish(call, &json, &w) &&
        (json_array_size(w.tokens) > 0 ||
         serve_field_refuse(call, "tokens", "an array of 1 token id or more")) &&
        serve_call_read_ids(call, "tokens", w.tokens, &tokens, &n))
        give_prefix(call, tokens, n, w.salt, w.more_than);
    weir__mem_free(tokens);
    json_decref(json);
}

void serve_prefix_give(serve_call *call)
{
    if (strcmp(call->method, "POST") == 0)
        give_tokens(call);
    else
        give_block(call);
}

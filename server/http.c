/* http.c: connections, as libwebsockets brings them: heads, bodies, writes, ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "base/clock.h"
#include "base/mem.h"
#include "keys.h"
#include "serve.h"
#include "tape.h"

#define BODIES_MAX 16 /* × body_bytes: what all bodies together may hold */

static serve_server *server_of(struct lws *wsi)
{
    return lws_context_user(lws_get_context(wsi));
}

/* ---- Heads ---- */

static const char *read_method(struct lws *wsi)
{
    static const struct {
        enum lws_token_indexes token;
        const char *name;
    } methods[] = {
        {WSI_TOKEN_POST_URI, "POST"},       {WSI_TOKEN_GET_URI, "GET"}, {WSI_TOKEN_HEAD_URI, "HEAD"},
        {WSI_TOKEN_OPTIONS_URI, "OPTIONS"}, {WSI_TOKEN_PUT_URI, "PUT"}, {WSI_TOKEN_PATCH_URI, "PATCH"},
        {WSI_TOKEN_DELETE_URI, "DELETE"},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (lws_hdr_total_length(wsi, methods[i].token) > 0) return methods[i].name;
    return "";
}

/* A header field's value; "" when there is none, NULL when it does not fit. */
static const char *header(struct lws *wsi, enum lws_token_indexes token, char *value, int capacity)
{
    value[0] = '\0';
    if (lws_hdr_total_length(wsi, token) <= 0) return value;
    return lws_hdr_copy(wsi, value, capacity, token) < 0 ? NULL : value;
}

static bool check_origin(serve_call *call)
{
    const serve_params *params = &call->server->params;
    char origin[128], host[128];
    const char *own = header(call->wsi, WSI_TOKEN_HOST, host, sizeof host);
    if (header(call->wsi, WSI_TOKEN_ORIGIN, origin, sizeof origin) == NULL) origin[0] = '?', origin[1] = '\0';
    if (origin[0] == '\0') return true;
    const char *site = strstr(origin, "://");
    bool same = site != NULL && own != NULL && strcmp(site + 3, own) == 0;
    for (size_t i = 0; i < params->n_origins; i++) {
        if (strcmp(params->origins[i], "*") != 0 && strcmp(params->origins[i], origin) != 0) continue;
        snprintf(call->origin, sizeof call->origin, "%s", origin);
        return true;
    }
    if (same) return true;
    /* Browsers ask before they send what they may not, but not for plain forms. */
    serve_call_refuse(call, 403, NULL, "origin_not_allowed", "pages of another origin may not ask here");
    return false;
}

/* Where in a stream the client wants to go on. What it says last, as an EventSource that comes back does,
 * goes before what its address says. */
static void read_position(serve_call *call)
{
    static const char name[] = "last-event-id:", argument[] = "starting_after=";
    char value[256];
    int n = lws_hdr_custom_length(call->wsi, name, sizeof name - 1);
    const char *given = NULL;
    if (n >= (int)sizeof value)
        given = "?";
    else if (n >= 0)
        given = lws_hdr_custom_copy(call->wsi, value, sizeof value, name, sizeof name - 1) >= 0 ? value : "";
    else if (lws_hdr_total_length(call->wsi, WSI_TOKEN_HTTP_URI_ARGS) >= (int)sizeof value)
        given = "?";
    else
        given = lws_get_urlarg_by_name(call->wsi, argument, value, sizeof value);
    if (given == NULL) return;
    call->position_from = n >= 0 ? "Last-Event-ID" : "starting_after";
    given += strspn(given, " \t");
    size_t length = strlen(given);
    while (length > 0 && (given[length - 1] == ' ' || given[length - 1] == '\t')) length--;
    if (length >= sizeof call->position) length = sizeof call->position - 1;
    memcpy(call->position, given, length);
}

static bool check_key(serve_call *call)
{
    const serve_server *server = call->server;
    const serve_route *route = call->route;
    char value[1024];
    if (!serve_keys_are_wanted(server->keys)) return true;
    const char *given = header(call->wsi, WSI_TOKEN_HTTP_AUTHORIZATION, value, sizeof value);
    bool bearer = given != NULL && strncasecmp(given, "Bearer ", 7) == 0;
    if (bearer) given += 7 + strspn(given + 7, " ");
    if (given != NULL && given[0] == '\0') { /* none, as Anthropic's and Azure's clients have it */
        static const char name[] = "x-api-key:";
        int n = lws_hdr_custom_length(call->wsi, name, sizeof name - 1);
        bearer = n > 0 && n < (int)sizeof value &&
                 lws_hdr_custom_copy(call->wsi, value, sizeof value, name, sizeof name - 1) > 0;
    }
    if (bearer) call->key = serve_keys_find(server->keys, given, strlen(given));
    if (call->key >= 0 || (route != NULL && route->open) ||
        (route != NULL && route->health && !server->params.health_needs_key) ||
        (route != NULL && route->metrics && server->params.metrics_need_no_key))
        return true;
    serve_call_refuse(call, 401, NULL, "invalid_api_key",
                      given == NULL || given[0] == '\0'
                          ? "no API key was given: send it as Authorization: Bearer KEY, or as X-Api-Key: KEY"
                          : "the API key is not one of this server's");
    return false;
}

static bool check_route(serve_call *call)
{
    if (call->route != NULL) return true;
    if (call->allow != NULL)
        serve_call_refuse(call, 405, NULL, "method_not_allowed", "%s is asked for with %s, not with %s",
                          call->path, call->allow, call->method);
    else
        serve_call_refuse(call, 404, NULL, "not_found", "there is nothing at %.200s", call->path);
    return false;
}

static bool check_state(serve_call *call)
{
    serve_server *server = call->server;
    const char *why = NULL;
    if (!call->route->engine) return true;
    bool stopping = server->draining && !call->route->drain;
    if (stopping || !serve_server_loaded(server)) {
        call->retry_s = stopping ? 5 : 1;
        serve_call_refuse(call, 503, NULL, stopping ? "stopping" : "loading",
                          stopping ? "the server is going down" : "the model is being loaded");
        return false;
    }
    if (!call->route->work) return true;
    call->counted = serve_keys_enter(server->keys, call->key, call->began_ns, &call->retry_s, &why);
    if (!call->counted) serve_call_refuse(call, 429, NULL, "rate_limit_exceeded", "%s", why);
    return call->counted;
}

/* Such a POST has no body, as curl -X POST sends it; libwebsockets takes what follows for one, though. */
static bool is_unsized(const serve_call *call)
{
    return strcmp(call->method, "POST") == 0 &&
           lws_hdr_total_length(call->wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) == 0;
}

/* Content-Length as one plain number, or none where no body is read; anything else is refused, before a byte
 * of the body is read. */
static bool check_length(serve_call *call)
{
    serve_server *server = call->server;
    char value[24], coding[64];
    const char *length = header(call->wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, value, sizeof value);
    const char *transfer = header(call->wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING, coding, sizeof coding);
    int64_t most = server->params.body_bytes;
    bool post = strcmp(call->method, "POST") == 0;
    bool none = length != NULL && length[0] == '\0';
    bool close = call->close;
    call->close = true; /* what is refused here may be followed by bytes that are no request */
    if (transfer == NULL || transfer[0] != '\0' || (is_unsized(call) && call->route->work)) {
        serve_call_refuse(call, 411, NULL, "length_required",
                          "send the body with a Content-Length, not in chunks of unknown number");
        return false;
    }
    if (length == NULL || strspn(length, "0123456789") != strlen(length) || strlen(length) > 18) {
        serve_call_refuse(call, length != NULL && strlen(length) > 18 ? 413 : 400, NULL, "bad_content_length",
                          "Content-Length is not one plain number");
        return false;
    }
    int64_t n = strtoll(none ? "0" : length, NULL, 10);
    if (n > most) {
        serve_call_refuse(call, 413, NULL, "body_too_large", "the body has %lld bytes; allowed: up to %lld",
                          (long long)n, (long long)most);
        return false;
    }
    if (!post && n > 0) {
        serve_call_refuse(call, 400, NULL, "unexpected_body", "a %s has no body here", call->method);
        return false;
    }
    if (server->n_bodies + (uint64_t)n > (uint64_t)most * BODIES_MAX) {
        call->retry_s = 1;
        serve_call_refuse(call, 429, NULL, "too_many_bodies", "too many large requests are being read");
        return false;
    }
    call->body_length = (size_t)n;
    server->n_bodies += (uint64_t)n;
    call->close = close;
    return true;
}

static bool expects_continue(struct lws *wsi)
{
    char value[32];
    const char *expect = header(wsi, WSI_TOKEN_HTTP_EXPECT, value, sizeof value);
    return expect != NULL && strcasecmp(expect, "100-continue") == 0;
}

/* ---- Calls ---- */

static void handle(serve_call *call)
{
    call->n_received = call->body.n;
    if (call->route->work) {
        serve_workers_give(call->server->workers, call, call->route->handle);
        return;
    }
    call->state = SERVE_ANSWERING;
    call->route->handle(call);
    serve_call_send(call);
}

static void answer_options(serve_call *call)
{
    call->close = false;
    call->allow = "GET, HEAD, POST, OPTIONS";
    serve_call_answer_more(call, 204, NULL, "", "", 0);
}

static int begin(struct lws *wsi, const char *uri, uintptr_t frame)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    serve_server *server = server_of(wsi);
    char version[16];
    serve_call *call = lws_get_opaque_user_data(wsi);
    if (call != NULL) return -1; /* a request before the last one's answer: not with HTTP/1.1 as it is here */
    if ((call = serve_call_create(server, wsi)) == NULL) return -1;
    call->turn = server->n_turns;
    call->head_frame = frame;
    lws_set_opaque_user_data(wsi, call);
    lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
    snprintf(call->method, sizeof call->method, "%s", read_method(wsi));
    snprintf(call->path, sizeof call->path, "%s", uri != NULL ? uri : "");
    const char *protocol = header(wsi, WSI_TOKEN_HTTP, version, sizeof version);
    call->http_1_0 = protocol == NULL || strcmp(protocol, "HTTP/1.1") != 0;
    call->head_only = strcmp(call->method, "HEAD") == 0;
    call->state = SERVE_ANSWERING;
    call->deadline_ns = call->began_ns + (int64_t)server->params.body_s * WEIR__NS_PER_S;
    call->route = serve_route_find(call->method, call->path, &call->allow);
    read_position(call);
    /* Whatever is refused here may have a body that nobody reads. */
    call->close = strcmp(call->method, "GET") != 0 && strcmp(call->method, "HEAD") != 0;
    if (check_origin(call)) {
        if (strcmp(call->method, "OPTIONS") == 0)
            answer_options(call);
        else if (check_key(call) && check_route(call) && check_length(call) && check_state(call))
            call->close = is_unsized(call);
    }
    if (server->draining) call->close = true;
    if (call->begun) {
        serve_call_send(call);
    } else if (call->body_length > 0 || strcmp(call->method, "POST") == 0) {
        call->state = SERVE_READING;
        if (expects_continue(wsi)) {
            memcpy(server->scratch + LWS_PRE, go_on, sizeof go_on - 1);
            if (lws_write(wsi, server->scratch + LWS_PRE, sizeof go_on - 1, LWS_WRITE_HTTP) < 0) return -1;
        }
        if (call->body_length == 0) handle(call);
    } else {
        handle(call);
    }
    return 0;
}

/* A head that came before the last answer waits in libwebsockets' own memory. It takes that from its
 * beginning for the body, frees it while the head is being read, and goes on reading there. Whatever of a
 * body comes from within the reading of its head, deeper in the stack than the head did, is that. */
static bool is_misread(const serve_call *call, uintptr_t frame)
{
    return call->turn == call->server->n_turns && frame < call->head_frame;
}

static int read_body(serve_call *call, const char *bytes, size_t n)
{
    if (call->state != SERVE_READING) return 0; /* refused already; the connection ends with the answer */
    if (call->body.n + n > call->body_length) return -1;
    if (call->body.n == 0 &&
        !serve_text_reserve(&call->body, call->body_length < 65536 ? call->body_length : 65536))
        return -1;
    serve_text_add(&call->body, bytes, n);
    return call->body.failed ? -1 : 0;
}

/* Comes again when the client sends more before it has its answer. Nobody takes that: libwebsockets would
 * offer it for ever, at the cost of a core, and not see the client leave behind it. */
static int end_body(serve_call *call)
{
    if (call->body_ended) return -1;
    call->body_ended = true;
    lws_http_headers_detach(call->wsi); /* 17 KiB, which nobody reads again */
    if (call->state == SERVE_READING) handle(call);
    return 0;
}

/* ---- Writes ---- */

/* All of the answer is written: the connection's next request, or its end. At once: what the client sends
 * now belongs to its next request, which libwebsockets would take for more of this one's body. What it could
 * not write yet it keeps, and writes before it goes on. */
static int complete(struct lws *wsi, serve_call *call)
{
    bool close = call->close || call->server->draining;
    bool more = lws_partial_buffered(wsi);
    int32_t stall_s = call->server->params.stall_s;
    if (close && more) {
        lws_callback_on_writable(wsi);
        lws_set_timeout(wsi, PENDING_TIMEOUT_HTTP_CONTENT, stall_s);
        return 0;
    }
    lws_set_opaque_user_data(wsi, NULL);
    serve_call_destroy(call);
    if (close || lws_http_transaction_completed(wsi) != 0) return -1;
    /* It sets none while it holds a rest that the client does not take. */
    if (more) lws_set_timeout(wsi, PENDING_TIMEOUT_HTTP_CONTENT, stall_s);
    return 0;
}

static int write_some(struct lws *wsi, serve_call *call)
{
    serve_server *server = call->server;
    if (call->state != SERVE_ANSWERING) return 0;
    if (call->out.failed) return -1;
    size_t n = call->out.n - call->out_at;
    if (n == 0) return call->ended ? complete(wsi, call) : 0;
    if (n > SERVE_WRITE_MAX) n = SERVE_WRITE_MAX;
    memcpy(server->scratch + LWS_PRE, call->out.bytes + call->out_at, n);
    if (lws_write(wsi, server->scratch + LWS_PRE, n, LWS_WRITE_HTTP) < 0) return -1;
    call->out_at += n;
    call->n_sent += n;
    call->moved_ns = weir__clock_now_ns();
    if (call->out_at == call->out.n) {
        call->out.n = call->out_at = 0;
    } else if (call->out_at > SERVE_BUFFER_MAX / 2) {
        memmove(call->out.bytes, call->out.bytes + call->out_at, call->out.n - call->out_at);
        call->out.n -= call->out_at;
        call->out_at = 0;
    }
    if (call->answer != NULL && call->answer->starved) serve_answer_pump(call->answer);
    if (call->tape != NULL) serve_tape_feed(call);
    if (call->out.n == 0 && call->ended) return complete(wsi, call);
    if (call->out.n > 0) lws_callback_on_writable(wsi);
    return 0;
}

static void leave(struct lws *wsi)
{
    serve_call *call = lws_get_opaque_user_data(wsi);
    lws_set_opaque_user_data(wsi, NULL);
    if (call != NULL) serve_call_leave(call);
}

int serve_http_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t n)
{
    const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    (void)user;
    server_of(wsi)->n_callbacks += reason != LWS_CALLBACK_GET_THREAD_ID;
    switch (reason) {
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED: serve_server_wake(server_of(wsi)); return 0;
    case LWS_CALLBACK_HTTP: return begin(wsi, in, frame);
    case LWS_CALLBACK_HTTP_BODY:
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
    case LWS_CALLBACK_HTTP_WRITEABLE: {
        serve_call *call = lws_get_opaque_user_data(wsi);
        if (call == NULL) return 0;
        if (reason == LWS_CALLBACK_HTTP_WRITEABLE) return write_some(wsi, call);
        if (is_misread(call, frame)) return -1;
        if (reason == LWS_CALLBACK_HTTP_BODY) return read_body(call, in, n);
        return end_body(call);
    }
    case LWS_CALLBACK_CLOSED_HTTP:
    case LWS_CALLBACK_WSI_DESTROY: leave(wsi); return 0;
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
        /* What is offered is ignored, as HTTP allows: clients send h2c along with plain requests. */
        if (in != NULL && ((char *)in)[0] != '\0') ((char *)in)[0] = '-';
        return 0;
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION: return -1; /* no WebSockets */
    default: return 0;
    }
}

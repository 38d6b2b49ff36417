/* gate.c: checks a request's head: who may send which requests. The checks have an order, and the first one
 * that refuses answers the call: framing, host and path; the page's origin; what the headers ask for; the
 * key; then the route, the room for connections, and the server's state with the key's limits. So the key
 * comes before refusals that tell of routes and models. The model of the call is set here where there is but
 * one.
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/utf8.h"
#include "connection.h"
#include "paths.h"
#include "server/access/keys.h"
#include "server/api/anthropic/anthropic.h"
#include "server/api/common/lease.h"
#include "server/models/loaded.h"
#include "server/page/page.h"
#include "server/request/body.h"
#include "server/request/call.h"
#include "server/request/mask.h"
#include "server/routers/router.h"
#include "server/settings/origin.h"
#include "server/settings/sources.h"

/* ---- Hosts: by which names the server may be asked ---- */

/* A page of another site can give its own name this server's address (DNS rebinding), and its requests then
 * look like those of one origin; but they carry that name. */
typedef enum host_kind {
    HOST_NONE,  /* it is no host with or without a port */
    HOST_OTHER, /* not one of this server's */
    HOST_OWN,   /* an address, localhost, the machine's name, where it listens, or params->hosts */
} host_kind;

/* The name in "name", "name:port", "[address]:port". False: it is none of these. */
static bool read_name(const char *authority, char *name, size_t capacity)
{
    const char *rest = serve_sources_split(authority, name, capacity);
    if (rest == NULL) return false;
    if (*rest == ':' && (rest[1 + strspn(rest + 1, "0123456789")] != '\0' || strlen(rest) > 6)) return false;
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && strchr(authority[0] == '[' ? ":.%" : "-._", name[i]) == NULL)
            return false;
    if (name[n - 1] == '.') name[n - 1] = '\0'; /* the root's */
    return name[0] != '\0';
}

/* True if a name is this server's own. local: over a Unix socket, where a proxy asks. Without other settings
 * it gives its own name of this server, such as that of nginx's `upstream`, which has no dot. No page of
 * another site has such a name: those of the public DNS have dots. */
static bool is_own(const serve_params *params, const char *name, bool local)
{
    char host[256];
    size_t n = strlen(name);
    if (local && strchr(name, '.') == NULL) return true;
    if (serve_sources_is_address(name) || strcasecmp(name, "localhost") == 0) return true;
    if (n > 10 && strcasecmp(name + n - 10, ".localhost") == 0) return true;
    if (params->host != NULL && strcasecmp(params->host, name) == 0) return true;
    host[sizeof host - 1] = '\0';
    return gethostname(host, sizeof host - 1) == 0 && strcasecmp(host, name) == 0;
}

static host_kind find_host(const serve_params *params, const char *authority, bool local)
{
    char name[256];
    if (!read_name(authority, name, sizeof name)) return HOST_NONE;
    if (is_own(params, name, local)) return HOST_OWN;
    for (size_t i = 0; i < params->live.n_hosts; i++)
        if (strcmp(params->live.hosts[i], "*") == 0 || strcasecmp(params->live.hosts[i], name) == 0)
            return HOST_OWN;
    return HOST_OTHER;
}

/* ---- Checks ---- */

/* Parts of a head that are kept until the gate is passed. */
typedef struct visit {
    serve_call *call;
    serve_connection *connection;
    const char *target, *query; /* query: behind its "?"; "" = none */
    const char *authority;      /* [n_authority]: of a target "http://host/path"; NULL: it has none */
    size_t n_authority;
    const char *host;         /* "": HTTP/1.0 without one */
    bool encoded;             /* the path, as it should be */
    const serve_route *route; /* NULL: none; allow: the methods of others, or NULL */
    const char *allow;
} visit;

const char *serve_gate_field(const serve_connection *connection, const char *name, int *n)
{
    const weir__text *bytes = &connection->head.bytes;
    const char *at = bytes->bytes, *end = at + bytes->n, *found = NULL;
    *n = 0;
    if (at == NULL) return NULL;
    for (at += strlen(at) + 1; at < end;) {
        const char *value = at + strlen(at) + 1;
        if (strcasecmp(at, name) == 0 && (*n)++ == 0) found = value;
        at = value + strlen(value) + 1;
    }
    return found;
}

static bool refuse_call(serve_call *call, int status, const char *code, const char *message)
{
    return serve_call_refuse(call, status, NULL, code, "%s", message);
}

/* Reads a field that is given once at most; *value NULL: not at all. */
static bool read_field(visit *v, const char *name, const char **value)
{
    int n;
    *value = serve_gate_field(v->connection, name, &n);
    if (n <= 1) return true;
    return serve_call_refuse(v->call, 400, NULL, "bad_request", "%s is given %d times; allowed: once", name,
                             n);
}

/* ---- Framing ---- */

static bool check_framing(visit *v)
{
    const llhttp_t *parser = &v->connection->head.parser;
    const char *coding;
    if (parser->http_major != 1 || parser->http_minor > 1)
        return refuse_call(v->call, 505, "http_version", "this server speaks HTTP/1.1 and HTTP/1.0");
    if (!read_field(v, "Transfer-Encoding", &coding)) return false;
    if (coding == NULL) return true;
    if (v->call->http_1_0)
        return refuse_call(v->call, 400, "bad_request", "HTTP/1.0 has no Transfer-Encoding");
    if (strcasecmp(coding, "chunked") == 0) return true;
    size_t n = strlen(coding);
    if (n < 8 || strcasecmp(coding + n - 7, "chunked") != 0 || strchr(", \t", coding[n - 8]) == NULL)
        return refuse_call(v->call, 400, "bad_request", "Transfer-Encoding must end with chunked");
    return refuse_call(v->call, 501, "not_implemented", "the only supported Transfer-Encoding is chunked");
}

/* ---- Where to ---- */

/* A target "http://host/path" then begins at its path. */
static void split_target(visit *v)
{
    size_t scheme = strncasecmp(v->target, "http://", 7) == 0    ? 7
                    : strncasecmp(v->target, "https://", 8) == 0 ? 8
                                                                 : 0;
    if (scheme == 0) return;
    v->authority = v->target + scheme;
    v->n_authority = strcspn(v->authority, "/?");
    v->target = v->authority[v->n_authority] == '/' ? v->authority + v->n_authority : "/";
}

static bool check_authority(visit *v)
{
    if (v->authority == NULL) return true;
    if (v->n_authority == 0)
        return refuse_call(v->call, 400, "bad_request", "the request's target has no host");
    return (strlen(v->host) == v->n_authority && strncasecmp(v->authority, v->host, v->n_authority) == 0) ||
           refuse_call(v->call, 400, "bad_request", "the request's target and its Host name different hosts");
}

/* Finds the path's row. What the log has is written first, because any check may end the call. */
static void read_path(visit *v)
{
    serve_call *call = v->call;
    serve_path_name name;
    size_t n = strcspn(v->target, "?");
    const char *end = v->target + n;
    if (v->target[0] != '/') return;
    if (*end == '?') v->query = end + 1;
    snprintf(call->query, sizeof call->query, "%s", v->query);
    v->route = serve_route_find(call->method, v->target, n, &name, &v->allow);
    v->encoded = serve_argument_decode(v->target, n, call->path, sizeof call->path) &&
                 serve_argument_decode(name.at, name.n, call->name, sizeof call->name);
    if (name.is_id) {
        const char *rest = name.at + name.n;
        snprintf(call->path, sizeof call->path, "%.*s*%.*s", (int)(name.at - v->target), v->target,
                 (int)(end - rest), rest);
    }
    serve_mask_ids(call->path, sizeof call->path);
}

static bool check_path(visit *v)
{
    if (v->target[0] != '/' || strchr(v->target, '#') != NULL)
        return refuse_call(v->call, 400, "bad_request", "the request's target is not a path");
    return v->encoded ||
           refuse_call(v->call, 400, "bad_request", "the request's path has an invalid percent-encoding");
}

static bool read_model(visit *v)
{
    size_t n;
    const char *name = serve_argument_find(v->query, "model", &n);
    char *asked = v->call->asked;
    if (name == NULL) return true;
    return (serve_argument_decode(name, n, asked, sizeof v->call->asked) &&
            weir__utf8_valid(asked, strlen(asked))) ||
           serve_call_refuse(v->call, 400, "model", "invalid_value",
                             "model in the address has an invalid percent-encoding, or is not UTF-8");
}

static bool check_host(visit *v)
{
    const char *given;
    if (!read_field(v, "Host", &given)) return false;
    if (given == NULL && !v->call->http_1_0)
        return refuse_call(v->call, 400, "bad_request", "an HTTP/1.1 request must have a Host header");
    v->host = given != NULL ? given : "";
    if (!check_authority(v)) return false;
    if (given == NULL) return true;
    switch (find_host(&v->call->server->params, given, v->connection->local)) {
    case HOST_OWN: return true;
    case HOST_NONE:
        return refuse_call(v->call, 400, "bad_request",
                           "Host must be a host name or an address, with or without a port");
    default: break;
    }
    return serve_call_refuse(
        v->call, 403, NULL, "host_not_allowed",
        "the host name \"%.100s\" is not allowed; allowed: IP addresses, localhost, this machine's name, "
        "and the names in --allowed-hosts",
        given);
}

/* ---- Who ---- */

/* True if the page came from where its request goes: from the host and port of its Host, which are this
 * server's, by the same scheme. The browser says itself, where it can, whether the scheme is the same; else
 * the page's is https over TLS, or where one proxy ended TLS. A page of another origin cannot set the first
 * of these headers; the second one counts only if it is there once. */
static bool is_own_page(const visit *v, const char *origin)
{
    int n_site, n_scheme;
    const char *site = serve_gate_field(v->connection, "Sec-Fetch-Site", &n_site);
    const char *scheme = serve_gate_field(v->connection, "X-Forwarded-Proto", &n_scheme);
    bool secure,
        asked_by_tls = v->connection->tls != NULL || (n_scheme == 1 && strcasecmp(scheme, "https") == 0);
    if (!serve_origin_is_at(origin, v->host, &secure)) return false;
    if (site != NULL) return n_site == 1 && strcmp(site, "same-origin") == 0;
    if (n_scheme > 1) return false;
    return secure == asked_by_tls;
}

static bool check_origin(visit *v)
{
    serve_call *call = v->call;
    const serve_params *params = &call->server->params;
    const char *origin;
    if (!read_field(v, "Origin", &origin)) return false;
    if (origin == NULL || origin[0] == '\0') return true;
    if (is_own_page(v, origin)) return true;
    for (size_t i = 0; i < params->live.n_origins && strlen(origin) < sizeof call->origin; i++) {
        if (strcmp(params->live.origins[i], "*") != 0 && strcasecmp(params->live.origins[i], origin) != 0)
            continue;
        memcpy(call->origin, origin, strlen(origin) + 1);
        return true;
    }
    /* Browsers send a preflight request before most cross-origin requests, but not before plain forms. */
    return refuse_call(call, 403, "origin_not_allowed",
                       "requests from pages of another origin are not allowed (--cors)");
}

/* Reads the key that was given; NULL: none, or in a form that is not known. */
static bool read_key(visit *v, const char **key, bool *any)
{
    const char *bearer, *other;
    if (!read_field(v, "Authorization", &bearer) || !read_field(v, "X-Api-Key", &other)) return false;
    bool none = bearer == NULL || bearer[0] == '\0'; /* then as Anthropic's and Azure's clients have it */
    *any = !none || (other != NULL && other[0] != '\0');
    *key = none ? other : NULL;
    if (!none && strncasecmp(bearer, "Bearer ", 7) == 0) *key = bearer + 7 + strspn(bearer + 7, " ");
    return true;
}

/* Checks that the call is an operator's, where the route is for operators only. */
static bool check_operator(serve_call *call)
{
    const serve_server *server = call->server;
    const serve_route *route = call->route;
    call->operates = serve_call_operates(call);
    if (route == NULL || !route->operators || call->operates ||
        (route->metrics && server->params.live.metrics_need_no_key))
        return true;
    const char *metrics = route->metrics ? ", or starts it with --metrics-need-no-key" : "";
    if (serve_keys_are_wanted(server->keys))
        return serve_call_refuse(
            call, 403, NULL, "operator_only",
            "%s is for operators of this server: the operator makes a key one by the word "
            "operator behind it in the key file%s",
            call->path, metrics);
    const char *who = server->reachable ? "a server without keys that strangers can reach has none"
                                        : "a page of another origin needs an operator's key";
    return serve_call_refuse(call, 403, NULL, "operator_only",
                             "%s is for operators of this server, and %s: start the server with "
                             "--operator-key%s",
                             call->path, who, metrics);
}

static bool check_key(visit *v)
{
    serve_call *call = v->call;
    const serve_server *server = call->server;
    const serve_route *route = call->route;
    const char *key;
    bool any;
    if (route != NULL && route->peer) /* the keys of clients are not another server's */
        return read_key(v, &key, &any) && serve_prefix_admits(call, key);
    if (!serve_keys_are_wanted(server->keys)) return check_operator(call);
    if (!read_key(v, &key, &any)) return false;
    if (key != NULL) call->key = serve_keys_find(server->keys, key, strlen(key));
    if (call->key >= 0 || (route != NULL && route->open) ||
        (route != NULL && route->health && !server->params.live.health_needs_key) ||
        (route != NULL && route->metrics && server->params.live.metrics_need_no_key))
        return check_operator(call);
    return refuse_call(
        call, 401, "invalid_api_key",
        any ? "the API key is not one of this server's"
            : "no API key was given: send it as Authorization: Bearer KEY, or as X-Api-Key: KEY");
}

/* ---- Which request ---- */

/* Reads the seed of an answer that is computed again: a server that gives its records to its own process. */
static bool read_seed(visit *v)
{
    const char *given;
    unsigned seed;
    v->call->seed = -1;
    if (v->call->server->params.recorded == NULL) return true;
    if (!read_field(v, "X-Weir-Seed", &given)) return false;
    if (given != NULL && sscanf(given, "%10u", &seed) == 1) v->call->seed = seed;
    return true;
}

/* Reads whether what has no effect is refused; the request's word counts, else the server's. */
static bool read_strict(visit *v)
{
    const char *given;
    if (!read_field(v, "X-Weir-Strict", &given)) return false;
    if (given == NULL) return true;
    v->call->strict = strcmp(given, "1") == 0;
    return v->call->strict || strcmp(given, "0") == 0 ||
           refuse_call(v->call, 400, "bad_request", "X-Weir-Strict must be 0 or 1");
}

/* Reads where in a stream the client wants to go on. The header of an EventSource that reconnects wins over
 * the address. */
static bool read_position(visit *v)
{
    serve_call *call = v->call;
    const char *given;
    size_t n;
    if (!read_field(v, "Last-Event-ID", &given)) return false;
    if (given != NULL) {
        call->position_from = "Last-Event-ID";
        n = strlen(given);
    } else {
        if ((given = serve_argument_find(v->query, "starting_after", &n)) == NULL) return true;
        call->position_from = "starting_after";
    }
    if (n >= sizeof call->position) n = sizeof call->position - 1;
    memcpy(call->position, given, n);
    call->position[n] = '\0';
    return true;
}

static bool check_route(const visit *v)
{
    serve_call *call = v->call;
    bool encoded = v->target[strcspn(v->target, "%?")] == '%';
    if (call->route == NULL && call->allow != NULL)
        serve_call_refuse(call, 405, NULL, "method_not_allowed", "%s does not support %s; use %s", call->path,
                          call->method, call->allow);
    else if (call->route == NULL)
        serve_call_refuse(call, 404, NULL, "not_found", "there is nothing at %.200s%s", call->path,
                          encoded ? " (only a name in it may be percent-encoded)" : "");
    else if (call->has_body && strcmp(call->method, "POST") != 0 && !call->route->bodied)
        serve_call_refuse(call, 400, NULL, "unexpected_body", "a %s request must not have a body",
                          call->method);
    return !call->begun;
}

/* Checks that there is room: when connections are scarce, the last ones are reserved for /health and
 * /metrics. */
static bool check_room(visit *v)
{
    const serve_route *route = v->call->route;
    if (!v->connection->crowded || route->health || route->metrics) return true;
    v->call->close = true;
    return refuse_call(v->call, 503, "too_many_connections", "there are too many connections");
}

/* Requests that a model may work for have a trace; probes and the page's files have none. Several lines of a
 * tracestate are one list, of which a part is of no use. */
static void begin_trace(const visit *v)
{
    serve_call *call = v->call;
    const serve_route *route = v->route;
    int n_parents, n_states;
    if (call->server->tracer == NULL || route == NULL || !(route->model || route->engine)) return;
    const char *parent = serve_gate_field(v->connection, "traceparent", &n_parents);
    const char *state = serve_gate_field(v->connection, "tracestate", &n_states);
    call->trace =
        serve_trace_begin(call->server->tracer, n_parents == 1 ? parent : NULL, n_states == 1 ? state : NULL);
}

static bool check_state(serve_call *call, const char *hint)
{
    serve_server *server = call->server;
    const char *why = NULL;
    if (call->route == NULL || (!call->route->engine && !call->route->model)) return true;
    if (server->draining && !call->route->drain) return serve_call_stopping(call);
    if (!serve_server_loaded(server)) return refuse_call(call, 503, "loading", "the model is being loaded");
    serve_lease_begin(call);
    if (call->route->engine && call->route->work && !call->route->peer && hint != NULL)
        serve_prefix_hint(call, hint);
    if (call->route->engine && call->loaded != NULL && call->loaded->engine == NULL)
        return serve_call_refuse(call, 400, "model", "unsupported_value",
                                 "this model generates no text: use /v1/embeddings or /v1/rerank");
    if (!call->route->work) return true;
    call->counted = serve_keys_enter(server->keys, call->key, call->began_ns, &call->retry_s, &why);
    if (call->counted == 0) serve_call_refuse(call, 429, NULL, "rate_limit_exceeded", "%s", why);
    return call->counted > 0;
}

/* "OPTIONS *" asks about the server, as does one about nothing; others ask about a path. */
static bool answer_options(const visit *v)
{
    serve_call *call = v->call;
    if (strcmp(call->method, "OPTIONS") != 0) return false;
    call->allow = v->allow != NULL ? v->allow : "GET, HEAD, POST, DELETE";
    serve_call_answer_more(call, 204, NULL, "", "", 0);
    return true;
}

/* Describes the visit for the log; a session's prompts also stay cached for longer. */
static void describe_visit(visit *v)
{
    /* Routers', Claude Code's, Codex's and OpenCode's. */
    static const char *const sessions[] = {"X-Session-Id", "X-Claude-Code-Session-Id", "Session-Id",
                                           "X-Session-Affinity"};
    serve_call *call = v->call;
    int n;
    const char *agent = serve_gate_field(v->connection, "User-Agent", &n);
    const char *id = serve_gate_field(v->connection, "X-Request-Id", &n);
    snprintf(call->client, sizeof call->client, "%s", v->connection->address);
    weir__utf8_copy(call->agent, sizeof call->agent, agent != NULL ? agent : "",
                    agent != NULL ? strlen(agent) : 0);
    weir__utf8_copy(call->request_id, sizeof call->request_id, id != NULL ? id : "",
                    id != NULL ? strlen(id) : 0);
    for (size_t i = 0; i < sizeof sessions / sizeof *sessions && call->session[0] == '\0'; i++) {
        const char *session = serve_gate_field(v->connection, sessions[i], &n);
        if (session != NULL) weir__utf8_copy(call->session, sizeof call->session, session, strlen(session));
    }
    if (call->server->params.router_headers) serve_router_read(call, serve_gate_field);
}

/* Reads which form of the page's files the client wants, and which it has. A list in several fields counts as
 * none. */
static void read_forms(visit *v)
{
    int n;
    const char *codings = serve_gate_field(v->connection, "Accept-Encoding", &n);
    v->call->gzip = n == 1 && serve_page_takes_gzip(codings);
    const char *known = serve_gate_field(v->connection, "If-None-Match", &n);
    snprintf(v->call->known, sizeof v->call->known, "%s", n == 1 ? known : "");
}

bool serve_gate_pass(serve_call *call, bool close)
{
    visit v = {.call = call, .connection = call->connection, .host = "", .query = ""};
    const char *hint;
    int n;
    v.target = v.connection->head.bytes.bytes;
    bool whole = strcmp(v.target, "*") == 0 && strcmp(call->method, "OPTIONS") == 0;
    snprintf(call->path, sizeof call->path, "%s", whole ? "*" : "");
    split_target(&v);
    read_path(&v);
    describe_visit(&v);
    read_forms(&v);
    call->close = true; /* no other request follows an ambiguous one */
    if (!check_framing(&v) || !check_host(&v) || (!whole && !check_path(&v))) return false;
    call->close = close || call->has_body; /* which nobody reads, if it is refused now */
    if (!check_origin(&v) || answer_options(&v)) return false;
    call->route = v.route;
    call->allow = v.allow;
    begin_trace(&v);
    call->error = serve_route_error(call->path);
    if (v.route != NULL && v.route->versioned &&
        serve_gate_field(v.connection, "Anthropic-Version", &n) != NULL)
        call->error = serve_messages_error;
    return read_strict(&v) && read_seed(&v) && read_position(&v) && read_model(&v) && check_key(&v) &&
           check_route(&v) && check_room(&v) && read_field(&v, "X-Weir-Prefix-From", &hint) &&
           check_state(call, hint);
}

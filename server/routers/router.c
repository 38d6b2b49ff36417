/* router.c: parameters of the parts for routers, the begin and end of the events, and headers of llm-d's
 * router that say how to treat a request.
 * SPDX-License-Identifier: Apache-2.0 */
#include "router.h"

#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/error.h"
#include "hub/transfer/transfer.h"
#include "server/access/keys.h"
#include "server/models/catalog.h"
#include "server/settings/origin.h"
#include "server/system/log.h"

/* ---- Parameters ---- */

/* "NAME=PRIORITY". False: it is not. */
static bool read_objective(const char *text, size_t *n_name, int32_t *priority)
{
    const weir_member *member = weir_member_find("request", "priority");
    const char *equals = strrchr(text, '=');
    char *end = NULL;
    if (equals == NULL || equals == text) return false;
    long n = strtol(equals + 1, &end, 10);
    *n_name = (size_t)(equals - text);
    *priority = (int32_t)n;
    return end != equals + 1 && *end == '\0' && n >= (long)member->min && n <= (long)member->max;
}

static weir_status check_objectives(const char *const *list, size_t n, weir_error *error)
{
    size_t n_name;
    int32_t priority;
    for (size_t i = 0; i < n; i++)
        if (!read_objective(list[i], &n_name, &priority))
            return weir__invalid(error, WEIR_ERROR_FORM, "objectives",
                                 "\"%.100s\" is not NAME=PRIORITY with a priority from -100 to 100", list[i]);
    return WEIR_OK;
}

static weir_status check_peers(const serve_params *params, weir_error *error)
{
    if (params->n_prefix_peers > 0 && params->prefix_key == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, "prefix_key",
                             "the servers of `prefix_peers` are asked with this key; set it, too");
    if (params->n_prefix_peers > 0 && !weir__transfer_exists)
        return weir__error_set(error, WEIR_UNSUPPORTED, "prefix_peers",
                               "this weir was built without libcurl and fetches no prefixes");
    for (size_t i = 0; i < params->n_prefix_peers; i++)
        if (!serve_origin_check(params->prefix_peers[i]))
            return weir__invalid(error, WEIR_ERROR_FORM, "prefix_peers",
                                 "\"%.100s\" must be HOST:PORT, http://HOST:PORT or https://HOST:PORT",
                                 params->prefix_peers[i]);
    return WEIR_OK;
}

/* True if a text is HOST:PORT, where "@" would end a topic's part. */
static bool is_endpoint(const char *text)
{
    const char *colon = strrchr(text, ':');
    return colon != NULL && colon != text && strpbrk(text, "/@ ") == NULL &&
           weir__ascii_port(colon + 1, strlen(colon + 1)) != 0;
}

weir_status serve_router_check(const serve_params *params, weir_error *error)
{
    if (params->kv_events == NULL && params->kv_events_replay != NULL)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "kv_events_replay",
                             "there are no events to repeat; give --kv-events as well");
    if (params->kv_events == NULL && params->kv_events_endpoint != NULL)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "kv_events_endpoint",
                             "there are no events that name it; give --kv-events as well");
    if (params->kv_events_endpoint != NULL && !is_endpoint(params->kv_events_endpoint))
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "kv_events_endpoint",
                             "\"%.100s\" is not HOST:PORT, with a port from 1 to 65535",
                             params->kv_events_endpoint);
    weir_status status = check_objectives(params->objectives, params->n_objectives, error);
    if (status == WEIR_OK && params->n_objectives > 0 && !params->router_headers)
        return weir__invalid(error, WEIR_ERROR_FORM, "objectives",
                             "objectives come in a header of the router; give --router-headers as well");
    return status == WEIR_OK ? check_peers(params, error) : status;
}

/* ---- Events ---- */

weir_status serve_router_open(serve_server *server, weir_error *error)
{
    const serve_params *params = &server->params;
    const char *endpoint = params->kv_events_endpoint, *scheme = strstr(server->address, "://");
    if (endpoint == NULL) endpoint = scheme != NULL ? scheme + 3 : server->address;
    weir_status status = serve_kv_events_create(params->kv_events, params->kv_events_replay, endpoint,
                                                &server->kv_events, error);
    if (status != WEIR_OK) return status;
    serve_catalog_publish(server->catalog, server->kv_events, serve_kv_events_join, serve_kv_events_leave);
    if (serve_keys_are_wanted(server->keys))
        serve_log("warning", "kv_events",
                  "no prompts are published at %s: each API key has prefixes of its own, with a salt",
                  params->kv_events);
    else
        serve_log("warning", "kv_events", "prompts without cache_salt are published at %s",
                  params->kv_events);
    return WEIR_OK;
}

void serve_router_close(serve_server *server)
{
    serve_kv_events_destroy(server->kv_events);
}

/* ---- Headers ---- */

static int32_t objective_priority(const char *const *list, size_t n, const char *name)
{
    size_t n_name;
    int32_t priority;
    for (size_t i = 0; i < n; i++)
        if (read_objective(list[i], &n_name, &priority) && strlen(name) == n_name &&
            memcmp(name, list[i], n_name) == 0)
            return priority;
    return 0;
}

/* The router gives milliseconds as a decimal number. 0: none. */
static int32_t read_ms(const char *text)
{
    const weir_member *member = weir_member_find("request", "itl_target_ms");
    char *end;
    double ms = strtod(text, &end);
    if (end == text || *end != '\0' || !(ms >= 1) || ms > member->max) return 0;
    return (int32_t)ms;
}

void serve_router_read(serve_call *call, serve_header_fn *header)
{
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.:-[]";
    static const char *const names[] = {"X-Llm-D-Inference-Fairness-Id", "X-Llm-D-Inference-Objective",
                                        "X-Llm-D-Slo-Tpot-Ms", "X-Gateway-Destination-Endpoint"};
    const serve_params *params = &call->server->params;
    serve_router_hints *router = &call->router;
    const char *values[sizeof names / sizeof *names];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int n;
        const char *value = header(call->connection, names[i], &n);
        values[i] = value != NULL ? value : "";
    }
    const char *tenant = values[0], *endpoint = values[3];
    if (strlen(tenant) < sizeof router->tenant) memcpy(router->tenant, tenant, strlen(tenant) + 1);
    router->priority = objective_priority(params->objectives, params->n_objectives, values[1]);
    router->itl_target_ms = read_ms(values[2]);
    /* The endpoint is sent back, so it may only have characters of an address. */
    if (strlen(endpoint) < sizeof router->endpoint && strspn(endpoint, allowed) == strlen(endpoint))
        memcpy(router->endpoint, endpoint, strlen(endpoint) + 1);
}

/* router_headers.c: headers of llm-d's router that say how to treat a request.
 * SPDX-License-Identifier: Apache-2.0 */
#include "router_headers.h"

#include <stdlib.h>
#include <string.h>

#include "server/access/keys.h"
#include "server/settings/objective.h"

const char *const serve_router_header_names[SERVE_ROUTER_HEADERS] = {
    [SERVE_ROUTER_FAIRNESS] = "X-Llm-D-Inference-Fairness-Id",
    [SERVE_ROUTER_OBJECTIVE] = "X-Llm-D-Inference-Objective",
    [SERVE_ROUTER_TPOT] = "X-Llm-D-Slo-Tpot-Ms",
    [SERVE_ROUTER_ENDPOINT] = "X-Gateway-Destination-Endpoint",
};

/* The router gives milliseconds as a decimal number. 0: none. */
static int32_t read_ms(const char *text)
{
    const weir_member *member = weir_member_find("request", "itl_target_ms");
    char *end;
    double ms = strtod(text, &end);
    if (end == text || *end != '\0' || !(ms >= 1) || ms > member->max) return 0;
    return (int32_t)ms;
}

void serve_router_headers_read(serve_call *call, const char *const values[SERVE_ROUTER_HEADERS])
{
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.:-[]";
    const serve_params *params = &call->server->params;
    serve_router_hints *router = &call->router;
    const char *tenant = values[SERVE_ROUTER_FAIRNESS], *endpoint = values[SERVE_ROUTER_ENDPOINT];
    if (strlen(tenant) < sizeof router->tenant) memcpy(router->tenant, tenant, strlen(tenant) + 1);
    router->priority =
        serve_objective_priority(params->objectives, params->n_objectives, values[SERVE_ROUTER_OBJECTIVE]);
    router->itl_target_ms = read_ms(values[SERVE_ROUTER_TPOT]);
    /* The endpoint is sent back, so it may only have characters of an address. */
    if (strlen(endpoint) < sizeof router->endpoint && strspn(endpoint, allowed) == strlen(endpoint))
        memcpy(router->endpoint, endpoint, strlen(endpoint) + 1);
}

void serve_router_headers_apply(const serve_call *call, weir_request *request, char owner[SERVE_OWNER_NAME])
{
    const serve_router_hints *router = &call->router;
    int32_t most = serve_keys_priority(call->server->keys, call->key);
    const char *of_key = serve_keys_salt(call->server->keys, call->key);
    serve_owner_name(call->owner, owner);
    request->tenant = router->tenant[0] != '\0' ? router->tenant : of_key[0] != '\0' ? of_key : owner;
    if (request->priority == 0) request->priority = router->priority < most ? router->priority : most;
    if (router->itl_target_ms > 0) request->itl_target_ms = router->itl_target_ms;
}

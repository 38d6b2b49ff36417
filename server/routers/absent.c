/* absent.c: router.h in a build without its parts (ADR 0130). SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "router.h"
#include "server/api/common/ask.h"
#include "server/request/call.h"

#define ABSENT                                                                                               \
    "this weir was built without the parts for routers and other servers: WEIR_WITH_ROUTER=ON "              \
    "scripts/build.sh builds it with them"

weir_status serve_router_check(const serve_params *params, weir_error *error)
{
    const serve_params usual = serve_params_default();
    const char *field = params->kv_events != NULL                    ? "kv_events"
                        : params->kv_events_replay != NULL           ? "kv_events_replay"
                        : params->kv_events_endpoint != NULL         ? "kv_events_endpoint"
                        : params->router_headers                     ? "router_headers"
                        : params->n_objectives > 0                   ? "objectives"
                        : params->prefix_key != NULL                 ? "prefix_key"
                        : params->n_prefix_peers > 0                 ? "prefix_peers"
                        : params->prefix_s != usual.prefix_s         ? "prefix_s"
                        : params->prefix_bytes != usual.prefix_bytes ? "prefix_bytes"
                                                                     : NULL;
    return field != NULL ? weir__error_set(error, WEIR_UNSUPPORTED, field, ABSENT) : WEIR_OK;
}

bool serve_prefix_admits(serve_call *call, const char *key)
{
    (void)key;
    return serve_call_refuse(call, 501, NULL, "not_in_this_build", "%s: " ABSENT, call->path);
}

serve_workers *serve_prefix_workers(serve_call *call)
{
    return serve_ask_media_workers(call);
}

/* ---- Without the parameters there is nothing to do ---- */

weir_status serve_router_open(serve_server *server, weir_error *error)
{
    return serve_router_check(&server->params, error);
}

void serve_router_close(serve_server *server)
{
    (void)server;
}

void serve_router_read(serve_call *call, serve_header_fn *header)
{
    (void)call, (void)header;
}

void serve_prefix_hint(serve_call *call, const char *url)
{
    (void)call, (void)url;
}

void serve_prefix_give(serve_call *call)
{
    (void)serve_prefix_admits(call, NULL);
}

const char *serve_prefix_end_name(serve_prefix_end how)
{
    (void)how;
    return "";
}

serve_kv_events_stats serve_kv_events_get_stats(serve_kv_events *events)
{
    (void)events;
    return (serve_kv_events_stats){0};
}

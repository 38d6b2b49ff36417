/* health.c: GET /health. SPDX-License-Identifier: Apache-2.0 */
#include "operate.h"
#include "server/request/call.h"

void serve_health(serve_call *call)
{
    static const char good[] = "{\"status\":\"ok\"}\n";
    const serve_server *server = call->server;
    if (!serve_server_loaded(server)) {
        serve_call_refuse(call, 503, NULL, "loading", "the model is being loaded");
    } else if (server->draining) {
        serve_call_stopping(call);
    } else if (server->broken[0] != '\0') {
        serve_call_refuse(call, 503, NULL, "model_lost", "%s", server->broken);
    } else if (server->stuck) {
        serve_call_refuse(call, 503, NULL, "stuck", "the engine has work and has made no tick for %d s",
                          server->params.live.watchdog_s);
    } else if (server->n_stuck_workers > 0) {
        serve_call_refuse(call, 503, NULL, "stuck", "stuck workers: %d of %d", server->n_stuck_workers,
                          server->params.n_workers);
    } else {
        serve_call_answer(call, 200, "application/json", good, sizeof good - 1);
    }
}

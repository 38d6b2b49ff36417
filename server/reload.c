/* reload.c: replaces keys, limits, origins, timeouts, the certificate and the list of several models while
 * the server runs; and asks the service thread whether it is healthy. Sockets, threads and a single model
 * stay.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/error.h"
#include "server.h"
#include "server/access/keys.h"
#include "server/api/common/tape.h"
#include "server/models/catalog.h"
#include "server/operate/operate.h"
#include "server/routers/router.h"
#include "server/system/tls.h"
#include "service.h"

void serve_reload_take(serve_server *server)
{
    pthread_mutex_lock(&server->mutex);
    bool reloaded = server->reload != NULL;
    if (server->reload != NULL) server->params.live = server->reload->live;
    server->reload = NULL;
    if (server->pinged)
        server->healthy = server->broken[0] == '\0' && !server->stuck && server->n_stuck_workers == 0;
    server->pinged = false;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    if (!reloaded) return;
    serve_tapes_revoke(server->tapes);
    serve_events_revoke(server);
}

static weir_status check_reload(const serve_server *server, const serve_params *params, weir_error *error)
{
    weir_status status = serve_params_check(params, error);
    if (status == WEIR_OK) status = serve_router_check(params, error);
    if (status != WEIR_OK) return status;
    if (serve_keys_are_wanted(server->keys) && params->live.n_keys == 0)
        return weir__error_set(error, WEIR_INVALID, "keys",
                               "the new parameters have no keys; to serve without keys, restart the server");
    if ((serve_catalog_pool(server->catalog) != NULL) != (params->n_models > 0))
        return weir__error_set(error, WEIR_INVALID, "models",
                               "a change between one model and several needs a restart");
    return WEIR_OK;
}

/* The steps that can fail, in an order in which a failure leaves no change: the list of models is the
 * last. */
static weir_status prepare_reload(serve_server *server, const serve_params *params, SSL_CTX **tls,
                                  weir_error *error)
{
    weir_status status = serve_tls_create(server->params.tls_cert, server->params.tls_key, tls, error);
    if (status == WEIR_OK && !serve_keys_reserve(server->keys, params))
        status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the keys");
    if (status == WEIR_OK && params->n_models > 0) status = serve_catalog_set(server->catalog, params, error);
    if (status != WEIR_OK) SSL_CTX_free(*tls);
    return status;
}

weir_status serve_server_reload(serve_server *server, const serve_params *params, weir_error *error)
{
    SSL_CTX *tls;
    weir_status status = check_reload(server, params, error);
    if (status == WEIR_OK) status = prepare_reload(server, params, &tls, error);
    if (status != WEIR_OK) return status;
    serve_keys_set(server->keys, params);
    pthread_mutex_lock(&server->mutex);
    SSL_CTX *before = server->tls;
    server->tls = tls;
    server->reload = params;
    serve_loop_wake(server->loop);
    while (server->reload != NULL && !server->drained)
        weir__clock_cond_wait(&server->changed, &server->mutex, weir__clock_deadline_ns(-1));
    server->reload = NULL;
    pthread_mutex_unlock(&server->mutex);
    SSL_CTX_free(before);
    return WEIR_OK;
}

bool serve_server_is_healthy(serve_server *server, int timeout_ms)
{
    int64_t deadline_ns = weir__clock_deadline_ns(timeout_ms);
    int code = 0;
    pthread_mutex_lock(&server->mutex);
    server->pinged = true;
    serve_loop_wake(server->loop);
    while (server->pinged && !server->drained && code == 0)
        code = weir__clock_cond_wait(&server->changed, &server->mutex, deadline_ns);
    bool healthy = server->drained || (!server->pinged && server->healthy);
    server->pinged = false;
    pthread_mutex_unlock(&server->mutex);
    return healthy;
}

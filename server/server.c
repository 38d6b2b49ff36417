/* server.c: the server: its thread, its ready list, its life. The service thread waits in the loop for
 * sockets and timers, then goes on with the calls of the ready list, which workers and engines have posted,
 * takes a reload and begins a drain, and then works the connections that have something to do. At the end it
 * closes the listener, ends the workers and then the calls; a worker that does not end in time ends the
 * process, because it still uses the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/access/keys.h"
#include "server/api/common/answer.h"
#include "server/api/common/call_end.h"
#include "server/api/common/embedder.h"
#include "server/api/common/lease.h"
#include "server/api/common/records.h"
#include "server/api/common/tape.h"
#include "server/http/connection.h"
#include "server/models/catalog.h"
#include "server/models/pull.h"
#include "server/operate/operate.h"
#include "server/recording/recorder.h"
#include "server/request/workers.h"
#include "server/routers/router.h"
#include "server/system/log.h"
#include "server/system/tls.h"
#include "service.h"

#define FETCHERS    8  /* threads for requests that name images by URL */
#define CARRIERS    2  /* threads for requests whose prefix another server has; a third one gives prefixes */
#define LAST_WORK_S 10 /* limit for work at the end of the process */

/* ---- Calls that come back ---- */

/* Bytes of the body that the answer repeats or keeps. */
static size_t kept_bytes(const serve_answer *answer)
{
    if (answer == NULL) return 0;
    size_t n = answer->repeated.capacity;
    return answer->record != NULL ? n + answer->record->before.capacity + answer->record->input.capacity : n;
}

/* Counts no more of it than the answer has. */
static void forget_body(serve_call *call)
{
    size_t kept = kept_bytes(call->answer);
    if (kept > call->body_length) kept = call->body_length;
    serve_share_release(&call->server->bodies, call->owner, call->body_length - kept);
    call->body_length = kept;
    if (!call->server->params.log_text) weir__text_fini(&call->body);
}

static void continue_call(serve_call *call)
{
    if (call->state == SERVE_WAITING) {
        serve_workers_give(serve_prefix_workers(call), call, serve_lease_work);
        return;
    }
    if (call->state != SERVE_WORKING) {
        if (call->pull != NULL) serve_pull_pump(call);
        if (call->answer == NULL) return;
        bool taped = call->answer->tape != NULL;
        serve_answer_pump(call->answer); /* others may be a worker's now */
        if (taped && call->ended) serve_call_destroy(call);
        return;
    }
    if (call->connection != NULL && serve_lease_await(call)) return;
    call->state = SERVE_ANSWERING;
    forget_body(call);
    if (call->answer == NULL) serve_lease_end(call);
    if (call->connection == NULL)
        serve_call_destroy(call);
    else if (call->answer != NULL && !call->begun)
        serve_answer_start(call->answer);
    else if (call->pull != NULL && !call->begun)
        serve_pull_start(call);
    else
        serve_call_send(call);
}

void serve_server_wake(serve_server *server)
{
    serve_call *call;
    while ((call = serve_ready_take(server)) != NULL) continue_call(call);
    serve_reload_take(server);
    pthread_mutex_lock(&server->mutex);
    bool drain = server->drain_asked && !server->draining;
    pthread_mutex_unlock(&server->mutex);
    if (!drain) return;
    server->draining = true;
    server->drain_deadline_ns = weir__clock_deadline_ns((int64_t)server->params.live.drain_s * 1000);
    /* Clients that connect from now on wait there for the next server. */
    if (server->inherited) serve_listener_close(server);
    serve_events_end(server);
    serve_log("info", "drain", "draining: %d request%s left, at most %d s", server->n_calls,
              server->n_calls == 1 ? "" : "s", server->params.live.drain_s);
}

/* ---- The service thread ---- */

static bool is_to_stop(serve_server *server)
{
    pthread_mutex_lock(&server->mutex);
    bool stop = server->stop_asked;
    pthread_mutex_unlock(&server->mutex);
    return stop;
}

/* Writes to clients that have gone fail, and do not end the process. */
static void block_sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void end_calls(serve_server *server)
{
    serve_call *call;
    while ((call = serve_ready_take(server)) != NULL) call->state = SERVE_ANSWERING;
    for (call = server->calls; call != NULL; call = call->after) call->state = SERVE_ANSWERING;
    serve_connections_close(server);
    while (server->calls != NULL) serve_call_destroy(server->calls);
}

/* A thread that does not end uses the model and the engine: the process ends without freeing them, rather
 * than not at all. */
static void expect_ended(bool ended, const char *what)
{
    if (ended) return;
    serve_log("info", "stuck", "%s did not end within %d s; the process does", what, LAST_WORK_S);
    serve_log_flush(1000);
    _exit(EXIT_FAILURE);
}

/* Ends the workers and their jobs. */
static void end_workers(serve_server *server)
{
    expect_ended(serve_workers_destroy(server->workers, LAST_WORK_S * 1000) &&
                     serve_workers_destroy(server->fetchers, LAST_WORK_S * 1000) &&
                     serve_workers_destroy(server->carriers, LAST_WORK_S * 1000),
                 "a worker");
    server->workers = server->fetchers = server->carriers = NULL;
}

static void *run_service(void *user)
{
    serve_server *server = user;
    bool hurry = false;
    weir__thread_name("weir-http");
    block_sigpipe();
    server->sweep.fire = serve_server_sweep;
    serve_loop_set(server->loop, &server->sweep, SERVE_SWEEP_US);
    while (!is_to_stop(server)) {
        serve_loop_turn(server->loop, hurry);
        serve_server_wake(server);
        hurry = serve_connections_work(server);
        serve_server_end_drain(server);
    }
    serve_listener_close(server);
    end_workers(server);
    end_calls(server);
    expect_ended(serve_pulls_wait(server, LAST_WORK_S * 1000), "a download");
    pthread_mutex_lock(&server->mutex);
    server->drained = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

/* ---- Life ---- */

/* Opens the recording, if there is to be one. */
static weir_status open_recorder(serve_server *server, weir_error *error)
{
    const serve_params *params = &server->params;
    if (params->record == NULL && params->recorded == NULL) return WEIR_OK;
    return serve_recorder_create(&(serve_recorder_params){.path = params->record,
                                                          .n_bytes = params->record_bytes,
                                                          .days = params->record_days,
                                                          .take = params->recorded,
                                                          .user = params->recorded_user},
                                 &server->recorder, error);
}

static void set_fingerprint(serve_server *server)
{
    snprintf(server->fingerprint, sizeof server->fingerprint, "weir-%s-%s", weir_version(),
             weir_backend_version());
    for (char *c = server->fingerprint; *c != '\0'; c++)
        if (*c == ' ' || *c == '"' || *c == '\\') *c = '-';
}

weir_status serve_server_create(const serve_params *params, serve_server **out, weir_error *error)
{
    weir_status status = serve_params_check(params, error);
    serve_server *server;
    int code;
    if (status == WEIR_OK) status = serve_router_check(params, error);
    if (status == WEIR_OK) status = serve_trace_check(params, error);
    if (status != WEIR_OK) return status;
    if ((server = weir__mem_calloc(1, sizeof *server)) == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the server");
    server->params = *params;
    server->send = serve_connection_due;
    serve_share *const shares[] = {&server->answers, &server->media, &server->bodies, &server->waits};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) serve_share_init(shares[i]);
    server->created_s = (int64_t)time(NULL);
    server->created_ns = weir__clock_now_ns();
    set_fingerprint(server);
    pthread_mutex_init(&server->mutex, NULL);
    weir__clock_cond_init(&server->changed);
    server->keys = serve_keys_create(params);
    server->tapes = serve_tapes_create(server);
    server->records = serve_records_create((size_t)params->response_bytes);
    server->workers = serve_workers_create(params->n_workers, params->work_s, serve_ready_post);
    if (params->n_media_hosts > 0)
        server->fetchers = serve_workers_create(FETCHERS, params->work_s, serve_ready_post);
    if (params->prefix_key != NULL)
        server->carriers = serve_workers_create(CARRIERS, params->work_s, serve_ready_post);
    if (server->keys == NULL || server->workers == NULL ||
        (params->n_media_hosts > 0 && server->fetchers == NULL) ||
        (params->prefix_key != NULL && server->carriers == NULL) || server->tapes == NULL ||
        server->records == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the server");
    if (status == WEIR_OK && (server->loop = serve_loop_create(false)) == NULL)
        status =
            weir__error_set(error, WEIR_NO_MEMORY, NULL, "no descriptors or memory for the server's loop");
    if (status == WEIR_OK) status = serve_catalog_create(params, &server->catalog, error);
    if (status == WEIR_OK) status = serve_tls_create(params->tls_cert, params->tls_key, &server->tls, error);
    if (status == WEIR_OK) status = open_recorder(server, error);
    if (status == WEIR_OK) server->loaded = serve_catalog_pool(server->catalog) != NULL;
    if (status == WEIR_OK) status = serve_listener_open(server, error);
    if (status == WEIR_OK && params->kv_events != NULL) status = serve_router_open(server, error);
    if (status == WEIR_OK && params->recorded == NULL) /* what is only computed again has no spans */
        status = serve_tracer_create(params, &server->tracer, error);
    if (status == WEIR_OK && serve_reach_is_open(server->reachable, server->keys))
        serve_log("warning", "open",
                  "%s has no API key: anyone who reaches it may use it; give --api-key-file",
                  server->address);
    if (status == WEIR_OK) {
        code = weir__thread_start(&server->thread, NULL, run_service, server);
        server->started = code == 0;
        if (code != 0)
            status =
                weir__error_set(error, WEIR_NO_MEMORY, NULL, "no thread for the server: %s", strerror(code));
    }
    if (status == WEIR_OK)
        *out = server;
    else
        serve_server_destroy(server);
    return status;
}

void serve_server_name(serve_server *server, const char *file_name)
{
    serve_model *model = serve_catalog_find(server->catalog, NULL);
    serve_model_call(model, file_name);
    serve_model_release(model);
}

weir_status serve_server_add_adapter(serve_server *server, const char *name, weir_adapter *adapter,
                                     float scale, weir_error *error)
{
    if (serve_catalog_names(server->catalog, name))
        return weir__error_set(error, WEIR_INVALID, "lora",
                               "\"%.100s\" is the model's own name: rename the file, or give another --alias",
                               name);
    return serve_adapters_add(serve_catalog_loaded(server->catalog)->adapters, name, adapter, scale, true,
                              error);
}

/* --embeddings: memory that is missing shows now, and the first request is as quick as the others. */
static void open_embedder(serve_loaded *loaded)
{
    weir_error error = {0};
    if (serve_embedder_open(loaded, &error) != WEIR_OK)
        serve_log("error", "embeddings", "not ready, the first request for them tries again: %s",
                  weir__error_words(&error).text);
}

void serve_server_ready(serve_server *server, weir_model *model, weir_engine *engine)
{
    serve_loaded *loaded = serve_catalog_loaded(server->catalog);
    serve_model *own = serve_catalog_find(server->catalog, NULL);
    loaded->model = model;
    loaded->engine = engine;
    if (engine != NULL && !serve_catalog_join(server->catalog, own->name, engine))
        serve_log("error", "kv_events", "out of memory: the cache's events are not published");
    if (own->params.embeddings && model != NULL) open_embedder(loaded);
    serve_model_release(own);
    atomic_store_explicit(&server->loaded, true, memory_order_release);
}

const char *serve_server_address(const serve_server *server)
{
    return server->address;
}

void serve_server_drain(serve_server *server)
{
    pthread_mutex_lock(&server->mutex);
    server->drain_asked = true;
    serve_loop_wake(server->loop);
    pthread_mutex_unlock(&server->mutex);
}

bool serve_server_wait(serve_server *server, int timeout_ms)
{
    int64_t deadline_ns = weir__clock_deadline_ns(timeout_ms);
    int code = 0;
    pthread_mutex_lock(&server->mutex);
    while (!server->drained && code == 0)
        code = weir__clock_cond_wait(&server->changed, &server->mutex, deadline_ns);
    bool drained = server->drained;
    pthread_mutex_unlock(&server->mutex);
    return drained;
}

void serve_server_destroy(serve_server *server)
{
    if (server == NULL) return;
    if (server->started) {
        pthread_mutex_lock(&server->mutex);
        server->stop_asked = true;
        serve_loop_wake(server->loop);
        pthread_mutex_unlock(&server->mutex);
        pthread_join(server->thread, NULL);
    } else {
        serve_listener_close(server);
        serve_workers_destroy(server->workers, -1);
        serve_workers_destroy(server->fetchers, -1);
        serve_workers_destroy(server->carriers, -1);
    }
    serve_loop_destroy(server->loop);
    SSL_CTX_free(server->tls);
    serve_tapes_destroy(server->tapes);
    serve_catalog_destroy(server->catalog);
    serve_records_destroy(server->records);
    serve_recorder_destroy(server->recorder);
    serve_router_close(server);
    serve_tracer_destroy(server->tracer);
    serve_events_destroy(server);
    serve_keys_destroy(server->keys);
    serve_share_fini(&server->answers);
    serve_share_fini(&server->media);
    serve_share_fini(&server->bodies);
    serve_share_fini(&server->waits);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    weir__mem_free(server->unix_path);
    weir__mem_free(server);
}

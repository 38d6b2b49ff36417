/* sweep.c: the service thread's periodic checks: calls that take too long, the engine and the workers, the
 * end of a drain. SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/clock.h"
#include "base/thread.h"
#include "server/api/common/answer.h"
#include "server/api/common/call_end.h"
#include "server/api/common/embedder.h"
#include "server/api/common/lease.h"
#include "server/api/common/records.h"
#include "server/api/common/tape.h"
#include "server/http/connection.h"
#include "server/models/catalog.h"
#include "server/models/pull.h"
#include "server/request/call.h"
#include "server/request/workers.h"
#include "server/system/log.h"
#include "service.h"

#define WATCH_STEPS 4                 /* sweeps between two looks at the engine */
#define CROWD       32                /* calls at a time */
#define LARGE       ((size_t)4 << 20) /* bytes of bodies at a time; as JSON they take many times as much */
#define FAREWELL_S  2                 /* after a drain: time for the last clients to read their errors */

static void check_call(serve_call *call, int64_t now_ns)
{
    const serve_params *params = &call->server->params;
    int64_t quiet_ns = now_ns - call->moved_ns;
    if (call->connection == NULL || call->state == SERVE_WORKING) return;
    if (call->state == SERVE_READING) {
        if (now_ns < call->deadline_ns || call->begun) return;
        call->close = true;
        call->state = SERVE_ANSWERING;
        serve_call_refuse(call, 408, NULL, "request_timeout", "the body did not come within %d s",
                          params->live.body_s);
        serve_call_send(call);
    } else if (serve_call_is_stalled(call, now_ns) || (call->send_by_ns > 0 && now_ns > call->send_by_ns)) {
        serve_connection_close(call->connection);
    } else if (!call->waits && params->live.comment_s > 0 &&
               quiet_ns > (int64_t)params->live.comment_s * WEIR__NS_PER_S && serve_answer_comment(call)) {
        call->moved_ns = now_ns;
        serve_call_send(call);
    }
}

/* True if the engine has work and has made no tick for too long. The catalog is locked. */
static bool is_stuck(const serve_server *server, serve_loaded *loaded, int64_t now_ns)
{
    weir_engine_stats stats = {.size = sizeof stats};
    if (loaded->engine == NULL || weir_engine_get_stats(loaded->engine, &stats) != WEIR_OK) return false;
    bool works = stats.queue_depth > 0 || stats.n_slots_prefilling + stats.n_slots_generating > 0;
    if (stats.n_ticks != loaded->watched_ticks || !works) {
        loaded->watched_ticks = stats.n_ticks;
        loaded->watched_ns = now_ns;
    }
    return now_ns - loaded->watched_ns > (int64_t)server->params.live.watchdog_s * WEIR__NS_PER_S;
}

static void watch_engines(serve_server *server, int64_t now_ns)
{
    bool stuck = false;
    if (!serve_server_loaded(server)) return;
    serve_catalog_lock(server->catalog, NULL);
    serve_loaded *loaded = serve_catalog_loaded(server->catalog);
    for (; loaded != NULL; loaded = loaded->next) {
        stuck = is_stuck(server, loaded, now_ns) || stuck;
        serve_embedder_rest(loaded, now_ns);
    }
    serve_catalog_unlock(server->catalog);
    if (stuck && !server->stuck)
        serve_log("info", "stuck", "the engine has work and made no tick in %d s",
                  server->params.live.watchdog_s);
    server->stuck = stuck;
}

/* Watches the one model: of several models the pool loads such a one again. */
static void watch_model(serve_server *server)
{
    weir_error error = {0};
    if (!serve_server_loaded(server) || serve_catalog_pool(server->catalog) != NULL ||
        server->broken[0] != '\0')
        return;
    if (weir_model_check(serve_catalog_loaded(server->catalog)->model, &error) == WEIR_OK) return;
    weir_error_text(&error, NULL, NULL, server->broken, sizeof server->broken);
    serve_log("error", "model_lost", "%s", server->broken);
}

static void watch_workers(serve_server *server, int64_t now_ns)
{
    const serve_params *params = &server->params;
    int32_t n_new, n_more = 0;
    server->n_stuck_workers = serve_workers_stuck(server->workers, now_ns, params->live.watchdog_s, &n_new);
    serve_workers *const others[] = {server->fetchers, server->carriers};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i] == NULL) continue;
        server->n_stuck_workers += serve_workers_stuck(others[i], now_ns, params->live.watchdog_s, &n_more);
        n_new += n_more;
    }
    if (n_new > 0)
        serve_log("info", "stuck", "stuck workers: %d of %d; one request took more than %d s",
                  server->n_stuck_workers, params->n_workers, params->work_s + params->live.watchdog_s);
}

#ifdef __GLIBC__
/* Takes 0.2 s for a gigabyte. */
static void *trim_heap(void *unused)
{
    weir__thread_name("weir-trim");
    malloc_trim(0);
    return unused;
}
#endif

/* Gives memory back after a crowd or large bodies: glibc keeps it, though it is free. */
static void give_back_memory(serve_server *server)
{
    if (server->n_calls > server->most_calls) server->most_calls = server->n_calls;
    bool crowd = server->most_calls >= CROWD && server->n_calls <= server->most_calls / 8;
    size_t bodies = serve_share_used(&server->bodies);
    bool large = server->most_bodies >= LARGE && bodies <= server->most_bodies / 8;
    if (!crowd && !large) return;
    server->most_calls = server->n_calls;
    server->most_bodies = bodies;
#ifdef __GLIBC__
    pthread_t thread;
    if (weir__thread_start(&thread, NULL, trim_heap, NULL) == 0) pthread_detach(thread);
#endif
}

/* The drain's time is over: answers everyone who still waits. Called again as workers return other calls. */
static void cut_off_calls(serve_server *server)
{
    if (!server->cut)
        serve_log("info", "cut", "%d request%s cut off", server->n_calls, server->n_calls == 1 ? "" : "s");
    server->cut = true;
    for (serve_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->after;
        if (call->state == SERVE_WORKING || call->ended) continue;
        if (!call->begun) {
            call->close = true;
            call->state = SERVE_ANSWERING;
            serve_call_stopping(call);
            serve_lease_end(call);
            serve_call_send(call);
        } else if (call->pull != NULL) {
            serve_pull_stop(call);
        } else if (call->answer != NULL) {
            bool taped = call->answer->tape != NULL;
            serve_answer_stop(call->answer, false);
            if (taped) serve_call_destroy(call);
        }
    }
}

/* True if a refused client still sends: it has not read its answer yet, and a close would lose it. */
static bool is_parting(const serve_server *server)
{
    const serve_connection *connection = server->connections;
    while (connection != NULL && connection->stage != SERVE_PARTING) connection = connection->after;
    return connection != NULL;
}

void serve_server_end_drain(serve_server *server)
{
    if (!server->draining) return;
    int64_t late_ns = weir__clock_now_ns() - server->drain_deadline_ns;
    if ((server->n_calls > 0 || is_parting(server)) && late_ns < FAREWELL_S * WEIR__NS_PER_S) return;
    pthread_mutex_lock(&server->mutex);
    server->drained = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

void serve_server_sweep(serve_timer *timer)
{
    serve_server *server = (serve_server *)(void *)((char *)timer - offsetof(serve_server, sweep));
    int64_t now_ns = weir__clock_now_ns();
    for (serve_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->after;
        check_call(call, now_ns);
    }
    serve_connections_sweep(server, now_ns);
    serve_tapes_sweep(server->tapes, now_ns);
    serve_records_sweep(server->records, now_ns);
    if (++server->n_sweeps % WATCH_STEPS == 0) {
        watch_engines(server, now_ns);
        watch_model(server);
        watch_workers(server, now_ns);
    }
    serve_listener_go_on(server);
    give_back_memory(server);
    serve_log_flush(0);
    if (server->draining && now_ns >= server->drain_deadline_ns && server->n_calls > 0) cut_off_calls(server);
    serve_loop_set(server->loop, &server->sweep, SERVE_SWEEP_US);
}

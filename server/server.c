/* server.c: the server: its thread, its ready list, its life. SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "answer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "connection.h"
#include "kept.h"
#include "keys.h"
#include "reload.h"
#include "tape.h"

#define WATCH_STEPS 4  /* sweeps between two looks at the engine */
#define CROWD       32 /* calls at a time */
#define LAST_WORK_S 10 /* what ends the process may take */
#define FAREWELL_S  2  /* after a drain: until those who are cut off have taken what tells them */

serve_params serve_params_default(void)
{
    return (serve_params){
        .host = "127.0.0.1",
        .port = 8080,
        .max_priority = SERVE_UNSAID,
        .body_bytes = (int64_t)16 << 20,
        .n_workers = 2,
        .head_s = 10,
        .body_s = 60,
        .stall_s = 120,
        .work_s = 30,
        .comment_s = 10,
        .watchdog_s = 30,
        .drain_s = 30,
        .grace_s = 30,
        .keep_s = 300,
        .resume_bytes = (int64_t)64 << 20,
        .log = true,
        .max_tokens = -1,
    };
}

/* ---- The ready list ---- */

void serve_server_post(serve_call *call)
{
    serve_server *server = call->server;
    pthread_mutex_lock(&server->mutex);
    if (!call->is_ready) {
        call->is_ready = true;
        call->next_ready = NULL;
        if (server->ready_last != NULL)
            server->ready_last->next_ready = call;
        else
            server->ready_first = call;
        server->ready_last = call;
    }
    bool wake = !server->woken;
    server->woken = true;
    if (wake) serve_loop_wake(server->loop);
    pthread_mutex_unlock(&server->mutex);
}

void serve_server_ring(serve_server *server)
{
    serve_loop_wake(server->loop);
}

void serve_server_unlist(serve_call *call)
{
    serve_server *server = call->server;
    pthread_mutex_lock(&server->mutex);
    serve_call *before = NULL;
    for (serve_call **at = &server->ready_first; call->is_ready && *at != NULL; at = &(*at)->next_ready) {
        if (*at == call) {
            *at = call->next_ready;
            if (server->ready_last == call) server->ready_last = before;
            break;
        }
        before = *at;
    }
    call->is_ready = false;
    pthread_mutex_unlock(&server->mutex);
}

static serve_call *take_ready(serve_server *server)
{
    pthread_mutex_lock(&server->mutex);
    serve_call *call = server->ready_first;
    if (call != NULL) {
        server->ready_first = call->next_ready;
        if (server->ready_first == NULL) server->ready_last = NULL;
        call->is_ready = false;
    } else
        server->woken = false;
    pthread_mutex_unlock(&server->mutex);
    return call;
}

static void forget_body(serve_call *call)
{
    call->server->n_bodies -= call->body_length;
    call->body_length = 0;
    if (!call->server->params.log_text) weir__text_fini(&call->body);
}

static void go_on(serve_call *call)
{
    if (call->state != SERVE_WORKING) {
        if (call->answer == NULL) return;
        bool taped = call->answer->tape != NULL;
        serve_answer_pump(call->answer); /* others may be a worker's now */
        if (taped && call->ended) serve_call_destroy(call);
        return;
    }
    call->state = SERVE_ANSWERING;
    forget_body(call);
    if (call->connection == NULL)
        serve_call_destroy(call);
    else if (call->answer != NULL && !call->begun)
        serve_answer_start(call->answer);
    else
        serve_call_send(call);
}

void serve_server_wake(serve_server *server)
{
    serve_call *call;
    while ((call = take_ready(server)) != NULL) go_on(call);
    serve_reload_take(server);
    pthread_mutex_lock(&server->mutex);
    bool drain = server->drain_asked && !server->draining;
    pthread_mutex_unlock(&server->mutex);
    if (!drain) return;
    server->draining = true;
    server->drain_deadline_ns = weir__clock_deadline_ns((int64_t)server->params.drain_s * 1000);
    if (server->inherited) serve_listener_close(server); /* who comes now waits there for the next server */
    serve_events_end(server->events);
    serve_log_event("drain", "%d requests are to end, within %d s", server->n_calls, server->params.drain_s);
}

/* ---- Deadlines ---- */

static void look_at(serve_call *call, int64_t now_ns)
{
    const serve_params *params = &call->server->params;
    int64_t quiet_ns = now_ns - call->moved_ns;
    if (call->connection == NULL || call->state == SERVE_WORKING) return;
    if (call->state == SERVE_READING) {
        if (now_ns < call->deadline_ns || call->begun) return;
        call->close = true;
        call->state = SERVE_ANSWERING;
        serve_call_refuse(call, 408, NULL, "request_timeout", "the body did not come within %d s",
                          params->body_s);
        serve_call_send(call);
    } else if (serve_call_is_stalled(call, now_ns)) {
        serve_connection_close(call->connection);
    } else if (!call->waits && params->comment_s > 0 &&
               quiet_ns > (int64_t)params->comment_s * WEIR__NS_PER_S && serve_call_comment(call)) {
        call->moved_ns = now_ns;
        serve_call_send(call);
    }
}

static void watch_engine(serve_server *server, int64_t now_ns)
{
    weir_engine_stats stats = {.size = sizeof stats};
    if (!serve_server_loaded(server) || weir_engine_get_stats(server->engine, &stats) != WEIR_OK) return;
    bool works = stats.queue_depth > 0 || stats.n_slots_prefilling + stats.n_slots_generating > 0;
    if (stats.n_ticks != server->watched_ticks || !works) {
        server->watched_ticks = stats.n_ticks;
        server->watched_ns = now_ns;
    }
    bool stuck = now_ns - server->watched_ns > (int64_t)server->params.watchdog_s * WEIR__NS_PER_S;
    if (stuck && !server->stuck)
        serve_log_event("stuck", "the engine has work and made no tick in %d s", server->params.watchdog_s);
    server->stuck = stuck;
}

static void watch_workers(serve_server *server, int64_t now_ns)
{
    const serve_params *params = &server->params;
    int32_t n_new;
    server->n_stuck_workers = serve_workers_stuck(server->workers, now_ns, params->watchdog_s, &n_new);
    if (n_new > 0)
        serve_log_event("stuck", "%d of %d workers have been at one request for more than %d s",
                        server->n_stuck_workers, params->n_workers, params->work_s + params->watchdog_s);
}

/* After a crowd: glibc keeps what its calls took, though it is free. */
static void give_back_memory(serve_server *server)
{
    if (server->n_calls > server->most_calls) server->most_calls = server->n_calls;
    if (server->most_calls < CROWD || server->n_calls > server->most_calls / 8) return;
    server->most_calls = server->n_calls;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* The drain's time is over: who still waits is told. Again and again, as workers come back with others. */
static void cut_off(serve_server *server)
{
    if (!server->cut) serve_log_event("cut", "%d requests are cut off", server->n_calls);
    server->cut = true;
    for (serve_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->after;
        if (call->state == SERVE_WORKING || call->ended) continue;
        if (!call->begun) {
            call->close = true;
            call->state = SERVE_ANSWERING;
            serve_call_stopping(call);
            serve_call_send(call);
        } else if (call->answer != NULL) {
            bool taped = call->answer->tape != NULL;
            serve_answer_stop(call->answer, false);
            if (taped) serve_call_destroy(call);
        }
    }
}

static void sweep(serve_timer *timer)
{
    serve_server *server = (serve_server *)(void *)((char *)timer - offsetof(serve_server, sweep));
    int64_t now_ns = weir__clock_now_ns();
    for (serve_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->after;
        look_at(call, now_ns);
    }
    serve_connections_sweep(server, now_ns);
    serve_tapes_sweep(server->tapes, now_ns);
    if (++server->n_sweeps % WATCH_STEPS == 0) {
        watch_engine(server, now_ns);
        watch_workers(server, now_ns);
    }
    serve_listener_go_on(server);
    give_back_memory(server);
    serve_log_flush(0);
    int64_t late_ns = server->draining ? now_ns - server->drain_deadline_ns : -1;
    if (late_ns >= 0 && server->n_calls > 0) cut_off(server);
    if (server->draining && (server->n_calls == 0 || late_ns >= FAREWELL_S * WEIR__NS_PER_S)) {
        pthread_mutex_lock(&server->mutex);
        server->drained = true;
        pthread_cond_broadcast(&server->changed);
        pthread_mutex_unlock(&server->mutex);
    }
    serve_loop_set(server->loop, &server->sweep, SERVE_SWEEP_US);
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
    while ((call = take_ready(server)) != NULL) call->state = SERVE_ANSWERING;
    for (call = server->calls; call != NULL; call = call->after) call->state = SERVE_ANSWERING;
    serve_connections_close(server);
    while (server->calls != NULL) serve_call_destroy(server->calls);
}

/* Jobs end when they are told to. One that does not holds the model and the engine: the process ends without
 * giving them back, rather than not at all. */
static void end_workers(serve_server *server)
{
    if (!serve_workers_destroy(server->workers, LAST_WORK_S * 1000)) {
        serve_log_event("stuck", "a worker did not end within %d s; the process does", LAST_WORK_S);
        serve_log_flush(1000);
        _exit(EXIT_FAILURE);
    }
    server->workers = NULL;
}

static void *serve(void *user)
{
    serve_server *server = user;
    bool hurry = false;
    weir__thread_name("weir-http");
    block_sigpipe();
    server->sweep.fire = sweep;
    serve_loop_set(server->loop, &server->sweep, SERVE_SWEEP_US);
    while (!is_to_stop(server)) {
        serve_loop_turn(server->loop, hurry);
        serve_server_wake(server);
        hurry = serve_connections_work(server);
    }
    serve_listener_close(server);
    end_workers(server);
    end_calls(server);
    pthread_mutex_lock(&server->mutex);
    server->drained = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

/* ---- Life ---- */

weir_status serve_server_check(const serve_params *params, weir_error *error)
{
    static const struct {
        const char *name;
        size_t at;
        int32_t least, most;
    } ranges[] = {
        {"port", offsetof(serve_params, port), 0, 65535},
        {"n_workers", offsetof(serve_params, n_workers), 1, 64},
        {"head_s", offsetof(serve_params, head_s), 1, 3600},
        {"body_s", offsetof(serve_params, body_s), 1, 86400},
        {"stall_s", offsetof(serve_params, stall_s), 1, 86400},
        {"work_s", offsetof(serve_params, work_s), 1, 86400},
        {"comment_s", offsetof(serve_params, comment_s), 0, 86400},
        {"watchdog_s", offsetof(serve_params, watchdog_s), 1, 86400},
        {"drain_s", offsetof(serve_params, drain_s), 0, 86400},
        {"grace_s", offsetof(serve_params, grace_s), 0, 86400},
        {"keep_s", offsetof(serve_params, keep_s), 0, 86400},
        {"key_requests", offsetof(serve_params, key_requests), 0, 1000000},
        {"key_rate", offsetof(serve_params, key_rate), 0, 1000000},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        int32_t value;
        memcpy(&value, (const char *)params + ranges[i].at, sizeof value);
        if (value < ranges[i].least || value > ranges[i].most)
            return weir__error_set(error, WEIR_INVALID, ranges[i].name, "%s is %d; allowed: %d to %d",
                                   ranges[i].name, value, ranges[i].least, ranges[i].most);
    }
    if (params->max_priority != SERVE_UNSAID && (params->max_priority < -100 || params->max_priority > 100))
        return weir__error_set(error, WEIR_INVALID, "max_priority",
                               "max_priority is %d; allowed: -100 to 100", params->max_priority);
    if (params->body_bytes < 1024 || params->body_bytes > (int64_t)256 << 20)
        return weir__error_set(error, WEIR_INVALID, "body_bytes",
                               "body_bytes is %lld; allowed: 1,024 to 268,435,456",
                               (long long)params->body_bytes);
    if (params->resume_bytes < 1 << 20 || params->resume_bytes > (int64_t)1 << 40)
        return weir__error_set(error, WEIR_INVALID, "resume_bytes",
                               "resume_bytes is %lld; allowed: 1,048,576 to 1,099,511,627,776",
                               (long long)params->resume_bytes);
    struct stat folder;
    if (params->lora_dir != NULL && (stat(params->lora_dir, &folder) != 0 || !S_ISDIR(folder.st_mode)))
        return weir__error_set(error, WEIR_INVALID, "lora_dir", "there is no folder \"%.200s\"",
                               params->lora_dir);
    if ((params->tls_cert == NULL) != (params->tls_key == NULL))
        return weir__error_set(error, WEIR_INVALID, params->tls_cert == NULL ? "tls_cert" : "tls_key",
                               "TLS needs a certificate and its key; one is missing");
    for (size_t i = 0; i < params->n_keys; i++)
        if (params->keys[i].text[0] == '\0')
            return weir__error_set(error, WEIR_INVALID, "keys", "an API key is empty");
    for (size_t i = 0; i < params->n_hosts; i++)
        if (params->hosts[i][0] == '\0' || strpbrk(params->hosts[i], ":/ ") != NULL)
            return weir__error_set(
                error, WEIR_INVALID, "hosts",
                "\"%.100s\" is no name of a host; allowed: a name without scheme and port, or *",
                params->hosts[i]);
    for (size_t i = 0; i < params->n_names; i++)
        if (!weir__utf8_valid(params->names[i], strlen(params->names[i])))
            return weir__error_set(error, WEIR_INVALID, "names", "--alias is not UTF-8");
    return WEIR_OK;
}

weir_status serve_server_read_tls(serve_server *server, weir_error *error)
{
    SSL_CTX *tls = NULL;
    if (server->params.tls_cert == NULL) return WEIR_OK;
    weir_status status = serve_tls_create(server->params.tls_cert, server->params.tls_key, &tls, error);
    if (status != WEIR_OK) return status;
    pthread_mutex_lock(&server->mutex);
    SSL_CTX *before = server->tls;
    server->tls = tls;
    pthread_mutex_unlock(&server->mutex);
    SSL_CTX_free(before);
    return WEIR_OK;
}

weir_status serve_server_create(const serve_params *params, serve_server **out, weir_error *error)
{
    weir_status status = serve_server_check(params, error);
    serve_server *server;
    int code;
    if (status != WEIR_OK) return status;
    if ((server = weir__mem_calloc(1, sizeof *server)) == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the server");
    server->params = *params;
    server->answers = (weir__quota){.most = SERVE_ANSWERS_MAX, .small = SERVE_ANSWER_SMALL};
    server->created_s = (int64_t)time(NULL);
    server->watched_ns = server->created_ns = weir__clock_now_ns();
    pthread_mutex_init(&server->mutex, NULL);
    weir__clock_cond_init(&server->changed);
    server->keys = serve_keys_create(params);
    server->events = serve_events_create(server);
    server->embedder = serve_embedder_create();
    server->kept = serve_kept_create();
    server->adapters = serve_adapters_create();
    server->tapes = serve_tapes_create(server);
    server->workers = serve_workers_create(params->n_workers, params->work_s, serve_server_post);
    if (server->keys == NULL || server->workers == NULL || server->events == NULL ||
        server->embedder == NULL || server->kept == NULL || server->tapes == NULL || server->adapters == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for the server");
    if (status == WEIR_OK && (server->loop = serve_loop_create(false)) == NULL)
        status =
            weir__error_set(error, WEIR_NO_MEMORY, NULL, "no descriptors or memory for the server's loop");
    if (status == WEIR_OK) status = serve_server_read_tls(server, error);
    if (status == WEIR_OK) status = serve_listener_open(server, error);
    if (status == WEIR_OK && serve_server_is_open(server))
        serve_log_warning("open", "%s has no API key: whoever reaches it may use it; give --api-key-file",
                          server->address);
    if (status == WEIR_OK) {
        code = weir__thread_start(&server->thread, NULL, serve, server);
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
    weir__utf8_copy(server->file_name, sizeof server->file_name, file_name, strlen(file_name));
    server->name = server->file_name;
    for (size_t i = server->params.n_names; i > 0; i--)
        if (strcmp(server->params.names[i - 1], SERVE_ANY_NAME) != 0)
            server->name = server->params.names[i - 1];
}

weir_status serve_server_add_adapter(serve_server *server, const char *name, weir_adapter *adapter,
                                     float scale, weir_error *error)
{
    if (serve_server_is_called(server, name))
        return weir__error_set(error, WEIR_INVALID, "lora",
                               "\"%.100s\" is the model's own name: rename the file, or give another --alias",
                               name);
    return serve_adapters_add(server->adapters, name, adapter, scale, error);
}

void serve_server_ready(serve_server *server, weir_model *model, weir_engine *engine)
{
    server->model = model;
    server->engine = engine;
    snprintf(server->fingerprint, sizeof server->fingerprint, "weir-%s-%s", weir_version(),
             weir_backend_version());
    for (char *c = server->fingerprint; *c != '\0'; c++)
        if (*c == ' ' || *c == '"' || *c == '\\') *c = '-';
    atomic_store_explicit(&server->loaded, true, memory_order_release);
}

bool serve_server_loaded(const serve_server *server)
{
    return atomic_load_explicit(&server->loaded, memory_order_acquire);
}

bool serve_server_is_open(const serve_server *server)
{
    return server->reachable && !serve_keys_are_wanted(server->keys);
}

bool serve_server_is_called(const serve_server *server, const char *name)
{
    if (strcmp(name, "default") == 0) return true;
    if (name[0] != '\0' && strcmp(name, server->file_name) == 0) return true;
    for (size_t i = 0; i < server->params.n_names; i++)
        if (strcmp(name, server->params.names[i]) == 0) return true;
    return false;
}

bool serve_server_has_name(const serve_server *server, const char *name)
{
    if (name[0] == '\0' || serve_server_is_called(server, name)) return true;
    for (size_t i = 0; i < server->params.n_names; i++)
        if (strcmp(server->params.names[i], SERVE_ANY_NAME) == 0) return true;
    return false;
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
    }
    serve_loop_destroy(server->loop);
    SSL_CTX_free(server->tls);
    serve_tapes_destroy(server->tapes);
    serve_kept_destroy(server->kept);
    serve_adapters_destroy(server->adapters);
    serve_embedder_destroy(server->embedder);
    serve_events_destroy(server->events);
    serve_keys_destroy(server->keys);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    weir__mem_free(server->unix_path);
    weir__mem_free(server);
}

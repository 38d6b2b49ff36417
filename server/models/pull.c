/* pull.c: downloads of models that clients ask for, each on a thread of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pull.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/request/call.h"
#include "server/request/mask.h"
#include "server/request/workers.h"
#include "server/system/log.h"

struct serve_pull {
    serve_server *server;
    char *name;
    bool stream;
    bool started;          /* the service thread's, as is `answered` */
    bool answered;         /* the answer is complete */
    pthread_mutex_t mutex; /* the rest; the server's is taken within it */
    serve_call *call;      /* NULL: it has ended */
    int n_holders;         /* the call and the thread */
    bool fresh;            /* there is progress that was not sent */
    char file[256], sha256[65];
    uint64_t n_done, n_bytes;
    bool ended;
    weir_status status;
    weir__words why;
};

/* ---- Life ---- */

bool serve_pull_prepare(serve_call *call, const char *name, bool stream)
{
    serve_pull *pull = weir__mem_calloc(1, sizeof *pull);
    if (pull == NULL || (pull->name = weir__mem_strdup(name)) == NULL) {
        weir__mem_free(pull);
        return serve_call_no_memory(call);
    }
    pthread_mutex_init(&pull->mutex, NULL);
    pull->server = call->server;
    pull->stream = stream;
    pull->call = call;
    pull->n_holders = 1;
    call->pull = pull;
    return true;
}

/* The mutex is held, and unlocked here. */
static void release_pull(serve_pull *pull)
{
    bool last = --pull->n_holders == 0;
    pthread_mutex_unlock(&pull->mutex);
    if (!last) return;
    pthread_mutex_destroy(&pull->mutex);
    weir__mem_free(pull->name);
    weir__mem_free(pull);
}

/* ---- The thread ---- */

static bool on_progress(const serve_pull_progress *progress, void *user)
{
    serve_pull *pull = user;
    pthread_mutex_lock(&pull->mutex);
    bool goes_on = pull->call != NULL;
    if (goes_on && progress->n_bytes > 0) {
        snprintf(pull->file, sizeof pull->file, "%s", progress->file);
        snprintf(pull->sha256, sizeof pull->sha256, "%s", progress->sha256);
        pull->n_done = progress->n_done;
        pull->n_bytes = progress->n_bytes;
        pull->fresh = true;
        serve_ready_post(pull->call);
    }
    pthread_mutex_unlock(&pull->mutex);
    return goes_on;
}

static void *download_model(void *user)
{
    serve_pull *pull = user;
    serve_server *server = pull->server;
    weir_error error = {0};
    weir__thread_name("weir-pull");
    weir_status status = server->params.pull(pull->name, on_progress, pull, server->params.pull_user, &error);
    bool misnamed = status == WEIR_INVALID && strcmp(error.field, "name") == 0; /* by a URL with a key? */
    weir__words words = weir__error_words(&error);
    serve_log(status == WEIR_OK ? "info" : "warning", "pull", "%.200s: %s",
              misnamed ? "a client's request" : pull->name,
              misnamed            ? "not the name of a model"
              : status == WEIR_OK ? "downloaded"
                                  : words.text);
    serve_mask_paths(words.text);
    pthread_mutex_lock(&pull->mutex);
    pull->ended = true;
    pull->status = status;
    pull->why = words;
    if (pull->call != NULL) serve_ready_post(pull->call);
    release_pull(pull);
    pthread_mutex_lock(&server->mutex);
    server->n_pulls--;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

static bool begin_thread(serve_pull *pull)
{
    serve_server *server = pull->server;
    pthread_t thread;
    pthread_mutex_lock(&server->mutex);
    bool room = server->n_pulls < SERVE_PULLS_MAX;
    server->n_pulls += room;
    pthread_mutex_unlock(&server->mutex);
    if (!room)
        return serve_call_refuse(pull->call, 503, NULL, "too_many_pulls",
                                 "%d models are being downloaded; try again later", SERVE_PULLS_MAX);
    pull->n_holders++;
    if (weir__thread_start(&thread, NULL, download_model, pull) == 0) {
        pthread_detach(thread);
        return true;
    }
    pull->n_holders--;
    pthread_mutex_lock(&server->mutex);
    server->n_pulls--;
    pthread_mutex_unlock(&server->mutex);
    return serve_call_no_memory(pull->call);
}

bool serve_pulls_wait(serve_server *server, int timeout_ms)
{
    int64_t deadline_ns = weir__clock_deadline_ns(timeout_ms);
    int code = 0;
    pthread_mutex_lock(&server->mutex);
    while (server->n_pulls > 0 && code == 0)
        code = weir__clock_cond_wait(&server->changed, &server->mutex, deadline_ns);
    bool ended = server->n_pulls == 0;
    pthread_mutex_unlock(&server->mutex);
    return ended;
}

/* ---- The answer ---- */

static void add_status(serve_call *call, const char *status)
{
    size_t at = serve_call_begin_piece(call);
    weir__text_printf(&call->out, "{\"status\":\"%s\"}\n", status);
    serve_call_end_piece(call, at);
}

static void add_progress(serve_call *call, const serve_pull *pull)
{
    size_t at = serve_call_begin_piece(call);
    weir__text *out = &call->out;
    weir__text status = {0};
    weir__text_printf(&status, "pulling %.12s", pull->sha256[0] != '\0' ? pull->sha256 : pull->file);
    weir__text_add_string(out, "{");
    weir__json_bytes(out, "status", status.bytes, status.n);
    if (pull->sha256[0] != '\0') weir__text_printf(out, ",\"digest\":\"sha256:%s\"", pull->sha256);
    weir__text_printf(out, ",\"total\":%llu,\"completed\":%llu}\n", (unsigned long long)pull->n_bytes,
                      (unsigned long long)pull->n_done);
    out->failed = out->failed || status.failed;
    weir__text_fini(&status);
    serve_call_end_piece(call, at);
}

static int http_status(weir_status status)
{
    switch (status) {
    case WEIR_INVALID: return 400;
    case WEIR_DENIED: return 403;
    case WEIR_NOT_FOUND: return 404;
    case WEIR_NO_MEMORY: return 503;
    default: return 502;
    }
}

static const char *code_of(weir_status status)
{
    switch (status) {
    case WEIR_INVALID: return "invalid_value";
    case WEIR_DENIED: return "model_denied";
    case WEIR_NOT_FOUND: return "model_not_found";
    default: return "pull_failed";
    }
}

static void fail_pull(serve_call *call, weir_status status, const char *message)
{
    if (!call->begun) {
        serve_call_refuse(call, http_status(status), "model", code_of(status), "%s", message);
        return;
    }
    size_t at = serve_call_begin_piece(call);
    call->error(call, http_status(status), "model", code_of(status), message, &call->out);
    weir__text_add_string(&call->out, "\n");
    serve_call_end_piece(call, at);
    serve_call_end(call);
}

static void finish_pull(serve_call *call, const serve_pull *pull)
{
    static const char *const last[] = {"verifying sha256 digest", "writing manifest", "success"};
    if (pull->status != WEIR_OK) {
        fail_pull(call, pull->status, pull->why.text);
    } else if (pull->stream) {
        for (size_t i = 0; i < sizeof last / sizeof *last; i++) add_status(call, last[i]);
        serve_call_end(call);
    } else {
        serve_call_answer(call, 200, "application/json", "{\"status\":\"success\"}\n", 21);
    }
}

void serve_pull_start(serve_call *call)
{
    serve_pull *pull = call->pull;
    pull->started = begin_thread(pull);
    if (pull->started && pull->stream) {
        serve_call_begin(call, "application/x-ndjson");
        if (!call->ended) add_status(call, "pulling manifest");
    }
    serve_call_send(call);
}

void serve_pull_pump(serve_call *call)
{
    serve_pull *pull = call->pull;
    bool room = call->out.n - call->out_at < SERVE_BUFFER_MAX;
    if (call->ended || pull->answered) return;
    pthread_mutex_lock(&pull->mutex);
    if (pull->fresh && pull->stream && room) add_progress(call, pull); /* the newest: others are skipped */
    pull->fresh = false;
    pull->answered = pull->ended;
    if (pull->ended) finish_pull(call, pull);
    pthread_mutex_unlock(&pull->mutex);
    serve_call_send(call);
}

void serve_pull_stop(serve_call *call)
{
    if (call->ended || call->pull->answered) return;
    call->pull->answered = true;
    fail_pull(call, WEIR_STOPPED, "the server is going down");
    serve_call_send(call);
}

void serve_pull_leave(serve_call *call)
{
    serve_pull *pull = call->pull;
    call->pull = NULL;
    pthread_mutex_lock(&pull->mutex);
    pull->call = NULL;
    release_pull(pull);
}

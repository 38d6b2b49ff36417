/* http_fuzz.c: any body at every path that takes one, on the fake model: an answer in the form that it
 * promises; and any place in its tape to continue from.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a byte that chooses the path, one that gives the number of ticks after which the client leaves (255:
 * never), then the body. Below the body is the server as it is; above it stands this file in place of
 * connections, threads and their list. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "server/access/keys.h"
#include "server/api/common/answer.h"
#include "server/api/common/call_end.h"
#include "server/api/common/lease.h"
#include "server/api/common/tape.h"
#include "server/api/native/native.h"
#include "server/api/openai/openai.h"
#include "server/models/catalog.h"
#include "server/models/kept.h"
#include "server/models/loaded.h"
#include "server/models/model.h"
#include "server/request/call.h"
#include "server/request/workers.h"

#define TICKS_MAX 400 /* the client's patience */

int LLVMFuzzerInitialize(int *argc, char ***argv);
static serve_server server;
static serve_loaded *loaded;

/* ---- In place of workers.c ---- */

void serve_ready_post(serve_call *call)
{
    (void)call; /* it is looked at after every tick */
}

void serve_ready_unlist(serve_call *call)
{
    (void)call;
}

void serve_workers_give(serve_workers *workers, serve_call *call, void (*job)(serve_call *call))
{
    (void)workers;
    job(call);
}

void serve_workers_count(serve_workers *workers, int32_t *n, int32_t *n_busy, int32_t *n_queued)
{
    (void)workers;
    *n = *n_busy = *n_queued = 0;
}

bool serve_workers_are_stopping(void)
{
    return false;
}

bool serve_workers_have_room(serve_workers *workers, const serve_call *call, size_t most)
{
    (void)workers, (void)call, (void)most;
    return true;
}

bool serve_workers_go_on(void *unused)
{
    (void)unused;
    return true;
}

void serve_call_send(serve_call *call)
{
    (void)call;
}

/* ---- Answers ---- */

static void require_json(const char *bytes, size_t n)
{
    json_error_t error;
    json_t *json = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    /* Valid, but jansson reads no such key: a token may be the byte 0. */
    if (json == NULL && json_error_code(&error) == json_error_null_byte_in_key) return;
    require(json_is_object(json));
    json_decref(json);
}

/* Events of one chunk: each is data with an object or the end, or a comment. */
static void require_events(const char *bytes, size_t n)
{
    while (n > 0) {
        const char *begin = bytes, *end = strstr(bytes, "\n\n");
        require(end != NULL && end + 2 <= bytes + n);
        size_t length = (size_t)(end - bytes);
        const char *data = bytes;
        if (strncmp(bytes, "id: ", 4) == 0) {
            data = strchr(bytes, '\n') + 1;
            require(data < end && strspn(bytes + 4, "0123456789") == (size_t)(data - bytes) - 5);
            length -= (size_t)(data - bytes);
        }
        bytes = data;
        if (bytes[0] != ':') {
            require(length > 6 && memcmp(bytes, "data: ", 6) == 0 && memchr(bytes, '\n', length) == NULL);
            if (length != 12 || memcmp(bytes + 6, "[DONE]", 6) != 0) require_json(bytes + 6, length - 6);
        }
        n -= (size_t)(end + 2 - begin);
        bytes = end + 2;
    }
}

static void require_chunks(const char *bytes, size_t n, bool ended)
{
    bool last = false;
    while (n > 0) {
        char *end;
        size_t length = strtoul(bytes, &end, 16);
        require(!last && end > bytes && end[0] == '\r' && end[1] == '\n');
        size_t head = (size_t)(end - bytes) + 2;
        require(head + length + 2 <= n && memcmp(end + 2 + length, "\r\n", 2) == 0);
        require_events(end + 2, length);
        last = length == 0;
        bytes += head + length + 2;
        n -= head + length + 2;
    }
    require(last == ended);
}

static void require_answer(const serve_call *call)
{
    const weir__text *out = &call->out;
    require(!out->failed && out->n > 12 && strlen(out->bytes) == out->n &&
            memcmp(out->bytes, "HTTP/1.1 ", 9) == 0);
    require(call->status == 200 || (call->status >= 400 && call->status < 500));
    require(weir__utf8_valid(out->bytes, out->n));
    const char *body = strstr(out->bytes, "\r\n\r\n");
    require(body != NULL);
    body += 4;
    size_t n = out->n - (size_t)(body - out->bytes);
    if (call->chunked)
        require_chunks(body, n, call->ended);
    else
        require_json(body, n);
}

/* ---- Calls ---- */

static void step(void)
{
    weir_error error = {0};
    require(weir_engine_step(loaded->engine, NULL, 0, NULL, &error) == WEIR_OK);
}

static void answer_call(serve_call *call, int patience)
{
    serve_answer *answer = call->answer;
    call->state = SERVE_ANSWERING;
    if (call->begun) return;
    require(answer != NULL);
    serve_answer_start(answer);
    if (call->answer == NULL && call->tape == NULL) return; /* refused */
    serve_call *maker = answer->call;                       /* itself, or the one whose events are on tape */
    for (int i = 0; i < patience && !maker->ended; i++) {
        step();
        if (i % 7 == 3) serve_answer_comment(call);
        serve_answer_pump(answer);
    }
    if (maker != call && maker->ended) serve_call_destroy(maker);
}

/* Another reader, or a request that stops it. */
static void resume(const char *id, const char *position, bool cancel)
{
    serve_call *call = serve_call_create(&server, NULL);
    require(call != NULL);
    snprintf(call->path, sizeof call->path, "/v1/streams/%s%s", id, cancel ? "/cancel" : "");
    snprintf(call->position, sizeof call->position, "%s", position);
    if (position[0] != '\0') call->position_from = "Last-Event-ID";
    call->state = SERVE_ANSWERING;
    if (cancel)
        serve_stream_cancel(call);
    else
        serve_stream_read(call);
    require(call->begun);
    if (call->status == 204)
        require(call->ended);
    else
        require_answer(call);
    serve_call_destroy(call);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    weir_engine_params params = weir_engine_params_default();
    (void)argc, (void)argv;
    static const char *const names[] = {"fake"};
    server.params.model = serve_model_params_default();
    server.params.model.embeddings = true;
    server.params.model.names = names;
    server.params.model.n_names = 1;
    require(serve_catalog_create(&server.params, &server.catalog, NULL) == WEIR_OK);
    serve_model *model = serve_catalog_find(server.catalog, NULL);
    serve_model_call(model, "fake");
    serve_model_release(model);
    loaded = serve_catalog_loaded(server.catalog);
    params.n_slots = 4;
    params.n_ctx = 128;
    params.manual = true;
    params.queue_limit = 64;
    require(weir_model_load("fake:any=1,eos_every=30", NULL, &loaded->model, NULL) == WEIR_OK);
    require(weir_engine_create(loaded->model, &params, &loaded->engine, NULL) == WEIR_OK);
    server.keys = serve_keys_create(&server.params);
    server.tapes = serve_tapes_create(&server);
    serve_share_init(&server.answers);
    serve_share_init(&server.media);
    serve_share_init(&server.bodies);
    server.params.grace_s = server.params.live.keep_s = 1;
    server.params.resume_bytes = 64 << 10;
    require(server.keys != NULL && server.tapes != NULL);
    weir_adapter *adapter;
    require(weir_adapter_load(loaded->model, "fake:1", &adapter, NULL) == WEIR_OK);
    require(serve_adapters_add(loaded->adapters, "sql", adapter, 0.5f, false, NULL) == WEIR_OK);
    weir_adapter_release(adapter);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const serve_route routes[] = {
        {.handle = serve_chat, .work = true, .engine = true},
        {.handle = serve_completions, .work = true, .engine = true},
        {.handle = serve_plan, .work = true, .engine = true},
        {.handle = serve_tokenize, .work = true, .model = true},
        {.handle = serve_detokenize, .work = true, .model = true},
        {.handle = serve_apply_template, .work = true, .engine = true},
        {.handle = serve_embeddings, .work = true, .model = true},
        {.handle = serve_rerank, .work = true, .model = true},
    };
    if (size < 2) return 0;
    weir_engine_stats stats = {.size = sizeof stats};
    serve_call *call = serve_call_create(&server, NULL);
    require(call != NULL);
    serve_lease_begin(call);
    strcpy(call->method, "POST");
    weir__text_add(&call->body, (const char *)data + 2, size - 2);
    call->state = SERVE_WORKING;
    call->route = &routes[data[0] % (sizeof routes / sizeof *routes)];
    call->route->handle(call);
    answer_call(call, data[1] == 255 ? TICKS_MAX : data[1]);
    if (call->begun) require_answer(call);
    if (call->tape != NULL) {
        char position[24] = "", id[SERVE_ID_MAX];
        size_t n = size - 2 < 2 ? size - 2 : 2;
        for (size_t i = 0; i < n; i++) snprintf(position + i * 3, 4, "%d", data[size - 1 - i] % 100);
        strcpy(id, call->stream_id);
        resume(id, "", false);
        resume(id, position, false);
        memcpy(position, data + 2, n);
        resume(id, position, false);
        if (data[1] % 2 == 0) resume(id, "", true);
    }
    serve_call_destroy(call);
    serve_tapes_sweep(server.tapes, INT64_MAX);
    require(server.n_calls == 0 && server.calls == NULL);
    require(serve_share_used(&server.answers) == 0 && serve_share_used(&server.media) == 0 &&
            serve_share_used(&server.bodies) == 0);
    /* Running requests have ended with their call. */
    step();
    step();
    require(weir_engine_get_stats(loaded->engine, &stats) == WEIR_OK);
    require(stats.queue_depth == 0 && stats.n_slots_prefilling + stats.n_slots_generating == 0);
    return 0;
}

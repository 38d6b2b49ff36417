/* models_test.c: several models behind one server, over HTTP, on the fake model.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "model.h"
#include "server/request/serve.h"
#include "server/server.h"

#define N_MODELS 3
#define PATIENCE 120 /* seconds until a test that hangs fails */

/* ---- A server ---- */

static weir_engine_params engine_params;
static weir_pool_model entries[8];
static serve_model_params models[8];
static serve_params params;
static weir_pool_params pool;
static serve_server *server;
static const char *client_key; /* NULL: requests have none */

static void set_model(size_t i, const char *name, const char *path)
{
    entries[i] = weir_pool_model_default();
    entries[i].name = name;
    entries[i].path = path;
    entries[i].engine = &engine_params;
    models[i] = serve_model_params_default();
    models[i].entry = &entries[i];
}

/* The share of one model in the budget. */
static uint64_t need_of(const char *path)
{
    weir_engine_memory memory = {.size = sizeof memory};
    assert_int_equal(weir_engine_estimate(path, NULL, &engine_params, &memory, NULL), WEIR_OK);
    return memory.model_bytes + memory.kv_bytes + memory.compute_bytes + engine_params.cache_bytes +
           engine_params.lookup_bytes;
}

static void prepare(const char *more)
{
    static char paths[N_MODELS][64];
    static const char *const names[N_MODELS] = {"one", "two", "three"};
    engine_params = weir_engine_params_default();
    engine_params.n_slots = 2;
    engine_params.n_ctx = 4096;
    engine_params.cache_bytes = 1 << 20;
    engine_params.lookup_bytes = 0;
    params = serve_params_default();
    params.port = 0;
    params.live.log = false;
    params.load_s = PATIENCE;
    params.models = models;
    params.n_models = N_MODELS;
    pool = weir_pool_params_default();
    params.pool = &pool;
    for (size_t i = 0; i < N_MODELS; i++) {
        snprintf(paths[i], sizeof paths[i], "fake:seed=%zu%s", i + 1, more);
        set_model(i, names[i], paths[i]);
    }
    pool.memory_bytes = need_of(paths[0]) * 5 / 2; /* two fit */
}

static void start(void)
{
    weir_error error = {0};
    if (serve_server_create(&params, &server, &error) != WEIR_OK) fail_msg("%s", error.message);
}

static int stop(void **state)
{
    (void)state;
    serve_server_destroy(server);
    server = NULL;
    client_key = NULL;
    return 0;
}

/* ---- A client ---- */

typedef struct reply {
    int status;
    weir__text text; /* head and body */
    const char *body;
} reply;

static int connect_to(const serve_server *to)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct timeval patience = {.tv_sec = PATIENCE};
    const char *colon = strrchr(serve_server_address(to), ':');
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static int request(const serve_server *to, const char *method, const char *path, const char *body)
{
    weir__text text = {0};
    int fd = connect_to(to);
    weir__text_printf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", method, path);
    if (client_key != NULL) weir__text_printf(&text, "Authorization: Bearer %s\r\n", client_key);
    if (body != NULL) weir__text_printf(&text, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    if (body == NULL) weir__text_add_string(&text, "\r\n");
    assert_false(text.failed);
    assert_int_equal(send(fd, text.bytes, text.n, MSG_NOSIGNAL), (ssize_t)text.n);
    weir__text_fini(&text);
    return fd;
}

/* Reads until the server closes; ends the connection. */
static reply finish(int fd)
{
    reply r = {0};
    char bytes[16384];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) weir__text_add(&r.text, bytes, (size_t)n);
    assert_int_equal(n, 0);
    close(fd);
    weir__text_add(&r.text, "", 1);
    assert_int_equal(sscanf(r.text.bytes, "HTTP/1.1 %d", &r.status), 1);
    r.body = strstr(r.text.bytes, "\r\n\r\n") + 4;
    return r;
}

static reply ask(const char *method, const char *path, const char *body)
{
    return finish(request(server, method, path, body));
}

static void forget(reply *r)
{
    weir__text_fini(&r->text);
}

static void expect(const char *method, const char *path, const char *body, int status, const char *word)
{
    reply r = ask(method, path, body);
    if (r.status != status || strstr(r.text.bytes, word) == NULL)
        fail_msg("%s %s %s: %s", method, path, body != NULL ? body : "", r.text.bytes);
    forget(&r);
}

/* The text that a whole completion has. Freed by the caller. */
static char *text_of(const reply *r)
{
    json_t *json = json_loads(r->body, 0, NULL);
    const char *text =
        json_string_value(json_object_get(json_array_get(json_object_get(json, "choices"), 0), "text"));
    char *copy = text != NULL ? strdup(text) : NULL;
    json_decref(json);
    return copy;
}

static void write_request(char *to, size_t size, const char *model, int number, bool stream)
{
    snprintf(to, size,
             "{\"model\":\"%s\",\"prompt\":\"prompt %d\",\"max_tokens\":24,\"temperature\":0,\"stream\":%s}",
             model, number, stream ? "true" : "false");
}

/* A metric, until it has this value. */
static void await_metric(const char *name, double value)
{
    for (int i = 0; i < PATIENCE * 100; i++) {
        reply r = ask("GET", "/metrics", NULL);
        const char *at = strstr(r.body, name);
        while (at != NULL && (at[-1] != '\n' || at[strlen(name)] != ' ')) at = strstr(at + 1, name);
        double now = at != NULL ? strtod(at + strlen(name), NULL) : -1;
        forget(&r);
        if (now == value) return;
        usleep(10000);
    }
    fail_msg("%s is never %g", name, value);
}

/* A model's state, until it is this one. While a model leaves, the server still has its data. */
static void await_state(const char *model, const char *state)
{
    char path[128], wanted[64];
    snprintf(path, sizeof path, "/v1/models/%s", model);
    snprintf(wanted, sizeof wanted, "\"state\":\"%s\"", state);
    for (int i = 0; i < PATIENCE * 100; i++) {
        reply r = ask("GET", path, NULL);
        bool reached = strstr(r.body, wanted) != NULL;
        forget(&r);
        if (reached) return;
        usleep(10000);
    }
    fail_msg("%s is never %s", model, state);
}

/* ---- The same text as alone ---- */

#define PROMPTS 8
static char *alone[N_MODELS][PROMPTS];

/* Asks a server of that one model. */
static void ask_alone(size_t i)
{
    serve_params single = serve_params_default();
    serve_server *one;
    weir_model *model;
    weir_engine *engine;
    single.port = 0;
    single.live.log = false;
    assert_int_equal(serve_server_create(&single, &one, NULL), WEIR_OK);
    assert_int_equal(weir_model_load(entries[i].path, NULL, &model, NULL), WEIR_OK);
    assert_int_equal(weir_engine_create(model, &engine_params, &engine, NULL), WEIR_OK);
    serve_server_name(one, entries[i].name);
    serve_server_ready(one, model, engine);
    for (int k = 0; k < PROMPTS; k++) {
        char body[256];
        write_request(body, sizeof body, entries[i].name, k, false);
        reply r = finish(request(one, "POST", "/v1/completions", body));
        assert_int_equal(r.status, 200);
        assert_non_null(alone[i][k] = text_of(&r));
        forget(&r);
    }
    serve_server_destroy(one);
    weir_engine_destroy(engine);
    weir_model_release(model);
}

typedef struct client {
    pthread_t thread;
    unsigned seed;
    int n, n_wrong;
    char first[512];
} client;

static void *run_client(void *user)
{
    client *c = user;
    for (int i = 0; i < c->n; i++) {
        size_t model = (size_t)rand_r(&c->seed) % N_MODELS;
        int number = rand_r(&c->seed) % PROMPTS;
        char body[256];
        write_request(body, sizeof body, entries[model].name, number, false);
        reply r = ask("POST", "/v1/completions", body);
        char *text = r.status == 200 ? text_of(&r) : NULL;
        if (text == NULL || strcmp(text, alone[model][number]) != 0) {
            if (c->n_wrong++ == 0) snprintf(c->first, sizeof c->first, "%s", r.text.bytes);
        }
        free(text);
        forget(&r);
    }
    return NULL;
}

static void three_models_where_two_fit(void **state)
{
    client clients[4] = {{0}};
    (void)state;
    prepare("");
    for (size_t i = 0; i < N_MODELS; i++) ask_alone(i);
    start();
    for (size_t i = 0; i < 4; i++) {
        clients[i].seed = (unsigned)i + 1;
        clients[i].n = 40;
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) pthread_join(clients[i].thread, NULL);
    for (size_t i = 0; i < 4; i++)
        if (clients[i].n_wrong > 0) fail_msg("%d wrong: %s", clients[i].n_wrong, clients[i].first);
    for (size_t i = 0; i < N_MODELS; i++)
        for (int k = 0; k < PROMPTS; k++) free(alone[i][k]);
    expect("GET", "/metrics", NULL, 200, "weir_pool_failed_loads_total 0\n");
}

/* ---- Names ---- */

static void names_find_their_models(void **state)
{
    static const char *const aliases[] = {"zwei", SERVE_ANY_NAME};
    char body[256];
    (void)state;
    prepare("");
    models[1].names = aliases;
    models[1].n_names = 1;
    start();
    write_request(body, sizeof body, "zwei", 1, false);
    expect("POST", "/v1/completions", body, 200, "\"model\":\"two\"");
    expect("POST", "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":2}", 200, "\"model\":\"one\"");
    expect("POST", "/v1/completions", "{\"model\":\"default\",\"prompt\":\"x\",\"max_tokens\":2}", 200,
           "\"model\":\"one\"");
    expect("POST", "/v1/completions?model=three", "{\"prompt\":\"x\",\"max_tokens\":2}", 200,
           "\"model\":\"three\"");
    expect("POST", "/v1/completions?model=three", "{\"model\":\"two\",\"prompt\":\"x\",\"max_tokens\":2}",
           400, "in the address");
    write_request(body, sizeof body, "vier", 1, false);
    expect("POST", "/v1/completions", body, 404, "\\\"one\\\", \\\"two\\\", \\\"three\\\"");
    expect("POST", "/v1/messages",
           "{\"model\":\"vier\",\"max_tokens\":2,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", 404,
           "not_found_error");
    expect("POST", "/v1/completions", "{\"model\":7,\"prompt\":\"x\"}", 400, "model must be a string");
    expect("POST", "/v1/completions", "{\"model\":", 400, "invalid_json");
    expect("GET", "/slots?model=%74hree", NULL, 200, "\"id\":1");
    expect("GET", "/props?model=vier", NULL, 404, "model_not_found");
    expect("GET", "/v1/models/zwei", NULL, 200, "\"id\":\"two\"");
    expect("GET", "/v1/models/vier", NULL, 404, "model_not_found");
    stop(NULL);
    models[1].n_names = 2;
    start();
    write_request(body, sizeof body, "vier", 1, false);
    expect("POST", "/v1/completions", body, 200, "\"model\":\"two\"");
}

static void a_name_is_given_once(void **state)
{
    static const char *const aliases[] = {"three"};
    weir_error error = {0};
    (void)state;
    prepare("");
    models[0].names = aliases;
    models[0].n_names = 1;
    assert_int_equal(serve_server_create(&params, &server, &error), WEIR_INVALID);
    assert_string_equal(error.field, "models[2].name");
    models[0].n_names = 0;
    entries[2].name = "";
    assert_int_equal(serve_server_create(&params, &server, &error), WEIR_INVALID);
}

/* ---- States ---- */

static void models_tell_their_states(void **state)
{
    char body[256];
    (void)state;
    prepare("");
    start();
    expect("GET", "/v1/models", NULL, 200, "\"id\":\"three\"");
    expect("GET", "/v1/models/one", NULL, 200, "\"state\":\"unloaded\"");
    expect("GET", "/props?model=one", NULL, 503, "model_not_loaded");
    expect("GET", "/slots?model=one", NULL, 200, "[]");
    expect("POST", "/v1/models/load", "{\"model\":\"one\"}", 200, "\"success\":true");
    await_state("one", "loaded");
    expect("GET", "/v1/models/one", NULL, 200, "\"abilities\":["); /* no request has named it yet */
    expect("GET", "/props?model=one", NULL, 200, "\"model_alias\":\"one\"");
    write_request(body, sizeof body, "one", 1, false);
    expect("POST", "/v1/completions", body, 200, "\"model\":\"one\"");
    expect("GET", "/metrics", NULL, 200, "weir_slots{model=\"one\"} 2\n");
    expect("GET", "/metrics", NULL, 200, "weir_finished_total{reason=\"length\",model=\"one\"} 1\n");
    expect("GET", "/v1/models/one", NULL, 200, "\"n_ctx\":4096");
    expect("POST", "/v1/models/unload", "{\"model\":\"one\"}", 200, "\"success\":true");
    await_state("one", "unloaded");
    expect("GET", "/props?model=one", NULL, 503, "model_not_loaded");
    expect("POST", "/v1/models/load", "{\"model\":\"vier\"}", 404, "\\\"one\\\", \\\"two\\\"");
    expect("POST", "/v1/models/load", "{}", 400, "model is missing");
    expect("POST", "/v1/models/unload", "{\"model\":\"one\",\"modle\":1}", 400, "\"param\":\"modle\"");
}

static void events_follow_a_model(void **state)
{
    char body[256], bytes[4096];
    weir__text text = {0};
    (void)state;
    prepare("");
    start();
    int fd = request(server, "GET", "/events?model=two", NULL);
    write_request(body, sizeof body, "two", 1, false);
    expect("POST", "/v1/completions", body, 200, "\"model\":\"two\"");
    while (text.n == 0 || strstr(text.bytes, "\"decode\":") == NULL) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        assert_true(n > 0);
        weir__text_add(&text, bytes, (size_t)n);
        weir__text_add(&text, "", 1);
        text.n--;
    }
    assert_non_null(strstr(text.bytes, "\"model\":\"two\""));
    assert_non_null(strstr(text.bytes, "\"models\":[{\"name\":\"one\""));
    weir__text_fini(&text);
    close(fd);
}

/* ---- Waiting ---- */

/* Streams that go on until they are closed, on the first two models. */
static void occupy(int fds[2])
{
    static const char *const bodies[] = {
        "{\"model\":\"one\",\"prompt\":\"x\",\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":true}",
        "{\"model\":\"two\",\"prompt\":\"x\",\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":true}",
    };
    for (int i = 0; i < 2; i++) {
        char bytes[13] = "";
        fds[i] = request(server, "POST", "/v1/completions", bodies[i]);
        assert_int_equal(recv(fds[i], bytes, sizeof bytes - 1, MSG_WAITALL), sizeof bytes - 1);
        assert_string_equal(bytes, "HTTP/1.1 200");
    }
}

static void a_request_waits_for_memory(void **state)
{
    char body[256];
    int fds[2], waiting[8];
    (void)state;
    prepare(",tick_us=20000");
    start();
    occupy(fds);
    write_request(body, sizeof body, "three", 1, false);
    for (int i = 0; i < 8; i++) waiting[i] = request(server, "POST", "/v1/completions", body);
    await_metric("weir_pool_waiting", 8);
    for (int i = 4; i < 8; i++) close(waiting[i]); /* who leaves waits no more */
    await_metric("weir_pool_waiting", 4);
    write_request(body, sizeof body, "two", 1, false);
    expect("POST", "/v1/completions", body, 200, "\"model\":\"two\""); /* others do not wait for it */
    expect("GET", "/health", NULL, 200, "ok");
    close(fds[0]);
    for (int i = 0; i < 4; i++) {
        reply r = finish(waiting[i]);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.body, "\"model\":\"three\""));
        forget(&r);
    }
    close(fds[1]);
}

static void a_wait_has_an_end(void **state)
{
    char body[256];
    int fds[2];
    (void)state;
    prepare(",tick_us=20000");
    params.load_s = 1;
    start();
    occupy(fds);
    write_request(body, sizeof body, "three", 1, true);
    reply r = ask("POST", "/v1/completions", body);
    if (r.status != 503) fail_msg("%s", r.text.bytes);
    assert_non_null(strstr(r.text.bytes, "Retry-After: "));
    assert_non_null(strstr(r.body, "\"code\":\"model_busy\""));
    forget(&r);
    close(fds[0]);
    close(fds[1]);
}

static void a_crowd_waits_within_its_bound(void **state)
{
    char body[256];
    int fds[2], crowd[60];
    int n_waiting = 0;
    (void)state;
    prepare(",tick_us=20000");
    pool.queue_limit = 16;
    start();
    occupy(fds);
    write_request(body, sizeof body, "three", 1, false);
    for (int i = 0; i < 60; i++) crowd[i] = request(server, "POST", "/v1/completions", body);
    await_metric("weir_http_responses_total{code=\"503\"}", 44);
    write_request(body, sizeof body, "vier", 1, false);
    for (int i = 0; i < 100; i++) expect("POST", "/v1/completions", body, 404, "model_not_found");
    close(fds[0]);
    close(fds[1]);
    for (int i = 0; i < 60; i++) {
        reply r = finish(crowd[i]);
        assert_true(r.status == 200 || r.status == 503);
        n_waiting += r.status == 200;
        forget(&r);
    }
    assert_int_equal(n_waiting, 16);
}

static void a_drain_ends_those_that_wait(void **state)
{
    char body[256];
    (void)state;
    prepare(",load_us=3600000000"); /* an hour: the drain ends the load */
    params.live.drain_s = 0;
    start();
    write_request(body, sizeof body, "three", 1, false);
    int fd = request(server, "POST", "/v1/completions", body);
    await_metric("weir_pool_waiting", 1);
    serve_server_drain(server);
    reply r = finish(fd);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "stopping"));
    forget(&r);
    assert_true(serve_server_wait(server, PATIENCE * 1000));
}

static void a_pinned_model_stays(void **state)
{
    char body[256];
    (void)state;
    prepare("");
    entries[2].pinned = true;
    start();
    await_metric("weir_pool_loaded", 1);
    await_metric("weir_slots{model=\"three\"}", 2);
    expect("GET", "/v1/models/three", NULL, 200, "\"n_ctx\":4096"); /* nobody has asked for it */
    for (int i = 0; i < 3; i++) {
        write_request(body, sizeof body, i % 2 == 0 ? "one" : "two", i, false);
        expect("POST", "/v1/completions", body, 200, "length");
        expect("GET", "/v1/models/three", NULL, 200, "\"state\":\"loaded\"");
    }
    expect("GET", "/v1/models/three", NULL, 200, "\"pinned\":true");
}

/* A stream that can be resumed needs its model as long as it generates, and no longer. */
static void a_stream_without_a_reader_keeps_its_model(void **state)
{
    char bytes[1024] = "", path[128];
    (void)state;
    prepare(",tick_us=1000");
    start();
    int fd = request(server, "POST", "/v1/completions",
                     "{\"model\":\"two\",\"prompt\":\"x\",\"max_tokens\":200,\"ignore_eos\":true,"
                     "\"stream\":true,\"resume\":true}");
    assert_true(recv(fd, bytes, sizeof bytes - 1, 0) > 0);
    close(fd);
    const char *id = strstr(bytes, "X-Stream-Id: ");
    assert_non_null(id);
    snprintf(path, sizeof path, "/v1/streams/%.*s", (int)strcspn(id + 13, "\r"), id + 13);
    expect("POST", "/v1/models/unload", "{\"model\":\"two\"}", 200, "true");
    expect("GET", path, NULL, 200, "[DONE]");
    await_metric("weir_pool_loaded", 0);
    expect("GET", path, NULL, 200, "\"finish_reason\":\"length\"");
}

/* ---- Faults and reloads ---- */

static void a_model_that_cannot_be_loaded(void **state)
{
    char body[256];
    weir_error error = {0};
    (void)state;
    prepare("");
    entries[0].path = "/nonexistent/model.gguf";
    start();
    write_request(body, sizeof body, "one", 1, false);
    for (int i = 0; i < 3; i++) expect("POST", "/v1/completions", body, 503, "model_load_failed");
    expect("GET", "/v1/models/one", NULL, 200, "\"state\":\"failed\"");
    write_request(body, sizeof body, "two", 1, false);
    expect("POST", "/v1/completions", body, 200, "\"model\":\"two\"");
    entries[0].path = "fake:seed=1"; /* the operator mends the list */
    assert_int_equal(serve_server_reload(server, &params, &error), WEIR_OK);
    write_request(body, sizeof body, "one", 1, false);
    expect("POST", "/v1/completions", body, 200, "\"model\":\"one\"");
}

static void a_model_larger_than_the_budget(void **state)
{
    char body[256];
    (void)state;
    prepare("");
    pool.memory_bytes = need_of(entries[0].path) / 2;
    start();
    write_request(body, sizeof body, "one", 1, false);
    expect("POST", "/v1/completions", body, 503, "model_too_large");
    expect("POST", "/v1/completions", body, 503, "a smaller --ctx or less --cache-memory");
    reply r = ask("POST", "/v1/completions", body);
    assert_null(strstr(r.text.bytes, "Retry-After"));
    forget(&r);
}

/* Whichever allocation fails. */
static void a_failed_reload_changes_nothing(void **state)
{
    enum { N_KEYS = 20 };
    static char texts[N_KEYS][16];
    serve_key keys[N_KEYS];
    weir_error error = {0};
    (void)state;
    prepare("");
    for (int i = 0; i < N_KEYS; i++) {
        snprintf(texts[i], sizeof texts[i], "key-%d", i);
        keys[i] = (serve_key){texts[i], SERVE_UNSAID, SERVE_UNSAID, SERVE_UNSAID, false};
    }
    params.live.keys = keys;
    params.live.n_keys = 1;
    start();
    serve_params fewer = params;
    fewer.models = models + 1;
    fewer.n_models = 2;
    fewer.live.n_keys = N_KEYS;
    bool pending = false;
    int n_failed = 0;
    for (int n = 0; !pending; n++) {
        weir__mem_fail_after(n);
        weir_status status = serve_server_reload(server, &fewer, &error);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        client_key = texts[N_KEYS - 1];
        expect("GET", "/v1/models", NULL, status == WEIR_OK ? 200 : 401, "");
        client_key = texts[0];
        expect("GET", "/v1/models/one", NULL, status == WEIR_OK ? 404 : 200, "");
        if (status == WEIR_OK) /* another thread's allocation may have failed */
            assert_int_equal(serve_server_reload(server, &params, &error), WEIR_OK);
        else
            assert_int_equal(status, WEIR_NO_MEMORY);
        n_failed += status != WEIR_OK;
    }
    assert_true(n_failed > 3); /* models and keys */
}

static void a_reload_ends_no_stream(void **state)
{
    int fds[2];
    char body[256];
    weir_error error = {0};
    (void)state;
    prepare(",tick_us=1000");
    start();
    fds[0] = request(
        server, "POST", "/v1/completions",
        "{\"model\":\"one\",\"prompt\":\"x\",\"max_tokens\":300,\"ignore_eos\":true,\"stream\":true}");
    char byte;
    assert_int_equal(recv(fds[0], &byte, 1, MSG_PEEK), 1);
    params.models = models + 1;
    params.n_models = 2;
    assert_int_equal(serve_server_reload(server, &params, &error), WEIR_OK);
    write_request(body, sizeof body, "one", 1, false);
    expect("POST", "/v1/completions", body, 404, "model_not_found");
    reply r = finish(fds[0]);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(r.body, "[DONE]"));
    forget(&r);
    await_metric("weir_pool_loaded", 0);
    entries[1].name = "two"; /* a name twice: everything stays as it is */
    entries[2].name = "two";
    assert_int_equal(serve_server_reload(server, &params, &error), WEIR_INVALID);
    write_request(body, sizeof body, "three", 1, false);
    expect("POST", "/v1/completions", body, 200, "\"model\":\"three\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(three_models_where_two_fit, stop),
        cmocka_unit_test_teardown(names_find_their_models, stop),
        cmocka_unit_test_teardown(a_name_is_given_once, stop),
        cmocka_unit_test_teardown(models_tell_their_states, stop),
        cmocka_unit_test_teardown(events_follow_a_model, stop),
        cmocka_unit_test_teardown(a_request_waits_for_memory, stop),
        cmocka_unit_test_teardown(a_wait_has_an_end, stop),
        cmocka_unit_test_teardown(a_crowd_waits_within_its_bound, stop),
        cmocka_unit_test_teardown(a_drain_ends_those_that_wait, stop),
        cmocka_unit_test_teardown(a_pinned_model_stays, stop),
        cmocka_unit_test_teardown(a_stream_without_a_reader_keeps_its_model, stop),
        cmocka_unit_test_teardown(a_model_that_cannot_be_loaded, stop),
        cmocka_unit_test_teardown(a_model_larger_than_the_budget, stop),
        cmocka_unit_test_teardown(a_failed_reload_changes_nothing, stop),
        cmocka_unit_test_teardown(a_reload_ends_no_stream, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "remote.h"

#include <stdio.h>
#include <string.h>

#include "signals.h"

#ifndef WEIR_CURL

cli_remote *cli_remote_create(const cli_args *args, cli_exit *code)
{
    *code =
        cli_fail(CLI_FAILED,
                 "this weir was built without libcurl, which weir %s needs: run scripts/deps.sh and build "
                 "again",
                 args->command->name);
    return NULL;
}

void cli_remote_destroy(cli_remote *remote)
{
    (void)remote;
}

void cli_remote_listen(cli_remote *remote, cli_sse_fn on_event, void *user)
{
    (void)remote, (void)on_event, (void)user;
}

void cli_remote_ask(cli_remote *remote, const char *path, cli_remote_fn on_text, void *user)
{
    (void)remote, (void)path, (void)on_text, (void)user;
}

cli_remote_state cli_remote_listening(const cli_remote *remote)
{
    (void)remote;
    return CLI_REMOTE_REFUSED;
}

cli_remote_state cli_remote_asking(const cli_remote *remote)
{
    (void)remote;
    return CLI_REMOTE_REFUSED;
}

const char *cli_remote_problem(const cli_remote *remote)
{
    (void)remote;
    return "";
}

void cli_remote_wait(cli_remote *remote, int keys, int timeout_ms)
{
    (void)remote, (void)keys, (void)timeout_ms;
}

#else

#include <curl/curl.h>

#include "answer.h"
#include "text.h"
#include "transfer.h"

#define CONNECT_MS 5000
#define ASK_MS     10000
#define TEXT_MAX   (1u << 20) /* of a text, or of what an error says */

/* A request and its answer. */
typedef struct call {
    cli_remote *remote;
    CURL *easy; /* NULL = none is under way */
    cli_remote_state state;
    cli_sse_fn on_event; /* of the events; else: */
    cli_remote_fn on_text;
    void *user;
    cli_sse sse;
    cli_text text;
} call;

struct cli_remote {
    CURLM *multi;
    struct curl_slist *headers;
    char *url;        /* without a slash at the end */
    const char *path; /* of the Unix socket, NULL = TCP */
    call events, text;
    char problem[256]; /* of the events */
};

/* ---- What comes ---- */

/* libcurl's: returning less than came ends the transfer. */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *user)
{
    call *c = user;
    long status = 0;
    n *= size;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200 && c->on_event != NULL) {
        const char *type = NULL;
        curl_easy_getinfo(c->easy, CURLINFO_CONTENT_TYPE, &type);
        if (type == NULL || strncmp(type, "text/event-stream", 17) != 0) return 0;
        c->state = CLI_REMOTE_OPEN;
        return cli_sse_feed(&c->sse, bytes, n, c->on_event, c->user) == CLI_SSE_OK ? n : 0;
    }
    if (c->text.n + n > TEXT_MAX) return 0;
    cli_text_add(&c->text, bytes, n);
    return n;
}

static void let_go(call *c)
{
    if (c->easy != NULL) {
        curl_multi_remove_handle(c->remote->multi, c->easy);
        curl_easy_cleanup(c->easy);
    }
    c->easy = NULL;
    cli_sse_fini(&c->sse);
    c->sse = (cli_sse){0};
    weir__text_clear(&c->text);
}

/* What a status other than 200 means; the state after it. */
static cli_remote_state explain_status(const call *c, long status, char *problem, size_t capacity)
{
    char text[128];
    cli_answer_error_text(c->text.bytes != NULL ? c->text.bytes : "", c->text.n, text, sizeof text);
    if (status == 401 || status == 403)
        snprintf(problem, capacity, "it wants a key: --api-key, or WEIR_API_KEY");
    else if (status == 503)
        snprintf(problem, capacity, "%s", text);
    else
        snprintf(problem, capacity, "it answers %ld (%s): is that a weir serve?", status, text);
    return status == 429 || status >= 500 ? CLI_REMOTE_LOST : CLI_REMOTE_REFUSED;
}

static cli_remote_state explain(const call *c, CURLcode result, char *problem, size_t capacity)
{
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 0 && status != 200) return explain_status(c, status, problem, capacity);
    if (c->sse.status == CLI_SSE_NO_MEMORY) cli_no_memory();
    if (result == CURLE_WRITE_ERROR) { /* on_bytes refused them */
        snprintf(problem, capacity, "its answer is not the event stream of weir serve");
        return CLI_REMOTE_REFUSED;
    }
    if (status == 200)
        snprintf(problem, capacity, "the connection has ended");
    else if (result == CURLE_COULDNT_CONNECT)
        snprintf(problem, capacity, "cannot connect; is weir serve running?");
    else
        snprintf(problem, capacity, "cannot connect: %s", curl_easy_strerror(result));
    switch (result) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE: return CLI_REMOTE_REFUSED;
    default: return CLI_REMOTE_LOST;
    }
}

static void end(call *c, CURLcode result)
{
    cli_remote *remote = c->remote;
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (c->on_event != NULL)
        c->state = explain(c, result, remote->problem, sizeof remote->problem);
    else if (result == CURLE_OK && status == 200) {
        c->state = CLI_REMOTE_IDLE;
        c->on_text(c->text.bytes != NULL ? c->text.bytes : "", c->text.n, c->user);
    } else
        c->state = CLI_REMOTE_LOST;
    let_go(c);
}

/* ---- What is asked ---- */

static void begin(call *c, const char *path, long timeout_ms)
{
    cli_remote *remote = c->remote;
    char *url = cli_format("%s%s", remote->url, path);
    let_go(c);
    c->easy = cli_transfer_create(url, remote->headers, on_bytes, c);
    c->state = CLI_REMOTE_WAITING;
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, timeout_ms);
    if (remote->path != NULL) curl_easy_setopt(c->easy, CURLOPT_UNIX_SOCKET_PATH, remote->path);
    if (curl_multi_add_handle(remote->multi, c->easy) != CURLM_OK) cli_no_memory();
    cli_free(url);
}

void cli_remote_listen(cli_remote *remote, cli_sse_fn on_event, void *user)
{
    remote->events.on_event = on_event;
    remote->events.user = user;
    begin(&remote->events, "/events", 0);
}

void cli_remote_ask(cli_remote *remote, const char *path, cli_remote_fn on_text, void *user)
{
    if (remote->text.easy != NULL) return;
    remote->text.on_text = on_text;
    remote->text.user = user;
    begin(&remote->text, path, ASK_MS);
}

cli_remote_state cli_remote_listening(const cli_remote *remote)
{
    return remote->events.state;
}

cli_remote_state cli_remote_asking(const cli_remote *remote)
{
    return remote->text.state;
}

const char *cli_remote_problem(const cli_remote *remote)
{
    return remote->problem;
}

void cli_remote_wait(cli_remote *remote, int keys, int timeout_ms)
{
    struct curl_waitfd fds[2] = {{.fd = cli_signals_descriptor(), .events = CURL_WAIT_POLLIN},
                                 {.fd = keys, .events = CURL_WAIT_POLLIN}};
    int n_running, n_left;
    curl_multi_perform(remote->multi, &n_running); /* what was begun since */
    curl_multi_poll(remote->multi, fds, keys >= 0 ? 2 : 1, timeout_ms, NULL);
    if (fds[0].revents != 0) cli_signals_drain();
    curl_multi_perform(remote->multi, &n_running);
    for (CURLMsg *message; (message = curl_multi_info_read(remote->multi, &n_left)) != NULL;) {
        char *c = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode result = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &c);
        end((call *)(void *)c, result);
    }
}

/* ---- The server ---- */

static void add_header(cli_remote *remote, const char *header)
{
    struct curl_slist *more = curl_slist_append(remote->headers, header);
    if (more == NULL) cli_no_memory();
    remote->headers = more;
}

cli_remote *cli_remote_create(const cli_args *args, cli_exit *code)
{
    static const char unix_socket[] = "unix:";
    const char *url = args->url != NULL ? args->url : CLI_REMOTE_URL, *key = args->api_key;
    bool local = strncmp(url, unix_socket, sizeof unix_socket - 1) == 0;
    if (!local && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        *code = cli_fail(CLI_USAGE,
                         "--url: %.200s is no address; expected: http://HOST:PORT, https://HOST, or "
                         "unix:FILE for what weir serve --unix listens on",
                         url);
        return NULL;
    }
    if (key != NULL && strpbrk(key, "\r\n") != NULL) {
        *code = cli_fail(CLI_USAGE, "--api-key has a line break");
        return NULL;
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) cli_no_memory();
    cli_remote *remote = cli_alloc(1, sizeof *remote);
    remote->events.remote = remote->text.remote = remote;
    remote->path = local ? url + sizeof unix_socket - 1 : NULL;
    remote->url = cli_format("%s", local ? "http://localhost" : url);
    for (size_t n = strlen(remote->url); n > 0 && remote->url[n - 1] == '/'; n--) remote->url[n - 1] = '\0';
    remote->multi = curl_multi_init();
    if (remote->multi == NULL) cli_no_memory();
    if (key != NULL && *key != '\0') {
        char *header = cli_format("Authorization: Bearer %s", key);
        add_header(remote, header);
        cli_free(header);
    }
    return remote;
}

void cli_remote_destroy(cli_remote *remote)
{
    if (remote == NULL) return;
    let_go(&remote->events);
    let_go(&remote->text);
    weir__text_fini(&remote->text.text);
    weir__text_fini(&remote->events.text);
    curl_multi_cleanup(remote->multi);
    curl_slist_free_all(remote->headers);
    curl_global_cleanup();
    cli_free(remote->url);
    cli_free(remote);
}

#endif

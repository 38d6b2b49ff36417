/* SPDX-License-Identifier: Apache-2.0 */
#include "remote.h"

#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "signals.h"
#include "text.h"
#include "transfer/transfer.h"

#define CONNECT_MS 5000
#define ASK_MS     10000
#define TEXT_MAX   (1u << 20) /* of a text, or of what an error says */

/* A request and its answer. */
typedef struct call {
    cli_remote *remote;
    weir__transfer *transfer; /* NULL = none is under way */
    cli_remote_state state;
    cli_sse_fn on_event; /* of the events; else: */
    cli_remote_fn on_text;
    void *user;
    cli_sse sse;
    cli_text text;
} call;

struct cli_remote {
    weir__transfers *transfers;
    char *key;        /* a line of each request's head; NULL = none */
    char *url;        /* without a slash at the end */
    const char *path; /* of the Unix socket, NULL = TCP */
    call events, text;
    char problem[256]; /* of the events */
};

/* ---- What comes ---- */

static bool on_bytes(const weir__transfer_head *head, const char *bytes, size_t n, void *user)
{
    call *c = user;
    if (c->on_event != NULL && head->status == 200) {
        if (head->type == NULL || strncmp(head->type, "text/event-stream", 17) != 0) return false;
        c->state = CLI_REMOTE_OPEN;
        return cli_sse_feed(&c->sse, bytes, n, c->on_event, c->user) == CLI_SSE_OK;
    }
    if (c->text.n + n > TEXT_MAX) return false;
    cli_text_add(&c->text, bytes, n);
    return true;
}

static void let_go(call *c)
{
    c->transfer = NULL;
    cli_sse_fini(&c->sse);
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

static cli_remote_state explain(const call *c, const weir__transfer_result *result, char *problem,
                                size_t capacity)
{
    if (result->head.status != 0 && result->head.status != 200)
        return explain_status(c, result->head.status, problem, capacity);
    if (c->sse.status == CLI_SSE_NO_MEMORY) cli_no_memory();
    if (result->end == WEIR__TRANSFER_LEFT)
        snprintf(problem, capacity, "its answer is not the event stream of weir serve");
    else if (result->head.status == 200)
        snprintf(problem, capacity, "the connection has ended");
    else if (result->end == WEIR__TRANSFER_CLOSED)
        snprintf(problem, capacity, "cannot connect; is weir serve running?");
    else
        snprintf(problem, capacity, "cannot connect: %s", result->problem);
    switch (result->end) {
    case WEIR__TRANSFER_LEFT:
    case WEIR__TRANSFER_BAD_URL:
    case WEIR__TRANSFER_DISTRUSTED: return CLI_REMOTE_REFUSED;
    default: return CLI_REMOTE_LOST;
    }
}

static void on_end(const weir__transfer_result *result, void *user)
{
    call *c = user;
    cli_remote *remote = c->remote;
    if (c->on_event != NULL)
        c->state = explain(c, result, remote->problem, sizeof remote->problem);
    else if (result->end == WEIR__TRANSFER_WHOLE && result->head.status == 200) {
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
    const char *const headers[] = {remote->key, NULL};
    const weir__transfer_request request = {
        .url = url,
        .unix_path = remote->path,
        .headers = headers,
        .proxy = "", /* the server is near */
        .connect_ms = CONNECT_MS,
        .total_ms = timeout_ms,
        .on_bytes = on_bytes,
        .on_end = on_end,
        .user = c,
    };
    weir__transfer_drop(c->transfer);
    let_go(c);
    c->state = CLI_REMOTE_WAITING;
    c->transfer = weir__transfers_start(remote->transfers, &request);
    if (c->transfer == NULL) cli_no_memory();
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
    if (remote->text.transfer != NULL) return;
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
    const int fds[] = {cli_signals_descriptor(), keys};
    unsigned readable = weir__transfers_wait(remote->transfers, fds, keys >= 0 ? 2 : 1, timeout_ms);
    if ((readable & 1U) != 0) cli_signals_drain();
}

/* ---- The server ---- */

cli_remote *cli_remote_create(const cli_args *args, cli_exit *code)
{
    static const char unix_socket[] = "unix:";
    const char *url = args->url != NULL ? args->url : CLI_REMOTE_URL, *key = args->api_key;
    bool local = strncmp(url, unix_socket, sizeof unix_socket - 1) == 0;
    if (!weir__transfer_exists) {
        *code = cli_fail(CLI_FAILED,
                         "this weir was built without libcurl, which weir %s needs: run scripts/deps.sh and "
                         "build again",
                         args->command->name);
        return NULL;
    }
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
    cli_remote *remote = cli_alloc(1, sizeof *remote);
    remote->events.remote = remote->text.remote = remote;
    remote->path = local ? url + sizeof unix_socket - 1 : NULL;
    remote->url = cli_format("%s", local ? "http://localhost" : url);
    for (size_t n = strlen(remote->url); n > 0 && remote->url[n - 1] == '/'; n--) remote->url[n - 1] = '\0';
    if (key != NULL && *key != '\0') remote->key = cli_format("Authorization: Bearer %s", key);
    if ((remote->transfers = weir__transfers_create(0)) == NULL) cli_no_memory();
    return remote;
}

void cli_remote_destroy(cli_remote *remote)
{
    if (remote == NULL) return;
    weir__transfer_drop(remote->events.transfer);
    weir__transfer_drop(remote->text.transfer);
    let_go(&remote->events);
    let_go(&remote->text);
    weir__text_fini(&remote->text.text);
    weir__text_fini(&remote->events.text);
    weir__transfers_destroy(remote->transfers);
    cli_free(remote->key);
    cli_free(remote->url);
    cli_free(remote);
}

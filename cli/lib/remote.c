/* remote.c: asks the server for its events, passes them on as they come, and explains why it failed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "remote.h"

#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "base/ascii.h"
#include "hub/transfer/transfer.h"
#include "signals.h"
#include "text.h"

#define CONNECT_MS 5000
#define ERROR_MAX  (1u << 20) /* of an error's body */

struct cli_remote {
    weir__transfers *transfers;
    weir__transfer *transfer; /* NULL = nothing is under way */
    char *key;                /* a line of each request's head; NULL = none */
    char *url;
    const char *path; /* of the Unix socket, NULL = TCP */
    bool named;       /* the address has a model's name */
    cli_remote_state state;
    cli_sse_fn on_event;
    void *user;
    cli_sse sse;
    cli_text error;    /* the body of another status than 200 */
    char problem[256]; /* why it is lost or refused */
};

/* ---- Answers ---- */

static bool on_bytes(const weir__transfer_head *head, const char *bytes, size_t n, void *user)
{
    cli_remote *remote = user;
    if (head->status == 200) {
        if (head->type == NULL || strncmp(head->type, "text/event-stream", 17) != 0) return false;
        remote->state = CLI_REMOTE_OPEN;
        return cli_sse_feed(&remote->sse, bytes, n, remote->on_event, remote->user) == CLI_SSE_OK;
    }
    if (remote->error.n + n > ERROR_MAX) return false;
    cli_text_add(&remote->error, bytes, n);
    return true;
}

static void let_go(cli_remote *remote)
{
    remote->transfer = NULL;
    cli_sse_fini(&remote->sse);
    weir__text_clear(&remote->error);
}

/* Explains a status other than 200; returns the state after it. */
static cli_remote_state explain_status(cli_remote *remote, long status)
{
    char text[128];
    cli_answer_error_text(remote->error.bytes != NULL ? remote->error.bytes : "", remote->error.n, text,
                          sizeof text);
    if (status == 401)
        snprintf(remote->problem, sizeof remote->problem,
                 "the server requires a key: --api-key, or WEIR_API_KEY");
    else if (status == 403 || status == 503 || (status == 404 && remote->named))
        snprintf(remote->problem, sizeof remote->problem, "%s", text);
    else
        snprintf(remote->problem, sizeof remote->problem, "it answers %ld (%s): is that a weir serve?",
                 status, text);
    return status == 429 || status >= 500 ? CLI_REMOTE_LOST : CLI_REMOTE_REFUSED;
}

static cli_remote_state explain_end(cli_remote *remote, const weir__transfer_result *result)
{
    const char *words = "cannot connect; is weir serve running?";
    if (result->head.status != 0 && result->head.status != 200)
        return explain_status(remote, result->head.status);
    if (remote->sse.status == CLI_SSE_NO_MEMORY) cli_no_memory();
    if (result->end == WEIR__TRANSFER_LEFT)
        words = "its answer is not the event stream of weir serve";
    else if (result->head.status == 200)
        words = "the connection has ended";
    else if (result->end != WEIR__TRANSFER_CLOSED)
        words = result->problem;
    snprintf(remote->problem, sizeof remote->problem, "%s%s",
             words == result->problem ? "cannot connect: " : "", words);
    switch (result->end) {
    case WEIR__TRANSFER_LEFT:
    case WEIR__TRANSFER_BAD_URL:
    case WEIR__TRANSFER_DISTRUSTED: return CLI_REMOTE_REFUSED;
    default: return CLI_REMOTE_LOST;
    }
}

static void on_end(const weir__transfer_result *result, void *user)
{
    cli_remote *remote = user;
    remote->state = explain_end(remote, result);
    let_go(remote);
}

/* ---- Requests ---- */

void cli_remote_listen(cli_remote *remote, cli_sse_fn on_event, void *user)
{
    const char *const headers[] = {remote->key, NULL};
    const weir__transfer_request request = {
        .url = remote->url,
        .unix_path = remote->path,
        .headers = headers,
        .proxy = "", /* the server is near */
        .connect_ms = CONNECT_MS,
        .on_bytes = on_bytes,
        .on_end = on_end,
        .user = remote,
    };
    weir__transfer_drop(remote->transfer);
    let_go(remote);
    remote->on_event = on_event;
    remote->user = user;
    remote->state = CLI_REMOTE_WAITING;
    remote->transfer = weir__transfers_start(remote->transfers, &request);
    if (remote->transfer == NULL) cli_no_memory();
}

cli_remote_state cli_remote_listening(const cli_remote *remote)
{
    return remote->state;
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

/* A model's name as a part of an address. */
static void add_name(cli_text *text, const char *name)
{
    for (; *name != '\0'; name++) {
        if (weir__ascii_is_alnum(*name) || strchr("-._~", *name) != NULL)
            cli_text_add(text, name, 1);
        else
            cli_text_printf(text, "%%%02X", (unsigned char)*name);
    }
}

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
                         "--url: %.200s is not an address; expected: http://HOST:PORT, https://HOST, or "
                         "unix:FILE as in weir serve --unix",
                         url);
        return NULL;
    }
    if (key != NULL && strpbrk(key, "\r\n") != NULL) {
        *code = cli_fail(CLI_USAGE, "--api-key has a line break");
        return NULL;
    }
    cli_remote *remote = cli_alloc(1, sizeof *remote);
    remote->path = local ? url + sizeof unix_socket - 1 : NULL;
    const char *base = local ? "http://localhost" : url;
    int n = (int)strlen(base);
    while (n > 0 && base[n - 1] == '/') n--;
    cli_text query = {0};
    if ((remote->named = args->model_path != NULL)) {
        cli_text_puts(&query, "?model=");
        add_name(&query, args->model_path);
    }
    remote->url = cli_format("%.*s/events%s", n, base, query.n > 0 ? query.bytes : "");
    weir__text_fini(&query);
    if (key != NULL) remote->key = cli_format("Authorization: Bearer %s", key);
    if ((remote->transfers = weir__transfers_create(0)) == NULL) cli_no_memory();
    return remote;
}

void cli_remote_destroy(cli_remote *remote)
{
    if (remote == NULL) return;
    weir__transfer_drop(remote->transfer);
    let_go(remote);
    weir__text_fini(&remote->error);
    weir__transfers_destroy(remote->transfers);
    cli_free(remote->key);
    cli_free(remote->url);
    cli_free(remote);
}

/* weir top and weir ps: the state of a running server, live or once.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Both read the server's /events by libcurl, in one thread: nothing blocks but wait_for_remote, which waits
 * for bytes, signals and keys. Each event replaces the one before, and view.c writes the lines from it. ps
 * prints the first event; top draws each, and connects again if the server goes away, unless no other try
 * would help, as after a wrong key. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/clock.h"
#include "cli/lib/options.h"
#include "cli/lib/out.h"
#include "cli/lib/screen.h"
#include "cli/lib/signals.h"
#include "cli/lib/sse.h"
#include "cli/lib/text.h"
#include "cli/lib/view.h"
#include "hub/transfer/transfer.h"

/* ---- A running weir serve, asked over HTTP or a Unix socket ---- */

typedef struct cli_remote cli_remote;

typedef enum cli_remote_state {
    CLI_REMOTE_IDLE,    /* nothing was begun */
    CLI_REMOTE_WAITING, /* for the answer's first bytes */
    CLI_REMOTE_OPEN,
    CLI_REMOTE_LOST,    /* `problem` says why; another try may help */
    CLI_REMOTE_REFUSED, /* no other try would */
} cli_remote_state;

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

static void listen_to(cli_remote *remote, cli_sse_fn on_event, void *user)
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

/* Waits up to timeout_ms, or for bytes, a signal, or something to read from the descriptor `keys` (-1 =
 * none), and takes the bytes. */
static void wait_for_remote(cli_remote *remote, int keys, int timeout_ms)
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

/* The server that --url and --api-key name. NULL after a message: *code. */
static cli_remote *create_remote(const cli_args *args, cli_exit *code)
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

static void destroy_remote(cli_remote *remote)
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

/* ---- weir ps ---- */

#define PATIENCE_MS 10000

static bool take_first(const char *data, size_t length, void *user)
{
    cli_view *view = user;
    return cli_view_event(view, data, length);
}

/* Waits until an event is there. */
static cli_exit await_event(const cli_args *args, cli_remote *remote, cli_view *view)
{
    int64_t end_ns = weir__clock_deadline_ns(PATIENCE_MS);
    listen_to(remote, take_first, view);
    while (view->event == NULL) {
        cli_remote_state state = remote->state;
        if (cli_signals_ended() != 0) return cli_signals_exit();
        if (state >= CLI_REMOTE_LOST)
            return cli_fail(state == CLI_REMOTE_REFUSED ? CLI_REFUSED : CLI_FAILED, "%s: %s%s",
                            args->url != NULL ? args->url : CLI_REMOTE_URL, remote->problem,
                            args->url == NULL ? " (weir serve starts a server, --url names another)" : "");
        if (weir__clock_now_ns() >= end_ns)
            return cli_fail(CLI_FAILED, "%s: no answer in %d s",
                            args->url != NULL ? args->url : CLI_REMOTE_URL, PATIENCE_MS / 1000);
        wait_for_remote(remote, -1, CLI_LOOK_MS);
    }
    return CLI_OK;
}

static void print_view(const cli_args *args, const cli_view *view)
{
    const char *url = args->url != NULL ? args->url : CLI_REMOTE_URL;
    const char *model = json_string_value(json_object_get(view->event, "model"));
    cli_text marked = {0}, text = {0};
    cli_mark_text(&marked, CLI_BOLD, model != NULL ? model : "");
    cli_text_puts(&marked, "  ");
    cli_text_add_safe(&marked, url, strlen(url));
    cli_text_puts(&marked, "\n");
    cli_view_head(view, cli_term_columns(), false, &marked);
    cli_view_table(view, 0, false, &marked);
    cli_mark_print(&marked, cli_term_out() ? cli_term_columns() : 0, &text);
    cli_out_text(&text);
    weir__text_fini(&marked);
}

cli_exit cli_ps(cli_args *args)
{
    cli_view view = {0};
    cli_exit code = CLI_OK;
    if (args->words.n > 0)
        return cli_fail(CLI_USAGE, "weir ps takes no %.100s; the server is given with --url",
                        args->words.items[0]);
    cli_remote *remote = create_remote(args, &code);
    if (remote == NULL) return code;
    code = await_event(args, remote, &view);
    if (code == CLI_OK && args->json)
        cli_out_json(cli_view_json(&view));
    else if (code == CLI_OK)
        print_view(args, &view);
    destroy_remote(remote);
    cli_view_fini(&view);
    return code;
}

/* ---- weir top ---- */

#define RETRY_NS   WEIR__NS_PER_S
#define SILENCE_NS (5 * WEIR__NS_PER_S)  /* servers send an event each second */
#define GONE_NS    (15 * WEIR__NS_PER_S) /* a dead connection that reports no error */

struct top {
    const cli_args *args;
    const char *url;
    cli_remote *remote;
    cli_view view;
    bool screen; /* else events are printed, as JSON */
    bool news, over, lost, hide_idle;
    int64_t event_ns, retry_ns, drawn_ns;
    size_t first; /* the topmost slot that is shown */
};

static bool take_event(const char *data, size_t length, void *user)
{
    struct top *top = user;
    if (!cli_view_event(&top->view, data, length)) return false;
    top->news = true;
    top->event_ns = weir__clock_now_ns();
    if (top->lost && !top->screen) cli_fail(CLI_OK, "%s: it is back", top->url);
    top->lost = false;
    if (!top->screen) cli_out_json(json_incref(top->view.event));
    return true;
}

/* ---- The screen ---- */

static void add_title(const struct top *top, cli_text *text)
{
    const char *model = json_string_value(json_object_get(top->view.event, "model"));
    cli_mark_text(text, CLI_BOLD, "weir top");
    cli_text_puts(text, "  ");
    if (model != NULL) cli_text_add_safe(text, model, strlen(model));
    cli_text_puts(text, model != NULL ? "  " : "");
    cli_mark_text(text, CLI_DIM, top->url);
    cli_text_puts(text, "\n");
}

static void add_state(const struct top *top, cli_text *text)
{
    int64_t silent_ns = weir__clock_now_ns() - top->event_ns;
    if (top->lost) {
        cli_mark_text(text, CLI_RED, top->remote->problem);
        cli_text_puts(text, "; trying again\n");
    } else if (top->view.event == NULL)
        cli_text_puts(text, "connecting\n");
    else if (silent_ns > SILENCE_NS) {
        cli_mark(text, CLI_YELLOW);
        cli_text_printf(text, "it has been silent for %lld s", (long long)(silent_ns / WEIR__NS_PER_S));
        cli_mark(text, CLI_PLAIN);
        cli_text_puts(text, "\n");
    }
}

/* Puts lines [first, first + n) of a text at rows from `row` on; how many there were. */
static int put_lines(const cli_text *text, size_t first, int row, int n)
{
    int put = 0;
    size_t i = 0;
    for (size_t at = 0; at < text->n && put < n; i++) {
        size_t length = strcspn(text->bytes + at, "\n");
        if (i >= first) cli_screen_line(row + put++, text->bytes + at, length);
        at += length + 1;
    }
    return put;
}

static size_t count_lines(const cli_text *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++) n += text->bytes[i] == '\n';
    return n;
}

static void draw_frame(struct top *top)
{
    cli_text head = {0}, table = {0}, keys = {0};
    int columns, rows;
    cli_screen_size(&columns, &rows);
    add_title(top, &head);
    add_state(top, &head);
    cli_view_head(&top->view, columns, true, &head);
    cli_view_table(&top->view, columns, !top->hide_idle, &table);
    int n_head = (int)count_lines(&head), least = rows > 8 ? 5 : rows > 3 ? 2 : 0; /* of slots and keys */
    if (n_head > rows - least) n_head = rows - least;
    int bottom = rows > 3 ? rows - 1 : rows, gap = rows - n_head > 8, at = n_head + gap;
    size_t n_slots = count_lines(&table), room = bottom > at + 1 ? (size_t)(bottom - at - 1) : 0;
    n_slots -= n_slots > 0; /* the headline */
    if (top->first + room > n_slots) top->first = n_slots > room ? n_slots - room : 0;
    cli_screen_begin();
    put_lines(&head, 0, 0, n_head);
    if (bottom > at) put_lines(&table, 0, at, 1);
    put_lines(&table, 1 + top->first, at + 1, (int)room);
    cli_mark(&keys, CLI_DIM);
    cli_text_puts(&keys, top->hide_idle ? "q quit   i all slots   ↑ ↓ move"
                                        : "q quit   i hide idle slots   ↑ ↓ move");
    if (n_slots > room)
        cli_text_printf(&keys, "   slots %zu to %zu of %zu", top->first + 1, top->first + room, n_slots);
    if (bottom < rows) cli_screen_line(bottom, keys.bytes, keys.n);
    cli_screen_end();
    weir__text_fini(&head);
    weir__text_fini(&table);
    weir__text_fini(&keys);
    top->drawn_ns = weir__clock_now_ns();
    top->news = false;
}

static void press_key(struct top *top, int key)
{
    int columns, rows;
    size_t page;
    cli_screen_size(&columns, &rows);
    page = rows > 12 ? (size_t)rows / 2 : 1;
    switch (key) {
    case 'q':
    case 'Q': top->over = true; break;
    case 'i': top->hide_idle = !top->hide_idle; break;
    case 'j':
    case CLI_KEY_DOWN: top->first++; break;
    case 'k':
    case CLI_KEY_UP: top->first -= top->first > 0; break;
    case ' ':
    case CLI_KEY_PAGE_DOWN: top->first += page; break;
    case CLI_KEY_PAGE_UP: top->first -= top->first < page ? top->first : page; break;
    case 'g':
    case CLI_KEY_HOME: top->first = 0; break;
    case 'G':
    case CLI_KEY_END: top->first = cli_view_n_slots(&top->view); break;
    default: return;
    }
    top->news = true;
}

/* ---- The loop ---- */

static void lose_server(struct top *top)
{
    if (!top->lost && !top->screen) cli_fail(CLI_OK, "%s: %s; trying again", top->url, top->remote->problem);
    top->news = top->news || !top->lost;
    top->lost = true;
}

/* Begins the requests that are due. CLI_OK, or the code to end with after a message. */
static cli_exit keep_asking(struct top *top)
{
    int64_t now = weir__clock_now_ns();
    cli_remote_state state = top->remote->state;
    if (state == CLI_REMOTE_REFUSED) {
        cli_screen_close();
        return cli_fail(CLI_REFUSED, "%s: %s", top->url, top->remote->problem);
    }
    if (state == CLI_REMOTE_LOST) lose_server(top);
    bool dead = state == CLI_REMOTE_OPEN && now - top->event_ns > GONE_NS;
    if ((state == CLI_REMOTE_IDLE || state == CLI_REMOTE_LOST || dead) && now >= top->retry_ns) {
        top->retry_ns = now + RETRY_NS;
        top->event_ns = now;
        listen_to(top->remote, take_event, top);
    }
    return CLI_OK;
}

static void take_signals_and_keys(struct top *top)
{
    if (!top->screen) return;
    if (cli_signals_took(SIGTSTP)) cli_screen_suspend();
    if (cli_signals_took(SIGWINCH)) {
        cli_screen_resize();
        top->news = true;
    }
    for (int key; (key = cli_screen_key()) != CLI_KEY_NONE;) press_key(top, key);
}

static cli_exit watch_server(struct top *top)
{
    cli_exit code = CLI_OK;
    while (!top->over && cli_signals_ended() == 0 && !cli_out_closed()) {
        if ((code = keep_asking(top)) != CLI_OK) return code;
        /* A frame is drawn once a second even without news: the silence is counted. */
        if (top->screen && (top->news || weir__clock_now_ns() - top->drawn_ns >= WEIR__NS_PER_S))
            draw_frame(top);
        wait_for_remote(top->remote, top->screen ? cli_screen_keys() : -1, 200);
        take_signals_and_keys(top);
    }
    return code;
}

cli_exit cli_top(cli_args *args)
{
    struct top top = {.args = args, .url = args->url != NULL ? args->url : CLI_REMOTE_URL};
    cli_exit code = CLI_OK;
    if (args->words.n > 0)
        return cli_fail(CLI_USAGE, "weir top takes no %.100s; the server is given with --url",
                        args->words.items[0]);
    top.remote = create_remote(args, &code);
    if (top.remote == NULL) return code;
    top.screen = !args->json && cli_screen_open();
    code = watch_server(&top);
    cli_screen_close();
    destroy_remote(top.remote);
    cli_view_fini(&top.view);
    return code;
}

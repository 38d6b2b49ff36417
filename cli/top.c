/* weir top: the state of a running server, live.
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/lib/mark.h"
#include "cli/lib/out.h"
#include "cli/lib/remote.h"
#include "cli/lib/screen.h"
#include "cli/lib/signals.h"
#include "cli/lib/view.h"

#define RETRY_NS   WEIR__NS_PER_S
#define SILENCE_NS (5 * WEIR__NS_PER_S)  /* servers send an event each second */
#define GONE_NS    (15 * WEIR__NS_PER_S) /* a connection that is dead and does not know it */

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
        cli_mark_text(text, CLI_RED, cli_remote_problem(top->remote));
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
    if (!top->lost && !top->screen)
        cli_fail(CLI_OK, "%s: %s; trying again", top->url, cli_remote_problem(top->remote));
    top->news = top->news || !top->lost;
    top->lost = true;
}

/* Begins the requests that are due. CLI_OK, or the code to end with after a message. */
static cli_exit keep_asking(struct top *top)
{
    int64_t now = weir__clock_now_ns();
    cli_remote_state state = cli_remote_listening(top->remote);
    if (state == CLI_REMOTE_REFUSED) {
        cli_screen_close();
        return cli_fail(CLI_REFUSED, "%s: %s", top->url, cli_remote_problem(top->remote));
    }
    if (state == CLI_REMOTE_LOST) lose_server(top);
    bool dead = state == CLI_REMOTE_OPEN && now - top->event_ns > GONE_NS;
    if ((state == CLI_REMOTE_IDLE || state == CLI_REMOTE_LOST || dead) && now >= top->retry_ns) {
        top->retry_ns = now + RETRY_NS;
        top->event_ns = now;
        cli_remote_listen(top->remote, take_event, top);
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
        cli_remote_wait(top->remote, top->screen ? cli_screen_keys() : -1, 200);
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
    top.remote = cli_remote_create(args, &code);
    if (top.remote == NULL) return code;
    top.screen = !args->json && cli_screen_open();
    code = watch_server(&top);
    cli_screen_close();
    cli_remote_destroy(top.remote);
    cli_view_fini(&top.view);
    return code;
}

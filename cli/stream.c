/* weir stream: a file of requests, all at once.
 * SPDX-License-Identifier: Apache-2.0
 *
 * All requests of the file are submitted in one call, so all of them run or none. One loop polls the streams'
 * descriptors, keys and signals, and takes all chunks of a stream that has some: they become JSON lines, or
 * text of its pane. A stream without a descriptor is looked at in each turn. A signal, or a reader of stdout
 * that has left, cancels all; the loop ends when each request has had its last chunk. The screen is drawn at
 * intervals from the panes, and the whole texts are printed when it is closed. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/lib/batch.h"
#include "cli/lib/cli.h"
#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/load.h"
#include "cli/lib/media.h"
#include "cli/lib/out.h"
#include "cli/lib/screen.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"
#include "cli/lib/ticks.h"

/* ---- Panes ---- */

typedef enum cli_pane_state {
    CLI_PANE_QUEUED,
    CLI_PANE_PREFILLING,
    CLI_PANE_GENERATING,
    CLI_PANE_FINISHED,
} cli_pane_state;

typedef struct cli_pane {
    const char *name; /* the caller's */
    cli_pane_state state;
    weir_reason reason; /* when finished */
    weir_usage usage;
    bool cancelling;
    cli_text shown;
    /* The first of the last n_lines lines of `width` columns: earlier ones are not needed again. */
    size_t from, n_lines;
    int width;
} cli_pane;

typedef struct cli_panes {
    const char *title;
    cli_pane *panes; /* [n] */
    size_t n;
    size_t focus, first; /* first: the topmost pane on the screen */
    int columns, rows;   /* of the screen, when it was drawn last */
    uint64_t n_tokens;   /* generated so far, all panes */
    double rate;
    int64_t measured_ns;
    uint64_t measured_tokens;
} cli_panes;

#define PANE_ROWS_MAX 8 /* a pane's headline and up to seven lines of its text */
#define INDENT        2
#define RATE_NS       (WEIR__NS_PER_S / 2) /* how often the rate of all is measured anew */

static void init_panes(cli_panes *panes, const char *title, size_t n)
{
    *panes = (cli_panes){
        .title = title,
        .panes = cli_alloc(n, sizeof *panes->panes),
        .n = n,
        .measured_ns = weir__clock_now_ns(),
    };
}

static void fini_panes(cli_panes *panes)
{
    for (size_t i = 0; i < panes->n; i++) weir__text_fini(&panes->panes[i].shown);
    cli_free(panes->panes);
    *panes = (cli_panes){0};
}

/* Adds text to a pane. */
static void add_to_pane(cli_pane *pane, const char *text, size_t length)
{
    size_t from = pane->shown.n;
    cli_text_add_safe(&pane->shown, text, length);
    for (size_t i = from; i < pane->shown.n; i++)
        if (pane->shown.bytes[i] == '\t') pane->shown.bytes[i] = ' '; /* so that columns can be counted */
}

/* ---- Rows ---- */

/* The number of rows of each pane, headline included. */
static int pane_rows(const cli_panes *panes, int available)
{
    int rows = available / (int)(panes->n < 4096 ? panes->n : 4096);
    return rows < 2 ? 2 : rows > PANE_ROWS_MAX ? PANE_ROWS_MAX : rows;
}

static const char *state_name(const cli_pane *pane)
{
    static const char *const names[] = {"queued", "prefilling", "generating"};
    if (pane->state == CLI_PANE_FINISHED) return weir_reason_name(pane->reason);
    return pane->cancelling ? "cancelling" : names[pane->state];
}

static cli_style state_style(const cli_pane *pane)
{
    switch (pane->state) {
    case CLI_PANE_QUEUED: return CLI_DIM;
    case CLI_PANE_PREFILLING: return CLI_YELLOW;
    case CLI_PANE_GENERATING: return CLI_CYAN;
    default: break;
    }
    return pane->reason == WEIR_REASON_ERROR || pane->reason == WEIR_REASON_CANCELLED ? CLI_RED : CLI_GREEN;
}

/* Tokens and rate, as wide as they always are, so that they stand still. */
static void add_figures(cli_text *text, const cli_pane *pane, int columns)
{
    const weir_usage *usage = &pane->usage;
    int64_t ns = usage->total_ns - usage->ttft_ns;
    if (columns < 50 || usage->n_generated == 0) return;
    cli_text_printf(text, " %5d tokens", usage->n_generated);
    if (columns < 64) return;
    if (usage->n_generated > 1 && usage->ttft_ns > 0 && ns > 0)
        cli_text_printf(text, " %6.1f tok/s", (usage->n_generated - 1) * 1e9 / (double)ns);
    else
        cli_text_fill(text, " ", 13);
}

/* Puts a row on the screen, and frees it. */
static void put_row(int row, cli_text *text)
{
    cli_screen_line(row, text->bytes, text->n);
    weir__text_fini(text);
}

static void draw_headline(const cli_panes *panes, size_t i, int row)
{
    const cli_pane *pane = &panes->panes[i];
    bool focus = i == panes->focus;
    char left[160], number[24];
    cli_text text = {0}, name = {0}, figures = {0};
    snprintf(number, sizeof number, "%zu", i + 1);
    bool named = strcmp(number, pane->name) != 0;
    snprintf(left, sizeof left, "%s%s%.100s", number, named ? " " : "", named ? pane->name : "");
    add_figures(&figures, pane, panes->columns);
    int figures_width = cli_text_width(figures.bytes, figures.n);
    int state_width = (int)strlen(state_name(pane));
    int room = panes->columns - INDENT - figures_width - state_width - 4;
    cli_text_add_cut(&name, left, strlen(left), room < 4 ? 4 : room, false);
    cli_mark_text(&text, focus ? CLI_CYAN : CLI_PLAIN, focus ? "▶ " : "  ");
    cli_mark_text(&text, focus ? CLI_REVERSE : CLI_BOLD, name.bytes);
    cli_mark(&text, CLI_DIM);
    cli_text_puts(&text, " ");
    cli_text_fill(&text, "─",
                  panes->columns - INDENT - cli_text_width(name.bytes, name.n) - 2 - state_width -
                      figures_width);
    cli_text_puts(&text, " ");
    cli_mark_text(&text, state_style(pane), state_name(pane));
    if (figures.n > 0) cli_text_puts(&text, figures.bytes);
    weir__text_fini(&name);
    weir__text_fini(&figures);
    put_row(row, &text);
}

/* The length of the first line of a text, with the newline or the blank that ends it. */
static size_t line_length(const char *bytes, size_t n, int width)
{
    size_t blank = 0;
    int column = 0;
    for (size_t i = 0, used; i < n; i += used) {
        uint32_t point = cli_text_decode(bytes + i, n - i, &used);
        if (point == '\n') return i + 1;
        column += cli_text_columns(point);
        if (column > width && point != ' ') return blank > 0 ? blank : i > 0 ? i : used;
        if (point == ' ') blank = i + 1;
    }
    return n;
}

/* The last `n` lines of a pane's text. */
static void draw_text(const cli_panes *panes, cli_pane *pane, int row, size_t n)
{
    int width = panes->columns - INDENT - 1;
    const char *bytes = pane->shown.bytes;
    size_t starts[PANE_ROWS_MAX + 1] = {0}, n_lines = 0;
    if (width < 4 || pane->shown.n == 0) return;
    if (pane->width != width || pane->n_lines != n) pane->from = 0;
    pane->width = width;
    pane->n_lines = n;
    for (size_t at = pane->from; at < pane->shown.n;) {
        if (n_lines == n) memmove(starts, starts + 1, --n_lines * sizeof *starts);
        starts[n_lines++] = at;
        at += line_length(bytes + at, pane->shown.n - at, width);
    }
    pane->from = starts[0];
    starts[n_lines] = pane->shown.n;
    for (size_t i = 0; i < n_lines; i++) {
        cli_text text = {0};
        size_t to = starts[i + 1];
        while (to > starts[i] && (bytes[to - 1] == '\n' || bytes[to - 1] == ' ')) to--;
        cli_text_fill(&text, " ", INDENT);
        cli_text_add(&text, bytes + starts[i], to - starts[i]);
        put_row(row + (int)i, &text);
    }
}

static void draw_title(cli_panes *panes)
{
    size_t counts[4] = {0};
    cli_text text = {0}, left = {0};
    char rate[32] = "";
    for (size_t i = 0; i < panes->n; i++) counts[panes->panes[i].state]++;
    cli_text_printf(&left, "  %s  %zu running, %zu queued, %zu done", panes->title,
                    counts[CLI_PANE_PREFILLING] + counts[CLI_PANE_GENERATING], counts[CLI_PANE_QUEUED],
                    counts[CLI_PANE_FINISHED]);
    int64_t now = weir__clock_now_ns(), elapsed = now - panes->measured_ns;
    if (elapsed >= RATE_NS) {
        panes->rate = (double)(panes->n_tokens - panes->measured_tokens) * 1e9 / (double)elapsed;
        panes->measured_ns = now;
        panes->measured_tokens = panes->n_tokens;
    }
    if (panes->rate > 0) snprintf(rate, sizeof rate, " %.1f tok/s", panes->rate);
    cli_mark_text(&text, CLI_BOLD, "weir stream");
    cli_text_add_cut(&text, left.bytes, left.n, panes->columns - 11 - (int)strlen(rate), true);
    cli_text_puts(&text, rate);
    weir__text_fini(&left);
    put_row(0, &text);
}

static void draw_keys(const cli_panes *panes, size_t hidden_above, size_t hidden_below)
{
    cli_text text = {0};
    cli_mark(&text, CLI_DIM);
    cli_text_puts(&text, "Tab ↓ j next   ↑ k back   s skip   q cancel all");
    if (hidden_above > 0) cli_text_printf(&text, "   %zu above", hidden_above);
    if (hidden_below > 0) cli_text_printf(&text, "   %zu below", hidden_below);
    put_row(panes->rows - 1, &text);
}

/* ---- Focus ---- */

static int visible_panes(const cli_panes *panes, int *rows_each)
{
    int available = panes->rows - 2;
    *rows_each = pane_rows(panes, available);
    int n = available / *rows_each;
    if (n < 1) n = 1;
    return (size_t)n < panes->n ? n : (int)panes->n;
}

/* Moves the focus. Returns whether the key, of cli_screen_key, was one for that. */
static bool move_focus(cli_panes *panes, int key)
{
    int each;
    size_t page = panes->rows > 0 ? (size_t)visible_panes(panes, &each) : 1, last = panes->n - 1;
    switch (key) {
    case '\t':
    case CLI_KEY_RIGHT: panes->focus = panes->focus == last ? 0 : panes->focus + 1; return true;
    case CLI_KEY_BACKTAB:
    case CLI_KEY_LEFT: panes->focus = panes->focus == 0 ? last : panes->focus - 1; return true;
    case 'j':
    case CLI_KEY_DOWN: panes->focus += panes->focus < last; return true;
    case 'k':
    case CLI_KEY_UP: panes->focus -= panes->focus > 0; return true;
    case 'g':
    case CLI_KEY_HOME: panes->focus = 0; return true;
    case 'G':
    case CLI_KEY_END: panes->focus = last; return true;
    case ' ':
    case CLI_KEY_PAGE_DOWN:
        panes->focus = panes->focus + page < last ? panes->focus + page : last;
        return true;
    case CLI_KEY_PAGE_UP: panes->focus -= panes->focus < page ? panes->focus : page; return true;
    default: return false;
    }
}

/* ---- Screen ---- */

static void draw_panes(cli_panes *panes)
{
    cli_screen_size(&panes->columns, &panes->rows);
    int each;
    size_t shown = (size_t)visible_panes(panes, &each);
    if (panes->focus < panes->first) panes->first = panes->focus;
    if (panes->focus >= panes->first + shown) panes->first = panes->focus - shown + 1;
    if (panes->first + shown > panes->n) panes->first = panes->n - shown;
    cli_screen_begin();
    draw_title(panes);
    for (size_t i = 0; i < shown; i++) {
        int row = 1 + (int)i * each;
        if (row + each > panes->rows) break; /* a window of two rows */
        draw_headline(panes, panes->first + i, row);
        draw_text(panes, &panes->panes[panes->first + i], row + 1, (size_t)each - 1);
    }
    if (panes->rows > 1) draw_keys(panes, panes->first, panes->n - panes->first - shown);
    cli_screen_end();
}

/* ---- The command ---- */

#define FRAME_NS    (50 * WEIR__NS_PER_MS) /* twenty pictures a second are enough to look alive */
#define DESCRIPTORS 128                    /* for everything else */
#define BLIND_MS    20                     /* how often streams without a descriptor are looked at */

struct answer {
    weir_chat *chat; /* NULL: the prompt as it stands */
    weir_stream *stream;
    int descriptor; /* -1 = none: the process has no more */
    cli_text text;  /* for the end, on a terminal */
    json_t *held;   /* logprobs of tokens whose text is held back */
    bool finished;
    weir_error error;
};

struct session {
    const cli_args *args;
    cli_batch batch;
    weir_model *model;
    weir_engine *engine;
    struct answer *answers; /* [batch.n] */
    size_t n_finished;
    bool screen;
    cli_panes panes;
    int64_t drawn_ns, started_ns;
    struct pollfd *fds; /* signals, keys, then the streams */
    size_t *fd_answer;  /* [batch.n] whose descriptor fds[i + 2] is */
};

void cli_stream_defaults(cli_args *args)
{
    args->engine.n_slots = 0;     /* as many as there are requests */
    args->engine.queue_limit = 0; /* a file waits as long as it takes */
}

/* ---- Start ---- */

/* True if prompts become messages, as those of weir run do. */
static bool uses_template(const struct session *session)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(session->model, &info);
    return !session->args->raw && (info.chat_template != NULL || session->args->chat_template != NULL);
}

/* The messages of a prompt: a system message, if there is one, and the user's. */
static json_t *messages_of(const cli_args *args, const cli_batch_item *item)
{
    json_t *messages = json_array();
    if (args->system != NULL)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", args->system));
    json_array_append_new(
        messages, json_pack("{s:s, s:s%}", "role", "user", "content", item->prompt, item->prompt_length));
    return messages;
}

static cli_exit render_request(struct session *session, size_t i, json_t *list_of_messages)
{
    const cli_batch_item *item = &session->batch.items[i];
    weir_chat_params params = cli_args_chat(session->args, &item->ask);
    weir_error error = {0};
    cli_media media = {0};
    char where[64];
    snprintf(where, sizeof where, "requests[%zu].messages", i);
    cli_exit code = cli_media_take(&media, session->model, list_of_messages, where);
    char *messages = weir__json_dump(list_of_messages);
    weir_media **list = cli_media_list(&media);
    if (messages == NULL) cli_no_memory();
    params.messages_json = messages;
    params.media = list;
    params.n_media = media.n;
    if (code == CLI_OK &&
        weir_chat_create(session->model, &params, &session->answers[i].chat, &error) != WEIR_OK)
        code = cli_batch_refused(&session->batch, session->args, i, &error);
    cli_free(list);
    weir__mem_free(messages);
    cli_media_fini(&media);
    return code;
}

/* A prompt through the chat template. */
static cli_exit render_prompt(struct session *session, size_t i)
{
    const cli_batch_item *item = &session->batch.items[i];
    if (memchr(item->prompt, '\0', item->prompt_length) != NULL)
        return cli_fail(CLI_USAGE,
                        "requests[%zu].prompt: it has a NUL byte, which a chat message cannot contain; --raw "
                        "accepts it",
                        i);
    json_t *messages = messages_of(session->args, item);
    cli_exit code = render_request(session, i, messages);
    json_decref(messages);
    return code;
}

static cli_exit submit_prompts(struct session *session)
{
    cli_batch *batch = &session->batch;
    weir_error error = {0};
    weir_request *requests = cli_alloc(batch->n, sizeof *requests);
    weir_stream **streams = cli_alloc(batch->n, sizeof *streams);
    bool chats = uses_template(session);
    cli_exit code = CLI_OK;
    if (session->args->system != NULL && !chats)
        code = cli_fail(CLI_USAGE, session->args->raw
                                       ? "--system needs the chat template, which --raw leaves out"
                                       : "this model has no chat template, so --system has no place to go");
    for (size_t i = 0; i < batch->n && code == CLI_OK; i++) {
        cli_batch_item *item = &batch->items[i];
        requests[i] = cli_ask_request(&item->ask);
        if (item->messages != NULL)
            code = render_request(session, i, item->messages);
        else if (chats)
            code = render_prompt(session, i);
        if (session->answers[i].chat != NULL) {
            requests[i].chat = session->answers[i].chat;
            item->ask.sampler.json_schema = NULL; /* the chat has it */
        } else {
            requests[i].text = item->prompt;
            requests[i].text_length = item->prompt_length;
        }
        if (code == CLI_OK && weir_stream_create(&session->answers[i].stream, &error) != WEIR_OK)
            code = cli_fail_error(session->args, CLI_FAILED, NULL, &error);
        streams[i] = session->answers[i].stream;
    }
    session->started_ns = weir__clock_now_ns();
    if (code == CLI_OK && weir_engine_submit(session->engine, requests, batch->n, streams, &error) != WEIR_OK)
        code = cli_batch_refused(batch, session->args, cli_batch_index(batch, &error), &error);
    cli_free(streams);
    cli_free(requests);
    return code;
}

/* ---- Chunks ---- */

static json_t *chunk_json(struct session *session, size_t i, const weir_chunk *chunk)
{
    json_t *json = json_pack("{s:I, s:s, s:s%, s:o, s:b, s:s}", "request", (json_int_t)i, "name",
                             session->batch.items[i].name, "text", chunk->length > 0 ? chunk->text : "",
                             chunk->length, "tokens", cli_figures_tokens(chunk->tokens, chunk->n_tokens),
                             "finished", chunk->finished, "reason", weir_reason_name(chunk->reason));
    if (json != NULL && session->batch.items[i].ask.request.n_logprobs != CLI_UNSET)
        json_object_set_new(json, "logprobs", cli_figures_shown(&session->answers[i].held, chunk));
    return json;
}

static json_t *usage_json(const struct session *session, size_t i)
{
    weir_usage usage = weir_stream_usage(session->answers[i].stream);
    const weir_error *error = &session->answers[i].error;
    json_t *json =
        json_pack("{s:I, s:s, s:o, s:o}", "request", (json_int_t)i, "name", session->batch.items[i].name,
                  "usage", cli_figures_usage(&usage), "timings", cli_figures_timings(&usage));
    weir_miss_info miss = cli_figures_miss_of(session->answers[i].stream);
    if (json != NULL && session->args->explain_cache)
        json_object_set_new(json, "cache", cli_figures_miss(&miss));
    if (json != NULL && error->code != WEIR_OK) json_object_set_new(json, "error", cli_figures_error(error));
    return json;
}

static void finish_stream(struct session *session, size_t i)
{
    struct answer *answer = &session->answers[i];
    answer->finished = true;
    session->n_finished++;
    weir_stream_error(answer->stream, &answer->error);
}

static void take_chunk(struct session *session, size_t i, const weir_chunk *chunk)
{
    if (chunk->finished) finish_stream(session, i);
    if (!session->screen) {
        cli_out_json(chunk_json(session, i, chunk));
        if (chunk->finished) cli_out_json(usage_json(session, i));
        return;
    }
    cli_pane *pane = &session->panes.panes[i];
    cli_text_add(&session->answers[i].text, chunk->text, chunk->length);
    add_to_pane(pane, chunk->text, chunk->length);
    pane->usage = weir_stream_usage(session->answers[i].stream);
    pane->state = chunk->finished ? CLI_PANE_FINISHED : CLI_PANE_GENERATING;
    pane->reason = chunk->reason;
    session->panes.n_tokens += chunk->n_tokens;
}

static void take_all(struct session *session, size_t i)
{
    weir_chunk chunk;
    while (!session->answers[i].finished &&
           weir_stream_try_next(session->answers[i].stream, &chunk) == WEIR_OK)
        take_chunk(session, i, &chunk);
}

/* ---- Screen ---- */

/* Guesses which answers without a chunk wait and which are being read: the last ones wait. */
static void guess_states(struct session *session)
{
    weir_engine_stats stats = {.size = sizeof stats};
    if (weir_engine_get_stats(session->engine, &stats) != WEIR_OK) return;
    int32_t queued = stats.queue_depth - stats.n_suspended;
    for (size_t i = session->batch.n; i-- > 0;) {
        cli_pane *pane = &session->panes.panes[i];
        if (pane->state >= CLI_PANE_GENERATING) continue;
        pane->state = queued-- > 0 ? CLI_PANE_QUEUED : CLI_PANE_PREFILLING;
    }
}

static void draw_screen(struct session *session, bool now)
{
    int64_t time = weir__clock_now_ns();
    if (!session->screen || (!now && time - session->drawn_ns < FRAME_NS)) return;
    session->drawn_ns = time;
    guess_states(session);
    draw_panes(&session->panes);
}

static void press_key(struct session *session, int key)
{
    size_t focus = session->panes.focus;
    if (key == CLI_KEY_NONE || move_focus(&session->panes, key)) return;
    if (key == 'q') cli_signals_end(SIGINT);
    if (key == 's' && !session->answers[focus].finished) {
        weir_stream_cancel(session->answers[focus].stream);
        session->panes.panes[focus].cancelling = true;
    }
}

static void read_keys(struct session *session)
{
    for (int key; (key = cli_screen_key()) != CLI_KEY_NONE;) press_key(session, key);
    if (session->fds[1].revents & ~POLLIN) session->fds[1].fd = -1; /* no more will come */
    draw_screen(session, true);
}

/* ---- Loop ---- */

static void cancel_all(struct session *session)
{
    for (size_t i = 0; i < session->batch.n; i++) {
        if (session->answers[i].finished) continue;
        weir_stream_cancel(session->answers[i].stream);
        if (session->screen) session->panes.panes[i].cancelling = true;
    }
}

static void handle_signals(struct session *session)
{
    cli_signals_drain();
    if (!session->screen) return;
    bool suspended = cli_signals_took(SIGTSTP), resized = cli_signals_took(SIGWINCH);
    if (suspended) cli_screen_suspend();
    if (resized) cli_screen_resize();
    if (suspended || resized) draw_screen(session, true);
}

/* Fills fds with the streams that still run; returns how many fds there are. *blind: some have none. */
static size_t gather_descriptors(struct session *session, bool *blind)
{
    size_t n = 0;
    *blind = false;
    for (size_t i = 0; i < session->batch.n; i++) {
        if (session->answers[i].finished) continue;
        if (session->answers[i].descriptor < 0) {
            *blind = true;
            continue;
        }
        session->fd_answer[n] = i;
        session->fds[2 + n++] = (struct pollfd){.fd = session->answers[i].descriptor, .events = POLLIN};
    }
    return 2 + n;
}

/* Passes chunks on until every request has had its last one. */
static void pump_answers(struct session *session)
{
    bool cancelled = false, blind;
    session->fds = cli_alloc(session->batch.n + 2, sizeof *session->fds);
    session->fd_answer = cli_alloc(session->batch.n, sizeof *session->fd_answer);
    session->fds[0] = (struct pollfd){.fd = cli_signals_descriptor(), .events = POLLIN};
    session->fds[1] = (struct pollfd){.fd = session->screen ? cli_screen_keys() : -1, .events = POLLIN};
    for (size_t i = 0; i < session->batch.n; i++)
        if (weir_stream_descriptor(session->answers[i].stream, &session->answers[i].descriptor, NULL) !=
            WEIR_OK)
            session->answers[i].descriptor = -1;
    while (session->n_finished < session->batch.n) {
        draw_screen(session, false);
        size_t n = gather_descriptors(session, &blind);
        int ready = poll(session->fds, (nfds_t)n, blind ? BLIND_MS : CLI_LOOK_MS);
        if (ready > 0 && session->fds[0].revents != 0) handle_signals(session);
        if (ready > 0 && session->fds[1].revents != 0) read_keys(session);
        if (!cancelled && (cli_signals_ended() != 0 || cli_out_closed())) {
            cancel_all(session);
            cancelled = true;
        }
        for (size_t i = 2; ready > 0 && i < n; i++)
            if (session->fds[i].revents != 0) take_all(session, session->fd_answer[i - 2]);
        for (size_t i = 0; blind && i < session->batch.n; i++)
            if (session->answers[i].descriptor < 0) take_all(session, i);
    }
}

/* ---- End ---- */

static void print_texts(const struct session *session)
{
    const char *bold = cli_term_style_out(CLI_BOLD), *dim = cli_term_style_out(CLI_DIM),
               *plain = cli_term_style_out(CLI_PLAIN);
    for (size_t i = 0; i < session->batch.n; i++) {
        const struct answer *answer = &session->answers[i];
        weir_usage usage = weir_stream_usage(answer->stream);
        cli_text out = {0};
        char number[24];
        snprintf(number, sizeof number, "%zu", i + 1);
        bool named = strcmp(number, session->batch.items[i].name) != 0;
        cli_text_printf(&out, "%s%s%s", bold, number, named ? " " : "");
        if (named)
            cli_text_add_safe(&out, session->batch.items[i].name, strlen(session->batch.items[i].name));
        cli_text_printf(&out, "%s\n", plain);
        cli_text_add_safe(&out, answer->text.bytes, answer->text.n);
        if (out.bytes[out.n - 1] != '\n') cli_text_puts(&out, "\n");
        cli_text_puts(&out, dim);
        cli_figures_line(&out, &usage, weir_stream_reason(answer->stream));
        if (answer->error.code != WEIR_OK)
            cli_text_printf(&out, ": %s", weir__error_words(&answer->error).text);
        cli_text_puts(&out, "\n");
        weir_miss_info miss = cli_figures_miss_of(answer->stream);
        if (session->args->explain_cache) cli_figures_miss_line(&out, &miss);
        cli_text_printf(&out, "%s\n", plain);
        cli_out_text(&out);
    }
}

static void print_sum(const struct session *session)
{
    weir_engine_stats stats = {.size = sizeof stats};
    char rate[48] = "";
    int64_t ns = weir__clock_now_ns() - session->started_ns;
    if (session->args->quiet || weir_engine_get_stats(session->engine, &stats) != WEIR_OK) return;
    if (ns > 0)
        snprintf(rate, sizeof rate, ", %.1f tok/s", (double)stats.n_generated_tokens * 1e9 / (double)ns);
    cli_note("%zu request%s, %llu prompt and %llu answer tokens in %s%s", session->batch.n,
             session->batch.n == 1 ? "" : "s", (unsigned long long)stats.n_prompt_tokens,
             (unsigned long long)stats.n_generated_tokens, cli_time(ns).text, rate);
}

static cli_exit conclude_session(struct session *session)
{
    cli_exit code = CLI_OK;
    size_t n_failed = 0;
    if (session->screen) {
        draw_screen(session, true);
        cli_screen_close();
        print_texts(session);
    }
    for (size_t i = 0; i < session->batch.n; i++) n_failed += session->answers[i].error.code != WEIR_OK;
    if (!cli_out_closed()) print_sum(session);
    if (n_failed > 0) {
        size_t i = 0;
        while (session->answers[i].error.code == WEIR_OK) i++;
        code =
            cli_fail(CLI_REFUSED, "%zu of %zu requests failed; the first, %s: %s", n_failed, session->batch.n,
                     session->batch.items[i].name, weir__error_words(&session->answers[i].error).text);
    }
    return code;
}

/* ---- The command ---- */

/* -m, then the file, then the environment and the cache. */
static char *model_path(const struct session *session)
{
    if (session->batch.model != NULL && !cli_options_given(session->args, "--model"))
        return cli_load_named(session->args, session->batch.model);
    return cli_load_path(session->args);
}

static void free_answers(struct session *session)
{
    for (size_t i = 0; session->answers != NULL && i < session->batch.n; i++) {
        weir_stream_release(session->answers[i].stream);
        weir_chat_release(session->answers[i].chat);
        weir__text_fini(&session->answers[i].text);
        json_decref(session->answers[i].held);
    }
    cli_free(session->answers);
}

static cli_exit start_session(struct session *session, cli_args *args, const char *path)
{
    cli_exit code = cli_load_model(args, path, &session->model);
    if (code != CLI_OK) return code;
    if (args->engine.n_slots == 0)
        args->engine.n_slots = (int32_t)(session->batch.n < 256 ? session->batch.n : 256);
    if ((code = cli_load_engine(args, session->model, &session->engine)) != CLI_OK) return code;
    return submit_prompts(session);
}

cli_exit cli_stream(cli_args *args)
{
    struct session session = {.args = args};
    char *path = NULL;
    cli_load_log(args);
    if (args->words.n != 1) {
        cli_load_log_flush();
        return cli_fail(CLI_USAGE, args->words.n == 0
                                       ? "which requests? weir stream FILE.json, or - for stdin"
                                       : "weir stream takes one file");
    }
    cli_exit code = cli_batch_read(&session.batch, args, args->words.items[0]);
    if (code != CLI_OK) goto done;
    code = CLI_NO_MODEL;
    if ((path = model_path(&session)) == NULL) goto done;
    cli_descriptors_raise(session.batch.n * 2 + DESCRIPTORS); /* a stream has one or two */
    session.answers = cli_alloc(session.batch.n, sizeof *session.answers);
    if ((code = start_session(&session, args, path)) != CLI_OK) goto done;
    session.screen = !args->json && cli_screen_open();
    if (session.screen) {
        init_panes(&session.panes, cli_file_name(session.batch.path), session.batch.n);
        for (size_t i = 0; i < session.batch.n; i++)
            session.panes.panes[i].name = session.batch.items[i].name;
    }
    pump_answers(&session);
    code = conclude_session(&session);
done:
    code = cli_ticks_save(args, session.engine, code);
    weir_engine_destroy(session.engine);
    if (session.screen) fini_panes(&session.panes);
    free_answers(&session);
    cli_free(session.fds);
    cli_free(session.fd_answer);
    weir_model_release(session.model);
    cli_load_log_flush();
    cli_batch_fini(&session.batch);
    cli_free(path);
    return code;
}

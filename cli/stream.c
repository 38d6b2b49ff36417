/* weir stream: a file of requests, all at once.
 * SPDX-License-Identifier: Apache-2.0
 *
 * All requests of the file are submitted at once. One loop polls the streams' descriptors, keys and signals,
 * passes chunks on as JSON lines or to the panes, and draws the screen. The texts are printed at the end if
 * there was a screen. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/lib/batch.h"
#include "cli/lib/descriptors.h"
#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/load.h"
#include "cli/lib/media.h"
#include "cli/lib/out.h"
#include "cli/lib/panes.h"
#include "cli/lib/ring.h"
#include "cli/lib/screen.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"

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
    cli_panes_add(pane, chunk->text, chunk->length);
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
    cli_panes_draw(&session->panes);
}

static void press_key(struct session *session, int key)
{
    size_t focus = session->panes.focus;
    if (key == CLI_KEY_NONE || cli_panes_key(&session->panes, key)) return;
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
        cli_panes_init(&session.panes, cli_file_name(session.batch.path), session.batch.n);
        for (size_t i = 0; i < session.batch.n; i++)
            session.panes.panes[i].name = session.batch.items[i].name;
    }
    pump_answers(&session);
    code = conclude_session(&session);
done:
    code = cli_ring_save(args, session.engine, code);
    weir_engine_destroy(session.engine);
    if (session.screen) cli_panes_fini(&session.panes);
    free_answers(&session);
    cli_free(session.fds);
    cli_free(session.fd_answer);
    weir_model_release(session.model);
    cli_load_log_flush();
    cli_batch_fini(&session.batch);
    cli_free(path);
    return code;
}

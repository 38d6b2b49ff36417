/* reply.c: passes chunks to the chat's parser, and its deltas to stdout.
 * SPDX-License-Identifier: Apache-2.0 */
#include "reply.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "out.h"
#include "progress.h"
#include "signals.h"
#include "term.h"

void cli_reply_fini(cli_reply *reply)
{
    weir_chat_parser_destroy(reply->parser);
    weir_chat_release(reply->chat);
    cli_wrap_fini(&reply->wrap);
    weir__text_fini(&reply->content);
    weir__text_fini(&reply->reasoning);
    *reply = (cli_reply){0};
}

cli_exit cli_reply_render(cli_reply *reply, const cli_args *args, const cli_ask *ask, weir_model *model,
                          const weir_message *messages, size_t n, const cli_media *media, size_t first,
                          const char *context)
{
    weir_chat_params params = cli_args_chat(args, ask);
    weir_error error = {0};
    char *json = media->n > 0 ? cli_media_messages(media, messages, n, first) : NULL;
    weir_media **list = cli_media_list(media);
    params.messages = json == NULL ? messages : NULL;
    params.n_messages = json == NULL ? n : 0;
    params.messages_json = json;
    params.media = list;
    params.n_media = media->n;
    weir_status status = weir_chat_create(model, &params, &reply->chat, &error);
    cli_free(list);
    cli_free(json);
    if (status == WEIR_OK) status = weir_chat_parser_create(reply->chat, &reply->parser, &error);
    return status == WEIR_OK ? CLI_OK : cli_fail_error(args, CLI_REFUSED, context, &error);
}

/* Writes to a terminal safely and broken between words, elsewhere as it is. */
static void show_bytes(cli_reply *reply, const char *bytes, size_t n)
{
    cli_text text = {0}, safe = {0};
    if (!cli_term_out()) {
        cli_out(bytes, n);
        return;
    }
    cli_text_add_safe(&safe, bytes, n);
    cli_wrap_add(&reply->wrap, safe.bytes, safe.n, cli_term_columns(), &text);
    cli_out_text(&text);
    weir__text_fini(&safe);
}

static void show_rest(cli_reply *reply)
{
    cli_text text = {0};
    cli_wrap_flush(&reply->wrap, cli_term_columns(), &text);
    cli_out_text(&text);
}

static bool ends_line(const cli_text *text)
{
    return text->n > 0 && text->bytes[text->n - 1] == '\n';
}

static void set_thinking(cli_reply *reply, bool thinking)
{
    if (reply->thinking == thinking) return;
    show_rest(reply);
    const char *style = cli_term_style_out(thinking ? CLI_DIM : CLI_PLAIN);
    reply->thinking = thinking;
    cli_term_styled(thinking && *style != '\0');
    if (thinking && *style == '\0') show_bytes(reply, "(thinking) ", 11);
    cli_out(style, strlen(style));
    /* One empty line between thoughts and answer. */
    if (!thinking) show_bytes(reply, "\n\n", ends_line(&reply->reasoning) ? 1 : 2);
}

static void deliver_piece(cli_reply *reply, weir_delta_kind kind, const char *text, size_t length)
{
    bool reasoning = kind == WEIR_DELTA_REASONING;
    cli_text *all = reasoning ? &reply->reasoning : &reply->content;
    /* The newlines around a model's thoughts belong to its tags. */
    while (all->n == 0 && length > 0 && (reasoning || reply->trims || reply->reasoning.n > 0) &&
           (*text == '\n' || *text == ' ')) {
        text++;
        length--;
    }
    if (length == 0) return;
    cli_text_add(all, text, length);
    if (reply->silent || (reasoning && !cli_term_out())) return;
    set_thinking(reply, reasoning);
    show_bytes(reply, text, length);
}

static void take_chunk(cli_reply *reply, const weir_chunk *chunk)
{
    weir_delta delta;
    cli_term_progress_end();
    if (reply->parser == NULL) {
        deliver_piece(reply, WEIR_DELTA_CONTENT, chunk->text, chunk->length);
        return;
    }
    if (weir_chat_parser_feed(reply->parser, chunk->text, chunk->length, chunk->finished, NULL) != WEIR_OK)
        cli_no_memory();
    while (weir_chat_parser_next(reply->parser, &delta) == WEIR_OK)
        deliver_piece(reply, delta.kind, delta.text, delta.length);
}

cli_exit cli_reply_follow(cli_reply *reply, const cli_args *args, weir_stream *stream, cli_reply_fn *fn,
                          void *user)
{
    weir_error error = {0};
    weir_chunk chunk;
    weir_status status = WEIR_TIMEOUT;
    struct pollfd fds[2] = {{.fd = cli_signals_descriptor(), .events = POLLIN}, {.events = POLLIN}};
    if (weir_stream_descriptor(stream, &fds[1].fd, &error) != WEIR_OK)
        return cli_fail_error(args, CLI_FAILED, NULL, &error);
    while (status != WEIR_END) {
        int n = poll(fds, 2, CLI_LOOK_MS);
        if (n > 0 && fds[0].revents != 0) cli_signals_drain();
        if (cli_signals_took(SIGTSTP)) cli_term_stop();
        if (cli_signals_took(SIGINT) || cli_signals_ended() != 0 || cli_out_closed())
            weir_stream_cancel(stream);
        while ((status = weir_stream_try_next(stream, &chunk)) == WEIR_OK) {
            if (fn != NULL) fn(user, &chunk);
            take_chunk(reply, &chunk);
        }
        if (n == 0) cli_progress_prompt(args, stream);
    }
    cli_term_progress_end();
    return CLI_OK;
}

void cli_reply_end(cli_reply *reply)
{
    set_thinking(reply, false);
    show_rest(reply);
    if (!reply->silent && reply->content.n > 0 && !ends_line(&reply->content)) cli_out("\n", 1);
}

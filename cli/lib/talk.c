/* talk.c: renders prompts and follows answers; keeps messages and media, submits the next answer, and saves
 * and loads conversations.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A cli_reply is one answer: its chat, its parser, and the text so far. A cli_talk is a conversation, which
 * owns its messages, its media and the engine. An answer is rendered, submitted, followed and concluded in
 * this order. Following is one loop: it polls the stream and the signals, feeds chunks to the parser, and
 * prints reasoning and content, broken between words on a terminal. SIGINT cancels the stream, whose last
 * chunk ends the loop. A file is read into an empty conversation, which replaces the old one only if all of
 * it is good. */
#include "talk.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "figures.h"
#include "file.h"
#include "out.h"
#include "progress.h"
#include "signals.h"
#include "term.h"

/* ---- Answers ---- */

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

/* ---- Messages ---- */

void cli_talk_init(cli_talk *talk, const cli_args *args)
{
    *talk = (cli_talk){.args = args};
    cli_ask_copy(&talk->ask, &args->ask);
    if (args->system != NULL) talk->system = cli_format("%s", args->system);
}

void cli_talk_fini(cli_talk *talk)
{
    cli_talk_cut(talk, 0);
    weir_engine_destroy(talk->engine);
    weir_model_release(talk->model);
    cli_ask_fini(&talk->ask);
    cli_media_fini(&talk->media);
    cli_free(talk->messages);
    cli_free(talk->system);
}

void cli_talk_add(cli_talk *talk, bool user, const char *content)
{
    cli_grow(&talk->messages, &talk->capacity, talk->n + 1, sizeof *talk->messages);
    talk->messages[talk->n++] =
        (weir_message){.role = user ? "user" : "assistant", .content = cli_format("%s", content)};
}

void cli_talk_cut(cli_talk *talk, size_t n)
{
    size_t n_media = talk->media.n;
    while (talk->n > n) cli_free((char *)talk->messages[--talk->n].content);
    while (n_media > 0 && talk->media.items[n_media - 1].message >= n) n_media--;
    cli_media_cut(&talk->media, n_media);
}

void cli_talk_forget(cli_talk *talk, size_t n)
{
    cli_media kept = {0};
    if (n > talk->n) n = talk->n / 2 * 2;
    if (n == 0) return;
    for (size_t i = 0; i < n; i++) cli_free((char *)talk->messages[i].content);
    memmove(talk->messages, talk->messages + n, (talk->n - n) * sizeof *talk->messages);
    talk->n -= n;
    cli_media_add_from(&kept, &talk->media, n);
    cli_media_fini(&talk->media);
    talk->media = kept;
}

/* ---- An answer ---- */

struct answer {
    const cli_talk *talk;
    cli_reply reply;
    weir_stream *stream;
};

static cli_exit render_prompt(struct answer *answer)
{
    const cli_talk *talk = answer->talk;
    size_t n_system = talk->system != NULL, n = talk->n - talk->first;
    weir_message *messages = cli_alloc(n + n_system, sizeof *messages);
    cli_media media = {0};
    cli_media_add_from(&media, &talk->media, talk->first);
    if (n_system > 0) messages[0] = (weir_message){"system", talk->system};
    memcpy(messages + n_system, talk->messages + talk->first, n * sizeof *messages);
    cli_exit code = cli_reply_render(&answer->reply, talk->args, &talk->ask, talk->model, messages,
                                     n + n_system, &media, n_system, "cannot render the conversation");
    cli_media_fini(&media);
    cli_free(messages);
    return code;
}

static cli_exit submit_answer(struct answer *answer, cli_talk *talk)
{
    weir_error error = {0};
    cli_ask ask;
    cli_exit code = CLI_OK;
    cli_ask_copy(&ask, &talk->ask);
    weir_request request = cli_ask_request(&ask);
    ask.sampler.json_schema = NULL; /* the chat has it */
    request.chat = answer->reply.chat;
    weir_status status = weir_stream_create(&answer->stream, &error);
    if (status == WEIR_OK) status = weir_engine_submit(talk->engine, &request, 1, &answer->stream, &error);
    talk->too_long = status == WEIR_TOO_LONG;
    if (talk->too_long) {
        snprintf(talk->why, sizeof talk->why, "%s",
                 cli_error_words(&error, talk->args->command->bit, NULL, NULL).text);
        code = CLI_REFUSED;
    } else if (status != WEIR_OK)
        code = cli_fail_error(talk->args, CLI_REFUSED, "the request was refused", &error);
    cli_ask_fini(&ask);
    return code;
}

/* Ends the output of an answer and keeps its figures. */
static cli_exit conclude_answer(struct answer *answer, cli_talk *talk)
{
    weir_error error = {0};
    cli_reply_end(&answer->reply);
    if (cli_term_out()) cli_out("\n", 1);
    talk->usage = weir_stream_usage(answer->stream);
    talk->miss = cli_figures_miss_of(answer->stream);
    talk->reason = weir_stream_reason(answer->stream);
    talk->n_answers++;
    if (answer->reply.content.n > 0) cli_talk_add(talk, false, answer->reply.content.bytes);
    if (talk->reason == WEIR_REASON_ERROR) {
        weir_stream_error(answer->stream, &error);
        return cli_fail(CLI_REFUSED, "the answer failed: %s", weir__error_words(&error).text);
    }
    weir_engine_stats stats = {.size = sizeof stats};
    weir_engine_get_stats(talk->engine, &stats);
    bool full =
        talk->reason == WEIR_REASON_LENGTH && talk->usage.n_prompt + talk->usage.n_generated >= stats.n_ctx;
    if (cli_term_err() && talk->reason != WEIR_REASON_END && talk->reason != WEIR_REASON_STOP_WORDS)
        cli_note("(%s)", full                                 ? "cut: the context is full; /forget drops the "
                                                                "oldest question and its answer"
                         : talk->reason == WEIR_REASON_LENGTH ? "cut: the token limit is reached"
                                                              : weir_reason_name(talk->reason));
    return CLI_OK;
}

cli_exit cli_talk_answer(cli_talk *talk)
{
    struct answer answer = {.talk = talk, .reply.trims = true};
    talk->too_long = false;
    cli_exit code = render_prompt(&answer);
    if (code == CLI_OK) code = submit_answer(&answer, talk);
    if (code == CLI_OK) code = cli_reply_follow(&answer.reply, talk->args, answer.stream, NULL, NULL);
    if (code == CLI_OK) code = conclude_answer(&answer, talk);
    weir_stream_release(answer.stream);
    cli_reply_fini(&answer.reply);
    return code;
}

/* ---- Files ---- */

cli_exit cli_talk_save(const cli_talk *talk, const char *path)
{
    json_t *messages = json_array();
    if (talk->system != NULL)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", talk->system));
    for (size_t i = 0; i < talk->n; i++) {
        const weir_message *message = &talk->messages[i];
        json_t *parts = cli_media_parts(&talk->media, i);
        if (parts != NULL)
            json_array_append_new(parts, json_pack("{s:s, s:s}", "type", "text", "text", message->content));
        json_array_append_new(messages, json_pack("{s:s, s:o}", "role", message->role, "content",
                                                  parts != NULL ? parts : json_string(message->content)));
    }
    json_t *json = json_pack("{s:o}", "messages", messages);
    if (json == NULL) cli_no_memory();
    bool written = json_dump_file(json, path, JSON_INDENT(2)) == 0;
    int why = errno;
    json_decref(json);
    return written ? CLI_OK : cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(why));
}

/* The text of a content, whose media go with the next message. NULL, or the error in it. */
static const char *take_content(cli_talk *talk, const json_t *content, const char **text)
{
    const json_t *last = json_array_get(content, json_array_size(content) - 1);
    if (cli_media_take_parts(&talk->media, talk->model, content, "the conversation", talk->n) != CLI_OK)
        return "an image or a sound of it cannot be used";
    *text = json_string_value(json_is_array(content) ? json_object_get(last, "text") : content);
    return *text != NULL ? NULL : "each message needs a role and content with text";
}

/* The messages of a file into an empty talk. NULL, or the error in them. */
static const char *take_messages(cli_talk *talk, json_t *messages)
{
    size_t i;
    json_t *message;
    if (!json_is_array(messages)) return "it has no \"messages\"";
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        const char *content = NULL,
                   *wrong = take_content(talk, json_object_get(message, "content"), &content);
        if (wrong != NULL) return wrong;
        if (role == NULL) return "each message needs a role and content with text";
        if (strcmp(role, "system") == 0 && i == 0)
            talk->system = cli_format("%s", content);
        else if (strcmp(role, talk->n % 2 == 0 ? "user" : "assistant") == 0)
            cli_talk_add(talk, talk->n % 2 == 0, content);
        else
            return "expected: a system message or none, then user and assistant in turn";
    }
    return talk->n % 2 != 0 ? "the last message is not the assistant's" : NULL;
}

cli_exit cli_talk_load(cli_talk *talk, const char *path)
{
    char *bytes = NULL;
    size_t length = 0;
    json_error_t why = {0};
    cli_talk read = {.model = talk->model};
    cli_exit code = cli_file_read(path, "a conversation", &bytes, &length);
    if (code != CLI_OK) return code;
    json_t *json = json_loadb(bytes, length, 0, &why);
    weir__json_words words = weir__json_problem(&why); /* empty if the text could be read */
    const char *wrong = json == NULL ? words.text : take_messages(&read, json_object_get(json, "messages"));
    if (wrong != NULL)
        code = cli_fail(CLI_USAGE, "cannot load %s: %s", path, wrong);
    else {
        cli_talk_cut(talk, 0);
        cli_free(talk->system);
        cli_free(talk->messages);
        cli_media_fini(&talk->media);
        talk->media = read.media;
        talk->system = read.system;
        talk->messages = read.messages;
        talk->n = read.n;
        talk->capacity = read.capacity;
        read = (cli_talk){0};
    }
    cli_talk_cut(&read, 0);
    cli_media_fini(&read.media);
    cli_free(read.messages);
    cli_free(read.system);
    json_decref(json);
    cli_free(bytes);
    return code;
}

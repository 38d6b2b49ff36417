/* talk.c: keeps messages and media, submits the next answer, and saves and loads conversations.
 * SPDX-License-Identifier: Apache-2.0 */
#include "talk.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "figures.h"
#include "file.h"
#include "out.h"
#include "reply.h"
#include "term.h"

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
                 cli_error_words(&error, talk->args->command->bit, NULL).text);
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

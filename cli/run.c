/* weir run: one prompt, one answer.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The prompt is put together from files, stdin and words, before the model is loaded. It is rendered as a
 * chat if the model has a template, and submitted as many times as answers are wanted. A single answer is
 * printed chunk by chunk as it comes. With --best-of all streams are awaited first; the best one is then
 * printed in the same way, and the others are released. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/lib/figures.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/progress.h"
#include "cli/lib/prompt.h"
#include "cli/lib/shortname.h"
#include "cli/lib/signals.h"
#include "cli/lib/talk.h"
#include "cli/lib/term.h"

#define BEST_OF_MAX 128
#define TOGETHER    8  /* answers of --best-of at a time, at most, unless -np asks for more slots */
#define ENDED_MS    20 /* poll interval for several streams, which share no descriptor */

struct run {
    const cli_args *args;
    weir_model *model;
    weir_engine *engine;
    cli_reply reply;
    weir_stream *stream;
    weir_stream *streams[BEST_OF_MAX]; /* [n_streams] of --best-of, until one of them is `stream` */
    int32_t n_streams;
    cli_prompt texts;
    cli_text prompt; /* the texts and the words */
    cli_media media; /* that stand before it */
    int64_t load_ns;
    int32_t *tokens; /* [n_tokens] */
    size_t n_tokens, tokens_capacity;
    json_t *logprobs, *prompt_logprobs; /* NULL: none are wanted, or there are none yet */
    json_t *held;                       /* those of tokens whose text is held back */
    weir_reason reason;
};

void cli_run_defaults(cli_args *args)
{
    args->engine.n_slots = 1;
}

/* ---- The prompt ---- */

/* Says on stderr which texts are part of the prompt. */
static void report_prompt(const cli_prompt *prompt)
{
    cli_text names = {0};
    cli_prompt_names(prompt, &names);
    cli_note("read %s", names.bytes);
    weir__text_fini(&names);
}

static bool is_stdin(const char *words)
{
    return words != NULL && strcmp(words, "-") == 0;
}

/* Files, then stdin where it is no terminal; - asks for it at its place. */
static cli_exit read_texts(struct run *run, const char *words)
{
    const cli_list *files = &run->args->prompt_files;
    const cli_list *media[] = {files, &run->args->images, &run->args->sounds};
    size_t n_stdin = is_stdin(words);
    cli_exit code = CLI_OK;
    for (size_t k = 0; k < sizeof media / sizeof *media; k++)
        for (size_t i = 0; i < media[k]->n; i++) n_stdin += is_stdin(media[k]->items[i]);
    if (n_stdin > 1) return cli_fail(CLI_USAGE, "stdin can be read only once: give one -");
    for (size_t i = 0; i < files->n && code == CLI_OK; i++)
        code = cli_prompt_read(&run->texts, files->items[i], false);
    bool piped = n_stdin == 0 && !isatty(STDIN_FILENO);
    bool optional = piped && (words != NULL || files->n > 0);
    if (code == CLI_OK && (piped || is_stdin(words)))
        code = cli_prompt_read(&run->texts, "-", optional && !run->args->quiet);
    return code;
}

static cli_exit read_prompt(struct run *run)
{
    const cli_args *args = run->args;
    if (args->prompt != NULL && args->words.n > 0)
        return cli_fail(CLI_USAGE, "there is more than one prompt: use -p TEXT, or one word (\"in quotes\")");
    const char *words = args->words.n > 0 ? args->words.items[0] : args->prompt;
    if (words == NULL && args->prompt_files.n == 0 && isatty(STDIN_FILENO))
        return cli_fail(CLI_USAGE,
                        "there is no prompt: weir run -p \"What is a weir?\", or pipe one in; weir "
                        "chat begins a conversation");
    cli_exit code = read_texts(run, words);
    if (code != CLI_OK) return code;
    if (is_stdin(words)) words = NULL;
    if (args->raw)
        cli_prompt_join_raw(&run->texts, words, &run->prompt);
    else
        cli_prompt_join(&run->texts, words, &run->prompt);
    if (run->prompt.n == 0)
        return cli_fail(CLI_USAGE, args->images.n + args->sounds.n > 0
                                       ? "the prompt is empty: a text is needed beside images and sounds"
                                       : "the prompt is empty");
    if (run->texts.n > 0 && !args->quiet && !args->json) report_prompt(&run->texts);
    return CLI_OK;
}

static cli_exit read_media(struct run *run)
{
    const cli_args *args = run->args;
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < args->images.n && code == CLI_OK; i++)
        code = cli_media_read(&run->media, run->model, args->images.items[i], WEIR_MEDIA_IMAGE, 0);
    for (size_t i = 0; i < args->sounds.n && code == CLI_OK; i++)
        code = cli_media_read(&run->media, run->model, args->sounds.items[i], WEIR_MEDIA_AUDIO, 0);
    return code;
}

static cli_exit render_prompt(struct run *run)
{
    const cli_args *args = run->args;
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(run->model, &info);
    if (args->raw && args->system != NULL)
        return cli_fail(CLI_USAGE,
                        "--raw continues the prompt as plain text, so --system cannot be used with it");
    if (args->raw) return CLI_OK;
    if (info.chat_template == NULL && args->chat_template == NULL) {
        if (args->system != NULL)
            return cli_fail(CLI_USAGE, "this model has no chat template, so --system has no place to go");
        if (!args->quiet) cli_note("this model has no chat template: it continues the prompt as plain text");
        return CLI_OK;
    }
    if (memchr(run->prompt.bytes, '\0', run->prompt.n) != NULL)
        return cli_fail(CLI_USAGE,
                        "the prompt has a NUL byte, which a chat message cannot contain; --raw accepts it");
    const weir_message messages[] = {{"system", args->system}, {"user", run->prompt.bytes}};
    bool system = args->system != NULL;
    return cli_reply_render(&run->reply, args, &args->ask, run->model, system ? messages : messages + 1,
                            system ? 2 : 1, &run->media, system, "cannot render the prompt");
}

static cli_exit submit_prompt(struct run *run)
{
    cli_ask ask;
    weir_error error = {0};
    cli_exit code = CLI_OK;
    weir_media_use *uses = cli_alloc(run->media.n, sizeof *uses);
    for (size_t i = 0; i < run->media.n; i++) uses[i] = (weir_media_use){.media = run->media.items[i].media};
    cli_ask_copy(&ask, &run->args->ask);
    weir_request request = cli_ask_request(&ask);
    if (run->reply.chat != NULL) {
        request.chat = run->reply.chat;
        ask.sampler.json_schema = NULL; /* the chat has it */
    } else {
        request.text = run->prompt.bytes;
        request.text_length = run->prompt.n;
        request.media = uses;
        request.n_media = run->media.n;
    }
    request.prompt_logprobs = run->args->n_prompt_logprobs != CLI_UNSET;
    request.n_prompt_logprobs = request.prompt_logprobs ? run->args->n_prompt_logprobs : 0;
    request.logprobs |= run->args->best_of > 1;
    while (code == CLI_OK && run->n_streams < run->args->best_of)
        if (weir_stream_create(&run->streams[run->n_streams], &error) != WEIR_OK)
            code = cli_fail_error(run->args, CLI_FAILED, NULL, &error);
        else
            run->n_streams++;
    if (code == CLI_OK &&
        weir_engine_submit_n(run->engine, &request, (size_t)run->n_streams, run->streams, &error) != WEIR_OK)
        code = cli_fail_error(run->args, CLI_REFUSED, "the request was refused", &error);
    cli_free(uses);
    cli_ask_fini(&ask);
    return code;
}

/* ---- The answer ---- */

static void keep_tokens(void *user, const weir_chunk *chunk)
{
    struct run *run = user;
    cli_grow(&run->tokens, &run->tokens_capacity, run->n_tokens + chunk->n_tokens, sizeof *run->tokens);
    for (size_t i = 0; i < chunk->n_tokens; i++) run->tokens[run->n_tokens++] = chunk->tokens[i];
    if (run->logprobs != NULL) {
        json_t *more = cli_figures_shown(&run->held, chunk);
        json_array_extend(run->logprobs, more);
        json_decref(more);
    }
}

/* True if all answers have ended; until then the best is not known. */
static bool have_ended(const struct run *run)
{
    bool ended = true;
    for (int32_t i = 0; i < run->n_streams; i++) ended = ended && weir_stream_finished(run->streams[i]);
    return ended;
}

static void await_all(const struct run *run)
{
    struct pollfd fd = {.fd = cli_signals_descriptor(), .events = POLLIN};
    while (!have_ended(run)) {
        if (poll(&fd, 1, ENDED_MS) > 0) cli_signals_drain();
        cli_progress_prompt(run->args, run->streams[0]);
        if (cli_signals_ended() == 0 && !cli_out_closed()) continue;
        for (int32_t i = 0; i < run->n_streams; i++) weir_stream_cancel(run->streams[i]);
    }
}

/* Keeps, with --best-of, the best answer's stream and releases the others. */
static void choose_best(struct run *run)
{
    weir_chunk prompt;
    int32_t best = 0;
    double most = -INFINITY;
    if (run->n_streams > 1) await_all(run);
    for (int32_t i = 0; i < run->n_streams; i++) {
        weir_usage usage = weir_stream_usage(run->streams[i]);
        double score = run->n_streams > 1 ? weir_usage_score(&usage) : 0;
        if (score <= most || weir_stream_reason(run->streams[i]) == WEIR_REASON_ERROR) continue;
        best = i;
        most = score;
    }
    /* The first stream alone has the prompt's logprobs, which are the same for all. */
    if (best > 0 && weir_stream_prompt_logprobs(run->streams[0], &prompt) == WEIR_OK)
        run->prompt_logprobs = cli_figures_logprobs(&prompt);
    run->stream = run->streams[best];
    for (int32_t i = 0; i < run->n_streams; i++)
        if (i != best) weir_stream_release(run->streams[i]);
    run->n_streams = 0;
}

static json_t *as_json(const struct run *run, const weir_usage *usage, const weir_error *error)
{
    json_t *timings = cli_figures_timings(usage);
    if (timings != NULL) json_object_set_new(timings, "load_ms", json_real((double)run->load_ns / 1e6));
    json_t *json = json_pack(
        "{s:s%, s:o, s:s, s:o, s:o}", "text", run->reply.content.n > 0 ? run->reply.content.bytes : "",
        run->reply.content.n, "tokens", cli_figures_tokens(run->tokens, run->n_tokens), "reason",
        weir_reason_name(run->reason), "usage", cli_figures_usage(usage), "timings", timings);
    if (json != NULL && run->reply.reasoning.n > 0)
        json_object_set_new(json, "reasoning",
                            json_stringn(run->reply.reasoning.bytes, run->reply.reasoning.n));
    weir_miss_info miss = cli_figures_miss_of(run->stream);
    if (json != NULL && run->args->explain_cache) json_object_set_new(json, "cache", cli_figures_miss(&miss));
    if (json != NULL && run->logprobs != NULL) json_object_set(json, "logprobs", run->logprobs);
    if (json != NULL && run->prompt_logprobs != NULL)
        json_object_set(json, "prompt_logprobs", run->prompt_logprobs);
    if (json != NULL && error->code != WEIR_OK) json_object_set_new(json, "error", cli_figures_error(error));
    return json;
}

static cli_exit conclude_run(struct run *run)
{
    weir_usage usage = weir_stream_usage(run->stream);
    weir_error error = {0};
    cli_text line = {0};
    weir_stream_error(run->stream, &error);
    run->reason = weir_stream_reason(run->stream);
    weir_chunk prompt;
    if (run->prompt_logprobs == NULL && weir_stream_prompt_logprobs(run->stream, &prompt) == WEIR_OK)
        run->prompt_logprobs = cli_figures_logprobs(&prompt);
    cli_reply_end(&run->reply);
    if (run->args->json) cli_out_json(as_json(run, &usage, &error));
    if (!run->args->quiet && !run->args->json && !cli_out_closed()) {
        cli_text_puts(&line, cli_term_style_err(CLI_DIM));
        cli_figures_line(&line, &usage, run->reason);
        cli_text_puts(&line, "\n");
        weir_miss_info miss = cli_figures_miss_of(run->stream);
        if (run->args->explain_cache) cli_figures_miss_line(&line, &miss);
        cli_text_puts(&line, cli_term_style_err(CLI_PLAIN));
        cli_text_tell(&line);
    }
    if (run->reason == WEIR_REASON_ERROR)
        return cli_fail(CLI_REFUSED, "the request failed: %s", weir__error_words(&error).text);
    return CLI_OK;
}

cli_exit cli_run(cli_args *args)
{
    struct run run = {.args = args, .reply.silent = args->json};
    if (args->ask.request.n_logprobs != CLI_UNSET) run.logprobs = json_array();
    char *path = NULL;
    int64_t started;
    cli_load_log(args);
    cli_exit code = CLI_USAGE;
    if (args->best_of < 1 || args->best_of > BEST_OF_MAX) {
        code = cli_fail(CLI_USAGE, "--best-of is %d; allowed: 1 to %d", args->best_of, BEST_OF_MAX);
        goto done;
    }
    int32_t together = args->best_of < TOGETHER ? args->best_of : TOGETHER;
    if (together > 1 && args->engine.n_slots < together) args->engine.n_slots = together;
    if ((code = read_prompt(&run)) != CLI_OK) goto done;
    code = CLI_NO_MODEL;
    if ((path = cli_load_path(args)) == NULL) goto done;
    started = weir__clock_now_ns();
    if ((code = cli_load_model(args, path, &run.model)) != CLI_OK) goto done;
    if ((code = read_media(&run)) != CLI_OK) goto done;
    if ((code = render_prompt(&run)) != CLI_OK) goto done;
    if ((code = cli_load_engine(args, run.model, &run.engine)) != CLI_OK) goto done;
    run.load_ns = weir__clock_now_ns() - started;
    if ((code = submit_prompt(&run)) != CLI_OK) goto done;
    choose_best(&run);
    code = cli_reply_follow(&run.reply, args, run.stream, keep_tokens, &run);
    if (code != CLI_OK) goto done;
    code = conclude_run(&run);
    if (code == CLI_OK && !args->json) cli_starter_advise(args, path);
done:
    weir_engine_destroy(run.engine);
    weir_stream_release(run.stream);
    for (int32_t i = 0; i < run.n_streams; i++) weir_stream_release(run.streams[i]);
    cli_reply_fini(&run.reply);
    weir_model_release(run.model);
    cli_load_log_flush();
    cli_free(run.tokens);
    json_decref(run.logprobs);
    json_decref(run.held);
    json_decref(run.prompt_logprobs);
    cli_media_fini(&run.media);
    cli_prompt_fini(&run.texts);
    weir__text_fini(&run.prompt);
    cli_free(path);
    return code;
}

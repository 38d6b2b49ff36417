/* weir chat: a conversation, line by line.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A message is a line, or several that a backslash or quotes join; one that begins with a slash is a command,
 * and the table of commands is here. The conversation is kept in cli_talk, and a command that changes
 * settings tries them on a sampler before they stay. /model loads another model and goes on with the same
 * conversation. If the conversation has become too long, a person is asked whether its oldest turns may go,
 * and it is tried again without them. A person goes on after an error; input from a pipe ends with the first
 * one. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/child.h"
#include "cli/lib/config_file.h"
#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/line.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/prompt.h"
#include "cli/lib/shortname.h"
#include "cli/lib/signals.h"
#include "cli/lib/talk.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"
#include "commands.h"

struct chat {
    const cli_args *args;
    cli_talk talk;
    cli_line *line;
    char *path;       /* of the model's file */
    cli_prompt texts; /* that go with the next message */
    cli_media media;  /* likewise */
    bool over;
};

void cli_chat_defaults(cli_args *args)
{
    args->engine.n_slots = 1;
}

/* ---- Commands: `rest` is the text after the command, or NULL ---- */

static void say_text(const struct chat *chat, const char *string)
{
    cli_text text = {0};
    if (!cli_line_asks(chat->line)) return;
    cli_text_add_safe(&text, string, strlen(string));
    cli_note("%s", text.bytes != NULL ? text.bytes : "");
    weir__text_fini(&text);
}

/* Prints a text on stdout, on a terminal broken between words, and frees it. */
static void print_text(cli_text *text)
{
    if (cli_term_out()) cli_wrap_notice(text);
    cli_out_text(text);
}

static cli_exit on_help(struct chat *chat, const char *rest);

static cli_exit on_system(struct chat *chat, const char *rest)
{
    cli_talk *talk = &chat->talk;
    if (rest == NULL) {
        say_text(chat,
                 talk->system != NULL ? talk->system : "there is no system message; /system TEXT sets one");
        return CLI_OK;
    }
    cli_free(talk->system);
    talk->system = strcmp(rest, "-") == 0 ? NULL : cli_format("%s", rest);
    return CLI_OK;
}

static cli_exit on_clear(struct chat *chat, const char *rest)
{
    (void)rest;
    cli_talk_cut(&chat->talk, 0);
    say_text(chat, "the conversation begins anew");
    return CLI_OK;
}

static cli_exit on_undo(struct chat *chat, const char *rest)
{
    cli_talk *talk = &chat->talk;
    (void)rest;
    if (talk->n == 0) return cli_fail(CLI_USAGE, "there is nothing to undo");
    cli_talk_cut(talk, (talk->n - 1) / 2 * 2);
    say_text(chat, "the last question and its answer are forgotten");
    return CLI_OK;
}

/* ---- Answers ---- */

/* True if a person agrees that old turns go. */
static bool may_forget(struct chat *chat)
{
    cli_text answer = {0};
    if (!cli_line_asks(chat->line) || chat->talk.n < 3) return false;
    cli_fail(CLI_OK, "the conversation does not fit any longer: %s", chat->talk.why);
    bool may = cli_line_read(chat->line, "forget its oldest turns until it fits? [y/N] ", &answer) ==
                   CLI_LINE_TEXT &&
               answer.n > 0 && (answer.bytes[0] == 'y' || answer.bytes[0] == 'Y');
    weir__text_fini(&answer);
    return may;
}

static cli_exit answer_once(struct chat *chat)
{
    bool edits = cli_line_edits(chat->line);
    if (edits) cli_term_echo(false);
    cli_exit code = cli_talk_answer(&chat->talk);
    if (edits) cli_term_echo(true);
    return code;
}

/* The answer to the last message. If the conversation is too long, the oldest turns may go: those without
 * which it fits, and none if it never does. */
static cli_exit answer_turn(struct chat *chat)
{
    cli_talk *talk = &chat->talk;
    cli_exit code = answer_once(chat);
    bool asked = talk->too_long, may = asked && may_forget(chat);
    while (may && talk->too_long && talk->first + 2 < talk->n && cli_signals_ended() == 0 &&
           !cli_signals_took(SIGINT)) {
        talk->first += 2;
        code = answer_once(chat);
    }
    size_t n_left_out = talk->first;
    may = may && n_left_out + 2 >= talk->n; /* all were tried */
    talk->first = 0;
    if (talk->too_long)
        return cli_fail(CLI_REFUSED, "%s%s; /forget, /undo and /clear make room, as does a shorter message",
                        may ? "the last message alone does not fit: "
                            : "the conversation does not fit any longer: ",
                        talk->why);
    if (code != CLI_OK || n_left_out == 0) return code;
    cli_talk_forget(talk, n_left_out);
    cli_note("(%zu of the oldest questions and their answers were forgotten)", n_left_out / 2);
    return code;
}

/* Sends a message with the texts and media that go with it, and forgets it if no answer came. */
static cli_exit ask_model(struct chat *chat, const char *message)
{
    cli_talk *talk = &chat->talk;
    cli_text whole = {0};
    size_t n = talk->n;
    cli_prompt_join(&chat->texts, message, &whole);
    cli_media_add(&talk->media, &chat->media, n);
    cli_talk_add(talk, true, whole.bytes != NULL ? whole.bytes : "");
    weir__text_fini(&whole);
    cli_exit code = answer_turn(chat);
    if (talk->n % 2 != 0)
        cli_talk_cut(talk, talk->n - 1);
    else {
        cli_prompt_fini(&chat->texts);
        cli_media_fini(&chat->media);
    }
    return code;
}

static cli_exit on_regen(struct chat *chat, const char *rest)
{
    cli_talk *talk = &chat->talk;
    (void)rest;
    if (talk->n < 2) return cli_fail(CLI_USAGE, "there is no answer to make again");
    const char *former = talk->messages[--talk->n].content;
    cli_exit code = answer_turn(chat);
    if (talk->n % 2 != 0) cli_talk_add(talk, false, former); /* no new answer came */
    cli_free((char *)former);
    return code;
}

/* /forget, /forget 3 */
static cli_exit on_forget(struct chat *chat, const char *rest)
{
    cli_talk *talk = &chat->talk;
    char *end = NULL, note[96];
    unsigned long n = rest != NULL ? strtoul(rest, &end, 10) : 1;
    if (rest != NULL && (*rest < '0' || *rest > '9' || *end != '\0' || n == 0))
        return cli_fail(CLI_USAGE, "/forget takes how many of the oldest questions go, from 1: /forget 3");
    if (talk->n == 0) return cli_fail(CLI_USAGE, "there is nothing to forget");
    if (n > talk->n / 2) n = talk->n / 2;
    cli_talk_forget(talk, n * 2);
    snprintf(note, sizeof note,
             n == 1 ? "the oldest question and its answer are forgotten"
                    : "the %lu oldest questions and their answers are forgotten",
             n);
    say_text(chat, note);
    return CLI_OK;
}

/* True if a file may be written: if it exists, a person is asked. */
static bool may_write(struct chat *chat, const char *path)
{
    cli_text answer = {0};
    if (!cli_line_asks(chat->line) || access(path, F_OK) != 0) return true;
    bool may = cli_line_read(chat->line, "the file exists: overwrite it? [y/N] ", &answer) == CLI_LINE_TEXT &&
               answer.n > 0 && (answer.bytes[0] == 'y' || answer.bytes[0] == 'Y');
    weir__text_fini(&answer);
    return may;
}

static cli_exit on_save(struct chat *chat, const char *rest)
{
    if (rest == NULL) return cli_fail(CLI_USAGE, "where to? /save FILE");
    if (!may_write(chat, rest)) {
        say_text(chat, "not saved");
        return CLI_OK;
    }
    cli_exit code = cli_talk_save(&chat->talk, rest);
    if (code == CLI_OK) say_text(chat, "saved");
    return code;
}

static cli_exit on_load(struct chat *chat, const char *rest)
{
    if (rest == NULL) return cli_fail(CLI_USAGE, "/load needs a file: /load FILE");
    cli_exit code = cli_talk_load(&chat->talk, rest);
    if (code == CLI_OK) say_text(chat, "loaded");
    return code;
}

static cli_exit on_file(struct chat *chat, const char *rest)
{
    cli_text text = {0};
    cli_exit code = CLI_OK;
    if (rest != NULL && strcmp(rest, "-") == 0)
        cli_prompt_fini(&chat->texts);
    else if (rest != NULL)
        code = cli_prompt_read(&chat->texts, rest, false);
    if (code != CLI_OK) return code;
    if (chat->texts.n > 0) cli_text_puts(&text, "with the next message: ");
    cli_prompt_names(&chat->texts, &text);
    say_text(chat, text.n > 0 ? text.bytes : "no file goes with the next message; /file NAME adds one");
    weir__text_fini(&text);
    return CLI_OK;
}

static cli_exit on_media(struct chat *chat, const char *rest, weir_media_kind kind)
{
    cli_text text = {0};
    cli_exit code = CLI_OK;
    if (rest != NULL && strcmp(rest, "-") == 0)
        cli_media_fini(&chat->media);
    else if (rest != NULL)
        code = cli_media_read(&chat->media, chat->talk.model, rest, kind, 0);
    if (code != CLI_OK) return code;
    for (size_t i = 0; i < chat->media.n; i++) {
        cli_text_puts(&text, i == 0 ? "with the next message: " : ", ");
        cli_media_name(&chat->media.items[i], &text);
    }
    say_text(chat, text.n > 0 ? text.bytes
                              : "no image or sound goes with the next message; /image and /audio add one");
    weir__text_fini(&text);
    return CLI_OK;
}

static cli_exit on_image(struct chat *chat, const char *rest)
{
    return on_media(chat, rest, WEIR_MEDIA_IMAGE);
}

static cli_exit on_audio(struct chat *chat, const char *rest)
{
    return on_media(chat, rest, WEIR_MEDIA_AUDIO);
}

/* Makes a temporary file with a text, which only the user can read. CLI_FAILED after a message. */
static cli_exit make_file(const char *text, char **path)
{
    const char *folder = getenv("TMPDIR");
    size_t n = text != NULL ? strlen(text) : 0;
    *path = cli_format("%s/weir-XXXXXX.md", folder != NULL && *folder != '\0' ? folder : "/tmp");
    int file = mkstemps(*path, 3);
    bool written = file >= 0 && write(file, text, n) == (ssize_t)n;
    cli_exit code = written ? CLI_OK : cli_fail(CLI_FAILED, "cannot write %s: %s", *path, strerror(errno));
    if (file >= 0) close(file);
    return code;
}

static cli_exit on_edit(struct chat *chat, const char *rest)
{
    const char *editor = getenv("VISUAL");
    char *path = NULL, *bytes = NULL;
    size_t length = 0;
    if (!cli_line_asks(chat->line)) return cli_fail(CLI_USAGE, "/edit needs a terminal");
    if (editor == NULL || *editor == '\0') editor = getenv("EDITOR");
    if (editor == NULL || *editor == '\0') editor = "vi";
    cli_exit code = make_file(rest != NULL ? rest : "", &path);
    if (code == CLI_OK && cli_child_run(editor, path, NULL, 0) != 0)
        code = cli_fail(CLI_FAILED, "the editor failed: %s ($VISUAL or $EDITOR names another)", editor);
    if (code == CLI_OK) code = cli_file_read(path, "the message", &bytes, &length);
    unlink(path);
    if (code == CLI_OK && strspn(bytes, " \t\n") == length)
        say_text(chat, "the message is empty: nothing was sent");
    else if (code == CLI_OK) {
        cli_line_remember(chat->line, bytes);
        say_text(chat, bytes);
        code = ask_model(chat, bytes);
    }
    cli_free(bytes);
    cli_free(path);
    return code;
}

static cli_exit on_stats(struct chat *chat, const char *rest)
{
    const cli_talk *talk = &chat->talk;
    weir_engine_stats stats = {.size = sizeof stats};
    cli_text text = {0};
    (void)rest;
    weir_engine_get_stats(talk->engine, &stats);
    if (talk->n_answers > 0) {
        cli_figures_line(&text, &talk->usage, talk->reason);
        cli_text_puts(&text, "\n");
        cli_figures_miss_line(&text, &talk->miss);
    }
    int32_t n_tokens = talk->n_answers > 0 ? talk->usage.n_prompt + talk->usage.n_generated : 0;
    cli_text_printf(
        &text,
        "%d answer%s, %zu message%s, %s of %s tokens; prompt tokens computed %llu, from the cache %llu\n",
        talk->n_answers, talk->n_answers == 1 ? "" : "s", talk->n, talk->n == 1 ? "" : "s",
        cli_count((uint64_t)n_tokens).text, cli_count((uint64_t)stats.n_ctx).text,
        (unsigned long long)stats.n_prompt_tokens, (unsigned long long)stats.n_cached_tokens);
    print_text(&text);
    return CLI_OK;
}

/* Ends a change of the settings: if it failed, or if the sampler refuses them, they become *before again.
 * Otherwise the next answer would report it. Takes *before. */
static cli_exit settle_settings(struct chat *chat, cli_ask *before, cli_exit code)
{
    weir_sampler *sampler = NULL;
    weir_error error = {0};
    weir_request request = cli_ask_request(&chat->talk.ask);
    if (code == CLI_OK && weir_sampler_create(chat->talk.model, request.sampler, &sampler, &error) != WEIR_OK)
        code = cli_fail_error(chat->args, CLI_USAGE, NULL, &error);
    weir_sampler_destroy(sampler);
    if (code == CLI_OK) {
        cli_ask_fini(before);
        return CLI_OK;
    }
    cli_ask_fini(&chat->talk.ask);
    chat->talk.ask = *before;
    return code;
}

static cli_exit on_show(struct chat *chat, const char *rest);

/* True if it is an option of weir chat, or ollama's name of the context. */
static bool is_of_start(const char *name)
{
    char spelling[80];
    snprintf(spelling, sizeof spelling, "--%s", name);
    for (char *c = spelling; *c != '\0'; c++)
        if (*c == '_') *c = '-';
    return strcmp(name, "num_ctx") == 0 || cli_options_find(CLI_CHAT, spelling, strlen(spelling)) != NULL;
}

/* A name that is no setting of answers. */
static cli_exit set_other(struct chat *chat, const char *name, const char *value)
{
    cli_nearest nearest = cli_nearest_to(name);
    if (strcmp(name, "system") == 0) return on_system(chat, *value != '\0' ? value : NULL);
    if (is_of_start(name))
        return cli_fail(CLI_USAGE, "%s can be set only when weir starts, not in a chat", name);
    cli_options_try_keys(&nearest);
    return cli_fail(CLI_USAGE, "there is no setting %s%s", name, cli_nearest_hint(&nearest, ""));
}

/* All settings that /set may change, and their values. */
static void list_settings(const struct chat *chat, cli_text *text)
{
    cli_table table = {.n_columns = 2, .left = 2};
    cli_table_cell(&table, "setting");
    cli_table_cell(&table, "value");
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        char value[128], name[CLI_SPELLING_MAX];
        if (!(option->commands & CLI_CHAT) || !cli_options_in_requests(option)) continue;
        snprintf(name, sizeof name, "%s", option->name + 2);
        for (char *c = name; *c != '\0'; c++)
            if (*c == '-') *c = '_';
        cli_options_value(&chat->talk.ask, option, value, sizeof value);
        cli_table_cell(&table, "%s", name);
        cli_table_cell(&table, "%.50s", value);
    }
    cli_table_print(&table, text, cli_term_style_out(CLI_BOLD), cli_term_style_out(CLI_PLAIN));
    cli_table_fini(&table);
}

/* temp 0.2, or as ollama has it: parameter temperature 0.2, system TEXT */
static cli_exit on_set(struct chat *chat, const char *rest)
{
    char name[64];
    if (rest != NULL && strncmp(rest, "parameter ", 10) == 0) rest += 10;
    if (rest == NULL || strcmp(rest, "parameter") == 0) return on_show(chat, "parameters");
    if (strcspn(rest, " =") >= sizeof name)
        return cli_fail(CLI_USAGE, "there is no setting of this length; /set lists all");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(rest, " ="), rest);
    const char *value = rest + strlen(name);
    value += strspn(value, " =");
    for (char *c = name; *c != '\0'; c++)
        if (*c == '-') *c = '_';
    const cli_option *option = cli_options_by_key(name);
    if (option == NULL) return set_other(chat, name, value);
    if (*value == '\0') {
        char text[128];
        cli_options_value(&chat->talk.ask, option, text, sizeof text);
        say_text(chat, text[0] != '\0' ? text : "no value to show");
        return CLI_OK;
    }
    cli_ask before;
    cli_ask_copy(&before, &chat->talk.ask);
    return settle_settings(chat, &before, cli_options_set(&chat->talk.ask, option, name, value));
}

static void list_presets(struct chat *chat)
{
    cli_list names = cli_preset_names();
    cli_text text = {0};
    for (size_t i = 0; i < names.n; i++) cli_text_printf(&text, "%s%s", i > 0 ? ", " : "", names.items[i]);
    say_text(chat, text.n > 0 ? text.bytes : "there are no presets; weir help preset explains them");
    weir__text_fini(&text);
    cli_list_fini(&names);
}

/* The settings of a preset that answers obey; model and engine stay. */
static cli_exit take_settings(cli_talk *talk, const cli_config *config)
{
    const cli_option *last = NULL;
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < config->n && code == CLI_OK; i++) {
        const cli_setting *setting = &config->items[i];
        const cli_option *option = cli_options_by_preset(CLI_CHAT, setting->key);
        if (option == NULL || !cli_options_in_ask(option)) continue;
        if (cli_options_is_list(option) && option != last) cli_options_clear(&talk->ask, option);
        code = cli_options_set(&talk->ask, option, setting->key, setting->value);
        last = option;
    }
    return code;
}

static void take_system(cli_talk *talk, const cli_config *config)
{
    const char *system = cli_config_value(config, CLI_CONFIG_NONE, CLI_CHAT, "--system");
    if (system == NULL) return;
    cli_free(talk->system);
    talk->system = cli_format("%s", system);
}

static cli_exit on_preset(struct chat *chat, const char *rest)
{
    cli_config config = {0};
    cli_ask before;
    if (rest == NULL) {
        list_presets(chat);
        return CLI_OK;
    }
    char *path = cli_preset_path(rest);
    if (path == NULL) return cli_fail(CLI_USAGE, "there is no preset %s; /preset lists them", rest);
    cli_exit code = cli_preset_read(&config, path);
    if (code == CLI_OK) {
        cli_ask_copy(&before, &chat->talk.ask);
        code = settle_settings(chat, &before, take_settings(&chat->talk, &config));
    }
    if (code == CLI_OK) take_system(&chat->talk, &config);
    cli_config_fini(&config);
    cli_free(path);
    return code;
}

/* ---- The model ---- */

/* Checks that a model can chat. CLI_OK, or a code after a message. */
static cli_exit check_template(const struct chat *chat, const char *path, weir_model *model)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    if (info.chat_template == NULL && chat->args->chat_template == NULL)
        return cli_fail(CLI_USAGE,
                        "this model has no chat template: weir run --raw continues a text with it; "
                        "--chat-template and --chat-template-file give it a template");
    return cli_load_check_template(chat->args, path, model);
}

static void add_model(const struct chat *chat, cli_text *text)
{
    cli_text_puts(text, "model        ");
    cli_figures_title(text, chat->talk.model);
    cli_text_puts(text, "\n");
}

static void add_info(const struct chat *chat, cli_text *text)
{
    const cli_talk *talk = &chat->talk;
    weir_engine_stats stats = {.size = sizeof stats};
    weir_engine_get_stats(talk->engine, &stats);
    add_model(chat, text);
    cli_text_puts(text, "file         ");
    cli_text_add_safe(text, chat->path, strlen(chat->path));
    cli_text_printf(text, "\ncontext      %s tokens\nmessages     %zu\nsystem       ",
                    cli_count((uint64_t)stats.n_ctx).text, talk->n);
    const char *system = talk->system != NULL ? talk->system : "none";
    cli_text_add_cut(text, system, strcspn(system, "\n"), 60, false);
    cli_text_puts(text, "\n");
}

/* Shows the model, or a part of it; the parts have ollama's names. */
static cli_exit on_show(struct chat *chat, const char *rest)
{
    weir_model_info info = {.size = sizeof info};
    cli_text text = {0};
    if (rest != NULL && strcmp(rest, "system") == 0) return on_system(chat, NULL);
    weir_model_describe(chat->talk.model, &info);
    if (rest == NULL || strcmp(rest, "info") == 0)
        add_info(chat, &text);
    else if (strcmp(rest, "parameters") == 0 || strcmp(rest, "settings") == 0)
        list_settings(chat, &text);
    else if (strcmp(rest, "template") == 0) {
        const char *own = chat->args->chat_template;
        const char *shown = own != NULL ? own : info.chat_template != NULL ? info.chat_template : "";
        cli_text_add_safe(&text, shown, strlen(shown));
        cli_text_puts(&text, "\n");
    } else
        return cli_fail(CLI_USAGE, "/show shows info, parameters, system or template");
    if (rest == NULL) cli_text_puts(&text, "/show parameters, /show system and /show template show more\n");
    cli_out_text(&text);
    return CLI_OK;
}

/* Loads another model beside the present one, and goes on with it. */
static cli_exit change_model(struct chat *chat, const char *name)
{
    cli_talk *talk = &chat->talk;
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    char *path = cli_load_named(chat->args, name);
    if (path == NULL) return CLI_NO_MODEL;
    cli_exit code = cli_load_model(chat->args, path, &model);
    if (code == CLI_OK) code = check_template(chat, path, model);
    if (code == CLI_OK) code = cli_load_engine(chat->args, model, &engine);
    if (code == CLI_OK) {
        weir_engine *old_engine = talk->engine;
        weir_model *old = talk->model;
        char *old_path = chat->path;
        talk->engine = engine, talk->model = model, chat->path = path;
        engine = old_engine, model = old, path = old_path;
    }
    weir_engine_destroy(engine);
    weir_model_release(model);
    cli_free(path);
    return code;
}

static cli_exit on_model(struct chat *chat, const char *rest)
{
    cli_text text = {0};
    if (rest == NULL) {
        add_model(chat, &text);
        cli_text_puts(&text, "\n");
        cli_out_text(&text);
        return cli_models_print(chat->args);
    }
    if (chat->talk.media.n > 0 || chat->media.n > 0)
        return cli_fail(CLI_USAGE,
                        "images and sounds belong to the model that read them: /clear and /image - "
                        "come before /model");
    if (chat->args->lora.n > 0)
        return cli_fail(CLI_USAGE, "--lora belongs to the model that weir chat began with");
    char *preset = cli_preset_path(rest), *base = preset != NULL ? cli_preset_model(preset) : NULL;
    cli_exit code = preset != NULL && base == NULL ? CLI_USAGE : CLI_OK;
    bool asks = cli_line_asks(chat->line);
    if (asks) cli_signals_interrupts(false); /* Ctrl-C ends a download, and a load */
    if (code == CLI_OK) code = change_model(chat, base == NULL ? rest : *base != '\0' ? base : "default");
    if (asks) cli_signals_interrupts(true);
    if (asks && cli_signals_ended() == SIGINT) cli_signals_forget(); /* not the chat */
    if (code == CLI_OK && preset != NULL) code = on_preset(chat, rest);
    if (code == CLI_OK) {
        cli_figures_title(&text, chat->talk.model);
        say_text(chat, text.bytes);
    }
    weir__text_fini(&text);
    cli_free(base);
    cli_free(preset);
    return code;
}

static cli_exit on_exit_command(struct chat *chat, const char *rest)
{
    (void)rest;
    chat->over = true;
    return CLI_OK;
}

static const struct command {
    const char *name, *argument, *help;
    cli_exit (*run)(struct chat *chat, const char *rest);
} commands[] = {
    {"/help", "", "this list", on_help},
    {"/system", "[TEXT]", "show or set the system message; - removes it", on_system},
    {"/clear", "", "start a new conversation; the system message stays", on_clear},
    {"/regen", "", "answer the last question again", on_regen},
    {"/undo", "", "forget the last question and its answer", on_undo},
    {"/forget", "[N]", "forget the oldest question and its answer, or N of them", on_forget},
    {"/file", "NAME", "add a text file to the next message; - removes all", on_file},
    {"/image", "NAME", "add an image to the next message; - removes images and sounds", on_image},
    {"/audio", "NAME", "add a sound to the next message; - as above", on_audio},
    {"/edit", "[TEXT]", "write a message in $VISUAL or $EDITOR", on_edit},
    {"/save", "FILE", "save the conversation as JSON", on_save},
    {"/load", "FILE", "load a saved conversation", on_load},
    {"/stats", "", "tokens and times of the last answer", on_stats},
    {"/set", "[NAME VALUE]", "change a setting: /set temp 0.2; alone: list all", on_set},
    {"/show", "[WHAT]", "show info, parameters, system or template", on_show},
    {"/model", "[NAME]", "go on with another model; alone: list those that are here", on_model},
    {"/preset", "[NAME]", "use a preset's system message and settings; alone: list presets", on_preset},
    {"/exit", "", "leave, as do /bye, /quit and Ctrl-D", on_exit_command},
};

/* weir's name for a command of other programs. */
static const char *own_name(const char *name)
{
    if (strcmp(name, "/bye") == 0 || strcmp(name, "/quit") == 0) return "/exit";
    return strcmp(name, "/?") == 0 ? "/help" : name;
}

#define N_COMMANDS (sizeof commands / sizeof *commands)

static cli_exit on_help(struct chat *chat, const char *rest)
{
    cli_text text = {0};
    (void)chat, (void)rest;
    for (size_t i = 0; i < N_COMMANDS; i++)
        cli_text_printf(&text, "%s%s%s %-*s %s\n", cli_term_style_out(CLI_CYAN), commands[i].name,
                        cli_term_style_out(CLI_PLAIN), 18 - (int)strlen(commands[i].name),
                        commands[i].argument, commands[i].help);
    cli_text_puts(
        &text,
        "Ctrl-C ends an answer. A line that ends with \\ continues on the next one; \"\"\" begins and ends a "
        "message of several lines. // begins a message with /.\n");
    print_text(&text);
    return CLI_OK;
}

static cli_exit run_command(struct chat *chat, const char *line)
{
    char name[32];
    size_t n = strcspn(line, " ");
    const char *rest = line + n + strspn(line + n, " ");
    snprintf(name, sizeof name, "%.*s", (int)(n < 31 ? n : 31), line);
    cli_nearest nearest = cli_nearest_to(name);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, own_name(name)) == 0)
            return commands[i].run(chat, *rest != '\0' ? rest : NULL);
        cli_nearest_try(&nearest, commands[i].name);
    }
    return cli_fail(CLI_USAGE, "there is no command %s%s", name,
                    cli_nearest_hint(&nearest, "; /help lists them"));
}

/* ---- Lines ---- */

#define QUOTES "\"\"\""

static bool ends_with(const char *bytes, size_t n, const char *end)
{
    size_t length = strlen(end);
    return n >= length && memcmp(bytes + n - length, end, length) == 0;
}

/* A message: a line, and those that follow it while each ends with a backslash, or from """ to """. *quoted:
 * the latter, which is no command. */
static cli_line_what read_message(struct chat *chat, cli_text *message, bool *quoted)
{
    cli_text line = {0};
    char prompt[48], more[48];
    const char *on = cli_term_style_out(CLI_BOLD), *off = cli_term_style_out(CLI_PLAIN);
    /* \1 around characters that take no columns */
    const char *mark = cli_term_out() && *on != '\0' ? "\1" : "";
    snprintf(prompt, sizeof prompt, "%s%s%s> %s%s%s", mark, on, mark, mark, off, mark);
    snprintf(more, sizeof more, "%s%s%s| %s%s%s", mark, on, mark, mark, off, mark);
    cli_line_what what;
    bool first = true, goes_on = false;
    *quoted = false;
    do {
        weir__text_clear(&line);
        what = cli_line_read(chat->line, first ? prompt : more, &line);
        bool over = what == CLI_LINE_END && *quoted; /* the end of the input is its end, too */
        if (what != CLI_LINE_TEXT && !over) break;
        const char *bytes = line.bytes != NULL ? line.bytes : "";
        size_t n = line.n;
        if (first && strncmp(bytes, QUOTES, strlen(QUOTES)) == 0) {
            *quoted = true;
            bytes += strlen(QUOTES);
            n -= strlen(QUOTES);
        }
        bool marked = ends_with(bytes, n, *quoted ? QUOTES : "\\");
        goes_on = *quoted ? !marked && !over : marked;
        if (marked) n -= *quoted ? strlen(QUOTES) : 1;
        cli_text_add(message, bytes, n);
        if (goes_on) cli_text_puts(message, "\n");
        if (over) what = CLI_LINE_TEXT;
        first = false;
    } while (goes_on);
    weir__text_fini(&line);
    return what;
}

/* One message or command. */
static cli_exit take_message(struct chat *chat, const char *message, bool quoted)
{
    message += strspn(message, " \t\n");
    if (*message == '\0') return CLI_OK;
    cli_line_remember(chat->line, message);
    bool slash = !quoted && message[0] == '/';
    if (slash && message[1] != '/') return run_command(chat, message);
    return ask_model(chat, message + slash);
}

/* A person continues after an error; input from a pipe ends with the first one. */
static cli_exit hold_conversation(struct chat *chat)
{
    cli_exit code = CLI_OK;
    bool asks = cli_line_asks(chat->line);
    while (!chat->over && !cli_out_closed() && cli_signals_ended() == 0 && (asks || code == CLI_OK)) {
        cli_text message = {0};
        bool quoted;
        cli_line_what what = read_message(chat, &message, &quoted);
        if (what == CLI_LINE_TEXT)
            code = take_message(chat, message.bytes != NULL ? message.bytes : "", quoted);
        else if (what == CLI_LINE_END)
            chat->over = true;
        if (what != CLI_LINE_TEXT && asks) cli_out("\n", 1);
        if (what == CLI_LINE_INTERRUPTED) say_text(chat, "(Ctrl-D leaves)");
        weir__text_fini(&message);
    }
    return asks ? CLI_OK : code;
}

static cli_exit begin_chat(struct chat *chat)
{
    const char *path = chat->path;
    cli_exit code = cli_load_model(chat->args, path, &chat->talk.model);
    if (code == CLI_OK) code = check_template(chat, path, chat->talk.model);
    if (code == CLI_OK) code = cli_load_engine(chat->args, chat->talk.model, &chat->talk.engine);
    if (code == CLI_OK && cli_line_asks(chat->line) && !chat->args->quiet) {
        cli_text text = {0};
        cli_figures_title(&text, chat->talk.model);
        cli_text_puts(&text, "; /help lists the commands, Ctrl-D leaves");
        say_text(chat, text.bytes);
        cli_starter_advise(chat->args, path);
        weir__text_fini(&text);
    }
    return code;
}

cli_exit cli_chat(cli_args *args)
{
    struct chat chat = {.args = args};
    const char *words[N_COMMANDS + 1] = {NULL};
    char *history = cli_file_of_user("XDG_STATE_HOME", ".local/state", "weir/chat_history");
    cli_exit code = CLI_NO_MODEL;
    for (size_t i = 0; i < N_COMMANDS; i++) words[i] = commands[i].name;
    if (history != NULL) cli_file_make_folders(history, 0700);
    cli_load_log(args);
    cli_talk_init(&chat.talk, args);
    chat.line = cli_line_create(words, history);
    if ((chat.path = cli_load_path(args)) == NULL) goto done;
    if ((code = begin_chat(&chat)) != CLI_OK) goto done;
    if (cli_line_asks(chat.line)) cli_signals_interrupts(true);
    code = hold_conversation(&chat);
    if (cli_line_asks(chat.line)) cli_signals_interrupts(false);
done:
    cli_line_destroy(chat.line);
    cli_talk_fini(&chat.talk);
    cli_prompt_fini(&chat.texts);
    cli_media_fini(&chat.media);
    cli_load_log_flush();
    cli_free(history);
    cli_free(chat.path);
    return code;
}

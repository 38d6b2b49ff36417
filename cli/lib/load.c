/* load.c: finds the model's file, loads models and engines with progress, and writes weir's log to stderr.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A model's name is default, a name at the hub, a file's path or a short name, tried in this order; a preset
 * has been replaced by its model before. Loading draws a line of progress, which a signal ends. Adapters and
 * the draft model are loaded with the engine. Log messages are printed as they come, from any thread;
 * while a screen is drawn they are kept, and printed after it. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli.h"
#include "config_file.h"
#include "file.h"
#include "hub.h"
#include "progress.h"
#include "shortname.h"
#include "signals.h"
#include "term.h"
#include "text.h"

/* ---- Log ---- */

static cli_text kept_log; /* written by the sink, one call at a time; read once it has been taken away */

static void print_line(cli_text *text, weir_log_level level, const char *message)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    cli_text_printf(text, "%sweir: %s:%s ", cli_term_style_err(level >= WEIR_LOG_WARN ? CLI_YELLOW : CLI_DIM),
                    level >= 0 && level <= WEIR_LOG_ERROR ? names[level] : "log",
                    cli_term_style_err(CLI_PLAIN));
    cli_text_add_safe(text, message, strlen(message));
    cli_text_puts(text, "\n");
}

static void log_sink(weir_log_level level, const char *message, void *user)
{
    const cli_args *args = user;
    if (level < WEIR_LOG_WARN && !args->verbose) return;
    if (cli_term_entered()) {
        print_line(&kept_log, level, message);
        return;
    }
    cli_text text = {0};
    print_line(&text, level, message);
    cli_term_progress_end();
    cli_text_tell(&text);
}

void cli_load_log(const cli_args *args)
{
    weir_log_set(log_sink, (void *)args);
}

void cli_load_log_flush(void)
{
    weir_log_set(NULL, NULL);
    cli_text_tell(&kept_log);
}

/* ---- Model ---- */

static char *default_path(void)
{
    char *path = cli_starter_find();
    if (path == NULL) cli_starter_missing();
    return path;
}

static bool is_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

char *cli_load_named(const cli_args *args, const char *model)
{
    char *path = NULL, *copy = NULL, *name = NULL;
    bool shortened = false;
    if (strcmp(model, "default") == 0) return default_path();
    if (strncmp(model, "hf:", 3) == 0)
        name = cli_format("%s", model);
    else if (!is_file(model) && cli_shortname_expand(model, &name, &shortened) != CLI_OK)
        return NULL;
    if (name == NULL) return cli_format("%s", model);
    cli_exit code =
        shortened ? cli_hub_obtain(args, model, name, &path) : cli_hub_download(args, name, &path);
    if (code == CLI_OK) copy = cli_format("%s", path);
    weir_free(path);
    cli_free(name);
    return copy;
}

char *cli_load_path(const cli_args *args)
{
    return cli_load_named(args, args->model_path != NULL ? args->model_path : "default");
}

static bool is_gguf(const char *path)
{
    char magic[4] = "";
    if (!is_file(path)) return false;
    FILE *file = fopen(path, "re");
    bool is = file != NULL && fread(magic, 1, 4, file) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (file != NULL) fclose(file);
    return is;
}

cli_exit cli_load_is_model(const char *word, bool *is)
{
    size_t n = strlen(word);
    char *preset = cli_preset_path(word), *name = NULL;
    *is = strcmp(word, "default") == 0 || strncmp(word, "hf:", 3) == 0 || strncmp(word, "fake:", 5) == 0 ||
          (n > 5 && strcmp(word + n - 5, ".gguf") == 0) || preset != NULL || is_gguf(word);
    cli_free(preset);
    if (*is || strpbrk(word, " \t\n") != NULL || access(word, F_OK) == 0) return CLI_OK;
    cli_exit code = cli_shortname_expand(word, &name, NULL);
    *is = name != NULL;
    cli_free(name);
    return code;
}

static cli_exit load_model(const cli_args *args, const char *path, weir_model_params params,
                           weir_model **model)
{
    weir_error error = {0};
    if (cli_signals_ended() != 0) return cli_signals_exit();
    cli_progress progress = cli_progress_begin(args, "loading", path);
    params.progress = cli_progress_step;
    params.progress_user = &progress;
    weir_status status = weir_model_load(path, &params, model, &error);
    cli_term_progress_end();
    if (status != WEIR_OK) {
        if (status == WEIR_NOT_FOUND && access(path, F_OK) != 0) {
            cli_nearest nearest = cli_nearest_to(path);
            cli_shortname_try(&nearest);
            weir__error_set(&error, status, NULL, "there is no such file%s A model is " CLI_SHORTNAME_FORMS,
                            cli_nearest_hint(&nearest, "."));
        }
        /* Errors of a file name it; a lack of memory does not. */
        bool named = strcmp(error.field, "path") == 0 && status != WEIR_NO_MEMORY;
        char *context = named ? cli_format("cannot load the model") : cli_format("cannot load %s", path);
        cli_exit code = cli_fail_error(args, CLI_NO_MODEL, context, &error);
        cli_free(context);
        return code;
    }
    return cli_signals_exit();
}

cli_exit cli_load_tokenize(const cli_args *args, const weir_model *model, const char *text, size_t length,
                           bool parse, int32_t **ids, size_t *n)
{
    weir_error error = {0};
    bool special = !args->no_special;
    weir_status status = weir_tokenize(model, text, length, special, parse, NULL, 0, n, &error);
    if (status == WEIR_TOO_LONG) {
        *ids = cli_alloc(*n, sizeof **ids);
        status = weir_tokenize(model, text, length, special, parse, *ids, *n, n, &error);
    }
    return status == WEIR_OK ? CLI_OK : cli_fail_error(args, CLI_FAILED, "cannot tokenize", &error);
}

/* The option that needs a GPU, of those that were given; NULL = none. All layers, the default, means those of
 * a GPU if there is one. */
static const char *option_of_gpu(const cli_args *args)
{
    static const char *const names[] = {"--split-mode", "--tensor-split", "--main-gpu"};
    if (args->model.n_gpu_layers > 0) return "--gpu-layers";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (cli_options_given(args, names[i])) return names[i];
    return NULL;
}

static void warn_without_gpu(const cli_args *args)
{
    weir_device device = {.size = sizeof device};
    const char *option = option_of_gpu(args);
    if (option == NULL || args->rpc != NULL) return;
    for (size_t i = 0; weir_device_get(i, &device) == WEIR_OK; i++)
        if (strcmp(device.type, "gpu") == 0 || strcmp(device.type, "igpu") == 0) return;
    char *message =
        cli_format("%s has no effect: this build finds no GPU (weir info --list-devices)", option);
    weir_log_message(WEIR_LOG_WARN, message);
    cli_free(message);
}

cli_exit cli_load_model(const cli_args *args, const char *path, weir_model **model)
{
    warn_without_gpu(args);
    weir_model_params params = args->model;
    params.optimized = args->optimized;
    params.projector = args->projector;
    return load_model(args, path, params, model);
}

cli_exit cli_load_check_template(const cli_args *args, const char *path, weir_model *model)
{
    weir_error error = {0};
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(model, &info);
    if (!info.has_decoder || weir_chat_check(model, args->chat_template, &error) == WEIR_OK) return CLI_OK;
    char *context = args->chat_template != NULL ? cli_format("--chat-template-file")
                                                : cli_format("cannot chat with %s", path);
    cli_exit code = cli_fail_error(args, CLI_NO_MODEL, context, &error);
    cli_free(context);
    return code;
}

cli_exit cli_load_draft_model(const cli_args *args, weir_model **model)
{
    if (args->draft_path == NULL || *args->draft_path == '\0') return CLI_OK;
    char *path = cli_load_named(args, args->draft_path);
    weir_model_params params = args->model, plain = weir_model_params_default();
    params.optimized = params.projector = params.rpc = NULL;
    /* The options for the encoding of positions are meant for the model, not for its draft model. */
    params.rope_scaling = plain.rope_scaling;
    params.rope_freq_base = plain.rope_freq_base;
    params.rope_freq_scale = plain.rope_freq_scale;
    params.yarn_ext_factor = plain.yarn_ext_factor;
    params.yarn_attn_factor = plain.yarn_attn_factor;
    params.yarn_beta_fast = plain.yarn_beta_fast;
    params.yarn_beta_slow = plain.yarn_beta_slow;
    params.yarn_orig_ctx = plain.yarn_orig_ctx;
    cli_exit code = path != NULL ? load_model(args, path, params, model) : CLI_NO_MODEL;
    cli_free(path);
    return code;
}

cli_exit cli_load_split_adapter(const char *spec, char **path, float *scale)
{
    *path = cli_format("%s", spec);
    *scale = 1.0f;
    char *equals = strrchr(*path, '='), *end = NULL;
    if (equals == NULL || equals[1] == '\0') return CLI_OK;
    float number = strtof(equals + 1, &end);
    if (*end != '\0') return CLI_OK; /* a part of the name */
    *equals = '\0';
    *scale = number;
    if (number >= -100 && number <= 100) return CLI_OK;
    return cli_fail(CLI_USAGE, "--lora: the scale of %s is %g; allowed: -100 to 100", *path, (double)number);
}

static cli_exit load_adapters(const cli_args *args, weir_model *model)
{
    cli_adapters *all = args->adapters;
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < args->lora.n && code == CLI_OK; i++) {
        char *path;
        weir_error error = {0};
        cli_grow(&all->uses, &all->capacity, all->n + 1, sizeof *all->uses);
        weir_adapter_use *use = &all->uses[all->n];
        code = cli_load_split_adapter(args->lora.items[i], &path, &use->scale);
        if (code == CLI_OK && weir_adapter_load(model, path, &use->adapter, &error) == WEIR_OK)
            all->n++;
        else if (code == CLI_OK)
            code = cli_fail_error(args, CLI_NO_MODEL, "cannot load the adapter", &error);
        cli_free(path);
    }
    return code;
}

int32_t cli_load_asked_context(const cli_args *args)
{
    const cli_option *option = cli_options_find(args->command->bit, "--ctx", 5);
    const weir_model_params *model = &args->model;
    bool scaled = model->rope_scaling != WEIR_ROPE_MODEL || model->rope_freq_base != 0 ||
                  model->rope_freq_scale != 0 || model->yarn_orig_ctx != 0;
    bool asked = option != NULL && args->sources[option - cli_options].from != CLI_FROM_DEFAULT;
    return asked && !scaled ? args->engine.n_ctx : 0;
}

static void warn_of_context(const cli_args *args, const weir_model_info *info)
{
    int32_t n_ctx = cli_load_asked_context(args);
    if (info->n_ctx_train <= 0 || n_ctx <= info->n_ctx_train) return;
    char *message =
        cli_format("-c %d is longer than the %d tokens that the model was trained for: answers beyond "
                   "them may be poor",
                   n_ctx, info->n_ctx_train);
    weir_log_message(WEIR_LOG_WARN, message);
    cli_free(message);
}

cli_exit cli_load_engine(const cli_args *args, weir_model *model, weir_engine **engine)
{
    weir_error error = {0};
    weir_engine_params params = args->engine;
    weir_model_info info = {.size = sizeof info};
    cli_exit code = load_adapters(args, model);
    weir_model_describe(model, &info);
    if (args->command->bit == CLI_SERVE && !info.has_decoder && !info.is_draft_head) return code;
    warn_of_context(args, &info);
    if (code == CLI_OK) code = cli_load_draft_model(args, &params.draft_model);
    if (code != CLI_OK) return code;
    params.cache_dir = args->cache_dir;
    if (!args->quiet) cli_progress_line("preparing the engine");
    weir_status status = weir_engine_create(model, &params, engine, &error);
    weir_model_release(params.draft_model); /* the engine holds it */
    cli_term_progress_end();
    if (status != WEIR_OK) return cli_fail_error(args, CLI_FAILED, "cannot start the engine", &error);
    return cli_signals_exit();
}

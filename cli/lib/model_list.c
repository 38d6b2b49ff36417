/* model_list.c: makes the list of weir serve's models.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sections, presets, folders and -m each add entries, and an entry's options are parsed with all their
 * sources (options.h). Then names and aliases are checked against each other, each file is found or
 * downloaded, and the parameters of server and pool are filled in. A pulled model with an error is left out;
 * any other error refuses the whole list. */
#include "model_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/member.h"
#include "base/words.h"
#include "config_file.h"
#include "file.h"
#include "hub.h"
#include "load.h"
#include "memory.h"
#include "server/settings/effort.h"
#include "settings.h"
#include "signals.h"
#include "text.h"

#define PRESETS "presets" /* in place of a file's name */
#define SUFFIX  ".gguf"

static bool is_set(const char *value)
{
    return value != NULL && *value != '\0';
}

static bool names_several(const cli_args *args)
{
    return is_set(args->models_path) || is_set(args->models_dir);
}

bool cli_model_list_asked(const cli_args *args)
{
    return names_several(args) || is_set(args->rpc);
}

/* ---- Entries ---- */

static cli_model_entry *find_entry(const cli_model_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i]->name, name) == 0) return list->items[i];
    return NULL;
}

/* Takes over `from`. The entry's path stays NULL until its file is found. */
static cli_exit add_entry(cli_model_list *list, const cli_args *args, const cli_config *config,
                          size_t section, const char *name, const char *model, char *from)
{
    if (list->n == CLI_MODELS_MAX) {
        cli_exit code = cli_fail(CLI_USAGE, "%s: there are more than %d models", from, CLI_MODELS_MAX);
        cli_free(from);
        return code;
    }
    cli_model_entry *entry = cli_alloc(1, sizeof *entry);
    cli_grow(&list->items, &list->capacity, list->n + 1, sizeof *list->items);
    list->items[list->n++] = entry;
    entry->name = cli_format("%s", name);
    entry->from = from;
    entry->file = config->path != NULL ? cli_format("%s", config->path) : NULL;
    cli_args_init(&entry->args, args->command);
    cli_exit code = cli_options_parse_model(&entry->args, args->n_line, args->line, config, section, model);
    if (entry->args.model_path == NULL) entry->args.model_path = cli_format("default"); /* a preset's */
    return code;
}

/* ---- The file of --models ---- */

/* A name is a single model's. */
static cli_exit check_common(const cli_config *config)
{
    for (size_t i = 0; i < config->n; i++) {
        const cli_setting *setting = &config->items[i];
        const cli_option *option = cli_config_option(config, CLI_SERVE, setting->key);
        if (setting->section != CLI_CONFIG_NONE || option == NULL) continue;
        if (strcmp(option->name, "--model") == 0 || strcmp(option->name, "--alias") == 0)
            return cli_fail(CLI_USAGE, "%s:%d: %s is one model's: it belongs below a line [NAME]",
                            config->path, setting->line, setting->key);
    }
    return CLI_OK;
}

/* A pipe would be waited for, and could not be read again at a reload. */
static cli_exit check_kind(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0 || S_ISREG(status.st_mode)) return CLI_OK;
    return cli_fail(CLI_USAGE, "--models %s: this is not a regular file", path);
}

static bool is_model_line(const cli_config *config, const cli_setting *setting)
{
    const cli_option *option = cli_config_option(config, CLI_SERVE, setting->key);
    return option != NULL && strcmp(option->name, "--model") == 0;
}

/* A section is one model. */
static cli_exit check_sections(const cli_config *config)
{
    const cli_setting *last = NULL; /* that names a model */
    for (size_t i = 0; i < config->n; i++) {
        const cli_setting *setting = &config->items[i];
        if (!is_model_line(config, setting)) continue;
        if (last != NULL && last->section == setting->section)
            return cli_fail(CLI_USAGE, "%s:%d: line %d names the section's model already", config->path,
                            setting->line, last->line);
        last = setting;
    }
    return CLI_OK;
}

static cli_exit add_presets(cli_model_list *list, const cli_args *args, const cli_config *config)
{
    cli_exit code = CLI_OK;
    cli_list names = cli_preset_names();
    for (size_t i = 0; i < names.n && code == CLI_OK; i++)
        code = add_entry(list, args, config, CLI_CONFIG_NONE, names.items[i], names.items[i],
                         cli_preset_path_of(names.items[i]));
    if (names.n == 0)
        code = cli_fail(CLI_USAGE, "--models: there are no presets; weir preset NAME makes one");
    cli_list_fini(&names);
    return code;
}

static cli_exit add_sections(cli_model_list *list, const cli_args *args, const cli_config *config)
{
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < config->n_sections && code == CLI_OK; i++) {
        const cli_section *section = &config->sections[i];
        code = add_entry(list, args, config, i, section->name, section->name,
                         cli_format("%s:%d", config->path, section->line));
    }
    if (config->n_sections == 0 && !is_set(args->models_dir))
        code = cli_fail(CLI_USAGE, "%s: there are no models in it; expected: a line [NAME] for each",
                        config->path);
    return code;
}

/* ---- The folder of --models-dir ---- */

struct folder {
    char *path;
    cli_list models, projectors; /* paths */
};

static void folder_fini(struct folder *folder)
{
    cli_free(folder->path);
    cli_list_fini(&folder->models);
    cli_list_fini(&folder->projectors);
}

static bool ends_in_gguf(const char *name)
{
    size_t n = strlen(name);
    return n > strlen(SUFFIX) && strcasecmp(name + n - strlen(SUFFIX), SUFFIX) == 0;
}

/* Bytes of a file's name before -00001-of-00003.gguf or .gguf; *shard: 1 where it has no such number. */
static size_t stem_of(const char *name, int *shard)
{
    size_t n = strlen(name) - strlen(SUFFIX), tail = strlen("-00001-of-00003");
    int n_shards = 0, used = 0;
    *shard = 1;
    if (n <= tail) return n;
    if (sscanf(name + n - tail, "-%5d-of-%5d%n", shard, &n_shards, &used) == 2 && (size_t)used == tail)
        return n - tail;
    *shard = 1;
    return n;
}

/* A link that leads nowhere is no file. */
static bool file_exists(const char *path, bool quiet)
{
    struct stat status;
    if (stat(path, &status) == 0) return true;
    if (!quiet) cli_fail(CLI_OK, "%s: this file is skipped: %s", path, strerror(errno));
    return false;
}

/* Models and projectors of a folder; of a split model its first file. */
static bool folder_read(struct folder *folder, const char *path, bool quiet)
{
    const struct dirent *entry;
    *folder = (struct folder){.path = cli_format("%s", path)};
    DIR *dir = opendir(path);
    if (dir == NULL) return false;
    while ((entry = readdir(dir)) != NULL && folder->models.n <= CLI_MODELS_MAX) {
        int shard;
        if (entry->d_name[0] == '.' || !ends_in_gguf(entry->d_name)) continue;
        if (strstr(entry->d_name, "imatrix") != NULL) continue;
        stem_of(entry->d_name, &shard);
        if (shard > 1) continue;
        bool projector = strncasecmp(entry->d_name, "mmproj", 6) == 0;
        char *file = cli_format("%s/%s", path, entry->d_name);
        if (file_exists(file, quiet))
            cli_list_add(projector ? &folder->projectors : &folder->models, file);
        else
            cli_free(file);
    }
    closedir(dir);
    if (folder->models.n > 1)
        qsort(folder->models.items, folder->models.n, sizeof(char *), weir__words_compare);
    return true;
}

/* True if the folder has one model and one projector. With several it would be a guess which projector
 * belongs to which model. */
static bool is_pair(const struct folder *folder)
{
    return folder->models.n == 1 && folder->projectors.n == 1;
}

/* The model of a file, unless a section has its name, which then says more of it. */
static cli_exit add_file(cli_model_list *list, const cli_args *args, const cli_config *config,
                         const struct folder *folder, const char *path)
{
    int shard;
    const char *file = cli_file_name(path);
    char *name = cli_format("%.*s", (int)stem_of(file, &shard), file);
    cli_model_entry *entry = find_entry(list, name);
    cli_exit code = CLI_OK;
    bool named = entry != NULL && strcmp(entry->args.model_path, name) == 0; /* by no line `model` */
    if (entry == NULL) {
        code = add_entry(list, args, config, CLI_CONFIG_NONE, name, path, cli_format("%s", path));
        entry = list->n > 0 ? list->items[list->n - 1] : NULL;
    } else if (named) {
        cli_free(entry->args.model_path);
        entry->args.model_path = cli_format("%s", path);
    }
    cli_free(name);
    if (code != CLI_OK || entry == NULL || strcmp(entry->args.model_path, path) != 0) return code;
    cli_list_add(&entry->args.aliases, cli_format("%s", file));
    if (is_pair(folder) && !is_set(entry->args.projector)) {
        cli_free(entry->args.projector);
        entry->args.projector = cli_format("%s", folder->projectors.items[0]);
    }
    return CLI_OK;
}

static cli_exit add_folder(cli_model_list *list, const cli_args *args, const cli_config *config,
                           const struct folder *folder)
{
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < folder->models.n && code == CLI_OK; i++)
        code = add_file(list, args, config, folder, folder->models.items[i]);
    if (code == CLI_OK && folder->projectors.n > 0 && !is_pair(folder) && !args->quiet)
        cli_fail(
            CLI_OK,
            "%s: its projectors are left out, for it is not certain whose they are; \"mmproj = FILE\" in a "
            "section of --models says it",
            folder->path);
    return code;
}

/* The paths of the folders in a folder, in order. */
static cli_list folders_in(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    struct stat status;
    cli_list folders = {0};
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        char *below = cli_format("%s/%s", path, entry->d_name);
        if (stat(below, &status) == 0 && S_ISDIR(status.st_mode))
            cli_list_add(&folders, below);
        else
            cli_free(below);
    }
    if (dir != NULL) closedir(dir);
    if (folders.n > 1) qsort(folders.items, folders.n, sizeof(char *), weir__words_compare);
    return folders;
}

/* The folder's files, and those of the folders in it. */
static cli_exit add_folders(cli_model_list *list, const cli_args *args, const cli_config *config)
{
    struct folder top, below;
    cli_exit code = folder_read(&top, args->models_dir, args->quiet)
                        ? add_folder(list, args, config, &top)
                        : cli_fail(CLI_USAGE, "--models-dir %s: %s", args->models_dir, strerror(errno));
    cli_list folders = folders_in(args->models_dir);
    for (size_t i = 0; i < folders.n && code == CLI_OK; i++) {
        if (folder_read(&below, folders.items[i], args->quiet)) code = add_folder(list, args, config, &below);
        folder_fini(&below);
    }
    cli_list_fini(&folders);
    folder_fini(&top);
    if (code == CLI_OK && list->n == 0)
        code = cli_fail(CLI_USAGE, "--models-dir %s: there are no models in it; expected: files *%s",
                        args->models_dir, SUFFIX);
    return code;
}

/* ---- The model of -m, with workers ---- */

/* Adds the model of -m, which is loaded at the start, stays, and is loaded again after a worker was lost. */
static cli_exit add_single(cli_model_list *list, const cli_args *args, const cli_config *config)
{
    char *path = args->preset_path != NULL ? cli_format("%s", args->preset_path) : cli_load_path(args);
    if (path == NULL) return CLI_NO_MODEL;
    char *name = args->preset_path != NULL ? cli_preset_name(args->preset_path)
                                           : cli_format("%s", cli_file_name(path));
    cli_exit code = add_entry(list, args, config, CLI_CONFIG_NONE, name, path, cli_format("--rpc"));
    cli_free(path);
    cli_args *own = &list->items[0]->args;
    own->pinned = true;
    for (size_t i = 0; i < args->aliases.n; i++)
        if (strcmp(args->aliases.items[i], name) != 0)
            cli_list_add(&own->aliases, cli_format("%s", args->aliases.items[i]));
    cli_free(name);
    return code;
}

/* ---- Names and files ---- */

static bool has_name(const cli_model_entry *entry, const char *name)
{
    const cli_list *aliases = &entry->args.aliases;
    return strcmp(entry->name, name) == 0 ||
           weir__words_have((const char *const *)aliases->items, aliases->n, name);
}

/* True if a pulled model is still in the cache; the operator may have removed it. */
static bool is_cached(const cli_args *args, const char *name)
{
    weir_hub_params params = cli_hub_params(args);
    weir_error error = {0};
    char *path = NULL;
    params.offline = true;
    bool cached = weir_hub_download(name, &params, &path, &error) == WEIR_OK;
    weir_free(path);
    return cached;
}

/* No error of a pulled model may keep the list from being read: the names of the operator come first. */
static cli_exit add_pulled(cli_model_list *list, const cli_args *args, const cli_config *config,
                           const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (has_name(list->items[i], name)) return CLI_OK;
    bool full = list->n == CLI_MODELS_MAX;
    if (full || !is_cached(args, name)) {
        if (!args->quiet)
            cli_fail(CLI_OK, "%s (/api/pull) is left out: %s", name,
                     full ? "the list is full" : "its file is no longer in the cache");
        return CLI_OK;
    }
    return add_entry(list, args, config, CLI_CONFIG_NONE, name, name, cli_format("%s (/api/pull)", name));
}

/* A request's name means one model. */
static cli_exit check_aliases(const cli_model_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const cli_model_entry *entry = list->items[i];
        for (size_t k = 0; k < entry->args.aliases.n; k++) {
            const char *alias = entry->args.aliases.items[k];
            if (strlen(alias) > CLI_MODEL_NAME_MAX || *alias == '\0')
                return cli_fail(CLI_USAGE, "%s: an alias has %zu bytes; allowed: 1 to %d", entry->from,
                                strlen(alias), CLI_MODEL_NAME_MAX);
            bool twice = strcmp(entry->name, alias) == 0;
            for (size_t j = 0; j < k; j++) twice = twice || strcmp(entry->args.aliases.items[j], alias) == 0;
            if (twice)
                return cli_fail(CLI_USAGE, "%s: the model %s has the name %s already", entry->from,
                                entry->name, alias);
            for (size_t j = 0; j < list->n; j++)
                if (j != i && has_name(list->items[j], alias))
                    return cli_fail(CLI_USAGE, "%s: the alias %s is a name of the model %s too (%s)",
                                    entry->from, alias, list->items[j]->name, list->items[j]->from);
        }
    }
    return CLI_OK;
}

static cli_exit find_file(cli_model_entry *entry, const cli_args *args)
{
    const char *model = entry->args.model_path;
    struct stat status;
    if (*model == '\0') return cli_fail(CLI_USAGE, "%s: it names no model", entry->from);
    if ((entry->path = cli_load_named(args, model)) == NULL)
        return cli_fail(CLI_NO_MODEL, "%s: there is no file for the model %s", entry->from, entry->name);
    if (is_set(entry->args.draft_path) &&
        (entry->draft_path = cli_load_named(args, entry->args.draft_path)) == NULL)
        return cli_fail(CLI_NO_MODEL, "%s: there is no file for the draft model of %s", entry->from,
                        entry->name);
    if (strncmp(entry->path, "fake:", 5) == 0) return CLI_OK;
    if (stat(entry->path, &status) != 0)
        return cli_fail(
            CLI_NO_MODEL,
            "%s: the model %s is %s, and there is no such file; a line \"model = …\" names a GGUF "
            "file, a preset, default, a short name, or hf:OWNER/REPO[:QUANTIZATION or FILE]",
            entry->from, entry->name, entry->path);
    return CLI_OK;
}

/* ---- For the server ---- */

void cli_model_params(cli_args *args, const cli_args *server, const char *path, serve_model_params *params)
{
    args->ask.sampler.order = args->ask.order;
    *params = args->serve.model;
    params->names = (const char *const *)args->aliases.items;
    params->n_names = args->aliases.n;
    params->sampler = &args->ask.sampler;
    params->max_tokens = args->ask.request.max_tokens;
    params->template_source = args->chat_template;
    params->system = args->system;
    params->no_thinking = args->no_thinking;
    params->reasoning_budget = args->reasoning_budget;
    params->special_content = (weir_special_content)args->special_content;
    params->strict_messages = args->strict_messages;
    cli_free(args->settings);
    params->settings = args->settings = cli_settings_words(args, server, path);
}

weir_status cli_model_check(const cli_args *args, weir_error *error)
{
    size_t n;
    weir_status status = WEIR_OK;
    const weir_member *member = weir_members("sampler", &n);
    for (size_t i = 0; i < n && status == WEIR_OK; i++)
        status = weir__member_check(&member[i], &args->ask.sampler, "sampler.", error);
    if (status != WEIR_OK) return status;
    status = weir__member_check(weir_member_find("request", "max_tokens"), &args->ask.request, "", error);
    return status == WEIR_OK ? serve_effort_check(args->reasoning_budget, error) : status;
}

char *cli_model_adapter_name(const char *path)
{
    char *name = cli_format("%s", cli_file_name(path));
    if (ends_in_gguf(name)) name[strlen(name) - strlen(SUFFIX)] = '\0';
    return name;
}

cli_exit cli_model_check_adapters(size_t n_used)
{
    if (n_used <= WEIR_ADAPTERS_MAX) return CLI_OK;
    return cli_fail(CLI_USAGE,
                    "--lora: requests that name no adapter would have %zu together; allowed: up to %d; give "
                    "the others a scale of 0 (FILE=0), for those that name them",
                    n_used, WEIR_ADAPTERS_MAX);
}

static cli_exit find_adapters(cli_model_entry *entry)
{
    const cli_list *lora = &entry->args.lora;
    cli_exit code = CLI_OK;
    size_t n_used = 0;
    entry->adapters = cli_alloc(lora->n + 1, sizeof *entry->adapters);
    for (size_t i = 0; i < lora->n && code == CLI_OK; i++) {
        char *path;
        code = cli_load_split_adapter(lora->items[i], &path, &entry->adapters[i].scale);
        cli_list_add(&entry->adapter_paths, path);
        cli_list_add(&entry->adapter_names, cli_model_adapter_name(path));
        entry->adapters[i].name = entry->adapter_names.items[i];
        n_used += entry->adapters[i].scale != 0.0f;
    }
    return code == CLI_OK ? cli_model_check_adapters(n_used) : code;
}

cli_exit cli_model_list_fail(const cli_model_entry *entry, cli_exit code, const weir_error *error)
{
    const cli_args *args = &entry->args;
    const unsigned command = args->command->bit;
    const cli_option *option = cli_error_option(error, command);
    if (option == NULL)
        return cli_fail(code, "%s: %s: %s", entry->from, entry->name,
                        cli_error_words(error, command, NULL, NULL).text);
    const cli_origin *origin = &args->sources[option - cli_options];
    const char *file = NULL;
    if (origin->from == CLI_FROM_PRESET) file = args->preset_path;
    if (origin->from == CLI_FROM_MODELS || origin->from == CLI_FROM_SECTION) file = entry->file;
    const char *name = option->name + (file != NULL ? 2 : 0);
    const cli_words words = cli_error_words(error, command, name, name);
    if (file == NULL) return cli_fail(CLI_USAGE, "%s: %s", entry->name, words.text);
    return cli_fail(CLI_USAGE, "%s:%d: %s", file, origin->line, words.text);
}

static cli_exit check_defaults(const cli_model_entry *entry)
{
    weir_error error = {0};
    return cli_model_check(&entry->args, &error) == WEIR_OK ? CLI_OK
                                                            : cli_model_list_fail(entry, CLI_USAGE, &error);
}

static void fill_params(cli_model_entry *entry, const cli_args *server, serve_model_params *params)
{
    cli_args *args = &entry->args;
    args->model.optimized = args->optimized;
    args->model.projector = args->projector;
    entry->pool = weir_pool_model_default();
    entry->pool.name = entry->name;
    entry->pool.path = entry->path;
    entry->pool.model = &args->model;
    entry->pool.engine = &args->engine;
    entry->pool.draft_path = entry->draft_path;
    entry->pool.adapters = (const char *const *)entry->adapter_paths.items;
    entry->pool.n_adapters = entry->adapter_paths.n;
    entry->pool.pinned = args->pinned;
    entry->pool.idle_ms = args->idle_ms;
    entry->pool.template_source = args->chat_template != NULL ? args->chat_template : "";
    cli_model_params(args, server, entry->path, params);
    params->asked_ctx = cli_load_asked_context(args);
    params->entry = &entry->pool;
    params->adapters = entry->adapters;
    params->n_adapters = entry->adapter_paths.n;
}

/* ---- All of them ---- */

/* Checks the options of a single model. */
static cli_exit check_line(const cli_args *args)
{
    if (!names_several(args)) return CLI_OK;
    if (cli_options_given(args, "--model"))
        return cli_fail(CLI_USAGE, "-m is one model; --models and --models-dir name several: leave one out");
    if (cli_options_given(args, "--alias"))
        return cli_fail(CLI_USAGE, "--alias is one model's name; in the file of --models each section has "
                                   "lines \"alias = NAME\"");
    return CLI_OK;
}

cli_exit cli_model_list_read(cli_model_list *list, const cli_args *args, const cli_list *pulled)
{
    cli_config config = {.kind = CLI_CONFIG_MODELS};
    bool presets = is_set(args->models_path) && strcmp(args->models_path, PRESETS) == 0;
    cli_exit code = check_line(args);
    if (code == CLI_OK && is_set(args->models_path) && !presets) code = check_kind(args->models_path);
    if (code == CLI_OK && is_set(args->models_path) && !presets)
        code = cli_config_read_file(&config, CLI_CONFIG_MODELS, args->models_path);
    if (code == CLI_OK) code = check_common(&config);
    if (code == CLI_OK) code = check_sections(&config);
    if (code == CLI_OK && presets)
        code = add_presets(list, args, &config);
    else if (code == CLI_OK && is_set(args->models_path))
        code = add_sections(list, args, &config);
    if (code == CLI_OK && is_set(args->models_dir)) code = add_folders(list, args, &config);
    if (code == CLI_OK && !names_several(args)) code = add_single(list, args, &config);
    for (size_t i = 0; pulled != NULL && i < pulled->n && code == CLI_OK; i++)
        code = add_pulled(list, args, &config, pulled->items[i]);
    if (code == CLI_OK) code = check_aliases(list);
    for (size_t i = 0; i < list->n && code == CLI_OK; i++) {
        code = find_file(list->items[i], args);
        if (code == CLI_OK) code = check_defaults(list->items[i]);
        if (code == CLI_OK) code = find_adapters(list->items[i]);
    }
    list->params = cli_alloc(list->n + 1, sizeof *list->params);
    for (size_t i = 0; i < list->n && code == CLI_OK; i++)
        fill_params(list->items[i], args, &list->params[i]);
    cli_config_fini(&config);
    return code;
}

void cli_model_list_fini(cli_model_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        cli_model_entry *entry = list->items[i];
        cli_args_fini(&entry->args);
        cli_free(entry->name);
        cli_free(entry->path);
        cli_free(entry->from);
        cli_free(entry->file);
        cli_free(entry->draft_path);
        cli_list_fini(&entry->adapter_paths);
        cli_list_fini(&entry->adapter_names);
        cli_free(entry->adapters);
        cli_free(entry);
    }
    cli_free(list->items);
    cli_free(list->params);
    *list = (cli_model_list){0};
}

/* ---- Models that clients had downloaded ---- */

void cli_pulled_init(cli_pulled *pulled)
{
    *pulled = (cli_pulled){0};
    pthread_mutex_init(&pulled->mutex, NULL);
    pthread_cond_init(&pulled->changed, NULL);
}

void cli_pulled_fini(cli_pulled *pulled)
{
    cli_list_fini(&pulled->names);
    pthread_cond_destroy(&pulled->changed);
    pthread_mutex_destroy(&pulled->mutex);
}

/* A name's place; that after the last one if it is not there. */
static size_t place_of(const cli_list *names, const char *name)
{
    size_t i = 0;
    while (i < names->n && strcmp(names->items[i], name) != 0) i++;
    return i;
}

weir_status cli_pulled_add(cli_pulled *pulled, const char *name, weir_error *error)
{
    pthread_mutex_lock(&pulled->mutex);
    if (place_of(&pulled->names, name) == pulled->names.n)
        cli_list_add(&pulled->names, cli_format("%s", name));
    uint64_t ticket = ++pulled->n_asked;
    cli_signals_wake();
    while (pulled->n_read < ticket && !pulled->over) pthread_cond_wait(&pulled->changed, &pulled->mutex);
    bool listed = place_of(&pulled->names, name) < pulled->n_listed, over = pulled->n_read < ticket;
    pthread_mutex_unlock(&pulled->mutex);
    if (listed && !over) return WEIR_OK;
    return weir__error_set(error, over ? WEIR_STOPPED : WEIR_STATE, NULL, "%.200s was downloaded, %s", name,
                           over ? "and the server is going down"
                                : "but the list of models has an error; see the server's log");
}

bool cli_pulled_waits(cli_pulled *pulled)
{
    pthread_mutex_lock(&pulled->mutex);
    bool waits = pulled->n_read < pulled->n_asked;
    pthread_mutex_unlock(&pulled->mutex);
    return waits;
}

cli_list cli_pulled_begin(cli_pulled *pulled, uint64_t *ticket)
{
    cli_list copy = {0};
    pthread_mutex_lock(&pulled->mutex);
    *ticket = pulled->n_asked;
    for (size_t i = 0; i < pulled->names.n; i++)
        cli_list_add(&copy, cli_format("%s", pulled->names.items[i]));
    pthread_mutex_unlock(&pulled->mutex);
    return copy;
}

void cli_pulled_end(cli_pulled *pulled, size_t n, uint64_t ticket, bool ok)
{
    cli_list *names = &pulled->names;
    pthread_mutex_lock(&pulled->mutex);
    if (ok) {
        pulled->n_listed = n;
    } else if (pulled->n_asked == ticket) { /* else the next reading has them */
        for (size_t i = pulled->n_listed; i < n; i++) cli_free(names->items[i]);
        if (n > pulled->n_listed)
            memmove(&names->items[pulled->n_listed], &names->items[n], (names->n - n) * sizeof *names->items);
        names->n -= n - pulled->n_listed;
    }
    pulled->n_read = ticket;
    pthread_cond_broadcast(&pulled->changed);
    pthread_mutex_unlock(&pulled->mutex);
}

void cli_pulled_stop(cli_pulled *pulled)
{
    pthread_mutex_lock(&pulled->mutex);
    pulled->over = true;
    pthread_cond_broadcast(&pulled->changed);
    pthread_mutex_unlock(&pulled->mutex);
}

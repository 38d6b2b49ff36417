/* config_file.c: reads lines of settings into a list, refuses settings that no option has, and finds the
 * files of presets.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The kind of a file (the config file, a preset, models, short names) decides which sections and keys it may
 * have. Each line is checked when it is read, and the first bad one ends the reading with its number. Values
 * stay texts here: parse.c gives them to the options, whose checks name the same line. Paths in presets and
 * files of models are relative to the file's own folder. */
#include "config_file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/words.h"
#include "file.h"

#define BOM "\xEF\xBB\xBF" /* which some editors put before UTF-8 */

/* Finds the path of the config file. True: the user named it, so that it has to be there. */
static bool find_path(char **path)
{
    const char *given = getenv("WEIR_CONFIG");
    if (given == NULL)
        *path = cli_file_of_user("XDG_CONFIG_HOME", ".config", "weir/config");
    else if (*given != '\0')
        *path = cli_format("%s", given);
    return given != NULL;
}

/* Takes blanks from both ends, in place. */
static char *trim_text(char *string)
{
    string += strspn(string, " \t\r");
    size_t n = strlen(string);
    while (n > 0 && strchr(" \t\r", string[n - 1]) != NULL) string[--n] = '\0';
    return string;
}

/* Removes the quotes around a value, in place. False: they do not end where the value does. */
static bool unquote_value(char *value)
{
    size_t n = 0;
    if (*value != '"') return true;
    for (const char *from = value + 1;; from++) {
        if (*from == '\0') return false;
        if (*from == '"') {
            value[n] = '\0';
            return from[1] == '\0';
        }
        if (*from == '\\' && from[1] != '\0') {
            from++;
            value[n++] = (char)(*from == 'n' ? '\n' : *from == 't' ? '\t' : *from);
        } else
            value[n++] = *from;
    }
}

const cli_option *cli_config_option(const cli_config *config, unsigned commands, const char *key)
{
    switch (config->kind) {
    case CLI_CONFIG_PRESET: return cli_options_by_preset(commands, key);
    case CLI_CONFIG_MODELS: return cli_options_by_model(commands & CLI_SERVE, key);
    default: return cli_options_by_setting(commands, key);
    }
}

const char *cli_config_value(const cli_config *config, size_t section, unsigned commands, const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; i < config->n; i++) {
        const cli_option *option = cli_config_option(config, commands, config->items[i].key);
        if (config->items[i].section == section && option != NULL && strcmp(option->name, name) == 0)
            value = config->items[i].value;
    }
    return value;
}

static const cli_command *command_of(const cli_config *config)
{
    return config->n_sections > 0 ? config->sections[config->n_sections - 1].command : NULL;
}

static cli_exit unknown_setting(const cli_config *config, int line, const char *key)
{
    cli_nearest nearest = cli_nearest_to(key);
    const cli_command *command = command_of(config);
    bool known = cli_options_by_setting(~0u, key) != NULL || cli_options_by_preset(~0u, key) != NULL;
    cli_options_try_settings(&nearest);
    if (known && config->kind == CLI_CONFIG_PRESET)
        return cli_fail(CLI_USAGE, "%s:%d: %.60s is not for presets", config->path, line, key);
    if (known && config->kind == CLI_CONFIG_MODELS)
        return cli_fail(CLI_USAGE, "%s:%d: %.60s is not a setting of a model of weir serve", config->path,
                        line, key);
    if (known && command != NULL)
        return cli_fail(CLI_USAGE, "%s:%d: weir %s has no setting %.60s", config->path, line, command->name,
                        key);
    return cli_fail(CLI_USAGE, "%s:%d: there is no setting %.60s%s", config->path, line, key,
                    cli_nearest_hint(&nearest, "; weir help config explains the names"));
}

static cli_exit add_command(const cli_config *config, cli_section *section)
{
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (strcmp(command->name, section->name) == 0) section->command = command;
    if (section->command != NULL) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s:%d: no command has this name; expected: [run], [bench engine], …",
                    config->path, section->line);
}

static cli_exit check_model_name(const cli_config *config, const cli_section *section)
{
    size_t n = strlen(section->name);
    if (n == 0 || n > CLI_MODEL_NAME_MAX || strcmp(section->name, SERVE_ANY_NAME) == 0)
        return cli_fail(CLI_USAGE,
                        "%s:%d: this is not a name for a model; allowed: 1 to %d bytes, and not %s",
                        config->path, section->line, CLI_MODEL_NAME_MAX, SERVE_ANY_NAME);
    for (const cli_section *other = config->sections; other < section; other++)
        if (strcmp(other->name, section->name) == 0)
            return cli_fail(CLI_USAGE, "%s:%d: line %d has a model of the name %s already", config->path,
                            section->line, other->line, section->name);
    return CLI_OK;
}

/* A line "[bench engine]" or "[coder]". */
static cli_exit read_section(cli_config *config, int number, char *line)
{
    size_t n = strlen(line);
    if (config->kind == CLI_CONFIG_PRESET || config->kind == CLI_CONFIG_NAMES)
        return cli_fail(CLI_USAGE, "%s:%d: %s no sections", config->path, number,
                        config->kind == CLI_CONFIG_PRESET ? "a preset has" : "short names have");
    if (line[n - 1] != ']')
        return cli_fail(CLI_USAGE, "%s:%d: the line has no \"]\" at its end; expected: [NAME]", config->path,
                        number);
    line[n - 1] = '\0';
    cli_grow(&config->sections, &config->sections_capacity, config->n_sections + 1, sizeof *config->sections);
    cli_section *section = &config->sections[config->n_sections++];
    *section = (cli_section){.name = cli_format("%s", trim_text(line + 1)), .line = number};
    return config->kind == CLI_CONFIG_MODELS ? check_model_name(config, section)
                                             : add_command(config, section);
}

static cli_exit read_line(cli_config *config, int number, char *line)
{
    line = trim_text(line);
    if (*line == '\0' || *line == '#') return CLI_OK;
    if (*line == '[') return read_section(config, number, line);
    char *equals = strchr(line, '=');
    if (equals == NULL)
        return cli_fail(CLI_USAGE, "%s:%d: there is no \"=\"; expected: name = value, such as ctx = 8192",
                        config->path, number);
    *equals = '\0';
    char *key = trim_text(line), *value = trim_text(equals + 1);
    if (!unquote_value(value))
        return cli_fail(CLI_USAGE, "%s:%d: the quotes of %.60s do not end with the line", config->path,
                        number, key);
    const cli_command *command = command_of(config);
    if (config->kind != CLI_CONFIG_NAMES &&
        cli_config_option(config, command != NULL ? command->bit : ~0u, key) == NULL)
        return unknown_setting(config, number, key);
    cli_grow(&config->items, &config->capacity, config->n + 1, sizeof *config->items);
    config->items[config->n++] =
        (cli_setting){.section = config->n_sections > 0 ? config->n_sections - 1 : CLI_CONFIG_NONE,
                      .line = number,
                      .key = cli_format("%s", key),
                      .value = cli_format("%s", value)};
    return CLI_OK;
}

static cli_exit refuse_nul(const cli_config *config, const char *bytes, const char *nul)
{
    int number = 1;
    for (; bytes < nul; bytes++) number += *bytes == '\n';
    return cli_fail(CLI_USAGE, "%s:%d: the line has a NUL byte; expected: a text file in UTF-8", config->path,
                    number);
}

static cli_exit read_file(cli_config *config, const char *what)
{
    char *bytes = NULL;
    size_t length = 0;
    cli_exit code = cli_file_read(config->path, what, &bytes, &length);
    if (code != CLI_OK) return code;
    int number = 1;
    char *rest = bytes;
    const char *nul = memchr(bytes, '\0', length);
    if (nul != NULL) code = refuse_nul(config, bytes, nul);
    if (strncmp(bytes, BOM, strlen(BOM)) == 0) rest += strlen(BOM);
    for (char *line = strsep(&rest, "\n"); line != NULL && code == CLI_OK;
         line = strsep(&rest, "\n"), number++)
        code = read_line(config, number, line);
    cli_free(bytes);
    return code;
}

cli_exit cli_config_read(cli_config *config)
{
    bool named = find_path(&config->path);
    if (config->path == NULL) return CLI_OK;
    config->there = access(config->path, F_OK) == 0;
    return config->there || named ? read_file(config, "the config file") : CLI_OK;
}

cli_exit cli_config_read_file(cli_config *config, cli_config_kind kind, const char *path)
{
    config->kind = kind;
    config->path = cli_format("%s", path);
    cli_exit code = read_file(config, kind == CLI_CONFIG_PRESET   ? "the preset"
                                      : kind == CLI_CONFIG_MODELS ? "the models"
                                                                  : "the short names");
    const char *slash = strrchr(path, '/');
    int n = slash != NULL ? (int)(slash - path) : 0;
    for (size_t i = 0; n > 0 && kind != CLI_CONFIG_NAMES && i < config->n; i++) {
        cli_setting *setting = &config->items[i];
        const cli_option *option = cli_config_option(config, ~0u, setting->key);
        if (option == NULL || !cli_options_is_file(option) || !cli_file_is_relative(setting->value)) continue;
        char *value = cli_format("%.*s/%s", n, path, setting->value);
        cli_free(setting->value);
        setting->value = value;
    }
    return code;
}

void cli_config_fini(cli_config *config)
{
    for (size_t i = 0; i < config->n; i++) {
        cli_free(config->items[i].key);
        cli_free(config->items[i].value);
    }
    for (size_t i = 0; i < config->n_sections; i++) cli_free(config->sections[i].name);
    cli_free(config->items);
    cli_free(config->sections);
    cli_free(config->path);
    *config = (cli_config){0};
}

/* ---- Presets ---- */

#define SUFFIX ".preset"

static bool ends_with_suffix(const char *name)
{
    size_t n = strlen(name), n_suffix = strlen(SUFFIX);
    return n > n_suffix && strcmp(name + n - n_suffix, SUFFIX) == 0;
}

static char *folder_of_presets(void)
{
    return cli_file_of_user("XDG_CONFIG_HOME", ".config", "weir/presets");
}

char *cli_preset_path_of(const char *name)
{
    char *folder = folder_of_presets(), *path = NULL;
    bool good = *name != '\0' && *name != '.' && *name != '-' && strpbrk(name, "/:") == NULL &&
                strcmp(name, "default") != 0 && strlen(name) < 64;
    if (good && folder != NULL) path = cli_format("%s/%s" SUFFIX, folder, name);
    cli_free(folder);
    return path;
}

char *cli_preset_path(const char *model)
{
    if (ends_with_suffix(model)) return cli_format("%s", model);
    char *path = cli_preset_path_of(model);
    if (path == NULL || access(path, F_OK) == 0) return path;
    cli_free(path);
    return NULL;
}

char *cli_preset_name(const char *path)
{
    const char *name = cli_file_name(path);
    return cli_format("%.*s", (int)(strlen(name) - (ends_with_suffix(name) ? strlen(SUFFIX) : 0)), name);
}

cli_list cli_preset_names(void)
{
    cli_list names = {0};
    char *folder = folder_of_presets();
    DIR *dir = folder != NULL ? opendir(folder) : NULL;
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (!ends_with_suffix(entry->d_name) || entry->d_name[0] == '.') continue;
        cli_list_add(&names, cli_preset_name(entry->d_name));
    }
    if (dir != NULL) closedir(dir);
    if (names.n > 1) qsort(names.items, names.n, sizeof *names.items, weir__words_compare);
    cli_free(folder);
    return names;
}

cli_exit cli_preset_read(cli_config *config, const char *path)
{
    return cli_config_read_file(config, CLI_CONFIG_PRESET, path);
}

char *cli_preset_model(const char *path)
{
    cli_config config = {0};
    char *model = NULL;
    if (cli_preset_read(&config, path) == CLI_OK) {
        const char *named = cli_config_value(&config, CLI_CONFIG_NONE, ~0u, "--model");
        model = cli_format("%s", named != NULL ? named : "");
    }
    cli_config_fini(&config);
    return model;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "options.h"

/* True: the user named it, so that it has to be there. */
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
static char *trim(char *string)
{
    string += strspn(string, " \t\r");
    size_t n = strlen(string);
    while (n > 0 && strchr(" \t\r", string[n - 1]) != NULL) string[--n] = '\0';
    return string;
}

/* Removes the quotes around a value, in place. False: they do not end where the value does. */
static bool unquote(char *value)
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

/* The command of a line "[bench engine]", NULL: there is none of that name. */
static const cli_command *section(char *line)
{
    size_t n = strlen(line);
    if (line[n - 1] != ']') return NULL;
    line[n - 1] = '\0';
    const char *name = trim(line + 1);
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (strcmp(command->name, name) == 0) return command;
    return NULL;
}

static cli_exit unknown_setting(const cli_config *config, int line, const char *key,
                                const cli_command *command)
{
    cli_nearest nearest = cli_nearest_to(key);
    cli_options_try_settings(&nearest);
    if (command != NULL && cli_options_by_setting(~0u, key) != NULL)
        return cli_fail(CLI_USAGE, "%s:%d: weir %s has no setting %.60s", config->path, line, command->name,
                        key);
    if (config->preset && cli_options_by_setting(~0u, key) != NULL)
        return cli_fail(CLI_USAGE, "%s:%d: %.60s is not for presets", config->path, line, key);
    return cli_fail(CLI_USAGE, "%s:%d: there is no setting %.60s%s", config->path, line, key,
                    cli_nearest_hint(&nearest, "; weir help config explains the names"));
}

static cli_exit read_line(cli_config *config, int number, char *line, const cli_command **command)
{
    line = trim(line);
    if (*line == '\0' || *line == '#') return CLI_OK;
    if (*line == '[' && config->preset)
        return cli_fail(CLI_USAGE, "%s:%d: a preset has no sections", config->path, number);
    if (*line == '[') {
        *command = section(line);
        if (*command != NULL) return CLI_OK;
        return cli_fail(CLI_USAGE, "%s:%d: no command has this name; expected: [run], [bench engine], …",
                        config->path, number);
    }
    char *equals = strchr(line, '=');
    if (equals == NULL)
        return cli_fail(CLI_USAGE, "%s:%d: there is no \"=\"; expected: name = value, such as ctx = 8192",
                        config->path, number);
    *equals = '\0';
    char *key = trim(line), *value = trim(equals + 1);
    if (!unquote(value))
        return cli_fail(CLI_USAGE, "%s:%d: the quotes of %.60s do not end with the line", config->path,
                        number, key);
    if (config->preset ? cli_options_by_preset(~0u, key) == NULL
                       : cli_options_by_setting(*command != NULL ? (*command)->bit : ~0u, key) == NULL)
        return unknown_setting(config, number, key, *command);
    cli_grow(&config->items, &config->capacity, config->n + 1, sizeof *config->items);
    config->items[config->n++] = (cli_setting){
        .command = *command, .line = number, .key = cli_format("%s", key), .value = cli_format("%s", value)};
    return CLI_OK;
}

static cli_exit read_file(cli_config *config, const char *what)
{
    char *bytes = NULL;
    size_t length = 0;
    const cli_command *command = NULL;
    cli_exit code = cli_file_read(config->path, what, &bytes, &length);
    if (code != CLI_OK) return code;
    int number = 1;
    char *rest = bytes;
    for (char *line = strsep(&rest, "\n"); line != NULL && code == CLI_OK;
         line = strsep(&rest, "\n"), number++)
        code = read_line(config, number, line, &command);
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

cli_exit cli_config_read_preset(cli_config *config, const char *path)
{
    config->preset = true;
    config->path = cli_format("%s", path);
    return read_file(config, "the preset");
}

void cli_config_fini(cli_config *config)
{
    for (size_t i = 0; i < config->n; i++) {
        cli_free(config->items[i].key);
        cli_free(config->items[i].value);
    }
    cli_free(config->items);
    cli_free(config->path);
    *config = (cli_config){0};
}

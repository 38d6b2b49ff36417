/* The config file, and weir config.
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "figures.h"
#include "file.h"
#include "options.h"
#include "out.h"
#include "term.h"

/* ---- The file ---- */

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
    return cli_fail(CLI_USAGE, "%s:%d: there is no setting %.60s%s", config->path, line, key,
                    cli_nearest_hint(&nearest, "; weir help config tells which there are"));
}

static cli_exit read_line(cli_config *config, int number, char *line, const cli_command **command)
{
    line = trim(line);
    if (*line == '\0' || *line == '#') return CLI_OK;
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
    if (cli_options_by_setting(*command != NULL ? (*command)->bit : ~0u, key) == NULL)
        return unknown_setting(config, number, key, *command);
    cli_grow(&config->items, &config->capacity, config->n + 1, sizeof *config->items);
    config->items[config->n++] = (cli_setting){
        .command = *command, .line = number, .key = cli_format("%s", key), .value = cli_format("%s", value)};
    return CLI_OK;
}

cli_exit cli_config_read(cli_config *config)
{
    char *bytes = NULL;
    size_t length = 0;
    const cli_command *command = NULL;
    bool named = find_path(&config->path);
    if (config->path == NULL) return CLI_OK;
    config->there = access(config->path, F_OK) == 0;
    if (!config->there && !named) return CLI_OK;
    cli_exit code = cli_file_read(config->path, "the config file", &bytes, &length);
    if (code != CLI_OK) return code;
    int number = 1;
    char *rest = bytes;
    for (char *line = strsep(&rest, "\n"); line != NULL && code == CLI_OK;
         line = strsep(&rest, "\n"), number++)
        code = read_line(config, number, line, &command);
    cli_free(bytes);
    return code;
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

/* ---- weir config ---- */

/* As it is shown: nobody looks over a shoulder at keys. */
static void value_of(const cli_args *args, const cli_option *option, char *text, size_t capacity)
{
    const cli_origin *origin = &args->sources[option - cli_options];
    if (origin->text == NULL) {
        cli_options_value(args, option, text, capacity);
        if (cli_options_is_flag(option)) snprintf(text, capacity, "off");
    } else if (strcmp(option->name, "--api-key") == 0)
        snprintf(text, capacity, "(set)");
    else if (cli_options_is_flag(option)) {
        bool on = *(const bool *)((const char *)args + option->target) == (option->kind == CLI_FLAG);
        snprintf(text, capacity, "%s", on ? "on" : "off");
    } else
        snprintf(text, capacity, "%s", origin->text);
}

static void origin_of(const cli_args *args, const cli_option *option, const char *path, char *text,
                      size_t capacity)
{
    const cli_origin *origin = &args->sources[option - cli_options];
    switch (origin->from) {
    case CLI_FROM_DEFAULT: snprintf(text, capacity, "default"); break;
    case CLI_FROM_FILE: snprintf(text, capacity, "%s:%d", path, origin->line); break;
    case CLI_FROM_ENVIRONMENT: snprintf(text, capacity, "%s", option->env); break;
    case CLI_FROM_WORDS: snprintf(text, capacity, "command line"); break;
    }
}

static void add_cell(cli_table *table, const char *string)
{
    cli_text safe = {0};
    cli_text_add_cut(&safe, string, strlen(string), 60, false);
    cli_table_cell(table, "%s", safe.bytes != NULL ? safe.bytes : "");
    weir__text_fini(&safe);
}

/* A row for each option of the command whose value can come from elsewhere; defaults only when asked for. */
static void add_rows(cli_table *table, json_t *array, const cli_args *args, const char *path, bool all)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        char value[256], origin[256];
        const cli_origin *from = &args->sources[option - cli_options];
        if (!(option->commands & args->command->bit) || strcmp(option->name, "--help") == 0) continue;
        if (from->from == CLI_FROM_DEFAULT && (!all || option->env == NULL)) continue;
        value_of(args, option, value, sizeof value);
        origin_of(args, option, path, origin, sizeof origin);
        if (array != NULL) {
            json_array_append_new(array, json_pack("{s:s, s:s, s:o, s:o}", "command", args->command->name,
                                                   "option", option->name, "value", cli_figures_string(value),
                                                   "from", cli_figures_string(origin)));
            continue;
        }
        if (!all) cli_table_cell(table, "%s", args->command->name);
        cli_table_cell(table, "%s", option->name + 2);
        add_cell(table, value);
        add_cell(table, origin);
    }
}

/* The command's options with these words, or, without words, what is set at all. */
static cli_exit add_command(cli_table *table, json_t *array, const cli_command *command, int n, char **words,
                            const char *path, bool all)
{
    cli_args args;
    cli_args_init(&args, command);
    cli_exit code = cli_options_parse(&args, n, words);
    if (code == CLI_OK) add_rows(table, array, &args, path, all);
    cli_args_fini(&args);
    return code;
}

static cli_exit print(const cli_args *args, const cli_config *config, const cli_table *table, json_t *array)
{
    cli_text text = {0};
    const char *path = config->path != NULL ? config->path : "";
    if (args->json) {
        cli_out_json(json_pack("{s:o, s:b, s:o}", "file", cli_figures_string(path), "there",
                               (int)config->there, "settings", array));
        return CLI_OK;
    }
    cli_text_puts(&text, "config file: ");
    cli_text_add_safe(&text, path, strlen(path));
    cli_text_puts(&text, config->path == NULL ? "none\n" : config->there ? "\n" : " (there is none)\n");
    if (table->n_cells > (size_t)table->n_columns)
        cli_table_print(table, &text, cli_term_style_out(CLI_BOLD), cli_term_style_out(CLI_PLAIN));
    else
        cli_text_puts(&text, "nothing is set: the defaults are in force (weir config COMMAND shows them)\n");
    cli_out(text.bytes, text.n);
    weir__text_fini(&text);
    return CLI_OK;
}

cli_exit cli_config_command(cli_args *args)
{
    cli_config config = {0};
    int used = 0, n = (int)args->words.n;
    const cli_command *command = NULL;
    if (n > 0 && (command = cli_command_find(n, args->words.items, &used)) == NULL)
        return cli_command_unknown(n, args->words.items);
    cli_table table = {.n_columns = command != NULL ? 3 : 4, .left = ~0u};
    json_t *array = args->json ? json_array() : NULL;
    if (command == NULL) cli_table_cell(&table, "command");
    cli_table_cell(&table, "option");
    cli_table_cell(&table, "value");
    cli_table_cell(&table, "from");
    cli_exit code = cli_config_read(&config);
    if (code == CLI_OK && command != NULL)
        code = add_command(&table, array, command, n - used, args->words.items + used, config.path, true);
    for (const cli_command *each = cli_commands; each->name != NULL && command == NULL && code == CLI_OK;
         each++)
        code = add_command(&table, array, each, 0, NULL, config.path, false);
    if (code == CLI_OK)
        code = print(args, &config, &table, array);
    else
        json_decref(array);
    cli_table_fini(&table);
    cli_config_fini(&config);
    return code;
}

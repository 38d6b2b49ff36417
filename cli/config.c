/* weir config: the settings in force, and where each comes from.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/lib/config_file.h"
#include "cli/lib/figures.h"
#include "cli/lib/options.h"
#include "cli/lib/out.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"

/* The value as it is shown: keys are hidden from people who look over a shoulder. */
static void value_of(const cli_args *args, const cli_option *option, char *text, size_t capacity)
{
    const cli_origin *origin = &args->sources[option - cli_options];
    if (origin->text == NULL) {
        cli_options_default(args, option, text, capacity);
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
    case CLI_FROM_MODELS: /* of one of several models, which no command shows */
    case CLI_FROM_SECTION: snprintf(text, capacity, "%s:%d", args->models_path, origin->line); break;
    case CLI_FROM_PRESET: snprintf(text, capacity, "%s:%d", args->preset_path, origin->line); break;
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

/* The command's options with these words, or, without words, all that are set. */
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

static cli_exit print_settings(const cli_args *args, const cli_config *config, const cli_table *table,
                               json_t *array)
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
    cli_out_text(&text);
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
        code = print_settings(args, &config, &table, array);
    else
        json_decref(array);
    cli_table_fini(&table);
    cli_config_fini(&config);
    return code;
}

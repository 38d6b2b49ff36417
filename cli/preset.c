/* weir preset: models with settings under a name. SPDX-License-Identifier: Apache-2.0 */
#include "cli/lib/config_file.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/out.h"
#include "cli/lib/settings.h"
#include "cli/lib/term.h"

/* A setting as a line; values that the config file would read otherwise are put into quotes. */
static void add_setting(cli_text *text, const cli_option *option, const char *value)
{
    size_t n = strlen(value);
    bool quotes = n == 0 || strpbrk(value, "\n\t\r") != NULL || value[0] == '"' || value[0] == ' ' ||
                  value[n - 1] == ' ';
    cli_text_printf(text, "%s = %s", option->name + 2, quotes ? "\"" : "");
    for (; *value != '\0'; value++) {
        if (quotes && (*value == '"' || *value == '\\')) cli_text_puts(text, "\\");
        if (quotes && (*value == '\n' || *value == '\t'))
            cli_text_puts(text, *value == '\n' ? "\\n" : "\\t");
        else
            cli_text_add(text, value, 1);
    }
    cli_text_puts(text, quotes ? "\"\n" : "\n");
}

/* The settings of the command line. */
static void add_settings(cli_text *text, const cli_args *args)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        char *value;
        if (args->sources[option - cli_options].from != CLI_FROM_WORDS) continue;
        if (!cli_options_in_presets(option)) continue;
        for (size_t i = 0; (value = cli_settings_value(args, option, i)) != NULL; i++) {
            add_setting(text, option, value);
            cli_free(value);
        }
    }
}

static cli_exit show_preset(const cli_args *args, const char *name)
{
    char *path = cli_preset_path(name), *bytes = NULL;
    size_t length = 0;
    cli_config config = {0};
    if (path == NULL)
        return cli_fail(CLI_USAGE, "there is no preset %s; weir preset %s -m MODEL makes it", name, name);
    cli_exit code = cli_preset_read(&config, path); /* reports errors in it */
    if (code == CLI_OK) code = cli_file_read(path, "the preset", &bytes, &length);
    if (code == CLI_OK && !args->quiet && !args->json) cli_note("%s", path);
    if (code == CLI_OK && args->json)
        cli_out_json(json_pack("{s:o, s:o, s:o}", "name", cli_figures_string(name), "path",
                               cli_figures_string(path), "text", cli_figures_string(bytes)));
    else if (code == CLI_OK)
        cli_out(bytes, length);
    cli_config_fini(&config);
    cli_free(bytes);
    cli_free(path);
    return code;
}

/* Checks that a preset of this name may be written to the path; NULL: no preset can have the name. */
static cli_exit check_new(const cli_args *args, const char *name, const char *path)
{
    if (path == NULL)
        return cli_fail(
            CLI_USAGE,
            "%s is not a name for a preset: names have at most 63 characters, without / and :, do "
            "not begin with . or -, and default is taken",
            name);
    if (access(path, F_OK) == 0)
        return cli_fail(CLI_USAGE, "the preset %s exists: edit %s to change it, or remove it with weir rm %s",
                        name, path, name);
    char *base = args->model_path != NULL ? cli_preset_path(args->model_path) : NULL;
    bool on_preset = base != NULL;
    cli_free(base);
    if (!on_preset) return CLI_OK;
    return cli_fail(CLI_USAGE,
                    "--model is the preset %s; a preset's model is a GGUF file, default, a short name, or "
                    "hf:OWNER/REPO[:QUANTIZATION or FILE]",
                    args->model_path);
}

static cli_exit write_preset(const cli_args *args, const char *name)
{
    char *path = cli_preset_path_of(name);
    cli_text text = {0};
    cli_exit code = check_new(args, name, path);
    if (code == CLI_OK) {
        add_settings(&text, args);
        code = cli_file_write(path, text.bytes, text.n);
    }
    if (code == CLI_OK && !args->quiet) code = show_preset(args, name);
    weir__text_fini(&text);
    cli_free(path);
    return code;
}

static cli_exit list_presets(const cli_args *args)
{
    cli_list names = cli_preset_names();
    cli_table table = {.n_columns = 2, .left = 2};
    cli_text text = {0};
    json_t *array = json_array();
    cli_table_cell(&table, "preset");
    cli_table_cell(&table, "model");
    for (size_t i = 0; i < names.n; i++) {
        char *path = cli_preset_path_of(names.items[i]);
        char *model = path != NULL ? cli_preset_model(path) : NULL;
        cli_table_cell(&table, "%s", names.items[i]);
        cli_table_cell(&table, "%s", model != NULL ? model : "");
        json_array_append_new(array, json_pack("{s:o, s:o, s:o}", "name", cli_figures_string(names.items[i]),
                                               "path", cli_figures_string(path != NULL ? path : ""), "model",
                                               model != NULL ? cli_figures_string(model) : json_null()));
        cli_free(model);
        cli_free(path);
    }
    if (args->json)
        cli_out_json(json_pack("{s:O}", "presets", array));
    else if (names.n > 0) {
        cli_table_print(&table, &text, cli_term_style_out(CLI_BOLD), cli_term_style_out(CLI_PLAIN));
        cli_out(text.bytes, text.n);
    } else
        cli_fail(CLI_OK, "no presets yet; weir preset NAME -m MODEL --system TEXT --temp 0.2 makes one");
    json_decref(array);
    weir__text_fini(&text);
    cli_table_fini(&table);
    cli_list_fini(&names);
    return CLI_OK;
}

cli_exit cli_preset(cli_args *args)
{
    bool set = false;
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        set = set ||
              (args->sources[option - cli_options].from == CLI_FROM_WORDS && cli_options_in_presets(option));
    if (args->words.n > 1) return cli_fail(CLI_USAGE, "weir preset takes one name");
    if (args->words.n == 0 && set)
        return cli_fail(CLI_USAGE, "which name? Write weir preset NAME -m MODEL …");
    if (args->words.n == 0) return list_presets(args);
    return set ? write_preset(args, args->words.items[0]) : show_preset(args, args->words.items[0]);
}

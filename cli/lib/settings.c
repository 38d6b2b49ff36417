/* settings.c: the options that were given, as text. SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "file.h"
#include "text.h"

/* A path that may be used in any folder. A value that names no file stays as it is: default, hf:OWNER/REPO,
 * a preset. */
static char *absolute_value(const char *value)
{
    const char *scale = strrchr(value, '='); /* of an adapter */
    char *found = realpath(value, NULL), *path = NULL;
    if (found == NULL && scale != NULL) {
        char *file = cli_format("%.*s", (int)(scale - value), value);
        found = realpath(file, NULL);
        if (found != NULL) path = cli_format("%s%s", found, scale);
        cli_free(file);
    } else if (found == NULL && cli_file_is_relative(value)) { /* a folder that a command will make */
        found = realpath(".", NULL);
        if (found != NULL) path = cli_format("%s/%s", found, value);
    }
    if (path == NULL) path = cli_format("%s", found != NULL ? found : value);
    free(found); /* the C library's own memory */
    return path;
}

char *cli_settings_value(const cli_args *args, const cli_option *option, size_t i)
{
    const void *at = (const char *)args + option->target;
    const cli_list *list = at;
    const cli_biases *biases = at;
    if (option->kind == CLI_BIAS)
        return i < biases->n ? cli_format("%d%+.9g", biases->items[i].token, (double)biases->items[i].bias)
                             : NULL;
    const char *value = option->kind != CLI_LIST ? args->sources[option - cli_options].text
                        : i < list->n            ? list->items[i]
                                                 : NULL;
    if (value == NULL || (option->kind != CLI_LIST && i > 0)) return NULL;
    return cli_options_is_file(option) ? absolute_value(value) : cli_format("%s", value);
}

/* True if the option loads the model, or is a default of answers, in the command that answers again. Files of
 * cached prefixes are left out: what they hold was computed by others. */
static bool is_recorded(const cli_args *args, const cli_option *option)
{
    return args->sources[option - cli_options].from != CLI_FROM_DEFAULT &&
           (option->commands & args->command->bit) != 0 && cli_options_in_recordings(option) &&
           strcmp(option->name, "--model") != 0;
}

/* Adds an option; value: NULL = a flag. False: the value is no UTF-8, and neither is added. */
static bool add_option(cli_text *text, const char *name, const char *value)
{
    json_t *string = value != NULL ? json_string(value) : json_null();
    if (string == NULL) return false;
    json_decref(string);
    if (text->n > 1) cli_text_puts(text, ",");
    weir__json_quote(text, name, strlen(name));
    if (value == NULL) return true;
    cli_text_puts(text, ",");
    weir__json_quote(text, value, strlen(value));
    return true;
}

char *cli_settings_words(const cli_args *args, const cli_args *server, const char *path)
{
    cli_text text = {0};
    const char *model = path != NULL ? path : args->model_path; /* a preset's, if that was named */
    cli_text_puts(&text, "[");
    if (model != NULL) {
        char *value = absolute_value(model);
        bool added = add_option(&text, "--model", value);
        cli_free(value);
        if (!added) {
            weir__text_fini(&text);
            return NULL;
        }
    }
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        const cli_args *from = option->group == CLI_SERVING ? server : args;
        const bool *flag = (const bool *)((const char *)from + option->target);
        char *value;
        if (!is_recorded(from, option)) continue;
        if (cli_options_is_flag(option)) {
            if (*flag == (option->kind == CLI_FLAG)) add_option(&text, option->name, NULL);
            continue;
        }
        for (size_t i = 0; (value = cli_settings_value(from, option, i)) != NULL; i++) {
            add_option(&text, option->name, value);
            cli_free(value);
        }
    }
    cli_text_puts(&text, "]");
    char *words = cli_format("%s", text.bytes);
    weir__text_fini(&text);
    return words;
}

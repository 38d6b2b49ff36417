/* The names of options: their spellings, and similar names. The functions are options.h's.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "options.h"

bool cli_options_spelling(const cli_option *option, size_t i, char spelling[CLI_SPELLING_MAX])
{
    const char *from = i == 0 ? option->name : option->others;
    for (; i > 1 && from != NULL; i--) {
        from = strchr(from, ' ');
        if (from != NULL) from++;
    }
    if (from == NULL) return false;
    snprintf(spelling, CLI_SPELLING_MAX, "%.*s", (int)strcspn(from, " "), from);
    return true;
}

static bool is_spelled(const cli_option *option, const char *spelling, size_t length)
{
    char one[CLI_SPELLING_MAX];
    for (size_t i = 0; cli_options_spelling(option, i, one); i++)
        if (strlen(one) == length && memcmp(one, spelling, length) == 0) return true;
    return false;
}

const cli_option *cli_options_find(unsigned command, const char *spelling, size_t length)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & command) && is_spelled(option, spelling, length)) return option;
    return NULL;
}

const cli_option *cli_options_by_field(unsigned command, const char *field)
{
    size_t length = strcspn(field, "/"); /* a place in the value follows */
    while (length > 0 && field[length - 1] != '.') length--;
    field += length;
    length = strcspn(field, "[/");
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & command) && option->field != NULL && strlen(option->field) == length &&
            memcmp(option->field, field, length) == 0)
            return option;
    return NULL;
}

bool cli_options_given(const cli_args *args, const char *name)
{
    const cli_option *option = cli_options_find(args->command->bit, name, strlen(name));
    return option != NULL && args->sources[option - cli_options].from == CLI_FROM_WORDS;
}

/* Small letters and hyphens: TOP_K of WEIR_TOP_K becomes "top-k", as in the config file. */
static void plain_name(const char *name, char *plain, size_t capacity)
{
    size_t i = 0;
    for (; name[i] != '\0' && i + 1 < capacity; i++)
        plain[i] = (char)(name[i] == '_'                     ? '-'
                          : name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a'
                                                             : name[i]);
    plain[i] = '\0';
}

bool cli_options_has_settings(unsigned command)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & command) && option->env != NULL) return true;
    return false;
}

const cli_option *cli_options_by_setting(unsigned commands, const char *key)
{
    char name[64] = "--", setting[64];
    plain_name(key, name + 2, sizeof name - 2);
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        if (!(option->commands & commands) || option->env == NULL) continue;
        plain_name(option->env + strlen("WEIR_"), setting, sizeof setting);
        if (strcmp(setting, name + 2) == 0 || is_spelled(option, name, strlen(name))) return option;
    }
    return NULL;
}

bool cli_options_in_presets(const cli_option *option)
{
    bool of_answers =
        option->group != CLI_SERVING && option->group != CLI_MEASURING && option->group != CLI_OUTPUT;
    return of_answers && (option->env != NULL || cli_options_in_ask(option));
}

bool cli_options_of_model(const cli_option *option)
{
    return option->whose == CLI_OF_MODEL ||
           (option->whose == CLI_AS_PRESETS && cli_options_in_presets(option));
}

/* The option whose spelling is --key, of those that are allowed. */
static const cli_option *by_spelling(unsigned commands, const char *key, bool (*allowed)(const cli_option *))
{
    char name[64] = "--";
    plain_name(key, name + 2, sizeof name - 2);
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & commands) && allowed(option) && is_spelled(option, name, strlen(name)))
            return option;
    return NULL;
}

const cli_option *cli_options_by_preset(unsigned commands, const char *key)
{
    return by_spelling(commands, key, cli_options_in_presets);
}

const cli_option *cli_options_by_model(unsigned commands, const char *key)
{
    return by_spelling(commands, key, cli_options_of_model);
}

bool cli_options_is_file(const cli_option *option)
{
    return option->argument != NULL &&
           (option->kind == CLI_FILE || strncmp(option->argument, "FILE", 4) == 0 ||
            strcmp(option->argument, "FOLDER") == 0 || strcmp(option->argument, "MODEL") == 0);
}

bool cli_options_in_ask(const cli_option *option)
{
    return option->target < sizeof(cli_ask);
}

bool cli_options_in_requests(const cli_option *option)
{
    return option->field != NULL && cli_options_in_ask(option);
}

const cli_option *cli_options_by_key(const char *key)
{
    char spelling[64] = "--";
    size_t n = strlen(key);
    if (n + 3 > sizeof spelling) return NULL;
    for (size_t i = 0; i <= n; i++) spelling[i + 2] = (char)(key[i] == '_' ? '-' : key[i]);
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if (cli_options_in_requests(option) &&
            (strcmp(option->field, key) == 0 ||
             (option->kind != CLI_FLAG_OFF && /* which would say the opposite */
              strchr(key, '-') == NULL && is_spelled(option, spelling, n + 2))))
            return option;
    return NULL;
}

void cli_options_try_keys(cli_nearest *nearest)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        char one[CLI_SPELLING_MAX];
        if (!cli_options_in_requests(option)) continue;
        cli_nearest_try(nearest, option->field);
        for (size_t i = 0; cli_options_spelling(option, i, one); i++) {
            if (strncmp(one, "--", 2) != 0) continue;
            for (char *c = one + 2; *c != '\0'; c++)
                if (*c == '-') *c = '_';
            cli_nearest_try(nearest, one + 2);
        }
    }
}

void cli_options_try_settings(cli_nearest *nearest)
{
    char setting[64];
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        if (option->env == NULL) continue;
        plain_name(option->env + strlen("WEIR_"), setting, sizeof setting);
        cli_nearest_try(nearest, setting);
        cli_nearest_try(nearest, option->name + 2);
    }
}

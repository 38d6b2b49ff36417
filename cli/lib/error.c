/* Errors of the library; the functions are cli.h's.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "figures.h"
#include "options.h"
#include "out.h"
#include "signals.h"

bool cli_error_is_usage(const weir_error *error)
{
    return error->code == WEIR_INVALID || error->code == WEIR_GRAMMAR;
}

typedef struct naming {
    unsigned command;
    const cli_option *option; /* of the error's field */
    const char *as;
    char text[128];
    bool named;
} naming;

static const char *name_option(const char *name, void *user)
{
    naming *n = user;
    const char *rest;
    const cli_option *option = cli_options_by_field(n->command, name, &rest);
    if (option == NULL) return NULL;
    bool own = option == n->option;
    n->named |= own;
    snprintf(n->text, sizeof n->text, "%s%s", own && n->as != NULL ? n->as : option->name,
             *rest == '[' ? rest : "");
    return n->text;
}

const cli_option *cli_error_option(const weir_error *error, unsigned command)
{
    return error->field[0] != '\0' ? cli_options_by_field(command, error->field, NULL) : NULL;
}

cli_words cli_error_words(const weir_error *error, unsigned command, const char *as, const char *before)
{
    cli_words words;
    char text[sizeof error->message + 128];
    naming n = {.command = command, .as = as, .option = cli_error_option(error, command)};
    weir_error_text(error, name_option, &n, text, sizeof text);
    bool alone = n.named || before == NULL;
    snprintf(words.text, sizeof words.text, "%s%s%s", alone ? "" : before, alone ? "" : ": ", text);
    return words;
}

/* The option that reads this one's value from a file, if the value given is the name of one; else NULL. */
static const cli_option *option_of_file(const cli_args *args, const cli_option *option)
{
    struct stat info;
    if (option == NULL || option->kind != CLI_STRING) return NULL;
    const char *value = *(char *const *)((const char *)args + option->target);
    if (value == NULL || stat(value, &info) != 0 || !S_ISREG(info.st_mode)) return NULL;
    for (const cli_option *at = cli_options; at->name != NULL; at++)
        if (at->kind == CLI_FILE && at->target == option->target && (at->commands & args->command->bit) != 0)
            return at;
    return NULL;
}

cli_exit cli_fail_error(const cli_args *args, cli_exit code, const char *context, const weir_error *error)
{
    const cli_option *option = cli_error_option(error, args->command->bit);
    const char *place = strchr(error->field, '/'); /* in a schema */
    char name[128];
    if (error->code == WEIR_ABORTED && cli_signals_ended() != 0) return cli_signals_exit();
    if (option != NULL && cli_error_is_usage(error)) code = CLI_USAGE;
    if (option != NULL) snprintf(name, sizeof name, "%s%s", option->name, place != NULL ? place : "");
    const cli_option *file = option_of_file(args, option);
    cli_fail(code, "%s%s%s",
             cli_error_words(error, args->command->bit, NULL, option != NULL ? name : context).text,
             file != NULL ? "; to read the file of this name, give " : "", file != NULL ? file->name : "");
    if (args->json) cli_out_json(json_pack("{s:o}", "error", cli_figures_error(error)));
    return code;
}

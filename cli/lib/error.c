/* Errors of the library; the functions are cli.h's.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

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

cli_words cli_error_words(const weir_error *error, unsigned command, const char *as)
{
    cli_words words;
    naming n = {.command = command, .as = as};
    words.option = n.option =
        error->field[0] != '\0' ? cli_options_by_field(command, error->field, NULL) : NULL;
    weir_error_text(error, name_option, &n, words.text, sizeof words.text);
    words.named = n.named;
    return words;
}

cli_exit cli_fail_error(const cli_args *args, cli_exit code, const char *context, const weir_error *error)
{
    const cli_words words = cli_error_words(error, args->command->bit, NULL);
    if (error->code == WEIR_ABORTED && cli_signals_ended() != 0) return cli_signals_exit();
    if (words.option != NULL && cli_error_is_usage(error)) code = CLI_USAGE;
    const char *place = strchr(error->field, '/'); /* in a schema */
    if (words.named)
        cli_fail(code, "%s", words.text);
    else if (words.option != NULL)
        cli_fail(code, "%s%s: %s", words.option->name, place != NULL ? place : "", words.text);
    else
        cli_fail(code, "%s%s%s", context != NULL ? context : "", context != NULL ? ": " : "", words.text);
    if (args->json) cli_out_json(json_pack("{s:o}", "error", cli_figures_error(error)));
    return code;
}

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

const char *cli_error_text(const weir_error *error)
{
    static const char parameters[] = "n_ctx or n_kv";
    static char text[sizeof error->message + 16];
    const char *at = strstr(error->message, parameters);
    if (at == NULL) return error->message;
    snprintf(text, sizeof text, "%.*s-c or --kv%s", (int)(at - error->message), error->message,
             at + strlen(parameters));
    return text;
}

cli_exit cli_fail_error(const cli_args *args, cli_exit code, const char *context, const weir_error *error)
{
    const cli_option *option =
        error->field[0] != '\0' ? cli_options_by_field(args->command->bit, error->field) : NULL;
    if (error->code == WEIR_ABORTED && cli_signals_ended() != 0) return cli_signals_exit();
    if (option != NULL && cli_error_is_usage(error)) code = CLI_USAGE;
    const char *place = strchr(error->field, '/'); /* in a schema */
    if (option != NULL)
        cli_fail(code, "%s%s: %s", option->name, place != NULL ? place : "", error->message);
    else
        cli_fail(code, "%s%s%s", context != NULL ? context : "", context != NULL ? ": " : "",
                 cli_error_text(error));
    if (args->json) cli_out_json(json_pack("{s:o}", "error", cli_figures_error(error)));
    return code;
}

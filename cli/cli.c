/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "figures.h"
#include "options.h"
#include "out.h"
#include "signals.h"
#include "term.h"
#include "text.h"

/* ---- Memory ---- */

_Noreturn void cli_no_memory(void)
{
    static const char message[] = "weir: out of memory\n";
    cli_term_rescue();
    ssize_t n = write(STDERR_FILENO, message, sizeof message - 1);
    (void)n;
    _exit(CLI_FAILED);
}

void *cli_alloc(size_t n, size_t size)
{
    void *memory = weir__mem_calloc(n, size);
    if (memory == NULL) cli_no_memory();
    return memory;
}

void *cli_copy(const void *bytes, size_t size)
{
    void *memory = weir__mem_dup(bytes, size);
    if (memory == NULL) cli_no_memory();
    return memory;
}

char *cli_format(const char *format, ...)
{
    cli_text text = {0};
    va_list list;
    va_start(list, format);
    if (!weir__text_vprintf(&text, format, list)) cli_no_memory();
    va_end(list);
    return text.bytes;
}

void cli_grow(void *items, size_t *capacity, size_t need, size_t item_size)
{
    if (!weir__mem_grow(items, capacity, need, item_size)) cli_no_memory();
}

void cli_free(void *memory)
{
    weir__mem_free(memory);
}

/* ---- Failures ---- */

static void say(const char *message)
{
    cli_text text = {0};
    cli_term_progress_end();
    cli_text_printf(&text, "%sweir:%s ", cli_term_style_err(CLI_RED), cli_term_style_err(CLI_PLAIN));
    /* Line by line, so that a file's name or a model's message cannot play with the terminal. */
    cli_text_add_safe(&text, message, strlen(message));
    cli_text_puts(&text, "\n");
    fputs(text.bytes, stderr);
    weir__text_fini(&text);
}

cli_exit cli_fail(cli_exit code, const char *format, ...)
{
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    say(message);
    return code;
}

bool cli_error_is_usage(const weir_error *error)
{
    return error->code == WEIR_INVALID || error->code == WEIR_GRAMMAR;
}

const char *cli_error_hint(const weir_error *error)
{
    bool too_small = error->code == WEIR_TOO_LONG && strstr(error->message, "n_ctx or n_kv") != NULL;
    return too_small ? " (-c, --kv)" : "";
}

cli_exit cli_fail_error(const cli_args *args, cli_exit code, const char *context, const weir_error *error)
{
    const cli_option *option =
        error->field[0] != '\0' ? cli_options_by_field(args->command->bit, error->field) : NULL;
    if (error->code == WEIR_ABORTED && cli_signals_ended() != 0) return (cli_exit)(128 + cli_signals_ended());
    if (option != NULL && cli_error_is_usage(error)) code = CLI_USAGE;
    const char *place = strchr(error->field, '/'); /* in a schema */
    if (option != NULL)
        cli_fail(code, "%s%s: %s", option->name, place != NULL ? place : "", error->message);
    else
        cli_fail(code, "%s%s%s%s", context != NULL ? context : "", context != NULL ? ": " : "",
                 error->message, cli_error_hint(error));
    if (args->json) cli_out_json(json_pack("{s:o}", "error", cli_figures_error(error)));
    return code;
}

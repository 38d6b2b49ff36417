/* Messages on stderr; the functions are cli.h's and text.h's.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "term.h"
#include "text.h"

void cli_text_tell(cli_text *text)
{
    if (cli_term_err()) cli_wrap_notice(text);
    if (text->n > 0) fputs(text->bytes, stderr);
    weir__text_fini(text);
}

static void (*message_taker)(const char *message);

void cli_fail_to(void (*taker)(const char *message))
{
    message_taker = taker;
}

static void say_message(const char *message)
{
    cli_text text = {0};
    if (message_taker != NULL) {
        message_taker(message);
        return;
    }
    cli_term_progress_end();
    cli_text_printf(&text, "%sweir:%s ", cli_term_style_err(CLI_RED), cli_term_style_err(CLI_PLAIN));
    /* Line by line, so that a file's name or a model's message cannot play with the terminal. */
    cli_text_add_safe(&text, message, strlen(message));
    cli_text_puts(&text, "\n");
    cli_text_tell(&text);
}

void cli_note(const char *format, ...)
{
    cli_text text = {0};
    va_list arguments;
    cli_text_puts(&text, cli_term_style_err(CLI_DIM));
    va_start(arguments, format);
    if (!weir__text_vprintf(&text, format, arguments)) cli_no_memory();
    va_end(arguments);
    cli_text_printf(&text, "%s\n", cli_term_style_err(CLI_PLAIN));
    cli_text_tell(&text);
}

cli_exit cli_fail(cli_exit code, const char *format, ...)
{
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    say_message(message);
    return code;
}

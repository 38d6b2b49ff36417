/* prompt.c: joins the texts of files, of stdin and of the command line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "prompt.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "signals.h"

#define PATIENCE_MS 3000 /* a pipe that nobody writes to or closes would be awaited for ever */

void cli_prompt_fini(cli_prompt *prompt)
{
    for (size_t i = 0; i < prompt->n; i++) {
        cli_free(prompt->texts[i].name);
        cli_free(prompt->texts[i].bytes);
    }
    cli_free(prompt->texts);
    *prompt = (cli_prompt){0};
}

/* Explains the wait if another program neither writes to stdin nor closes it. */
static void await_stdin(void)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = cli_signals_descriptor(), .events = POLLIN}};
    if (poll(fds, 2, PATIENCE_MS) != 0) return;
    cli_note("waiting for the end of stdin; add < /dev/null to leave stdin out");
}

cli_exit cli_prompt_read(cli_prompt *prompt, const char *path, bool patient)
{
    char *bytes;
    size_t length;
    bool from_stdin = strcmp(path, "-") == 0;
    if (from_stdin && patient) await_stdin();
    cli_exit code = cli_file_read(path, "the text", &bytes, &length);
    if (code != CLI_OK) return code;
    if (!from_stdin && memchr(bytes, '\0', length) != NULL)
        code =
            cli_fail(CLI_FAILED, "cannot read the text from %s: it has a NUL byte, so it is not text", path);
    if (code != CLI_OK || length == 0) {
        cli_free(bytes);
        return code;
    }
    cli_grow(&prompt->texts, &prompt->capacity, prompt->n + 1, sizeof *prompt->texts);
    prompt->texts[prompt->n++] = (cli_prompt_text){
        .name = cli_format("%s", from_stdin ? "stdin" : cli_file_name(path)),
        .bytes = bytes,
        .length = length,
    };
    return CLI_OK;
}

/* The newlines that echo and editors add at the end are no part of a text. */
static void add_trimmed(cli_text *whole, const char *bytes, size_t length)
{
    while (length > 0 && bytes[length - 1] == '\n') length--;
    cli_text_add(whole, bytes, length);
}

static int longest_fence(const cli_prompt_text *text)
{
    int longest = 2, row = 0;
    for (size_t i = 0; i < text->length; i++) {
        row = text->bytes[i] == '`' ? row + 1 : 0;
        if (row > longest) longest = row;
    }
    return longest;
}

static void add_fenced(cli_text *whole, const cli_prompt_text *text)
{
    int n = longest_fence(text) + 1;
    cli_text_printf(whole, "%s:\n", text->name);
    cli_text_fill(whole, "`", n);
    cli_text_puts(whole, "\n");
    add_trimmed(whole, text->bytes, text->length);
    cli_text_puts(whole, "\n");
    cli_text_fill(whole, "`", n);
}

void cli_prompt_join(const cli_prompt *prompt, const char *words, cli_text *whole)
{
    for (size_t i = 0; i < prompt->n; i++) {
        if (i > 0) cli_text_puts(whole, "\n\n");
        if (prompt->n > 1)
            add_fenced(whole, &prompt->texts[i]);
        else
            add_trimmed(whole, prompt->texts[i].bytes, prompt->texts[i].length);
    }
    if (words == NULL || *words == '\0') return;
    if (prompt->n > 0) cli_text_puts(whole, "\n\n");
    add_trimmed(whole, words, strlen(words));
}

void cli_prompt_join_raw(const cli_prompt *prompt, const char *words, cli_text *whole)
{
    for (size_t i = 0; i < prompt->n; i++)
        cli_text_add(whole, prompt->texts[i].bytes, prompt->texts[i].length);
    if (words != NULL) cli_text_puts(whole, words);
}

void cli_prompt_names(const cli_prompt *prompt, cli_text *line)
{
    for (size_t i = 0; i < prompt->n; i++) {
        const cli_prompt_text *text = &prompt->texts[i];
        cli_text_puts(line, i == 0 ? "" : i + 1 == prompt->n ? " and " : ", ");
        cli_text_add_safe(line, text->name, strlen(text->name));
        cli_text_printf(line, " (%s)", cli_bytes(text->length).text);
    }
}

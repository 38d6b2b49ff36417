/* weir: the command line. Finds the command, reads its options, runs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "help.h"
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
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(NULL, 0, format, arguments);
    cli_grow(&text.bytes, &text.capacity, n < 0 ? 1 : (size_t)n + 1, 1);
    if (n < 0 || vsnprintf(text.bytes, (size_t)n + 1, format, again) < 0) text.bytes[0] = '\0';
    va_end(again);
    va_end(arguments);
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
    cli_text_fini(&text);
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

cli_exit cli_fail_error(const cli_args *args, cli_exit code, const char *context, const weir_error *error)
{
    const cli_option *option =
        error->field[0] != '\0' ? cli_options_by_field(args->command->bit, error->field) : NULL;
    if (error->code == WEIR_ABORTED && cli_signals_ended() != 0) return (cli_exit)(128 + cli_signals_ended());
    if (option != NULL && error->code == WEIR_INVALID) code = CLI_USAGE;
    cli_fail(code, "%s%s%s%s%s", context != NULL ? context : "", context != NULL ? ": " : "",
             option != NULL ? option->name : "", option != NULL ? ": " : "", error->message);
    if (args->json)
        cli_out_json(json_pack("{s:{s:s, s:s, s:s}}", "error", "code", weir_status_name(error->code), "field",
                               error->field, "message", error->message));
    return code;
}

/* ---- Commands ---- */

/* The command that the words begin with, "bench engine" taking two of them. NULL: none. */
static const cli_command *find_command(int n, char **words, int *used)
{
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        const char *second = strchr(command->name, ' ');
        size_t first = second != NULL ? (size_t)(second - command->name) : strlen(command->name);
        *used = second != NULL ? 2 : 1;
        if (n < *used || strlen(words[0]) != first || memcmp(words[0], command->name, first) != 0) continue;
        if (second == NULL || strcmp(words[1], second + 1) == 0) return command;
    }
    return NULL;
}

static cli_exit unknown_command(int n, char **words)
{
    const char *best = NULL;
    int least = 3;
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        char first[32];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(command->name, " "), command->name);
        if (strcmp(first, words[0]) == 0)
            return cli_fail(CLI_USAGE, "weir %s needs to know what: weir %s%s", words[0], command->name,
                            n > 1 ? "" : " --help shows its options");
        int distance = cli_options_distance(words[0], first);
        if (distance < least) {
            least = distance;
            best = command->name;
        }
    }
    if (best != NULL)
        return cli_fail(CLI_USAGE, "there is no command %s; did you mean weir %s?", words[0], best);
    return cli_fail(CLI_USAGE, "there is no command %s; weir help lists them", words[0]);
}

static cli_exit help(int n, char **words)
{
    int used;
    if (n == 0) return cli_help_all();
    const cli_command *command = find_command(n, words, &used);
    if (command == NULL) return unknown_command(n, words);
    return cli_help_command(command);
}

static cli_exit run_command(const cli_command *command, int n, char **words)
{
    cli_args args;
    cli_args_init(&args, command);
    cli_exit code = CLI_OK;
    bool asked = false;
    for (int i = 0; i < n && strcmp(words[i], "--") != 0; i++)
        asked = asked || strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0;
    if (asked) /* whatever else is wrong with the line */
        code = cli_help_command(command);
    else {
        code = cli_options_parse(&args, n, words);
        if (code == CLI_OK && args.help)
            code = cli_help_command(command);
        else if (code == CLI_OK)
            code = command->run(&args);
    }
    cli_args_fini(&args);
    return code;
}

static cli_exit dispatch(int n, char **words)
{
    int used;
    if (n == 0) {
        cli_help_all();
        return CLI_USAGE;
    }
    const char *first = words[0];
    if (strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        return help(n - 1, words + 1);
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
        static char version[] = "version";
        words[0] = version;
    }
    const cli_command *command = find_command(n, words, &used);
    if (command == NULL) return unknown_command(n, words);
    return run_command(command, n - used, words + used);
}

/* A file opened later must not become stdin, stdout or stderr. */
static void fill_descriptors(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
        if (open("/dev/null", O_RDWR) != descriptor) _exit(CLI_FAILED);
    }
}

int main(int argc, char **argv)
{
    fill_descriptors();
    cli_term_init();
    if (!cli_signals_init()) return CLI_FAILED;
    cli_exit code = dispatch(argc - 1, argv + 1);
    cli_term_leave();
    return cli_out_finish(code);
}

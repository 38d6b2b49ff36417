/* main.c: weir, the command line. Finds the command, reads its options, runs it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "help.h"
#include "options.h"
#include "out.h"
#include "signals.h"
#include "term.h"

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

/* Of the commands that begin with this word. */
static cli_exit half_a_command(const char *word, bool alone)
{
    char known[128] = "";
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        size_t n = strlen(known), length = strlen(word);
        if (strncmp(command->name, word, length) != 0 || command->name[length] != ' ') continue;
        snprintf(known + n, sizeof known - n, "%sweir %s", n > 0 ? " or " : "", command->name);
    }
    return cli_fail(CLI_USAGE, "weir %s needs to know what: %s%s", word, known,
                    alone ? "; with --help each shows its options" : "");
}

static cli_exit unknown_command(int n, char **words)
{
    const char *best = NULL;
    int least = 3;
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        char first[32];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(command->name, " "), command->name);
        if (strcmp(first, words[0]) == 0) return half_a_command(words[0], n == 1);
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

/* program.c: the way from main() to a command's function.
 * SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/options.h"
#include "cli/lib/out.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"

static cli_exit print_help(int n, char **words)
{
    int used;
    bool man = n > 0 && strcmp(words[0], "--man") == 0;
    cli_help_kind kind = man ? CLI_HELP_MAN : CLI_HELP_SHORT;
    if (n == man) return cli_help_print(NULL, kind);
    if (strcmp(words[0], "--write") == 0 && n == 2) return cli_help_write(words[1]);
    if (strcmp(words[0], "bench") == 0 && n == 1) return cli_help_bench();
    const cli_command *command = cli_command_find(n - man, words + man, &used);
    return command != NULL ? cli_help_print(command, kind) : cli_command_unknown(n - man, words + man);
}

static cli_exit run_command(const cli_command *command, int n, char **words, char **argv, cli_runner *run)
{
    cli_args args;
    cli_args_init(&args, command);
    cli_exit code = CLI_OK;
    bool asked = false, all = false;
    for (int i = 0; i < n && strcmp(words[i], "--") != 0; i++) {
        all = all || strcmp(words[i], "--help-all") == 0;
        asked = asked || all || strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0;
    }
    if (asked) /* whatever else is wrong with the line */
        code = cli_help_print(command, all ? CLI_HELP_ALL : CLI_HELP_SHORT);
    else {
        code = cli_options_parse(&args, n, words);
        if (code == CLI_OK && args.help)
            code = cli_help_print(command, CLI_HELP_SHORT);
        else if (code == CLI_OK && args.list_devices)
            code = cli_list_devices(&args);
        else if (code == CLI_OK) {
            cli_args_salt(&args);
            code = run(&args, argv);
        }
    }
    cli_args_fini(&args);
    return code;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static cli_exit run_words(int n, char **argv, cli_runner *run)
{
    char **words = argv + 1;
    int used;
    if (n == 0) {
        cli_help_print(NULL, CLI_HELP_SHORT);
        return CLI_USAGE;
    }
    const char *first = words[0];
    if (strcmp(first, "help") == 0 || asks_for_help(first)) return print_help(n - 1, words + 1);
    if (strcmp(first, "__complete") == 0) return cli_complete(n - 1, words + 1);
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
        static char version[] = "version";
        words[0] = version;
    }
    const cli_command *command = cli_command_find(n, words, &used);
    if (command == NULL)
        return n == 2 && asks_for_help(words[1]) ? print_help(1, words) : cli_command_unknown(n, words);
    return run_command(command, n - used, words + used, argv, run);
}

/* A file opened later must not become stdin, stdout or stderr. */
static void fill_descriptors(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
        if (open("/dev/null", O_RDWR) != descriptor) _exit(CLI_FAILED);
    }
}

int cli_program(int argc, char **argv, cli_runner *run)
{
    fill_descriptors();
    cli_term_init();
    cli_options_init();
    if (!cli_signals_init()) return CLI_FAILED;
    cli_exit code = run_words(argc - 1, argv, run);
    cli_term_rescue();
    return cli_out_finish(code);
}

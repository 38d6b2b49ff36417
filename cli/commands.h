/* commands.h: what files of commands call of each other. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_COMMANDS_H
#define WEIR_CLI_COMMANDS_H

#include "cli/lib/options.h"

/* ---- Help texts and manual pages, made from the tables of commands, options and exit codes ---- */

typedef enum cli_help_kind {
    CLI_HELP_SHORT, /* of a command with --help-all, the options that most people need */
    CLI_HELP_ALL,
    CLI_HELP_MAN, /* a manual page, with all options */
} cli_help_kind;

/* Prints the help of a command, or of weir as a whole (NULL), through $PAGER if the terminal has too few
 * rows. */
cli_exit cli_help_print(const cli_command *command, cli_help_kind kind);

/* The commands of weir bench. */
cli_exit cli_help_bench(void);

/* Writes the files that are installed beside the program into a folder laid out like PREFIX/share: man/man1,
 * bash-completion/completions, zsh/site-functions, fish/vendor_completions.d. CLI_FAILED after a message. */
cli_exit cli_help_write(const char *folder);

/* ---- Completion: a short script of the shell asks this program, so that words come from the tables ---- */

typedef struct cli_shell {
    const char *name;
    const char *file; /* where such a script lies below PREFIX/share */
    const char *script;
} cli_shell;

extern const cli_shell cli_shells[]; /* ends with a NULL name */

/* words [n] follow `weir` on the line up to the cursor; the last one is being typed. Prints a line for each
 * word that may stand there, "WORD TAB explanation", and the line ":files" where names of files belong. */
cli_exit cli_complete(int n, char *const *words);

/* ---- Models of this machine ---- */

/* Prints the models in the cache, the default model and the presets. CLI_OK, or a code after a message. */
cli_exit cli_models_print(const cli_args *args);

/* ---- weir bench: a program of its own, weir-bench, which looks into the engine ---- */

/* Replaces this process by weir-bench, with the same words. Returns after a message if that fails. */
cli_exit cli_bench_exec(char **argv);

/* ---- weir serve, and what answers recorded requests again ---- */

/* Adds the adapters of --lora to a server, under their files' names. */
cli_exit cli_serve_add_adapters(const cli_args *args, serve_server *server);

/* The first words of weir record; ends with a NULL name. */
typedef struct cli_record_verb {
    const char *name, *help;
} cli_record_verb;
extern const cli_record_verb cli_record_verbs[];

/* Computes the answers of these records again, and compares: CLI_OK if all agree. */
struct cli_recorded_list;
cli_exit cli_record_run(cli_args *args, struct cli_recorded_list *list);

/* ---- weir and weir-bench from main() on ---- */

/* Runs a command whose options are read. argv: of main. */
typedef cli_exit cli_runner(cli_args *args, char **argv);

/* The exit code. */
int cli_program(int argc, char **argv, cli_runner *run);

#endif

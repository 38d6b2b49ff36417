/* cli.h: common to the commands of `weir`: exit codes, commands, memory that never is NULL, failures.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/weir.h>

/* Every exit code: name, value, meaning in `weir help`. */
#define CLI_EXIT_MAP(X)                                                                                      \
    X(OK, 0, "done, also when the reader of the output left early")                                          \
    X(FAILED, 1, "something else failed: a file, memory, the terminal")                                      \
    X(USAGE, 2, "the command line, an environment variable or a request file is wrong")                      \
    X(NO_MODEL, 3, "the model could not be loaded")                                                          \
    X(REFUSED, 4, "a request was refused, or ended with an error")                                           \
    X(HANGUP, 129, "the terminal went away (SIGHUP)")                                                        \
    X(INTERRUPTED, 130, "interrupted: Ctrl-C (SIGINT), or q in weir stream")                                 \
    X(TERMINATED, 143, "terminated (SIGTERM)")

typedef enum cli_exit {
#define X(name, value, text) CLI_##name = (value),
    CLI_EXIT_MAP(X)
#undef X
} cli_exit;

/* Commands as bits, so that an option can name those that know it. */
enum {
    CLI_RUN = 1,
    CLI_STREAM = 2,
    CLI_INFO = 4,
    CLI_BENCH = 8,
    CLI_VERSION = 16,
    CLI_OPTIMIZE = 32,
    CLI_KERNELS = 64,
    CLI_HTTP = 128,
    CLI_SCHEDULE = 256,
    CLI_REPLAY = 512,
    CLI_PULL = 1024,
    CLI_LIST_MODELS = 2048,
    CLI_RM = 4096,
    CLI_TOKENIZE = 65536,
    CLI_EMBED = 131072,
    CLI_QUANTIZE = 262144,
    CLI_CHAT = 524288,
    CLI_CONFIG = 16384,
    CLI_COMPLETION = 32768,
    CLI_SERVE = 8192,
    CLI_PS = 1048576,
    CLI_TOP = 2097152,
    CLI_PRESET = 4194304,
    CLI_RPC = 8388608,
    CLI_RECORD = 16777216,
};

/* Commands whose words may be another command's, with its options. */
#define CLI_TAKES_ANY CLI_CONFIG

/* Commands whose word is the model. weir run has words of both kinds. */
#define CLI_TAKES_MODEL (CLI_CHAT | CLI_SERVE | CLI_INFO | CLI_OPTIMIZE | CLI_QUANTIZE)

struct cli_args;

typedef void cli_defaults_fn(struct cli_args *args);
typedef cli_exit cli_run_fn(struct cli_args *args);

typedef struct cli_command {
    unsigned bit;
    const char *name;     /* "bench engine" */
    const char *usage;    /* the part after the name */
    const char *summary;  /* half a line */
    const char *text;     /* paragraphs, apart by an empty line */
    const char *examples; /* lines: "# what", "command" */
    /* Values that differ from the library's defaults, before anything is parsed. May be NULL. */
    cli_defaults_fn *defaults;
    cli_run_fn *run; /* NULL: weir-bench does it (cli/bench.c) */
} cli_command;

/* The commands in the order of `weir help`; ends with a NULL name. */
extern const cli_command cli_commands[];

/* The command that the words [n] begin with, and how many of them name it: "bench engine" takes two. ls is
 * list, show is info. NULL: none. */
const cli_command *cli_command_find(int n, char *const *words, int *used);

/* Says that these words, [n] with n > 0, name no command, and which one they resemble. */
cli_exit cli_command_unknown(int n, char *const *words);

cli_defaults_fn cli_run_defaults, cli_stream_defaults, cli_bench_engine_defaults, cli_bench_kernels_defaults,
    cli_bench_http_defaults, cli_bench_schedule_defaults, cli_serve_defaults, cli_chat_defaults,
    cli_embed_defaults;
cli_run_fn cli_run, cli_stream, cli_serve, cli_ps, cli_top, cli_info, cli_optimize, cli_pull, cli_list_models,
    cli_rm, cli_chat, cli_preset, cli_tokenize, cli_embed, cli_quantize, cli_rpc, cli_config_command,
    cli_record_command, cli_completion, cli_version;
cli_exit cli_list_devices(const struct cli_args *args); /* prints the list of --list-devices */

/* "Did you mean": the name that resembles a given one most, of those that are tried, by
 * weir__words_near. Short options resemble nothing. */
typedef struct cli_nearest {
    const char *given;
    int least;     /* the edits of best */
    char best[64]; /* "" = none */
} cli_nearest;

cli_nearest cli_nearest_to(const char *given);
void cli_nearest_try(cli_nearest *nearest, const char *candidate);

/* "; did you mean BEST?", or `otherwise`. Valid until the next call. */
const char *cli_nearest_hint(const cli_nearest *nearest, const char *otherwise);

/* Memory through base/mem.h. Never NULL: without memory the terminal is put in order and the program ends
 * with CLI_FAILED. Freed with cli_free. */
void *cli_alloc(size_t n, size_t size); /* zeroed */
void *cli_copy(const void *bytes, size_t size);
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_grow(void *items, size_t *capacity, size_t need, size_t item_size); /* as weir__mem_grow */
void cli_free(void *memory);
_Noreturn void cli_no_memory(void);

/* Says "weir: ..." on stderr and returns code. Takes a progress line away first. */
cli_exit cli_fail(cli_exit code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Gives the messages of cli_fail to this function from now on; NULL: to stderr. */
void cli_fail_to(void (*taker)(const char *message));

/* A dim line on stderr. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints the library's message, after `context` (may be NULL). Where the offending field is an option of the
 * command, the option is named and the code becomes CLI_USAGE; after a signal it is the signal's. With --json
 * the error is printed as an object too. */
cli_exit cli_fail_error(const struct cli_args *args, cli_exit code, const char *context,
                        const weir_error *error);

/* True if the input is invalid on any machine and with any model: CLI_USAGE. */
bool cli_error_is_usage(const weir_error *error);

typedef struct cli_words {
    char text[1024];
} cli_words;

/* The error's message with options in place of the library's names. as: the name of the field's option, NULL
 * = as it is on the command line; before: what comes before a message that does not have this name, NULL =
 * nothing. */
cli_words cli_error_words(const weir_error *error, unsigned command, const char *as, const char *before);

/* The option of the error's field; NULL = none. */
const struct cli_option *cli_error_option(const weir_error *error, unsigned command);

#endif

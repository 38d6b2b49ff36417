/* options.h: every option of every command, in one table: parsing, defaults, environment, the config file,
 * help, man pages, completion, the names of a request file's fields and "did you mean" all read it. An option
 * that sets a parameter of the library has type, choices and help from that one's row (weir_member).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_OPTIONS_H
#define WEIR_CLI_OPTIONS_H

#include "cli.h"
#include "server/server.h"

#define CLI_REMOTE_URL     "http://127.0.0.1:8080" /* where weir serve listens by itself */
#define CLI_SPELLING_MAX   32
#define CLI_MODEL_NAME_MAX 255 /* bytes of a model's name in requests */
#define CLI_OPTIONS_MAX    256 /* the table is checked against it when it is compiled */

typedef struct cli_list {
    char **items; /* [n] */
    size_t n;
    size_t capacity;
} cli_list;

typedef struct cli_numbers {
    int32_t *items; /* [n] */
    size_t n;
    size_t capacity;
} cli_numbers;

typedef struct cli_shares {
    float *items; /* [n] */
    size_t n;
    size_t capacity;
} cli_shares;

typedef struct cli_biases {
    weir_logit_bias *items; /* [n] */
    size_t n;
    size_t capacity;
} cli_biases;

/* The adapters of --lora, once loaded; held. */
typedef struct cli_adapters {
    weir_adapter_use *uses; /* [n] */
    size_t n;
    size_t capacity;
} cli_adapters;

/* A number that no option has set, nor can set. */
#define CLI_UNSET INT32_MIN

void cli_list_fini(cli_list *list);

/* The options of one request: on the command line, at the top of a request file, in each request. The strings
 * that sampler points to are owned here; fini frees them. */
typedef struct cli_ask {
    weir_sampler_params sampler; /* its arrays are filled in by cli_ask_request */
    weir_request request; /* its numbers; n_logprobs: CLI_UNSET = none, 0 = of the answer's tokens alone */
    char *order, *grammar, *grammar_root, *json_schema, *cache_salt;
    cli_list stop, dry_breakers;
    cli_biases biases;
    const cli_adapters *adapters; /* of the cli_args; NULL = none */
} cli_ask;

/* The source of a value; later ones win. */
typedef enum cli_from {
    CLI_FROM_DEFAULT,
    CLI_FROM_FILE,
    CLI_FROM_ENVIRONMENT,
    CLI_FROM_MODELS, /* the file of --models, for all of its models */
    CLI_FROM_PRESET,
    CLI_FROM_SECTION, /* the file of --models, for this one */
    CLI_FROM_WORDS,   /* of the command line */
} cli_from;

typedef struct cli_origin {
    cli_from from;
    int line;   /* of the file, the preset or the models' file */
    char *text; /* the value as it was given; owned */
} cli_origin;

typedef struct cli_args {
    cli_ask ask; /* first: an option's target in it is the same in a cli_ask alone */
    const cli_command *command;
    weir_model_params model;
    weir_engine_params engine;
    char *model_path, *draft_path, *devices, *rpc, *listen, *optimized, *projector, *cache_dir, *prompt,
        *prompt_file, *system, *chat_template, *ring_path, *reasoning_budget; /* serve */
    cli_list words;          /* arguments that are not options */
    cli_list prompt_files;   /* run */
    char *preset_path;       /* NULL: the model is no preset */
    cli_list images, sounds; /* run */
    cli_list lora;           /* FILE[=SCALE] */
    cli_shares tensor_split; /* model points to it */
    cli_adapters *adapters;  /* loaded with the engine */
    bool raw, no_thinking, explain_cache;
    bool strict_messages;
    int special_content;                /* position in its choices, a weir_special_content */
    int32_t best_of, n_prompt_logprobs; /* run; n_prompt_logprobs CLI_UNSET = none */
    bool json, quiet, verbose, help, help_all, list_devices, licenses, insecure_rpc;
    bool check;                          /* optimize */
    cli_origin sources[CLI_OPTIONS_MAX]; /* by position in cli_options */
    /* tokenize; embed */
    bool ids, no_special, no_parse, json_lines;
    int pooling, normalize; /* positions in their choices */
    char *output;
    /* quantize; output too */
    char *type;
    bool requantize;
    /* models by name */
    char *revision;
    bool offline, force, yes;
    /* bench engine */
    cli_numbers streams, prompt_lengths, answer_lengths;
    int32_t repeat;
    char *csv_path;
    bool no_plain;
    /* bench kernels */
    cli_list kernels, shapes;
    cli_numbers rows, thread_counts;
    int32_t memory_mb;
    bool quick;
    int32_t n_nodes; /* bench schedule */
    /* bench http; n_requests: ticks of bench schedule too */
    int32_t concurrency, n_requests, n_shared, n_late, n_tries;
    float rate, duration_s, leave, timeout_s;
    char *prompt_span, *answer_span, *extra, *api_key;
    uint32_t seed;
    bool completions, ignore_eos;
    char *url;  /* ps, top; api_key too */
    int n_line; /* the command's words, as they were given */
    char **line;
    /* serve; its strings and lists are put into `serve` when it starts */
    serve_params serve;
    serve_key *keys; /* api_keys, operator_keys and the keys in api_key_file */
    cli_list api_keys, operator_keys, aliases, origins, hosts, media_hosts, prefix_peers, drop_lines,
        drop_last_lines, objectives;
    bool log_json, pull;
    char *host, *unix_path, *tls_cert, *tls_key, *api_key_file, *lora_dir, *record;
    char *settings; /* the words of cli_settings_words */
    char *prefix_key;
    char *kv_events, *kv_events_replay, *kv_events_endpoint;
    char *otlp_endpoint, *otlp_service_name;
    char *models_path, *models_dir;
    weir_pool_params pool; /* of several models */
    bool of_model;         /* of a model of several: the options that are not its own are not taken */
    bool recorded; /* the options of a recording: config file and environment say nothing about them */
    bool pinned;
    int64_t idle_ms; /* 0 = never */
} cli_args;

typedef enum cli_kind {
    CLI_FLAG = 1, /* bool, becomes true */
    CLI_FLAG_OFF, /* bool, becomes false */
    CLI_INT32,
    CLI_INT64,
    CLI_SIZE,     /* uint64_t, bytes: 100M, 2G; "auto" = WEIR_AUTO */
    CLI_DURATION, /* int64_t, milliseconds: 90, 90s, 10m, 2h; "never" = 0 */
    CLI_SEED,     /* uint32_t; -1 = WEIR_SEED_RANDOM */
    CLI_FLOAT,    /* the library checks ranges, NaN and infinity */
    CLI_STRING,   /* char *, owned */
    CLI_FILE,     /* char *, owned: the contents of the file that was named */
    CLI_CHOICE,   /* an enum: the position in `choices` */
    CLI_STRATEGY, /* const weir_strategy *, by its name */
    CLI_LIST,     /* cli_list: each use adds one */
    CLI_BIAS,     /* cli_biases: TOKEN+BIAS or TOKEN-BIAS; each use adds one */
    CLI_NUMBERS,  /* cli_numbers: 1,2,4 */
    CLI_SHARES,   /* cli_shares: 3,1.5 */
    CLI_TEMPLATE, /* char *, owned: the Jinja source of a name in `choices` */
} cli_kind;

/* Groups in the order of a page of help. */
typedef enum cli_group {
    CLI_ASKING,
    CLI_MODEL,
    CLI_SERVING,
    CLI_LIMITS,
    CLI_ENGINE,
    CLI_MEASURING,
    CLI_OUTPUT,
    CLI_SAMPLING,
    CLI_N_GROUPS,
} cli_group;

/* The meaning of an empty value. In the environment it usually counts as none; of an option that protects
 * (keys, TLS, limits of keys) it is an error everywhere, because the user wanted protection and would not get
 * it. */
typedef enum cli_empty {
    CLI_EMPTY_UNSAID,
    CLI_EMPTY_REFUSED,
    CLI_EMPTY_SAYS, /* it is a value, also in the environment */
} cli_empty;

/* The owner of an option in weir serve with several models; those of presets are each model's. */
typedef enum cli_whose { CLI_AS_PRESETS, CLI_OF_MODEL, CLI_OF_ALL } cli_whose;

typedef struct cli_option {
    const char *name;   /* "--top-k" */
    const char *others; /* other spellings, apart by blanks: "-n --n-predict"; NULL = none */
    cli_group group;
    unsigned commands;    /* bits of those that know it */
    const char *argument; /* "N"; NULL for flags */
    size_t target;        /* offset in cli_args */
    cli_kind kind;        /* 0 in a row of the table: as the parameter's type */
    const char *of;       /* struct of the parameter that it sets, for weir_member_find; NULL = none */
    const char *field;    /* name in the library's params and in request files; NULL = in neither */
    const char *env;      /* variable that sets it; NULL = none */
    const char *standard; /* the default in words; NULL = the target's value, "" = none is shown */
    const char *const *choices;
    const char *help;
    bool rare;       /* of a command that has --help-all, only that shows it */
    cli_whose whose; /* of a server of several models */
    cli_empty empty;
} cli_option;

extern const cli_option *const cli_options; /* ends with a NULL name */
extern const char *const cli_group_titles[CLI_N_GROUPS];

/* Completes the table; once, before everything else here. */
void cli_options_init(void);

/* The name of a value of a weir_engine_params member that has choices, such as "layout". */
const char *cli_engine_choice(const char *member, int value);

void cli_ask_fini(cli_ask *ask);
void cli_ask_copy(cli_ask *to, const cli_ask *from);

/* A request from *ask, without a prompt; valid while *ask is. */
weir_request cli_ask_request(cli_ask *ask);

/* A chat's parameters from the options, without its messages; valid while both are. */
weir_chat_params cli_args_chat(const cli_args *args, const cli_ask *ask);

/* Defaults of a command. Freed with fini. */
void cli_args_init(cli_args *args, const cli_command *command);
void cli_args_fini(cli_args *args);

/* Gives requests a salt where nobody else's can be in the engine's cache, so that reports on the cache show
 * its texts. With --cache-dir they may be there, as files: then only a --cache-salt does that. */
void cli_args_salt(cli_args *args);

/* Adds a string, which cli_args_fini frees. */
void cli_list_add(cli_list *list, char *item);

/* standard, [n], where none were given. */
void cli_numbers_default(cli_numbers *numbers, const int32_t *standard, size_t n);

/* The config file, the environment, the preset that the model names, then words argv[0 .. n): later ones win.
 * For commands that take another one's options (CLI_TAKES_ANY) the first word that is no option makes the
 * rest words. CLI_OK, or CLI_USAGE or CLI_FAILED (a file) after a message. */
cli_exit cli_options_parse(cli_args *args, int n, char **argv);

/* Parses for one of several models of weir serve as cli_options_parse does, without the server's options: the
 * settings of `config` for all models come before the model's preset, those of its section (CLI_CONFIG_NONE:
 * it has none) after it. model: used if the section has no line `model`. */
struct cli_config;
cli_exit cli_options_parse_model(cli_args *args, int n, char **argv, const struct cli_config *config,
                                 size_t section, const char *model);

/* Sets one option from text; `shown` is how the user called it. CLI_OK, or a code after a message. */
cli_exit cli_options_set(void *target, const cli_option *option, const char *shown, const char *value);

/* Frees an option's value, and empties it. Numbers, flags and choices stay. */
void cli_options_clear(void *target, const cli_option *option);

/* True if the command line, and not only environment or config file, sets the option of this name. */
bool cli_options_given(const cli_args *args, const char *name);

/* Spelling i of an option, 0 = its name; false: it has fewer. */
bool cli_options_spelling(const cli_option *option, size_t i, char spelling[CLI_SPELLING_MAX]);

/* True if it takes no value. */
bool cli_options_is_flag(const cli_option *option);

/* True if each use adds a value. Help and man pages say so. */
bool cli_options_is_list(const cli_option *option);
#define CLI_AGAIN "; may be given again"

/* The option of a command that this spelling names, NULL = none. */
const cli_option *cli_options_find(unsigned command, const char *spelling, size_t length);

/* The option of a command whose value is this field of the library's params, or has it as a part, e.g.
 * "requests[0].sampler.logit_bias[3].token"; NULL = none. *rest (may be NULL): "[3].token" of that. */
const cli_option *cli_options_by_field(unsigned command, const char *field, const char **rest);

/* The option of a command that the config file calls `key`: one with a variable, by that one's name without
 * WEIR_ or by a long spelling, in any case, with hyphens or underscores. NULL = none. */
const cli_option *cli_options_by_setting(unsigned commands, const char *key);

/* True if presets may set it: how a model is loaded and answers, not where a server listens. */
bool cli_options_in_presets(const cli_option *option);

/* True if recordings of weir serve have it: it loads the model, or is a default of answers. */
bool cli_options_in_recordings(const cli_option *option);

/* True if each model of weir serve has its own: the settings of presets, and names, pinned, idle. */
bool cli_options_of_model(const cli_option *option);

/* The option of a command that a preset calls `key`, or the models' file of weir serve. NULL = none. */
const cli_option *cli_options_by_preset(unsigned commands, const char *key);
const cli_option *cli_options_by_model(unsigned commands, const char *key);

/* True if its value is the path of a file or folder. */
bool cli_options_is_file(const cli_option *option);

/* Offers the settings of all commands. */
void cli_options_try_settings(cli_nearest *nearest);

/* True if the command has options that config file and environment can set. */
bool cli_options_has_settings(unsigned command);

/* True if its value is a part of cli_ask. */
bool cli_options_in_ask(const cli_option *option);

/* True if requests in a file may set it. */
bool cli_options_in_requests(const cli_option *option);

/* The option that a request file calls `key`: its field, or a long spelling with underscores. NULL = none. */
const cli_option *cli_options_by_key(const char *key);

/* Offers the keys of options that requests may set. */
void cli_options_try_keys(cli_nearest *nearest);

/* The current value as text; "" when there is nothing to show. */
void cli_options_value(const void *target, const cli_option *option, char *text, size_t capacity);

/* The default, in words where the table has them. args: fresh. "" when there is nothing to show. */
void cli_options_default(const cli_args *args, const cli_option *option, char *text, size_t capacity);

/* ---- Chat templates by name ---- */

/* llama.cpp's names for them; ends with NULL. */
extern const char *const cli_template_names[];

/* The Jinja source of a name; NULL: no such template. */
const char *cli_template_find(const char *name);

#endif

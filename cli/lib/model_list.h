/* model_list.h: the models of weir serve, each with settings of its own: the sections of the file of
 * --models, the user's presets, the GGUF files of --models-dir. A section without the line `model` is the
 * model of that name.
 *
 *   ctx = 8192
 *   idle = 10m
 *   [coder]
 *   model = hf:OWNER/REPO:Q4_K_M
 *   alias = gpt-4o
 *   pinned = on
 *   [small]
 *   model = ./small.gguf
 *
 * Later ones win: the file's lines for all, the model's preset, its section, the command line.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_MODEL_LIST_H
#define WEIR_CLI_MODEL_LIST_H

#include "options.h"
#include <pthread.h>

#define CLI_MODELS_MAX 256

typedef struct cli_model_entry {
    char *name; /* in requests; its aliases are args.aliases */
    char *path; /* its file */
    char *from; /* where it is named, "models.conf:12", for messages */
    char *file; /* of --models; NULL = none */
    cli_args args;
    /* The model as the server and its pool see it; points to the members above. */
    weir_pool_model pool;
    char *draft_path;
    cli_list adapter_paths, adapter_names;
    serve_adapter_params *adapters; /* [adapter_paths.n] */
} cli_model_entry;

/* Zeroed is empty. */
typedef struct cli_model_list {
    cli_model_entry **items; /* [n], at least 1 once it has been read */
    size_t n, capacity;
    serve_model_params *params; /* [n] */
} cli_model_list;

/* The server's parameters from a model's options. Points to *args. server, path: as for
 * cli_settings_words. */
void cli_model_params(cli_args *args, const cli_args *server, const char *path, serve_model_params *params);

/* INVALID: a default of requests that every request would be refused for, such as a temperature of -7. */
weir_status cli_model_check(const cli_args *args, weir_error *error);

/* An adapter's name in requests: its file's without .gguf. Freed with cli_free. */
char *cli_model_adapter_name(const char *path);

/* Checks that a request that names no adapters can use n_used of them. CLI_OK, or CLI_USAGE after a
 * message. */
cli_exit cli_model_check_adapters(size_t n_used);

/* True if the options name several models, or one that may have to be loaded again (--rpc). */
bool cli_model_list_asked(const cli_args *args);

/* Reads them, and adds `pulled` (NULL = none) with the settings of all, but for names that the operator's
 * models have and for those whose file has gone; finds their files, which are downloaded where a name asks
 * for that, and makes the parameters for the server. CLI_OK, or a code after a message with file and line.
 * Freed with fini in any case. */
cli_exit cli_model_list_read(cli_model_list *list, const cli_args *args, const cli_list *pulled);
void cli_model_list_fini(cli_model_list *list);

/* Prints the error in a model's settings, and the line that sets it. */
cli_exit cli_model_list_fail(const cli_model_entry *entry, cli_exit code, const weir_error *error);

/* ---- Models that clients had downloaded ---- */

typedef struct cli_pulled {
    pthread_mutex_t mutex; /* protects the rest */
    pthread_cond_t changed;
    cli_list names;
    size_t n_listed;  /* the first of them, which are part of the list */
    uint64_t n_asked; /* how often the list was to be read */
    uint64_t n_read;  /* as of which it was */
    bool over;        /* it is read no more */
} cli_pulled;

void cli_pulled_init(cli_pulled *pulled);
void cli_pulled_fini(cli_pulled *pulled);

/* Adds a name, and waits until the list has it. STATE: the list has an error, and stays as it was. STOPPED:
 * the server ends. Any thread but the main one. */
weir_status cli_pulled_add(cli_pulled *pulled, const char *name, weir_error *error);

/* True if names wait. Main thread. */
bool cli_pulled_waits(cli_pulled *pulled);

/* A copy of the names, for the list that is read now, and a ticket for end. Freed with cli_list_fini. */
cli_list cli_pulled_begin(cli_pulled *pulled, uint64_t *ticket);

/* Ends the reading of the list with the first n names. ok: without an error; if not, its new names are
 * forgotten, unless someone asked meanwhile, perhaps for one of them, and it is read again. */
void cli_pulled_end(cli_pulled *pulled, size_t n, uint64_t ticket, bool ok);

/* No more names are waited for. */
void cli_pulled_stop(cli_pulled *pulled);

#endif

/* load.h: the model and the engine that the options ask for, with progress, log and messages.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_LOAD_H
#define WEIR_CLI_LOAD_H

#include "options.h"

/* Sends the log to stderr: warnings and errors, with --verbose all of it. While the whole screen is in use,
 * lines are kept until cli_load_log_flush. */
void cli_load_log(const cli_args *args);
void cli_load_log_flush(void);

/* The file that -m, WEIR_MODEL or the cache give; models by name are downloaded. Freed with cli_free. NULL
 * after a message: there is none. */
char *cli_load_path(const cli_args *args);

/* The file of a given model: a path, "default", a short name, or a name or an address at the hub. Else as
 * cli_load_path. */
char *cli_load_named(const cli_args *args, const char *model);

/* *is: whether a word of the command line names a model: default, hf:…, a preset, a name that ends in .gguf,
 * a GGUF file, a short name, the address of a model's page. CLI_OK; CLI_USAGE after a message, as
 * cli_shortname_expand. */
cli_exit cli_load_is_model(const char *word, bool *is);

/* Loads with a progress line; a signal ends it. CLI_OK; CLI_NO_MODEL after a message, or the signal's code.
 * The caller releases *model where it is set, whatever was returned. */
cli_exit cli_load_model(const cli_args *args, const char *path, weir_model **model);

/* The tokens of a text; *ids is freed with cli_free in any case. CLI_OK, or CLI_FAILED after a message. */
cli_exit cli_load_tokenize(const cli_args *args, const weir_model *model, const char *text, size_t length,
                           bool parse, int32_t **ids, size_t *n);

/* Checks that a model that generates has a chat template that can be parsed, or none, or that the options
 * give one: otherwise every chat would be refused. */
cli_exit cli_load_check_template(const cli_args *args, const char *path, weir_model *model);

/* The draft model that is asked for; *model stays NULL where none is. */
cli_exit cli_load_draft_model(const cli_args *args, weir_model **model);

/* Path and scale of FILE[=SCALE]. CLI_OK, or CLI_USAGE after a message. *path is freed with cli_free in any
 * case. */
cli_exit cli_load_split_adapter(const char *spec, char **path, float *scale);

/* Creates the engine, and loads the adapters of --lora into args->adapters. For a server *engine stays NULL
 * where the model generates no text. CLI_OK; a code after a message, or the signal's. The caller destroys
 * *engine where it is set. */
cli_exit cli_load_engine(const cli_args *args, weir_model *model, weir_engine **engine);

/* The context that -c or a setting asks for; 0: neither does, or the encoding of positions is set as well. A
 * warning says if the model was trained for fewer tokens. */
int32_t cli_load_asked_context(const cli_args *args);

#endif

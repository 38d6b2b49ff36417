/* settings.h: the options that were given, as text: for a preset, or for a recording.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_SETTINGS_H
#define WEIR_CLI_SETTINGS_H

#include "options.h"

/* Value i of an option as it was given, freed with cli_free; paths are absolute. NULL: it has fewer. */
char *cli_settings_value(const cli_args *args, const cli_option *option, size_t i);

/* The words of a command line, as a JSON array, with which weir record run loads and answers as these
 * arguments do, wherever they come from. server: the arguments of the server that has the model, for options
 * that all of its models share. path: the model's file; NULL = as --model says. Values that are no UTF-8 are
 * left out with their options. NULL: the model's path is none. Freed with cli_free. */
char *cli_settings_words(const cli_args *args, const cli_args *server, const char *path);

#endif

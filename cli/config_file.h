/* config_file.h: the config file: defaults of options, for all commands or for one.
 *
 *   # a comment
 *   top-k = 20
 *   system = "Be brief.\nAnswer in English."
 *   [bench engine]
 *   threads = 4
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_CONFIG_FILE_H
#define WEIR_CLI_CONFIG_FILE_H

#include "cli.h"

typedef struct cli_setting {
    const cli_command *command; /* NULL: for all */
    int line;
    char *key, *value;
} cli_setting;

/* Zeroed is empty. */
typedef struct cli_config {
    char *path;         /* NULL: there is to be none */
    bool there;         /* the file exists */
    bool preset;        /* it is one */
    cli_setting *items; /* [n], in the order of the file */
    size_t n, capacity;
} cli_config;

/* Reads WEIR_CONFIG, or weir/config in XDG_CONFIG_HOME or ~/.config where that is there. CLI_OK; CLI_USAGE or
 * CLI_FAILED after a message that names the line. To be freed in any case. */
cli_exit cli_config_read(cli_config *config);

/* Reads a preset: the same lines without sections, with the settings of presets. */
cli_exit cli_config_read_preset(cli_config *config, const char *path);
void cli_config_fini(cli_config *config);

#endif

/* config_file.h: text files with options' values: the config file (defaults for all commands or for one),
 * presets (no sections; below), the models of weir serve (a section for each; model_list.h) and the user's
 * short names of models (shortname.h).
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

#include "options.h"

typedef enum cli_config_kind {
    CLI_CONFIG_COMMANDS, /* the config file */
    CLI_CONFIG_PRESET,
    CLI_CONFIG_MODELS,
    CLI_CONFIG_NAMES, /* short names of models: any key is one (shortname.h) */
} cli_config_kind;

#define CLI_CONFIG_NONE ((size_t)-1) /* the section of lines before the first one */

typedef struct cli_setting {
    size_t section; /* CLI_CONFIG_NONE: for all */
    int line;
    char *key, *value;
} cli_setting;

typedef struct cli_section {
    const cli_command *command; /* of the config file */
    char *name;
    int line;
} cli_section;

/* Zeroed is empty. */
typedef struct cli_config {
    char *path; /* NULL: there is to be none */
    bool there; /* the file exists */
    cli_config_kind kind;
    cli_setting *items; /* [n], in the order of the file */
    size_t n, capacity;
    cli_section *sections; /* [n_sections] */
    size_t n_sections, sections_capacity;
} cli_config;

/* Reads WEIR_CONFIG, or weir/config in XDG_CONFIG_HOME or ~/.config where that is there. CLI_OK; CLI_USAGE or
 * CLI_FAILED after a message that names the line. To be freed in any case. */
cli_exit cli_config_read(cli_config *config);

/* Reads a file of another kind. In presets and models of weir serve, paths that begin with ./ or ../ are made
 * relative to the file's folder. */
cli_exit cli_config_read_file(cli_config *config, cli_config_kind kind, const char *path);

/* The option of a command that a line of this file may set, NULL = none. */
const cli_option *cli_config_option(const cli_config *config, unsigned commands, const char *key);

/* The value that the file's last line for the option of this name has in a section; NULL: there is none. */
const char *cli_config_value(const cli_config *config, size_t section, unsigned commands, const char *name);

void cli_config_fini(cli_config *config);

/* ---- Presets: a model with settings under a name ---- */

/* A preset is a text file in the format of the config file, but without sections: NAME.preset in the folder
 * weir/presets beside the config file, or any *.preset by its path. -m NAME uses it: its settings override
 * config file and environment; the command line overrides them.
 *
 *   model = hf:OWNER/REPO:Q4_K_M
 *   system = "Be brief.\nAnswer in English."
 *   temp = 0.2
 */

/* The file of the preset that this model's name means; NULL: it means none. Freed with cli_free. */
char *cli_preset_path(const char *model);

/* The path where a preset of this name is or would be. NULL: no preset can have this name, or there is no
 * home folder. */
char *cli_preset_path_of(const char *name);

/* The name of a preset's file, without its folder and suffix. Freed with cli_free. */
char *cli_preset_name(const char *path);

/* The model of a preset's file, "" = none. Freed with cli_free. NULL: it cannot be read, which has been
 * reported. */
char *cli_preset_model(const char *path);

/* The names of those in weir/presets, in order. */
cli_list cli_preset_names(void);

/* The settings of a file. Paths that begin with ./ or ../ are made relative to its folder. CLI_OK, or a code
 * after a message. Freed with cli_config_fini in any case. */
cli_exit cli_preset_read(cli_config *config, const char *path);

#endif

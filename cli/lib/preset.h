/* preset.h: a model with settings under a name. A preset is a text file in the format of the config file, but
 * without sections: NAME.preset in the folder weir/presets beside the config file, or any *.preset by its
 * path. -m NAME uses it: its settings override config file and environment; the command line overrides them.
 *
 *   model = hf:OWNER/REPO:Q4_K_M
 *   system = "Be brief.\nAnswer in English."
 *   temp = 0.2
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_PRESET_H
#define WEIR_CLI_PRESET_H

#include "config_file.h"
#include "options.h"

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

/* preset.c: models with settings under a name. SPDX-License-Identifier: Apache-2.0 */
#include "preset.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/words.h"
#include "file.h"

#define SUFFIX ".preset"

static bool ends_with_suffix(const char *name)
{
    size_t n = strlen(name), n_suffix = strlen(SUFFIX);
    return n > n_suffix && strcmp(name + n - n_suffix, SUFFIX) == 0;
}

static char *folder_of_presets(void)
{
    return cli_file_of_user("XDG_CONFIG_HOME", ".config", "weir/presets");
}

char *cli_preset_path_of(const char *name)
{
    char *folder = folder_of_presets(), *path = NULL;
    bool good = *name != '\0' && *name != '.' && *name != '-' && strpbrk(name, "/:") == NULL &&
                strcmp(name, "default") != 0 && strlen(name) < 64;
    if (good && folder != NULL) path = cli_format("%s/%s" SUFFIX, folder, name);
    cli_free(folder);
    return path;
}

char *cli_preset_path(const char *model)
{
    if (ends_with_suffix(model)) return cli_format("%s", model);
    char *path = cli_preset_path_of(model);
    if (path == NULL || access(path, F_OK) == 0) return path;
    cli_free(path);
    return NULL;
}

char *cli_preset_name(const char *path)
{
    const char *name = cli_file_name(path);
    return cli_format("%.*s", (int)(strlen(name) - (ends_with_suffix(name) ? strlen(SUFFIX) : 0)), name);
}

cli_list cli_preset_names(void)
{
    cli_list names = {0};
    char *folder = folder_of_presets();
    DIR *dir = folder != NULL ? opendir(folder) : NULL;
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (!ends_with_suffix(entry->d_name) || entry->d_name[0] == '.') continue;
        cli_list_add(&names, cli_preset_name(entry->d_name));
    }
    if (dir != NULL) closedir(dir);
    if (names.n > 1) qsort(names.items, names.n, sizeof *names.items, weir__words_compare);
    cli_free(folder);
    return names;
}

cli_exit cli_preset_read(cli_config *config, const char *path)
{
    return cli_config_read_file(config, CLI_CONFIG_PRESET, path);
}

char *cli_preset_model(const char *path)
{
    cli_config config = {0};
    char *model = NULL;
    if (cli_preset_read(&config, path) == CLI_OK) {
        const char *named = cli_config_value(&config, CLI_CONFIG_NONE, ~0u, "--model");
        model = cli_format("%s", named != NULL ? named : "");
    }
    cli_config_fini(&config);
    return model;
}

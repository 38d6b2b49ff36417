/* weir pull, weir list, weir rm: models by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/lib/config_file.h"
#include "cli/lib/figures.h"
#include "cli/lib/file.h"
#include "cli/lib/hub.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/shortname.h"
#include "cli/lib/signals.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"
#include "commands.h"

/* ---- weir pull ---- */

static cli_exit suggest_models(void)
{
    cli_text text = {0};
    cli_starter_list(&text);
    cli_out_text(&text);
    return cli_fail(CLI_USAGE, "which model? Write weir pull and one of these names, or any hf:OWNER/REPO");
}

/* The name at the hub that a word is or means: *name, freed with cli_free; *shortened as
 * cli_shortname_expand. CLI_OK, or CLI_USAGE after a message. */
static cli_exit find_name(const char *word, char **name, bool *shortened)
{
    *name = NULL;
    *shortened = false;
    cli_exit code = CLI_OK;
    if (strcmp(word, "default") == 0) word = CLI_STARTER;
    if (strncmp(word, "hf:", 3) == 0)
        *name = cli_format("%s", word);
    else
        code = cli_shortname_expand(word, name, shortened);
    if (code != CLI_OK || *name != NULL) return code;
    cli_nearest nearest = cli_nearest_to(word);
    cli_shortname_try(&nearest);
    return cli_fail(
        CLI_USAGE,
        "%.100s is not a model of the hub%s Expected: hf:OWNER/REPO[:QUANTIZATION or FILE.gguf], a "
        "short name (weir pull lists them), or the address of its page",
        word, cli_nearest_hint(&nearest, "."));
}

/* The path of a model's file, which is downloaded unless it is there: *path, freed with cli_free. */
static cli_exit pull_model(const cli_args *args, const char *word, char **path)
{
    char *name = NULL, *found = NULL;
    bool shortened = false;
    if (strcmp(word, "default") == 0 && !args->force && (*path = cli_starter_find()) != NULL) return CLI_OK;
    cli_exit code = find_name(word, &name, &shortened);
    if (code == CLI_OK)
        code = shortened ? cli_hub_obtain(args, word, name, &found) : cli_hub_download(args, name, &found);
    if (code == CLI_OK) *path = cli_format("%s", found);
    weir_free(found);
    cli_free(name);
    return code;
}

cli_exit cli_pull(cli_args *args)
{
    char *path = NULL;
    if (args->words.n == 0) return suggest_models();
    if (args->words.n > 1) return cli_fail(CLI_USAGE, "weir pull takes one model");
    cli_load_log(args);
    cli_exit code = pull_model(args, args->words.items[0], &path);
    if (code == CLI_OK && args->json) {
        cli_out_json(json_pack("{s:o, s:o, s:I}", "model", cli_figures_string(args->words.items[0]), "path",
                               cli_figures_string(path), "n_bytes", (json_int_t)cli_file_size(path)));
    } else if (code == CLI_OK) {
        cli_out(path, strlen(path));
        cli_out("\n", 1);
    }
    cli_load_log_flush();
    cli_free(path);
    return code;
}

/* ---- weir list ---- */

static void list_json(const weir_hub_files *files)
{
    json_t *array = json_array();
    weir_hub_file file = {.size = sizeof file};
    for (size_t i = 0; weir_hub_files_get(files, i, &file) == WEIR_OK; i++)
        json_array_append_new(
            array,
            json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:i, s:i}", "repo", cli_figures_string(file.repo),
                      "file", cli_figures_string(file.name), "path",
                      file.path != NULL ? cli_figures_string(file.path) : json_null(), "n_bytes",
                      (json_int_t)file.n_bytes, "sha256",
                      file.sha256[0] != '\0' ? cli_figures_string(file.sha256) : json_null(), "quantization",
                      file.quantization[0] != '\0' ? cli_figures_string(file.quantization) : json_null(),
                      "shard", (int)file.shard, "n_shards", (int)file.n_shards));
    cli_out_json(json_pack("{s:o}", "files", array));
}

/* A model's row: its shards are one. */
static void add_row(cli_table *table, const weir_hub_file *file, uint64_t n_bytes, int32_t n_here,
                    bool of_repo)
{
    cli_text name = {0};
    const char *what = file->quantization[0] != '\0' && !of_repo ? file->quantization : file->name;
    if (!of_repo) cli_text_printf(&name, "hf:%s:", file->repo);
    cli_text_add_safe(&name, what, strlen(what));
    cli_table_cell(table, "%s", name.bytes);
    if (of_repo) cli_table_cell(table, "%s", file->quantization);
    cli_table_cell(table, "%s", cli_bytes(n_bytes).text);
    if (file->n_shards > 1)
        cli_table_cell(table, "%d of %d files", (int)n_here, (int)file->n_shards);
    else
        cli_table_cell(table, "%s", n_here > 0 ? "here" : "");
    weir__text_fini(&name);
}

static size_t add_presets(cli_table *table)
{
    cli_list names = cli_preset_names();
    for (size_t i = 0; i < names.n; i++) {
        char *path = cli_preset_path_of(names.items[i]);
        char *model = path != NULL ? cli_preset_model(path) : NULL;
        cli_table_cell(table, "%s", names.items[i]);
        cli_table_cell(table, "%s", "");
        if (model == NULL)
            cli_table_cell(table, "a preset with an error");
        else
            cli_table_cell(table, "preset of %s", *model != '\0' ? model : "default");
        cli_free(model);
        cli_free(path);
    }
    size_t n = names.n;
    cli_list_fini(&names);
    return n;
}

/* The default model, unless it is one of the hub's files. */
static size_t add_default(cli_table *table)
{
    struct stat status;
    char *path = cli_starter_file();
    bool here = path != NULL && stat(path, &status) == 0;
    if (here) {
        cli_table_cell(table, "default");
        cli_table_cell(table, "%s", cli_bytes((uint64_t)status.st_size).text);
        cli_table_cell(table, "here");
    }
    cli_free(path);
    return here;
}

static void list_table(const weir_hub_files *files, bool of_repo)
{
    cli_table table = {.n_columns = of_repo ? 4 : 3, .left = of_repo ? 1 | 2 | 8 : 1 | 4};
    cli_text text = {0};
    weir_hub_file file = {.size = sizeof file}, next = {.size = sizeof next};
    size_t n = 0;
    cli_table_cell(&table, "%s", of_repo ? "file" : "model");
    if (of_repo) cli_table_cell(&table, "quantization");
    cli_table_cell(&table, "size");
    cli_table_cell(&table, "%s", "");
    for (size_t i = 0; weir_hub_files_get(files, i, &file) == WEIR_OK; n++) {
        uint64_t n_bytes = file.n_bytes;
        int32_t n_here = file.path != NULL;
        while (weir_hub_files_get(files, ++i, &next) == WEIR_OK && next.shard > file.shard &&
               next.shard > 1 && next.n_shards == file.n_shards && strcmp(next.repo, file.repo) == 0) {
            n_bytes += next.n_bytes;
            n_here += next.path != NULL;
        }
        add_row(&table, &file, n_bytes, n_here, of_repo);
    }
    if (!of_repo) n += add_default(&table) + add_presets(&table);
    if (n > 0) {
        cli_table_print(&table, &text, cli_term_style_out(CLI_BOLD), cli_term_style_out(CLI_PLAIN));
        cli_out(text.bytes, text.n);
    } else
        cli_fail(CLI_OK, of_repo ? "there are no GGUF files" : "no models yet; weir pull suggests some");
    weir__text_fini(&text);
    cli_table_fini(&table);
}

cli_exit cli_models_print(const cli_args *args)
{
    weir_hub_files *files = NULL;
    weir_error error = {0};
    weir_hub_params params = cli_hub_params(args);
    if (weir_hub_list(NULL, &params, &files, &error) != WEIR_OK) return cli_hub_fail(args, NULL, &error);
    list_table(files, false);
    weir_hub_files_destroy(files);
    return CLI_OK;
}

cli_exit cli_list_models(cli_args *args)
{
    weir_hub_files *files = NULL;
    weir_error error = {0};
    weir_hub_params params = cli_hub_params(args);
    if (args->words.n > 1) return cli_fail(CLI_USAGE, "weir list takes one repository, or nothing");
    const char *name = args->words.n == 1 ? args->words.items[0] : NULL;
    char *whole = NULL;
    bool shortened;
    cli_exit code = name != NULL ? find_name(name, &whole, &shortened) : CLI_OK;
    if (code != CLI_OK) return code;
    if (whole != NULL) name = whole;
    cli_load_log(args);
    if (weir_hub_list(name, &params, &files, &error) != WEIR_OK)
        code = cli_hub_fail(args, name, &error);
    else if (args->json)
        list_json(files);
    else
        list_table(files, name != NULL);
    weir_hub_files_destroy(files);
    cli_free(whole);
    cli_load_log_flush();
    return code;
}

/* ---- weir rm ---- */

static bool confirm_removal(const char *name)
{
    cli_text text = {0};
    cli_text_puts(&text, "remove ");
    cli_text_add_safe(&text, name, strlen(name));
    cli_text_puts(&text, " from this machine?");
    if (cli_hub_ask(&text, false)) return true;
    cli_fail(CLI_OK, "nothing was removed");
    return false;
}

static cli_exit remove_preset(const char *path, uint64_t *n_bytes)
{
    *n_bytes = cli_file_size(path);
    return unlink(path) == 0 ? CLI_OK : cli_fail(CLI_NO_MODEL, "cannot remove %s: %s", path, strerror(errno));
}

/* Removes a preset, or what a name at the hub or a short name means, once the user agrees. *removed: nobody
 * said no. */
static cli_exit remove_named(const cli_args *args, const char *word, uint64_t *n_bytes, bool *removed)
{
    weir_hub_params params = cli_hub_params(args);
    weir_error error = {0};
    char *preset = cli_preset_path_of(word), *name = NULL;
    bool of_preset = preset != NULL && access(preset, F_OK) == 0, shortened;
    cli_exit code = CLI_OK;
    if (!of_preset)
        code = preset != NULL ? cli_shortname_expand(word, &name, NULL) : find_name(word, &name, &shortened);
    if (code == CLI_OK && preset != NULL && !of_preset && name == NULL)
        code = cli_fail(CLI_NO_MODEL, "there is no preset %s (%s); weir list shows the names of models", word,
                        preset);
    else if (code == CLI_OK && !args->yes && !isatty(STDIN_FILENO))
        code = cli_fail(CLI_USAGE, "weir rm asks before it removes; where nobody can answer, give --yes");
    *removed = code == CLI_OK && (args->yes || confirm_removal(name != NULL ? name : word));
    if (*removed && of_preset)
        code = remove_preset(preset, n_bytes);
    else if (*removed && weir_hub_remove(name, &params, n_bytes, &error) != WEIR_OK)
        code = cli_hub_fail(args, name, &error);
    else if (code == CLI_OK && !*removed)
        code = cli_signals_exit();
    cli_free(preset);
    cli_free(name);
    return code;
}

cli_exit cli_rm(cli_args *args)
{
    uint64_t n_bytes = 0;
    cli_text text = {0};
    bool removed;
    if (args->words.n != 1)
        return cli_fail(CLI_USAGE, args->words.n == 0 ? "which model? weir list shows those that are there"
                                                      : "weir rm takes one model");
    const char *name = args->words.items[0];
    cli_exit code = remove_named(args, name, &n_bytes, &removed);
    if (code != CLI_OK || !removed) return code;
    if (args->json) {
        cli_out_json(
            json_pack("{s:o, s:I}", "model", cli_figures_string(name), "n_bytes", (json_int_t)n_bytes));
        return CLI_OK;
    }
    cli_text_puts(&text, "removed ");
    cli_text_add_safe(&text, name, strlen(name));
    cli_text_printf(&text, ", %s\n", cli_bytes(n_bytes).text);
    cli_out_text(&text);
    return CLI_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "starter.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/hub.h>

#include "file.h"
#include "term.h"

#define FILE_NAME   "SmolLM2-135M-Instruct.Q4_1.gguf" /* scripts/model.sh has it, too */
#define FILE_OF_HUB "SmolLM2-135M-Instruct-Q8_0.gguf" /* of CLI_STARTER */
#define GB          UINT64_C(1000000000)

/* By size; docs/guides/choosing-a-model.md has more. */
static const struct better {
    const char *name;
    uint64_t n_bytes, n_memory; /* of the file; of the machine */
} better[] = {
    {"hf:bartowski/Qwen_Qwen3-1.7B-GGUF:Q8_0", 18 * GB / 10, 4 * GB},
    {"hf:bartowski/Qwen_Qwen3-4B-GGUF:Q4_K_M", 25 * GB / 10, 6 * GB},
    {"hf:bartowski/Qwen_Qwen3-8B-GGUF:Q4_K_M", 5 * GB, 8 * GB},
};

#define N_BETTER (sizeof better / sizeof *better)

/* Of the machine; 0 = unknown. */
static uint64_t free_memory(void)
{
    weir_device device = {.size = sizeof device};
    for (size_t i = 0; weir_device_get(i, &device) == WEIR_OK; i++)
        if (strcmp(device.type, "cpu") == 0) return device.memory_free;
    return 0;
}

static const struct better *largest_that_fits(void)
{
    uint64_t n_free = free_memory();
    size_t i = 0;
    while (i + 1 < N_BETTER && better[i + 1].n_memory <= n_free) i++;
    return &better[i];
}

char *cli_starter_file(void)
{
    return cli_file_of_user("XDG_CACHE_HOME", ".cache", "weir/models/" FILE_NAME);
}

char *cli_starter_find(void)
{
    char *found = NULL, *path = cli_starter_file();
    weir_hub_params params = weir_hub_params_default();
    if (path != NULL && access(path, F_OK) == 0) return path;
    cli_free(path);
    params.offline = true;
    if (weir_hub_download(CLI_STARTER, &params, &found, NULL) != WEIR_OK) return NULL;
    path = cli_format("%s", found);
    weir_free(found);
    return path;
}

void cli_starter_missing(void)
{
    const struct better *one = largest_that_fits();
    cli_fail(
        CLI_NO_MODEL,
        "no model: give one with -m FILE or -m hf:OWNER/REPO, or set WEIR_MODEL. Suggested for this machine: "
        "weir pull %s (%s). To try weir with a toy: weir pull default, or make run in weir's source",
        one->name, cli_bytes(one->n_bytes).text);
}

void cli_starter_advise(const cli_args *args, const char *path)
{
    const char *name = cli_file_name(path);
    bool toy = strcmp(name, FILE_NAME) == 0 || strcmp(name, FILE_OF_HUB) == 0;
    if (!toy || args->quiet || !cli_term_err()) return;
    const struct better *one = largest_that_fits();
    cli_note("This is the default model, a toy of 135 million parameters that gets most facts wrong. "
             "Suggested for this machine: weir pull %s (%s)",
             one->name, cli_bytes(one->n_bytes).text);
}

void cli_starter_list(cli_text *text)
{
    uint64_t n_free = free_memory();
    cli_table table = {.n_columns = 4, .left = 8};
    cli_table_cell(&table, "model");
    cli_table_cell(&table, "file");
    cli_table_cell(&table, "memory");
    cli_table_cell(&table, "%s", "");
    for (size_t i = 0; i < N_BETTER; i++) {
        cli_table_cell(&table, "%s", better[i].name);
        cli_table_cell(&table, "%s", cli_bytes(better[i].n_bytes).text);
        cli_table_cell(&table, "%s", cli_bytes(better[i].n_memory).text);
        cli_table_cell(&table, "%s",
                       &better[i] == largest_that_fits() && n_free > 0 ? "for this machine" : "");
    }
    cli_table_cell(&table, "default");
    cli_table_cell(&table, "%s", cli_bytes(145 * GB / 1000).text);
    cli_table_cell(&table, "%s", cli_bytes(GB).text);
    cli_table_cell(&table, "a toy, to try weir with");
    cli_table_print(&table, text, "", "");
    cli_table_fini(&table);
}

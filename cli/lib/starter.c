/* starter.c: estimates what the machine can run from its memory and processors, and suggests models of a
 * table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "starter.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/hub.h>

#include "file.h"
#include "shortname.h"
#include "term.h"
#include "wrap.h"

#define FILE_NAME "SmolLM2-135M-Instruct.Q4_1.gguf" /* scripts/model.sh has it, too */
#define GB        UINT64_C(1000000000)

/* A token reads all weights once. A core reads about so many bytes of them per second (weir bench engine -t 2
 * on an AMD EPYC: 156 tokens per second of 98 MB), and the memory of a desktop about so many for all. */
#define CORE_RATE   (8 * GB)
#define MEMORY_RATE (40 * GB)
#define COMFORT     8 /* tokens per second, about as fast as people read */

/* Short names, by size; docs/guides/choosing-a-model.md has more. */
static const struct better {
    const char *name;
    uint64_t n_bytes, n_memory; /* of the file, about; of the machine */
} better[] = {
    {"qwen3:0.6b", 8 * GB / 10, 2 * GB},
    {"qwen3:1.7b", 18 * GB / 10, 4 * GB},
    {"qwen3:4b", 25 * GB / 10, 6 * GB},
    {"qwen3:8b", 5 * GB, 8 * GB},
};

#define N_BETTER (sizeof better / sizeof *better)

struct machine {
    int32_t n_cpus;
    uint64_t n_free, n_free_gpu; /* bytes; 0 = unknown, or there is none */
    uint64_t rate;               /* bytes of weights per second that the processors read, about */
};

static struct machine look_at_machine(void)
{
    struct machine machine = {.n_cpus = 1};
    weir_device device = {.size = sizeof device};
    for (size_t i = 0; weir_device_get(i, &device) == WEIR_OK; i++)
        if (strcmp(device.type, "cpu") == 0) {
            machine.n_free = device.memory_free;
            machine.n_cpus = device.n_processors;
        } else if (strcmp(device.type, "gpu") == 0 && device.memory_free > machine.n_free_gpu)
            machine.n_free_gpu = device.memory_free;
    machine.rate = (uint64_t)machine.n_cpus * CORE_RATE;
    if (machine.rate > MEMORY_RATE) machine.rate = MEMORY_RATE;
    return machine;
}

/* A GPU reads a model that fits into it many times as fast as people read. */
static bool machine_suits(const struct machine *machine, const struct better *one)
{
    return one->n_memory <= machine->n_free_gpu ||
           (one->n_memory <= machine->n_free && machine->rate >= COMFORT * one->n_bytes);
}

static const struct better *largest_that_suits(const struct machine *machine)
{
    size_t i = N_BETTER - 1;
    while (i > 0 && !machine_suits(machine, &better[i])) i--;
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
    struct machine machine = look_at_machine();
    const struct better *one = largest_that_suits(&machine);
    cli_fail(CLI_NO_MODEL,
             "no model: give one with -m FILE, -m llama3.2 or -m hf:OWNER/REPO, or set WEIR_MODEL. Suggested "
             "for this machine: weir pull %s (about %s). To try weir with a toy: weir pull default (%s), or "
             "make run in weir's source",
             one->name, cli_bytes(one->n_bytes).text, cli_bytes(CLI_STARTER_BYTES).text);
}

void cli_starter_advise(const cli_args *args, const char *path)
{
    if (strcmp(cli_file_name(path), FILE_NAME) != 0 || args->quiet || !cli_term_err()) return;
    struct machine machine = look_at_machine();
    const struct better *one = largest_that_suits(&machine);
    cli_note("This is the default model, a toy of 135 million parameters that gets most facts wrong. "
             "Suggested for this machine: weir pull %s (about %s)",
             one->name, cli_bytes(one->n_bytes).text);
}

static void add_row(cli_table *table, const char *name, uint64_t n_bytes, uint64_t n_memory,
                    const struct machine *machine, const char *remark)
{
    cli_table_cell(table, "%s", name);
    cli_table_cell(table, "%s", cli_bytes(n_bytes).text);
    cli_table_cell(table, "%s", cli_bytes(n_memory).text);
    cli_table_cell(table, "%.0f", (double)machine->rate / (double)n_bytes);
    cli_table_cell(table, "%s", remark);
}

/* Adds how the speeds of the table came about, and which row is suggested. */
static void add_rule(cli_text *text, const struct machine *machine)
{
    char gpu[80] = "";
    if (machine->n_free_gpu > 0)
        snprintf(gpu, sizeof gpu, ", or fits into that of a GPU, %s here",
                 cli_bytes(machine->n_free_gpu).text);
    char *rule = cli_format(
        "tok/s, about: a token reads the whole file, and %d processor%s read%s %s of it per second (%s each, "
        "%s at most). Suggested: the largest that fits into the free memory, %s here, and writes %d tok/s%s. "
        "weir bench engine measures.",
        (int)machine->n_cpus, machine->n_cpus == 1 ? "" : "s", machine->n_cpus == 1 ? "s" : "",
        cli_bytes(machine->rate).text, cli_bytes(CORE_RATE).text, cli_bytes(MEMORY_RATE).text,
        machine->n_free > 0 ? cli_bytes(machine->n_free).text : "unknown", COMFORT, gpu);
    cli_wrap_text(text, rule, 0, 0, CLI_WRAP_COLUMNS);
    cli_text_puts(text, "\n");
    cli_free(rule);
}

void cli_starter_list(cli_text *text)
{
    struct machine machine = look_at_machine();
    const struct better *one = largest_that_suits(&machine);
    cli_table table = {.n_columns = 5, .left = 16};
    cli_table_cell(&table, "model");
    cli_table_cell(&table, "file, about");
    cli_table_cell(&table, "memory");
    cli_table_cell(&table, "tok/s");
    cli_table_cell(&table, "%s", "");
    for (size_t i = 0; i < N_BETTER; i++)
        add_row(&table, better[i].name, better[i].n_bytes, better[i].n_memory, &machine,
                &better[i] == one && machine_suits(&machine, one) ? "for this machine" : "");
    add_row(&table, "default", CLI_STARTER_BYTES, GB, &machine, "a toy, to try weir with");
    cli_table_print(&table, text, "", "");
    cli_table_fini(&table);
    cli_text_puts(text, "\n");
    add_rule(text, &machine);
    cli_list names = cli_shortname_names();
    cli_text all = {0};
    cli_text_puts(&all, "All short names:");
    for (size_t i = 0; i < names.n; i++) cli_text_printf(&all, "%s %s", i > 0 ? "," : "", names.items[i]);
    cli_text_puts(text, "\n");
    cli_wrap_text(text, all.bytes, 0, 0, CLI_WRAP_COLUMNS);
    cli_text_puts(text, "\n");
    weir__text_fini(&all);
    cli_list_fini(&names);
}

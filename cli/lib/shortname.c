/* shortname.c: looks words up in the user's file and the table, takes addresses of pages apart, and suggests
 * models of a table for this machine's memory and processors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A word that is the address of a page at the hub, or in Ollama's library, is taken apart first. A word
 * without a slash is then looked up in the user's file, where the last line wins, and after that in the
 * table. A word that is none of these has no name, and the caller takes it as it is. The suggested model is
 * the largest of its table that fits into the free memory and that the processors read often enough per
 * second for COMFORT tokens, or that fits into a GPU. */
#include "shortname.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/hub.h>

#include "base/ascii.h"
#include "config_file.h"
#include "file.h"
#include "term.h"
#include "text.h"

/* Short names by family and size. Models of fewer than 2 billion parameters are in Q8_0: they lose more by
 * four bits, and are small. docs/guides/models.md has this table, too. */
static const struct row {
    const char *name;
    bool plain; /* the name without its tag means it, too */
    const char *hub;
} rows[] = {
    {"deepseek-r1:8b", true, "hf:bartowski/deepseek-ai_DeepSeek-R1-0528-Qwen3-8B-GGUF:Q4_K_M"},
    {"gemma3:1b", false, "hf:bartowski/google_gemma-3-1b-it-GGUF:Q8_0"},
    {"gemma3:4b", true, "hf:bartowski/google_gemma-3-4b-it-GGUF:Q4_K_M"},
    {"gpt-oss:20b", true, "hf:ggml-org/gpt-oss-20b-GGUF:MXFP4"},
    {"llama3.1:8b", true, "hf:bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M"},
    {"llama3.2:1b", false, "hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0"},
    {"llama3.2:3b", true, "hf:bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M"},
    {"mistral:7b", true, "hf:bartowski/Mistral-7B-Instruct-v0.3-GGUF:Q4_K_M"},
    {"phi4:14b", true, "hf:bartowski/phi-4-GGUF:Q4_K_M"},
    {"phi4-mini:3.8b", true, "hf:bartowski/microsoft_Phi-4-mini-instruct-GGUF:Q4_K_M"},
    {"qwen2.5-coder:7b", true, "hf:bartowski/Qwen2.5-Coder-7B-Instruct-GGUF:Q4_K_M"},
    {"qwen3:0.6b", false, "hf:bartowski/Qwen_Qwen3-0.6B-GGUF:Q8_0"},
    {"qwen3:1.7b", false, "hf:bartowski/Qwen_Qwen3-1.7B-GGUF:Q8_0"},
    {"qwen3:4b", false, "hf:bartowski/Qwen_Qwen3-4B-GGUF:Q4_K_M"},
    {"qwen3:8b", true, "hf:bartowski/Qwen_Qwen3-8B-GGUF:Q4_K_M"},
    {"smollm2:1.7b", true, "hf:bartowski/SmolLM2-1.7B-Instruct-GGUF:Q8_0"},
};

#define N_ROWS (sizeof rows / sizeof *rows)
#define LATEST ":latest" /* Ollama's tag for a name without one */

/* ---- Short names ---- */

/* The row for a name of n characters, without :latest; NULL = there is none. */
static const char *find_row(const char *name, size_t n)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t family = strcspn(rows[i].name, ":");
        bool whole = strlen(rows[i].name) == n, plain = rows[i].plain && family == n;
        if ((whole || plain) && memcmp(rows[i].name, name, n) == 0) return rows[i].hub;
    }
    return NULL;
}

/* The user's file; empty if there is none. */
static cli_exit read_names(cli_config *config)
{
    char *path = cli_file_of_user("XDG_CONFIG_HOME", ".config", "weir/names");
    cli_exit code = CLI_OK;
    if (path != NULL && access(path, F_OK) == 0) code = cli_config_read_file(config, CLI_CONFIG_NAMES, path);
    cli_free(path);
    return code;
}

static const char *after_hub(const char *word);
static cli_exit expand_page(const char *word, const char *rest, char **name);

/* Finds the meaning of a name in the user's file; the last line wins. The file has names and addresses of the
 * hub, no short names: nothing leads back here. */
static cli_exit find_own(const char *word, char **name)
{
    cli_config config = {0};
    cli_exit code = read_names(&config);
    for (size_t i = config.n; i-- > 0 && code == CLI_OK && *name == NULL;) {
        const cli_setting *own = &config.items[i];
        if (strcmp(own->key, word) != 0) continue;
        const char *page = after_hub(own->value);
        if (strncmp(own->value, "hf:", 3) == 0)
            *name = cli_format("%s", own->value);
        else if (page == NULL)
            code = cli_fail(CLI_USAGE,
                            "%s:%d: %.100s is no model of the hub; expected: NAME = hf:OWNER/REPO"
                            "[:QUANTIZATION or FILE], or the address of its page",
                            config.path, own->line, own->value);
        else if ((code = expand_page(own->value, page, name)) != CLI_OK)
            cli_note("(%s:%d has this address)", config.path, own->line);
    }
    cli_config_fini(&config);
    return code;
}

static cli_exit find_name(const char *word, char **name)
{
    size_t n = strlen(word), n_latest = strlen(LATEST);
    cli_exit code = find_own(word, name);
    if (code != CLI_OK || *name != NULL) return code;
    if (n > n_latest && strcmp(word + n - n_latest, LATEST) == 0) n -= n_latest;
    const char *hub = find_row(word, n);
    if (hub != NULL) *name = cli_format("%s", hub);
    return CLI_OK;
}

/* ---- Addresses ---- */

/* The rest of a word after a host and its slash; NULL: it has another host. */
static const char *after_host(const char *word, const char *host)
{
    size_t n = strlen(host);
    bool begins = strncmp(word, host, n) == 0 && word[n] == '/' && word[n + 1] != '\0';
    return begins ? word + n + 1 : NULL;
}

static const char *after_scheme(const char *word)
{
    if (strncmp(word, "https://", 8) == 0) word += 8;
    if (strncmp(word, "http://", 7) == 0) word += 7;
    return strncmp(word, "www.", 4) == 0 ? word + 4 : word;
}

/* The rest of a word after the host of the hub, after its mirror or after Ollama's library. */
static const char *after_hub(const char *word)
{
    const char *bare = after_scheme(word), *rest = after_host(bare, "huggingface.co");
    const char *mirror = getenv("HF_ENDPOINT");
    if (rest == NULL) rest = after_host(bare, "hf.co");
    if (rest == NULL && mirror != NULL && *mirror != '\0') {
        char *host = cli_format("%s", mirror);
        size_t n = strlen(host);
        while (n > 0 && host[n - 1] == '/') host[--n] = '\0';
        rest = after_host(word, host);
        cli_free(host);
    }
    return rest;
}

static const char *after_library(const char *word)
{
    const char *bare = after_scheme(word), *rest = after_host(bare, "ollama.com");
    if (rest == NULL) rest = after_host(bare, "registry.ollama.ai");
    return rest;
}

/* Adds n characters, with %20 and the like as the bytes that they stand for. */
static void add_decoded(cli_text *text, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = from[i] == '%' && i + 2 < n ? weir__ascii_hex(from[i + 1]) : -1;
        int low = high >= 0 ? weir__ascii_hex(from[i + 2]) : -1;
        bool decoded = low > 0 || (low == 0 && high > 0);
        char byte = decoded ? (char)(high * 16 + low) : from[i];
        if (decoded) i += 2;
        cli_text_add(text, &byte, 1);
    }
}

/* The file of a page that shows a file's header: ?show_file_info=FILE. *n = 0: the address has none. */
static const char *file_of_query(const char *query, size_t *n)
{
    static const char key[] = "show_file_info=";
    const char *at = *query == '?' ? strstr(query, key) : NULL;
    *n = at != NULL ? strcspn(at + sizeof key - 1, "&#") : 0;
    return at != NULL ? at + sizeof key - 1 : NULL;
}

/* The part of a path at *at up to the next slash, and moves *at behind that. */
static const char *take_part(const char **at, const char *end, size_t *n)
{
    const char *part = *at, *slash = memchr(part, '/', (size_t)(end - part));
    *n = slash != NULL ? (size_t)(slash - part) : (size_t)(end - part);
    *at = slash != NULL ? slash + 1 : end;
    return part;
}

static bool is_word(const char *part, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(part, word, n) == 0;
}

/* OWNER/REPO, OWNER/REPO:QUANTIZATION, OWNER/REPO/tree/REVISION, OWNER/REPO/blob/REVISION/FILE, the same with
 * resolve, each with ?… */
static cli_exit expand_page(const char *word, const char *rest, char **name)
{
    size_t n_owner, n_repo, n_view, n_revision, n_shown;
    const char *end = rest + strcspn(rest, "?#"), *at = rest, *shown = file_of_query(end, &n_shown);
    const char *owner = take_part(&at, end, &n_owner), *repo = take_part(&at, end, &n_repo);
    const char *view = take_part(&at, end, &n_view), *revision = take_part(&at, end, &n_revision);
    bool of_file = is_word(view, n_view, "blob") || is_word(view, n_view, "resolve");
    if (n_owner == 0 || n_repo == 0 || (n_view > 0 && !of_file && !is_word(view, n_view, "tree")) ||
        (of_file ? at == end : at != end))
        return cli_fail(CLI_USAGE,
                        "%.200s is no page of a model; expected: huggingface.co/OWNER/REPO, or "
                        "the address of a GGUF file there",
                        word);
    cli_text text = {0};
    cli_text_printf(&text, "hf:%.*s/%.*s", (int)n_owner, owner, (int)n_repo, repo);
    if (of_file || n_shown > 0) cli_text_puts(&text, ":");
    if (of_file) add_decoded(&text, at, (size_t)(end - at));
    if (!of_file && n_shown > 0) add_decoded(&text, shown, n_shown);
    cli_exit code = CLI_OK;
    if (n_revision > 0 && !is_word(revision, n_revision, "main"))
        code = cli_fail(CLI_USAGE, "%.200s names a revision; write %s --revision %.*s", word, text.bytes,
                        (int)n_revision, revision);
    else
        *name = cli_format("%s", text.bytes);
    weir__text_fini(&text);
    return code;
}

/* NAME or library/NAME of Ollama's library. */
static cli_exit expand_library(const char *word, const char *rest, char **name)
{
    const char *begin = after_host(rest, "library");
    char *copy = cli_format("%s", begin != NULL ? begin : rest);
    copy[strcspn(copy, "?#")] = '\0';
    cli_exit code = find_name(copy, name);
    if (code == CLI_OK && *name == NULL) {
        cli_nearest nearest = cli_nearest_to(copy);
        cli_shortname_try(&nearest);
        code = cli_fail(CLI_USAGE,
                        "%.200s is a model of Ollama's library, which weir does not download from; weir pull "
                        "lists the names that it knows%s",
                        word, cli_nearest_hint(&nearest, ""));
    }
    cli_free(copy);
    return code;
}

/* ---- Words ---- */

cli_exit cli_shortname_expand(const char *word, char **name, bool *shortened)
{
    const char *page = after_hub(word), *of_library = page == NULL ? after_library(word) : NULL;
    cli_exit code = CLI_OK;
    *name = NULL;
    if (page != NULL)
        code = expand_page(word, page, name);
    else if (of_library != NULL)
        code = expand_library(word, of_library, name);
    else if (strchr(word, '/') == NULL)
        code = find_name(word, name);
    if (shortened != NULL) *shortened = *name != NULL && page == NULL;
    return code;
}

cli_list cli_shortname_names(void)
{
    cli_config config = {0};
    cli_list names = {0};
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].plain)
            cli_list_add(&names, cli_format("%.*s", (int)strcspn(rows[i].name, ":"), rows[i].name));
        cli_list_add(&names, cli_format("%s", rows[i].name));
    }
    if (read_names(&config) == CLI_OK)
        for (size_t i = 0; i < config.n; i++) cli_list_add(&names, cli_format("%s", config.items[i].key));
    cli_config_fini(&config);
    return names;
}

void cli_shortname_try(cli_nearest *nearest)
{
    cli_list names = cli_shortname_names();
    for (size_t i = 0; i < names.n; i++) cli_nearest_try(nearest, names.items[i]);
    cli_list_fini(&names);
}

/* ---- The default model and suggestions ---- */

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

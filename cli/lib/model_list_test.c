/* model_list_test.c: files of --models that are refused, and folders with many models.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/temp.h"

static char text[4096]; /* messages of the last reading */
static cli_list pulled; /* names for the next readings */

static char *put(const char *name, const char *content)
{
    static char path[TEMP_PATH_MAX];
    temp_path(path, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(content, file);
    fclose(file);
    return path;
}

/* Reads the files that `words` name; its messages go into text. */
static cli_exit read_list(cli_model_list *list, int n, char **words)
{
    cli_args args;
    int used = 0;
    cli_exit code;
    char *serve[] = {"serve"}, path[TEMP_PATH_MAX];
    temp_path(path, "stderr");
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    assert_non_null(freopen(path, "w+", stderr));
    cli_args_init(&args, cli_command_find(1, serve, &used));
    code = cli_options_parse(&args, n, words);
    if (code == CLI_OK) code = cli_model_list_read(list, &args, &pulled);
    cli_args_fini(&args);
    fflush(stderr);
    rewind(stderr);
    text[fread(text, 1, sizeof text - 1, stderr)] = '\0';
    dup2(kept, STDERR_FILENO);
    close(kept);
    return code;
}

static cli_exit read_file(cli_model_list *list, const char *content)
{
    char *words[] = {"--models", put("models.conf", content)};
    return read_list(list, 2, words);
}

static void expect(const char *content, cli_exit code, const char *says)
{
    cli_model_list list = {0};
    assert_int_equal(read_file(&list, content), code);
    if (strstr(text, says) == NULL) fail_msg("\"%s\" is not in: %s", says, text);
    cli_model_list_fini(&list);
}

static void test_sections(void **state)
{
    (void)state;
    cli_model_list list = {0};
    put("x.gguf", "GGUF");
    assert_int_equal(read_file(&list,
                               "# all\nctx = 4096\nidle = 10m\nlora = fake:1\ntemp = 0.5\n"
                               "[ big ]\nmodel = fake:\nalias = gpt-4o\nalias = \"claude 3\"\nctx = 512\n"
                               "pinned = on\nlora = fake:2=0.5\nembeddings = on\nslots = 2\n"
                               "cache-type-k = q8_0\ndraft-model = fake:\nsystem = \"Be brief.\\nDo.\"\n"
                               "[small/x]\nmodel = ./x.gguf\nidle = never\n"),
                     CLI_OK);
    assert_string_equal(text, "");
    assert_int_equal(list.n, 2);
    const cli_model_entry *big = list.items[0], *small = list.items[1];
    assert_string_equal(big->name, "big");
    assert_string_equal(big->path, "fake:");
    assert_int_equal(big->args.aliases.n, 2);
    assert_string_equal(big->args.aliases.items[1], "claude 3");
    assert_int_equal(big->args.engine.n_ctx, 512);
    assert_int_equal(big->args.engine.n_slots, 2);
    assert_int_equal(big->args.engine.type_k, WEIR_KV_Q8_0);
    assert_true(big->args.pinned);
    assert_true(big->args.idle_ms == 600000);
    assert_int_equal(big->args.lora.n, 1);
    assert_string_equal(big->args.lora.items[0], "fake:2=0.5");
    assert_string_equal(big->args.system, "Be brief.\nDo.");
    assert_string_equal(big->args.draft_path, "fake:");
    assert_true(big->args.ask.sampler.temp == 0.5f);
    assert_string_equal(small->name, "small/x");
    assert_string_equal(strrchr(small->path, '/'), "/x.gguf");
    assert_int_equal(strncmp(small->path, temp_folder(), strlen(temp_folder())), 0);
    assert_int_equal(small->args.engine.n_ctx, 4096);
    assert_int_equal(small->args.lora.n, 1);
    assert_true(small->args.idle_ms == 0);
    assert_false(small->args.pinned);
    cli_model_list_fini(&list);
}

/* The command line overrides the file, and of the server's settings a model takes none. */
static void test_order(void **state)
{
    (void)state;
    cli_model_list list = {0};
    char preset[512];
    snprintf(preset, sizeof preset, "%s",
             put("p.preset", "model = fake:\nctx = 1024\nslots = 3\ntemp = 0.1\n"));
    setenv("WEIR_SLOTS", "7", 1);
    setenv("WEIR_TEMP", "0.9", 1);
    setenv("WEIR_ALIAS", "everything", 1);
    setenv("WEIR_MODEL", "nothing", 1);
    char *words[] = {"--models", NULL, "--min-p", "0.25", "--port", "1234"};
    char content[1024];
    snprintf(content, sizeof content,
             "ctx = 4096\nmin-p = 0.75\ntop-k = 7\n[a]\nmodel = %s\nslots = 5\n[b]\nmodel = fake:\n", preset);
    words[1] = put("models.conf", content);
    assert_int_equal(read_list(&list, 6, words), CLI_OK);
    const cli_args *a = &list.items[0]->args, *b = &list.items[1]->args;
    assert_string_equal(list.items[0]->path, "fake:");
    assert_int_equal(a->engine.n_ctx, 1024); /* the preset, not the file's line for all */
    assert_int_equal(a->engine.n_slots, 5);  /* the section, not the preset */
    assert_true(a->ask.sampler.temp == 0.1f);
    assert_int_equal(a->ask.sampler.top_k, 7);
    assert_true(a->ask.sampler.min_p == 0.25f);
    assert_int_equal(b->engine.n_ctx, 4096);
    assert_int_equal(b->engine.n_slots, 7);
    assert_true(b->ask.sampler.temp == 0.9f);
    assert_int_equal(b->serve.port, 8080);
    assert_int_equal(a->aliases.n + b->aliases.n, 0);
    cli_model_list_fini(&list);
    for (size_t i = 0; i < 4; i++)
        unsetenv((const char *[]){"WEIR_SLOTS", "WEIR_TEMP", "WEIR_ALIAS", "WEIR_MODEL"}[i]);
}

static void test_refusals(void **state)
{
    (void)state;
    expect("", CLI_USAGE, "there are no models in it; expected: a line [NAME]");
    expect("ctx = x\n[a]\nmodel = fake:\n", CLI_USAGE,
           "models.conf:1: ctx is \"x\"; expected: a whole number");
    expect("[a]\nmodel = fake:\n\nidle = soon\n", CLI_USAGE,
           "models.conf:4: idle is \"soon\"; expected: a time");
    expect("[a]\nidle = -1s\n", CLI_USAGE, "expected: a time");
    expect("[a]\nidle = 99999999999999999999\n", CLI_USAGE, "expected: a time");
    expect("[a]\nidle = 3000000000d\n", CLI_USAGE, "expected: a time");
    expect("[a]\ncache-type-k = q9\n", CLI_USAGE, "models.conf:2: cache-type-k is \"q9\"; expected: f16, ");
    expect("[a]\npinned = maybe\n", CLI_USAGE, "models.conf:2: pinned is \"maybe\"; expected: 1 or 0");
    expect("[a]\nmodle = fake:\n", CLI_USAGE, "models.conf:2: there is no setting modle; did you mean model");
    expect("[a]\nport = 80\n", CLI_USAGE, "models.conf:2: port is not a setting of a model");
    expect("[a]\ncache-dir = /tmp\n", CLI_USAGE, "models.conf:2: cache-dir is not a setting of a model");
    expect("[a]\nstop = x\n", CLI_USAGE, "models.conf:2: stop is not a setting of a model");
    expect("[a]\nmodel fake:\n", CLI_USAGE, "models.conf:2: there is no \"=\"");
    expect("[a\n", CLI_USAGE, "models.conf:1: the line has no \"]\"");
    expect("[]\n", CLI_USAGE, "models.conf:1: this is not a name for a model; allowed: 1 to 255 bytes");
    expect("[*]\n", CLI_USAGE, "models.conf:1: this is not a name");
    expect("[a]\nmodel = fake:\n[a]\nmodel = fake:\n", CLI_USAGE,
           "models.conf:3: line 1 has a model of the name a");
    expect("model = fake:\n[a]\n", CLI_USAGE,
           "models.conf:1: model is one model's: it belongs below a line [NAME]");
    expect("alias = b\n[a]\nmodel = fake:\n", CLI_USAGE, "models.conf:1: alias is one model's");
    expect("[a]\nmodel = fake:\nalias = b\n[b]\nmodel = fake:\n", CLI_USAGE,
           "models.conf:1: the alias b is a name of the model b too");
    expect("[a]\nmodel = fake:\nalias = c\n[b]\nmodel = fake:\nalias = c\n", CLI_USAGE,
           "the alias c is a name of the model b too");
    expect("[a]\nmodel = fake:\nalias = \"\"\n", CLI_USAGE, "an alias has 0 bytes; allowed: 1 to 255");
    expect("[a]\nmodel = fake:\nalias = a\n", CLI_USAGE, "models.conf:1: the model a has the name a already");
    expect("[a]\nmodel = fake:\nalias = b\nalias = b\n", CLI_USAGE, "the model a has the name b already");
    expect("[a]\nmodel = fake:\nctx = 1\nmodel = fake:1\n", CLI_USAGE,
           "models.conf:4: line 2 names the section's model already");
    expect("\xEF\xBB\xBF[a]\nmodel = fake:\n", CLI_OK, "");
    expect("\xEF\xBB\xBF\n[a]\nmodel fake:\n", CLI_USAGE, "models.conf:3: there is no \"=\"");
    expect("[a]\nmodel = ./none.gguf\n", CLI_NO_MODEL, "models.conf:1: the model a is ");
    expect("[none]\n", CLI_NO_MODEL, "the model none is none, and there is no such file");
    char *twice[] = {"--models", put("models.conf", "[a]\nmodel = fake:\n"), "-m", "fake:"};
    cli_model_list list = {0};
    assert_int_equal(read_list(&list, 4, twice), CLI_USAGE);
    assert_non_null(strstr(text, "-m is one model"));
    cli_model_list_fini(&list);
    twice[2] = "--alias";
    assert_int_equal(read_list(&list, 4, twice), CLI_USAGE);
    assert_non_null(strstr(text, "--alias is one model's name"));
    cli_model_list_fini(&list);
    char pipe_path[TEMP_PATH_MAX], *pipe[] = {"--models", pipe_path};
    temp_path(pipe_path, "pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(read_list(&list, 2, pipe), CLI_USAGE); /* at once: nobody writes to it */
    assert_non_null(strstr(text, "this is not a regular file"));
    cli_model_list_fini(&list);
    char *missing[] = {"--models", "/nonexistent/models.conf"};
    assert_int_equal(read_list(&list, 2, missing), CLI_FAILED);
    cli_model_list_fini(&list);
}

static void test_too_many(void **state)
{
    (void)state;
    static char content[32 * (CLI_MODELS_MAX + 2)];
    size_t n = 0;
    for (int i = 0; i < CLI_MODELS_MAX; i++)
        n += (size_t)snprintf(content + n, sizeof content - n, "[m%d]\nmodel = fake:\n", i);
    char *names[] = {"hf:o/model"};
    pulled = (cli_list){.items = names, .n = 1};
    expect(content, CLI_OK, "hf:o/model (/api/pull) is left out: the list is full");
    pulled = (cli_list){0};
    snprintf(content + n, sizeof content - n, "[more]\nmodel = fake:\n");
    expect(content, CLI_USAGE, "there are more than 256 models");
}

static void test_folder(void **state)
{
    (void)state;
    cli_model_list list = {0};
    char path[TEMP_PATH_MAX], below[TEMP_PATH_MAX];
    temp_path(path, "models");
    temp_path(below, "models/vision");
    char *words[] = {"--models-dir", path, "--models", NULL};
    assert_int_equal(read_list(&list, 2, words), CLI_USAGE);
    assert_non_null(strstr(text, "No such file"));
    cli_model_list_fini(&list);
    mkdir(path, 0700);
    assert_int_equal(read_list(&list, 2, words), CLI_USAGE);
    assert_non_null(strstr(text, "there are no models in it"));
    cli_model_list_fini(&list);
    mkdir(below, 0700);
    static const char *const files[] = {
        "b.gguf",        "a.GGUF",          "c-00001-of-00002.gguf", "c-00002-of-00002.gguf",
        "mmproj-b.gguf", "b.imatrix.gguf",  "b.gguf.weir",           ".hidden.gguf",
        "notes.txt",     "vision/eye.gguf", "vision/mmproj-F16.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[128];
        snprintf(name, sizeof name, "models/%s", files[i]);
        put(name, "GGUF");
    }
    char link[TEMP_PATH_MAX];
    temp_path(link, "models/gone.gguf");
    assert_int_equal(symlink("/nowhere/at/all.gguf", link), 0);
    words[3] = put("models.conf", "[c]\nctx = 512\n[mine]\nmodel = fake:\n");
    assert_int_equal(read_list(&list, 4, words), CLI_OK);
    static const char *const names[] = {"c", "mine", "a", "b", "eye"};
    assert_int_equal(list.n, 5);
    for (size_t i = 0; i < 5; i++) assert_string_equal(list.items[i]->name, names[i]);
    assert_string_equal(strrchr(list.items[0]->path, '/'), "/c-00001-of-00002.gguf");
    assert_int_equal(list.items[0]->args.engine.n_ctx, 512);
    assert_string_equal(list.items[3]->args.aliases.items[0], "b.gguf");
    assert_non_null(strstr(text, "its projectors are left out"));
    assert_non_null(strstr(text, "gone.gguf: this file is skipped: No such file"));
    assert_null(list.items[3]->args.projector); /* three models: it is not certain whose it is */
    assert_string_equal(strrchr(list.items[4]->args.projector, '/'), "/mmproj-F16.gguf");
    cli_model_list_fini(&list);
}

/* Folders are found however many other files lie beside them. */
static void test_crowded_folder(void **state)
{
    (void)state;
    cli_model_list list = {0};
    char path[TEMP_PATH_MAX], below[TEMP_PATH_MAX];
    temp_path(path, "crowded");
    temp_path(below, "crowded/folder");
    char *words[] = {"--models-dir", path};
    mkdir(path, 0700);
    mkdir(below, 0700);
    put("crowded/folder/x.gguf", "GGUF");
    for (int i = 0; i < 8 * CLI_MODELS_MAX; i++) {
        char name[64];
        snprintf(name, sizeof name, "crowded/%d.txt", i);
        put(name, "");
    }
    assert_int_equal(read_list(&list, 2, words), CLI_OK);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.items[0]->name, "x");
    cli_model_list_fini(&list);
}

static int begin(void **state)
{
    (void)state;
    cli_options_init();
    setenv("WEIR_CONFIG", "", 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sections), cmocka_unit_test(test_order),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_too_many), cmocka_unit_test(test_folder), cmocka_unit_test(test_crowded_folder),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}

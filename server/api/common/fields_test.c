/* fields_test.c: docs/guides/fields.md has the server's own tables. WEIR_UPDATE=1 in the environment writes
 * them anew.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ask.h"
#include "base/text.h"
#include "field.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Requests for text ---- */

static const struct {
    const char *title;
    unsigned where;
} dialects[] = {
    {"chat", SERVE_ASK_CHAT},
    {"completions", SERVE_ASK_COMPLETIONS},
    {"/completion", SERVE_ASK_COMPLETIONS | SERVE_ASK_NATIVE},
    {"/infill", SERVE_ASK_COMPLETIONS | SERVE_ASK_NATIVE | SERVE_ASK_INFILL},
    {"Responses", SERVE_ASK_RESPONSES},
    {"Messages", SERVE_ASK_MESSAGES},
    {"/api/chat", SERVE_ASK_OLLAMA | SERVE_ASK_OPTIONS},
    {"/api/generate", SERVE_ASK_GENERATE | SERVE_ASK_OPTIONS},
};

static const serve_field *find_row(const char *name, unsigned where)
{
    for (size_t i = 0; i < serve_ask_table.n; i++)
        if ((serve_ask_table.fields[i].where & where) != 0 &&
            strcmp(serve_ask_table.fields[i].name, name) == 0)
            return &serve_ask_table.fields[i];
    return NULL;
}

/* True if a dialect has an object that has this member, "tools[].strict". */
static bool has_member(const char *name, unsigned where)
{
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < SERVE_OBJECTS_N; i++) {
        const serve_object_row *row = &serve_objects[i];
        size_t n = strcspn(row->place, ":"), k = 0;
        if ((row->where & where) == 0 || n != (size_t)(dot - name) || strncmp(row->place, name, n) != 0)
            continue;
        while (row->names[k] != NULL && strcmp(row->names[k], dot + 1) != 0) k++;
        if (row->names[k] != NULL) return true;
    }
    return false;
}

static const char *state_of(const char *name, unsigned where)
{
    const serve_field *f = find_row(name, where);
    bool plain = f == NULL && serve_fields_name("sampler", name, strlen(name), where) == NULL &&
                 (where & serve_ask_table.of_where) != 0;
    const weir_member *member = plain ? weir_member_find("sampler", name) : NULL;
    if (f == NULL && member != NULL && member->type < WEIR_MEMBER_CHOICE) return "yes";
    if (f == NULL && has_member(name, where)) return "yes";
    if (f == NULL) return find_row(name, SERVE_FIELD_BINDS) != NULL ? "refused" : "";
    return f->kind == SERVE_FIELD_NEVER ? "refused" : f->kind == SERVE_FIELD_HINT ? "hint" : "yes";
}

/* Adds what a refusal, or strict's, says of it. */
static void add_note(const char *name, weir__text *text)
{
    for (size_t i = 0; i < serve_ask_table.n; i++) {
        const serve_field *f = &serve_ask_table.fields[i];
        if (strcmp(f->name, name) != 0 || f->why == NULL || f->why[0] == '\0') continue;
        if (f->kind == SERVE_FIELD_HINT || f->kind == SERVE_FIELD_ONLY)
            weir__text_add_string(text, "strictly: ");
        weir__text_add_string(text, f->why);
        return;
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* All names, each once, in order. */
static size_t list_names(const char **names)
{
    size_t n = 0, n_members, n_once = 0;
    const weir_member *members = weir_members("sampler", &n_members);
    for (size_t i = 0; i < serve_ask_table.n; i++) names[n++] = serve_ask_table.fields[i].name;
    for (size_t i = 0; i < n_members; i++)
        if (strcmp(state_of(members[i].name, SERVE_ASK_CHAT), "yes") == 0) names[n++] = members[i].name;
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 0; i < n; i++)
        if (n_once == 0 || strcmp(names[n_once - 1], names[i]) != 0) names[n_once++] = names[i];
    return n_once;
}

static void add_dialects(weir__text *text)
{
    const char *names[1024];
    assert_true(serve_ask_table.n < 512);
    size_t n = list_names(names);
    weir__text_add_string(text, "| field |");
    for (size_t k = 0; k < COUNT(dialects); k++) weir__text_printf(text, " %s |", dialects[k].title);
    weir__text_add_string(text, " note |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        weir__text_printf(text, "| `%s` |", names[i]);
        for (size_t k = 0; k < COUNT(dialects); k++)
            weir__text_printf(text, " %s |", state_of(names[i], dialects[k].where));
        weir__text_add_string(text, " ");
        add_note(names[i], text);
        weir__text_add_string(text, " |\n");
    }
}

/* ---- Objects within them ---- */

static void add_objects(weir__text *text)
{
    weir__text_add_string(text, "\n| object | of | members |\n|---|---|---|\n");
    for (size_t i = 0; i < SERVE_OBJECTS_N; i++) {
        const serve_object_row *row = &serve_objects[i];
        const char *gap = "";
        if (row->where == 0 || row->names[0] == NULL) continue;
        weir__text_printf(text, "| `%s` | ", row->place);
        for (size_t k = 0; k < COUNT(dialects); k++) {
            if ((row->where & dialects[k].where) == 0) continue;
            weir__text_printf(text, "%s%s", gap, dialects[k].title);
            gap = ", ";
        }
        weir__text_add_string(text, " |");
        for (size_t k = 0; row->names[k] != NULL; k++)
            weir__text_printf(text, "%s`%s`", k == 0 ? " " : ", ", row->names[k]);
        weir__text_add_string(text, " |\n");
    }
}

/* ---- The others ---- */

static void add_others(weir__text *text)
{
    const struct {
        const char *paths;
        const serve_field_table *table;
        unsigned where;
    } others[] = {
        {"`/v1/embeddings`", &serve_embeddings_table, 1},    {"`/api/embed`", &serve_ollama_embed_table, 1},
        {"`/api/embeddings`", &serve_ollama_embed_table, 2}, {"`/v1/rerank`", &serve_rerank_table, 1},
        {"`/tokenize`", &serve_tokenize_table, 1},           {"`/detokenize`", &serve_tokenize_table, 2},
    };
    weir__text_add_string(text, "\n| path | fields |\n|---|---|\n");
    for (size_t i = 0; i < COUNT(others); i++) {
        const char *gap = " ";
        weir__text_printf(text, "| %s |", others[i].paths);
        for (size_t k = 0; k < others[i].table->n; k++) {
            const serve_field *f = &others[i].table->fields[k];
            if ((f->where & others[i].where) == 0) continue;
            weir__text_printf(text, "%s`%s`", gap, f->name);
            gap = ", ";
        }
        weir__text_add_string(text, " |\n");
    }
}

/* ---- The page ---- */

static char *read_page(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *page = calloc(1, 1 << 20);
    assert_non_null(page);
    assert_true(fread(page, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return page;
}

static void test_page(void **state)
{
    static const char mark[] = "<!-- The rest is written by server/api/common/fields_test.c. -->\n\n";
    char path[4096];
    weir__text text = {0};
    (void)state;
    assert_non_null(getenv("WEIR_SOURCE_DIR"));
    snprintf(path, sizeof path, "%s/docs/guides/fields.md", getenv("WEIR_SOURCE_DIR"));
    char *page = read_page(path), *rest = strstr(page, mark);
    assert_non_null(rest);
    rest += strlen(mark);
    add_dialects(&text);
    add_objects(&text);
    add_others(&text);
    assert_false(text.failed);
    if (strcmp(rest, text.bytes) != 0 && getenv("WEIR_UPDATE") != NULL) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fprintf(file, "%.*s%s", (int)(rest - page), page, text.bytes);
        assert_int_equal(fclose(file), 0);
    } else if (strcmp(rest, text.bytes) != 0) {
        size_t same = 0;
        while (rest[same] == text.bytes[same]) same++;
        fail_msg(
            "docs/guides/fields.md is not what the server does (WEIR_UPDATE=1 writes it); from here:\n%.200s",
            text.bytes + same);
    }
    weir__text_fini(&text);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_page)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

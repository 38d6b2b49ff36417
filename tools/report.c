/* report.c: prints a JSON object as tables, lines and numbers, by the shape of its members.
 * SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "cli/lib/cli.h"
#include "cli/lib/out.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"

static bool is_numbers(json_t *json)
{
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value) if (!json_is_number(value)) return false;
    return json_object_size(json) > 0;
}

/* Numbers with three digits or more, and at most three decimals; "-" for null and for missing figures. */
static void add_cell(cli_table *table, const json_t *value)
{
    cli_text safe = {0};
    double number = json_number_value(value);
    if (json_is_integer(value))
        cli_table_cell(table, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        cli_table_cell(table, "%.*f",
                       number >= 100 || number == 0 ? 0
                       : number >= 10               ? 1
                       : number >= 1                ? 2
                                                    : 3,
                       number);
    else if (json_is_boolean(value))
        cli_table_cell(table, json_is_true(value) ? "yes" : "no");
    else {
        const char *string = json_is_string(value) ? json_string_value(value) : "-";
        cli_text_add_safe(&safe, string, strlen(string));
        cli_table_cell(table, "%s", safe.n > 0 ? safe.bytes : "");
        weir__text_fini(&safe);
    }
}

static const json_t *value_at(const json_t *row, const char *path)
{
    for (;;) {
        char key[64];
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        row = json_object_get(row, key);
        if (path[n] == '\0') return row;
        path += n + 1;
    }
}

/* Frees the table. */
static void print_table(cli_text *text, cli_table *table, cli_style head)
{
    if (table->n_cells > 0)
        cli_table_print(table, text, cli_term_style_out(head), cli_term_style_out(CLI_PLAIN));
    cli_table_fini(table);
}

static void print_rows(cli_text *text, const json_t *rows, const bench_column *columns, size_t n)
{
    cli_table table = {.n_columns = (int)n, .left = 1 | 2};
    for (size_t c = 0; c < n; c++) cli_table_cell(&table, "%s", columns[c].title);
    for (size_t i = 0; i < json_array_size(rows); i++)
        for (size_t c = 0; c < n; c++) add_cell(&table, value_at(json_array_get(rows, i), columns[c].path));
    cli_text_puts(text, "\n");
    print_table(text, &table, CLI_BOLD);
}

/* Single values, a line each. */
static void print_values(cli_text *text, json_t *object)
{
    cli_table table = {.n_columns = 2, .left = 2};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (json_is_object(value) || json_is_array(value) || json_is_null(value)) continue;
        cli_table_cell(&table, "%s", key);
        add_cell(&table, value);
    }
    print_table(text, &table, CLI_PLAIN);
}

/* Members that are objects of numbers, all with the first one's names. */
static void print_numbers(cli_text *text, json_t *object)
{
    cli_table table = {0};
    const char *name, *key;
    json_t *row, *value, *first = NULL;
    json_object_foreach(object, name, row)
    {
        if (!is_numbers(row)) continue;
        if (first == NULL) {
            first = row;
            table.n_columns = 1 + (int)json_object_size(row);
            cli_table_cell(&table, "%s", "");
            json_object_foreach(first, key, value) cli_table_cell(&table, "%s", key);
        }
        cli_table_cell(&table, "%s", name);
        json_object_foreach(first, key, value) add_cell(&table, json_object_get(row, key));
    }
    print_table(text, &table, CLI_BOLD);
}

static void print_object(cli_text *text, json_t *object, const bench_column *columns, size_t n);

static void print_titled(cli_text *text, const char *title, json_t *object, const bench_column *columns,
                         size_t n)
{
    cli_text_printf(text, "\n%s%s%s\n", cli_term_style_out(CLI_BOLD), title, cli_term_style_out(CLI_PLAIN));
    print_object(text, object, columns, n);
}

static void print_object(cli_text *text, json_t *object, const bench_column *columns, size_t n)
{
    const char *name;
    json_t *value, *item;
    size_t i;
    print_values(text, object);
    print_numbers(text, object);
    json_object_foreach(object, name, value)
    {
        if (strcmp(name, "rows") == 0)
            print_rows(text, value, columns, n);
        else if (json_is_array(value))
            json_array_foreach(value, i, item)
            {
                if (json_is_object(item)) print_titled(text, name, item, columns, n);
            }
        else if (json_object_size(value) > 0 && !is_numbers(value))
            print_titled(text, name, value, columns, n);
    }
}

void bench_report(const cli_args *args, json_t *report, const bench_column *columns, size_t n)
{
    cli_text text = {0};
    if (args->json || report == NULL) {
        cli_out_json(report);
        return;
    }
    print_object(&text, report, columns, n);
    cli_out_text(&text);
    json_decref(report);
}

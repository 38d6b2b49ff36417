/* message_test.c: the names of tools, beside each pair of them; and how many there may be.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/dice.h"

#define MOST 12

/* Names of rules that llama.cpp makes of a tool's name: its own, and others that begin with it and one
 * of these. */
static const char *const derived[] = {"-schema", "-arg"};

static void rule_of(const char *name, char rule[65])
{
    size_t i = 0;
    for (; name[i] != '\0'; i++) rule[i] = name[i] == '_' || name[i] == '.' ? '-' : name[i];
    rule[i] = '\0';
}

/* True if the rules of `a` may have the name of b's own one. */
static bool may_have(const char *a, const char *b)
{
    char first[65], second[65], begin[80];
    rule_of(a, first);
    rule_of(b, second);
    if (strcmp(first, second) == 0) return true;
    for (size_t i = 0; i < 2; i++) {
        snprintf(begin, sizeof begin, "%s%s", first, derived[i]);
        if (strncmp(second, begin, strlen(begin)) == 0) return true;
    }
    return false;
}

/* The list as JSON, freed by the caller. */
static char *tools_of(char names[][65], size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:{s:s}}", "function", "name", names[i]));
    char *text = json_dumps(list, 0);
    json_decref(list);
    assert_non_null(text);
    return text;
}

static weir_status read_tools(const char *text, weir_error *error)
{
    weir_chat_params params = weir_chat_params_default();
    weir__chat_tools tools;
    params.tools_json = text;
    weir_status status = weir__chat_tools_init(&params, &tools, error);
    weir__chat_tools_fini(&tools);
    return status;
}

static void make_name(dice *d, char name[65])
{
    static const char *const parts[] = {"a", "b", "-", "_", "-schema", "_arg", "-arg", ".schema", "-ar", "s"};
    name[0] = '\0';
    do strcat(name, parts[dice_roll(d) % (sizeof parts / sizeof *parts)]);
    while (!dice_one_in(d, 3) && strlen(name) < 50);
}

/* The first tool that collides with an earlier one is refused, and the message has the first of these. */
static void names_are_judged_as_each_pair_is(void **state)
{
    dice d = {.state = 27};
    int n_refused = 0, n_accepted = 0;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char names[MOST][65], field[64] = "", pair[64] = "";
        const size_t n = (size_t)dice_in(&d, 2, MOST);
        for (size_t i = 0; i < n; i++) make_name(&d, names[i]);
        for (size_t i = 0; field[0] == '\0' && i < n; i++)
            for (size_t k = 0; field[0] == '\0' && k < i; k++) {
                if (!may_have(names[i], names[k]) && !may_have(names[k], names[i])) continue;
                snprintf(field, sizeof field, "tools[%zu].function.name", i);
                snprintf(pair, sizeof pair, "tools %zu and %zu", k, i);
            }
        char *text = tools_of(names, n);
        weir_error error = {0};
        const weir_status status = read_tools(text, &error);
        if ((status == WEIR_OK) != (field[0] == '\0') || strcmp(error.field, field) != 0 ||
            strstr(error.message, pair) == NULL)
            fail_msg("%s: %s, not %s %s", text, error.message, field, pair);
        n_refused += status != WEIR_OK;
        n_accepted += status == WEIR_OK;
        free(text);
    }
    assert_true(n_refused > 100 && n_accepted > 100);
}

static void there_may_be_1024_tools(void **state)
{
    static char names[1025][65];
    weir_error error = {0};
    (void)state;
    for (size_t i = 0; i < 1025; i++) snprintf(names[i], sizeof names[i], "tool_%zu", i);
    char *text = tools_of(names, 1024);
    assert_int_equal(read_tools(text, &error), WEIR_OK);
    free(text);
    text = tools_of(names, 1025);
    assert_int_equal(read_tools(text, &error), WEIR_INVALID);
    assert_string_equal(error.field, "tools_json");
    assert_non_null(strstr(error.message, "1024"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_judged_as_each_pair_is),
        cmocka_unit_test(there_may_be_1024_tools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* chat_template_test.c: templates, their limits and the cache of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/chat.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static void test_template(void **state)
{
    (void)state;
    if (no_llama()) skip();
    weir_chat_params params = params_of("{% for m in messages %}[{{ m.role }}:{{ m.content|upper }}]{% "
                                        "endfor %}{{ x|default([])|tojson }}{{ y }}");
    static const weir_template_arg args[] = {{"x", "[1, 2]"}, {"y", "not JSON"}};
    expect_prompt(&params, "[system:BE BRIEF.][user:HI][]");
    params.args = args;
    params.n_args = 2;
    expect_prompt(&params, "[system:BE BRIEF.][user:HI][1, 2]not JSON");
    params.args = NULL;
    expect_error(&params, WEIR_INVALID, "args", "NULL");
    params.n_args = 0;

    params = params_of("{{ raise_exception('only pirates') }}");
    expect_error(&params, WEIR_TEMPLATE, "", "rendered: only pirates (line 1, column 19)");
    params = params_of("{% if %}");
    expect_error(&params, WEIR_TEMPLATE, "template_source", "parsed: line 1: Unexpected token");
    params = params_of("{{");
    expect_error(&params, WEIR_TEMPLATE, "template_source", "parsed: line 1: Unexpected EOF, near '{{'");
    params = params_of("{{ no_such_function() }}");
    expect_error(&params, WEIR_TEMPLATE, "", "template");
    params = params_of("");
    expect_error(&params, WEIR_INVALID, "template_source", "0 bytes");
    params = params_of("\xFF");
    expect_error(&params, WEIR_INVALID, "template_source", "UTF-8");

    char *big = malloc(300000);
    assert_non_null(big);
    memset(big, 'x', 299999);
    big[299999] = '\0';
    params = params_of(big);
    expect_error(&params, WEIR_INVALID, "template_source", "299999 bytes");
    memset(big, '(', 100000);
    big[100000] = '\0';
    expect_error(&params, WEIR_INVALID, "template_source", "brackets");
    /* An expression as deep as is allowed, and a chain as long: an error of the template's or none, but no
     * end of the process. */
    strcpy(big, "{{ ");
    memset(big + 3, '(', 16000);
    strcpy(big + 16003, "1 }}");
    expect_error(&params, WEIR_TEMPLATE, "template_source", "template");
    strcpy(big, "{{ 1");
    for (size_t i = 0; i < 20000; i++) memcpy(big + 4 + 2 * i, "+1", 3);
    strcat(big, " }}");
    expect_prompt(&params, "20001");
    free(big);

    static const weir_template_arg bad[][1] = {{{"", "1"}},
                                               {{NULL, "1"}},
                                               {{"a", NULL}},
                                               {{"\xFF", "1"}},
                                               {{"a", "\xFF"}},
                                               {{"messages", "[]"}},
                                               {{"enable_thinking", "1"}}};
    params = params_of("x");
    params.n_args = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        params.args = bad[i];
        expect_error(&params, WEIR_INVALID, "args[0]", "args[0]");
    }
}

/* The line on which the parser fails, whatever comes after it; of a block that is not closed, the line on
 * which it begins. */
static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *source, *said;
    } mistakes[] = {
        {"{{ x", "line 1: "},
        {"\n\n{{ x }\nthe end\n", "line 3: Expected }}"},
        {"a\r\n{% bad %}\r\n", "line 2: Unknown statement: bad"},
        {"{% if x %}\n{% bad %}\n{% endif %}{% worse %}", "line 2: Unknown statement: bad"},
        {"1\n2\n{% for m in messages %}\n4\n5\n", "line 3: "},
        {"{% if a %}\n{% endif %}\n{% if b %}\n{% for c in d %}\n{% endfor %}\n", "line 3: "},
    };
    if (no_llama()) skip();
    assert_int_equal(weir_chat_check(NULL, "x", NULL), WEIR_INVALID);
    assert_int_equal(weir_chat_check(model, NULL, NULL), WEIR_OK);
    assert_int_equal(weir_chat_check(model, "{% for m in messages %}{{ m.content }}{% endfor %}", NULL),
                     WEIR_OK);
    assert_int_equal(weir_chat_check(model, "{{ raise_exception('never') }}", NULL), WEIR_OK);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        weir_error why = {0};
        assert_int_equal(weir_chat_check(model, mistakes[i].source, &why), WEIR_TEMPLATE);
        assert_string_equal(why.field, "template_source");
        if (strstr(why.message, mistakes[i].said) == NULL) fail_msg("%zu: %s", i, why.message);
    }
}

static char logged[512]; /* the last line at WEIR_LOG_ERROR; "" = there was none */

static void keep_error(weir_log_level level, const char *message, void *user)
{
    (void)user;
    if (level == WEIR_LOG_ERROR) snprintf(logged, sizeof logged, "%s", message);
}

/* What Jinja says; what C++ says is in the log alone. */
static void test_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *source, *field, *said, *logged;
    } mistakes[] = {
        {"{{ 'abc'.startswith(5) }}", "", "'startswith' expected value of type String, got Integer (line 1, ",
         ""},
        {"{{ 5 is divisibleby('a') }}", "", "expected value of type Integer, got String", ""},
        {"{{ 99999999999999999999 }}", "template_source",
         "the chat template cannot be parsed; the log has the reason", "llama.cpp threw: stoll"},
        {"{{ 99999999999999999999 }}\n{{ 'x }}", "template_source", "parsed: line 2: ", ""},
        {"{{ raise_exception('map::at is for models') }}", "", "map::at is for models (line 1, ", ""},
        /* Beyond its budget: a limit of weir's, of which the log has nothing to add. */
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
         "template_source", "steps of work", ""},
    };
    if (no_llama()) skip();
    weir_log_set(keep_error, NULL);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        weir_chat_params params = params_of(mistakes[i].source);
        logged[0] = '\0';
        expect_error(&params, WEIR_TEMPLATE, mistakes[i].field, mistakes[i].said);
        if (strstr(logged, mistakes[i].logged) == NULL ||
            (logged[0] != '\0') != (mistakes[i].logged[0] != '\0'))
            fail_msg("%s: logged: %s", mistakes[i].source, logged);
    }
    weir_log_set(NULL, NULL);
}

static void test_specials(void **state)
{
    (void)state;
    if (no_llama()) skip();
    weir_model_info info = {.size = sizeof info};
    assert_int_equal(weir_model_describe(model, &info), WEIR_OK);
    /* The text lacks the tokens that the tokenizer adds. */
    weir_chat_params params = params_of("{{ bos_token }}x{{ bos_token }}");
    expect_prompt(&params, info.add_bos ? "x<s>" : "<s>x<s>");
    params = params_of("{{ eos_token }}x{{ eos_token }}");
    expect_prompt(&params, info.add_eos ? "</s>x" : "</s>x</s>");
}

static void test_now(void **state)
{
    (void)state;
    if (no_llama()) skip();
    setenv("TZ", "UTC", 1);
    weir_chat_params params =
        params_of("{{ date_string }}|{{ strftime_now(\"%Y-%m-%d\") }}|{{ strftime_now( '%H' ) }}");
    params.now = 1700000000;
    expect_prompt(&params, "14 Nov 2023|2023-11-14|22");
    params.now = 1;
    expect_prompt(&params, "01 Jan 1970|1970-01-01|00");
    params.now = -1;
    expect_error(&params, WEIR_INVALID, "now", "-1");
    static const weir_template_arg date[] = {{"date_string", "today"}};
    params.now = 1;
    params.args = date;
    params.n_args = 1;
    params.template_source = "{{ date_string }}";
    expect_prompt(&params, "today");
}

static void *render_many(void *user)
{
    char source[96];
    for (int i = 0; i < 60; i++) {
        weir_chat_params params = params_of(NULL);
        weir_chat *chat = NULL;
        /* More templates than the cache holds, the same ones from all threads. */
        snprintf(source, sizeof source, "%d{%% for m in messages %%}{{ m.content }}{%% endfor %%}", i % 12);
        if (!no_llama()) params.template_source = i % 3 == 0 ? NULL : source;
        weir_error error = {0};
        if (weir_chat_create(model, &params, &chat, &error) != WEIR_OK) {
            print_message("%s\n", error.message);
            return NULL;
        }
        if (strstr(weir_chat_prompt(chat, NULL), "Hi") == NULL) {
            print_message("no content in: %s\n", weir_chat_prompt(chat, NULL));
            return NULL;
        }
        weir_chat_release(chat);
    }
    return user;
}

static void test_threads(void **state)
{
    pthread_t threads[4];
    int numbers[4];
    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, &numbers[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, &numbers[i]);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    weir_chat_params params = params_of(NULL);
    long live = weir__mem_live();
    /* The first template of a model: the cache itself. */
    for (long n = 0;; n++) {
        weir_model *fresh = NULL;
        weir_chat *chat = NULL;
        params = params_of(NULL);
        assert_int_equal(weir_model_load("fake:", NULL, &fresh, NULL), WEIR_OK);
        weir__mem_fail_after(n);
        weir_status status = weir_chat_create(fresh, &params, &chat, NULL);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        weir_model_release(fresh); /* a chat holds its model */
        weir_chat_release(chat);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_template),  cmocka_unit_test(test_lines), cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_specials),  cmocka_unit_test(test_now),   cmocka_unit_test(test_threads),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, load, unload);
}

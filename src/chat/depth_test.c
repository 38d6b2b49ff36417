/* depth_test.c: deep templates, expressions and values, and values in themselves, end with a status.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/chat.h"
#include "support/effort.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <stdlib.h>

static void test_depth(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    expect_limit(
        "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{% call f(x) %}{% endcall %}{% endmacro %}"
        "{{ f(1) }}",
        "chat template");
    expect_limit("{% macro f(x) %}{% if x %}{{ f(x + 1)|upper }}{% endif %}{% endmacro %}{{ f(1) }}",
                 "chat template");
    /* A recursion that ends. */
    weir_chat_params params =
        params_of("{% macro f(x) %}{% if x > 0 %}{{ f(x - 1) }}{% else %}done{% endif %}{% endmacro %}"
                  "{{ f(1000) }}");
    expect_prompt(&params, "done");
}

/* Depths at which a stack has no room for a call for each level. Sanitizers look for other mistakes. */
#ifdef WEIR_SANITIZED
#define DEEP   "200"
#define DEEPER "2000"
#else
#define DEEP   "50000"
#define DEEPER "500000"
#endif

/* Lists of lists of lists … are made, written and freed without a call for each level. */
static void test_nested_values(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
#define NEST "{% set n = namespace(a=[]) %}{% for i in range(" DEEP ") %}{% set n.a = [n.a] %}{% endfor %}"
    static const char *const uses[] = {
        "{% set n = namespace(a=(1, 2)) %}{% for i in range(" DEEP ") %}{% set n.a = {'k': (n.a, 1)} %}{% "
        "endfor %}",
        "{% set n = namespace(a=[]) %}{% for i in range(" DEEP ") %}"
        "{% set b = [] %}{% set c = b.append(x=n.a) %}{% set n.a = b.pop() %}{% endfor %}",
        NEST "{% set n.a = 1 %}",
        NEST "{{ n.a|tojson }}",
        NEST "{{ n.a }}",
        NEST "{{ n.a|string }}",
        NEST "{% set n.b = n.a %}{% if n.a == n.b %}{% endif %}",
        "{% set n = namespace(a=(1, 2)) %}{% for i in range(" DEEPER
        ") %}{% set n.a = (n.a, 1) %}{% endfor %}{{ "
        "{n.a: "
        "1} }}",
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        weir_chat *chat = NULL;
        weir_chat_params params = params_of(uses[i]);
        weir_status status = weir_chat_create(model, &params, &chat, NULL); /* any, but a crash */
        if (status != WEIR_OK) assert_int_equal(status, WEIR_TEMPLATE);
        weir_chat_release(chat);
    }
}

static size_t in_use(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33) && !defined(__SANITIZE_ADDRESS__)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

static void test_values_in_themselves(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    expect_limit("{% set n = namespace() %}{% set n.n = n %}{{ n|tojson }}", "chat template");
    expect_limit("{% set a = [] %}{% set b = a.append(a) %}{{ a|string }}", "chat template");
    size_t before = 0;
    for (int i = 0; i < EFFORT(12, 1); i++) {
        weir_chat_params params =
            params_of("{% set n = namespace(s='x' * 50000) %}{% set n.n = n %}"
                      "{% set a = ['y' * 50000] %}{% set b = a.append([a]) %}"
                      "{% macro m() %}{% set n.f = caller %}{% set n.s = 'z' * 50000 %}{% endmacro %}"
                      "{% call m() %}{% endcall %}x");
        expect_prompt(&params, "x");
        if (i == 2) before = in_use();
    }
    assert_true(in_use() < before + 400000); /* one of the texts each time is more */
}

static void *release_template(void *user)
{
    weir_model_release(user);
    return NULL;
}

/* A template as deep as its source can be: parsed, run and freed, the last on a thread with little stack. */
static void test_long_expressions(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    static const struct {
        const char *begin, *unit, *end;
    } forms[] = {
        {"{{ 1", "+1", " }}"},       {"{{ ", "not ", "1 }}"},         {"{{ ", "- ", "1 }}"},
        {"{{ x", ".y", " }}"},       {"{{ 1", " if 1 else 2", " }}"}, {"{{ 'a'", "|upper", " }}"},
        {"{{ 1", " is none", " }}"}, {"", "{% if 1 %}", ""},
    };
    const size_t n_source = EFFORT(262144, 16384);
    char *source = malloc(n_source + 1);
    assert_non_null(source);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t n = strlen(forms[i].begin), n_unit = strlen(forms[i].unit);
        memcpy(source, forms[i].begin, n);
        for (size_t k = 0; n + n_unit + 4 < n_source && (n_unit < 9 || k < 8000); k++, n += n_unit)
            memcpy(source + n, forms[i].unit, n_unit);
        strcpy(source + n, forms[i].end);
        weir_model *fresh = NULL;
        weir_chat *chat = NULL;
        assert_int_equal(weir_model_load("fake:", NULL, &fresh, NULL), WEIR_OK);
        weir_chat_params params = params_of(source);
        weir_status status = weir_chat_create(fresh, &params, &chat, NULL); /* any, but a crash */
        if (status != WEIR_OK) assert_int_equal(status, WEIR_TEMPLATE);
        weir_chat_release(chat);
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 1 << 20);
        assert_int_equal(pthread_create(&thread, &attributes, release_template, fresh), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attributes);
    }
    free(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_nested_values),
        cmocka_unit_test(test_values_in_themselves),
        cmocka_unit_test(test_long_expressions),
    };
    return cmocka_run_group_tests(tests, load, unload);
}

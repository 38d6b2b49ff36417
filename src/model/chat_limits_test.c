/* chat_limits_test.c: templates are programs of callers: whatever they do, they end, with a status.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/chat_testing.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <stdlib.h>

/* Only the pinned llama.cpp counts what templates do. */
static bool is_pinned(void)
{
    return !no_llama() && weir_backend_version()[0] == 'v';
}

static void expect_limit(const char *source, const char *word)
{
    weir_chat_params params = params_of(source);
    expect_error(&params, WEIR_TEMPLATE, "", word);
}

static void test_depth(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    expect_limit("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "chat template");
    expect_limit(
        "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{% call f(x) %}{% endcall %}{% endmacro %}"
        "{{ f(1) }}",
        "chat template");
    expect_limit("{% macro f(x) %}{% if x %}{{ f(x + 1)|upper }}{% endif %}{% endmacro %}{{ f(1) }}",
                 "chat template");
    /* What does recurse, but for a while. */
    weir_chat_params params =
        params_of("{% macro f(x) %}{% if x > 0 %}{{ f(x - 1) }}{% else %}done{% endif %}{% endmacro %}"
                  "{{ f(1000) }}");
    expect_prompt(&params, "done");
}

static void test_steps(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    static const char *const endless[] = {
        "{{ range(1000000000)|length }}",
        "{% for i in range(0, 9223372036854775807, 4611686018427387904) %}{% endfor %}"
        "{% for i in range(-1000000000, 0) %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% set n = range(10000) %}{% for i in n %}{{ n|sort|first }}{% endfor %}",
        "{% set n = namespace(a=[]) %}{% for i in range(500000) %}{% set n.a = n.a + [i] %}{% endfor %}",
        "{% set n = namespace(t=(1, 2)) %}{% for i in range(60) %}{% set n.t = (n.t, n.t) %}{% endfor %}"
        "{{ {n.t: 1}[n.t] }}",
        "{% set n = namespace(t=[1]) %}{% for i in range(60) %}{% set n.t = [n.t, n.t] %}{% endfor %}"
        "{% if n.t == n.t|list %}x{% endif %}{{ n.t|tojson|length }}",
        "{% set s = 'ab' * 500000 %}{% for i in range(1000000) %}{% if s + 'c' in s %}x{% endif %}{% endfor "
        "%}",
        "{% set s = 'a' * 200000 %}{% for i in range(100000) %}{{ s.split('b')|length }}"
        "{{ s.rsplit(s)|length }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        weir_chat *chat = NULL;
        weir_error error = {0};
        weir_chat_params params = params_of(endless[i]);
        weir_status status = weir_chat_create(model, &params, &chat, &error);
        if (status != WEIR_TEMPLATE || strstr(error.message, " more than ") == NULL)
            fail_msg("%s: %s", endless[i], error.message);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    static const char *const large[] = {
        "{{ ('x' * 10000000000)|length }}",
        "{% set n = namespace(s='x') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set s = 'x' * 1000000 %}{{ s|replace('x', s)|length }}",
        "{% set s = 'x' * 1000000 %}{{ s|replace('', s)|length }}",
        "{{ 'x\ny\nz'|indent(1000000000000)|length }}",
        "{{ [[[1]]]|tojson(separators=['x' * 1000000, ('y' * 1000000) * 1000]) }}",
        ("{% set s = 'x' * 1000000 %}{% set a = namespace(l=[s]) %}{% for i in range(40) %}"
         "{% set a.l = a.l + a.l %}{% endfor %}{{ a.l|tojson|length }}"),
        "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ 'x' * 8000000 }}",
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        weir_chat *chat = NULL;
        weir_error error = {0};
        weir_chat_params params = params_of(large[i]);
        weir_status status = weir_chat_create(model, &params, &chat, &error);
        if (status != WEIR_TEMPLATE) fail_msg("%s: %s", large[i], weir_status_name(status));
    }
    /* One that stays is said to be too long for its messages. */
    expect_limit("{{ 'x' * 8000000 }}", "KiB");
}

/* Lists of lists of lists … are made, written and freed without a call for each level. */
static void test_nested_values(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
#define NEST "{% set n = namespace(a=[]) %}{% for i in range(50000) %}{% set n.a = [n.a] %}{% endfor %}"
    static const char *const uses[] = {
        "{% set n = namespace(a=(1, 2)) %}{% for i in range(50000) %}{% set n.a = {'k': (n.a, 1)} %}{% "
        "endfor %}",
        "{% set n = namespace(a=[]) %}{% for i in range(50000) %}"
        "{% set b = [] %}{% set c = b.append(x=n.a) %}{% set n.a = b.pop() %}{% endfor %}",
        NEST "{% set n.a = 1 %}",
        NEST "{{ n.a|tojson }}",
        NEST "{{ n.a }}",
        NEST "{{ n.a|string }}",
        NEST "{% set n.b = n.a %}{% if n.a == n.b %}{% endif %}",
        "{% set n = namespace(a=(1, 2)) %}{% for i in range(500000) %}{% set n.a = (n.a, 1) %}{% endfor %}{{ "
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
    expect_limit("{% set a = [] %}{% set b = a.append(a) %}{{ a }}", "chat template");
    expect_limit("{% set a = [] %}{% set b = a.append(a) %}{{ a|string }}", "chat template");
    size_t before = 0;
    for (int i = 0; i < 40; i++) {
        weir_chat_params params =
            params_of("{% set n = namespace(s='x' * 50000) %}{% set n.n = n %}"
                      "{% set a = ['y' * 50000] %}{% set b = a.append([a]) %}"
                      "{% macro m() %}{% set n.f = caller %}{% set n.s = 'z' * 50000 %}{% endmacro %}"
                      "{% call m() %}{% endcall %}x");
        expect_prompt(&params, "x");
        if (i == 2) before = in_use();
    }
    assert_true(in_use() < before + 1000000);
}

static void test_arithmetic(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    expect_limit("{{ 1 is divisibleby(0) }}", "zero");
    weir_chat_params params =
        params_of("{{ 4 is divisibleby(-1) }}{{ (-9223372036854775807 - 1) is divisibleby(-1) }}");
    expect_prompt(&params, "TrueTrue");
    params =
        params_of("{% set l = namespace(a=[]) %}{% for i in range(400) %}"
                  "{% set l.a = l.a + ['nan'|float, i, 'x', none] %}{% endfor %}{{ (l.a|sort)|length }}");
    expect_prompt(&params, "1600");
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
    char *source = malloc(262145);
    assert_non_null(source);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t n = strlen(forms[i].begin), n_unit = strlen(forms[i].unit);
        memcpy(source, forms[i].begin, n);
        for (size_t k = 0; n + n_unit + 4 < 262144 && (n_unit < 9 || k < 8000); k++, n += n_unit)
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

static bool third_time(void *user)
{
    return ++*(int *)user == 3;
}

static void test_interrupt(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    int asked = 0;
    weir_chat_params params = params_of("{% for i in range(100) %}{{ i }}{% endfor %}");
    weir_interrupt_set(third_time, &asked);
    expect_error(&params, WEIR_ABORTED, "", "asked to stop");
    assert_int_equal(asked, 3);
    weir_interrupt_set(NULL, NULL);
    weir_chat_release(create(&params)); /* and it renders without */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_nested_values),
        cmocka_unit_test(test_values_in_themselves),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_long_expressions),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests(tests, load, unload);
}

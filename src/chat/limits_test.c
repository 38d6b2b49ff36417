/* limits_test.c: templates are programs of callers: whatever they do, they end, with a status.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/chat.h"

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

static void test_arithmetic(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    weir_chat_params params = params_of("{{ 1 is divisibleby(0) }}");
    expect_error(&params, WEIR_TEMPLATE, "", "zero");
    params = params_of("{{ 4 is divisibleby(-1) }}{{ (-9223372036854775807 - 1) is divisibleby(-1) }}");
    expect_prompt(&params, "TrueTrue");
    params =
        params_of("{% set l = namespace(a=[]) %}{% for i in range(200) %}"
                  "{% set l.a = l.a + ['nan'|float, i, 'x', none] %}{% endfor %}{{ (l.a|sort)|length }}");
    expect_prompt(&params, "800");
}

/* The number of times that an interrupt was asked, and the one at which it says yes. */
typedef struct asking {
    int asked, last;
} asking;

static bool ask(void *user)
{
    asking *a = user;
    return ++a->asked == a->last;
}

static void test_interrupt(void **state)
{
    (void)state;
    if (!is_pinned()) skip();
    asking a = {0};
    weir_chat_params params = params_of("{% for i in range(100) %}{{ i }}{% endfor %}");
    weir_interrupt_set(ask, &a);
    weir_chat_release(create(&params));
    a.asked = 0;
    weir_chat_release(create(&params)); /* which is parsed and analyzed already */
    a = (asking){.last = a.asked};
    expect_error(&params, WEIR_ABORTED, "", "asked to stop");
    assert_int_equal(a.asked, a.last);
    weir_interrupt_set(NULL, NULL);
    weir_chat_release(create(&params)); /* and it renders without */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests(tests, load, unload);
}

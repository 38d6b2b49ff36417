/* SPDX-License-Identifier: Apache-2.0 */
#include "mask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HEX          "0123456789abcdef0123456789ABCDEF"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_ids(void **state)
{
    static const char *const texts[][2] = {
        {"", ""},
        {"/v1/models", "/v1/models"},
        {"resp_" HEX, "resp_01234567*"},
        {"chatcmpl-" HEX, "chatcmpl-01234567*"},
        {"/a/msg_" HEX "/x-" HEX "?", "/a/msg_01234567*/x-01234567*?"},
        {"msg_" HEX "_0", "msg_01234567*_0"},
        {"resp_" HEX "0a", "resp_01234567*"},
        /* Digits that are too few, or the ids of traces. */
        {"resp_0123456789abcdef0123456789abcde", "resp_0123456789abcdef0123456789abcde"},
        {HEX, HEX},
        {"00-" HEX "-0123456789abcdef-01", "00-" HEX "-0123456789abcdef-01"},
        {"01234567-89ab-cdef-0123-456789abcdef", "01234567-89ab-cdef-0123-456789abcdef"},
        {"-" HEX, "-" HEX},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        char text[256];
        snprintf(text, sizeof text, "%s", texts[i][0]);
        serve_mask_ids(text, sizeof text);
        assert_string_equal(text, texts[i][1]);
    }
}

/* Wherever the end of the memory cuts an id, no more of it is left than in others. */
static void test_ids_at_the_end(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 32; n++) {
        char text[64];
        size_t capacity = (size_t)snprintf(text, sizeof text, "/x/resp_%.*s", (int)n, HEX) + 1;
        serve_mask_ids(text, capacity);
        assert_true(strspn(text + 8, "0123456789abcdefABCDEF") <= 8);
    }
}

static void test_paths(void **state)
{
    static const char *const texts[][2] = {
        {"", ""},
        {"no path", "no path"},
        {"/srv/models/a.gguf is damaged", "a.gguf is damaged"},
        {"\"/srv/my models/a b.gguf\" could be", "\"a b.gguf\" could be"},
        {"'/a/b' and '/c/d'", "'b' and 'd'"},
        {"cannot be opened: /a/b: no such file", "cannot be opened: b: no such file"},
        {"it is (/a/b), /c/d.", "it is (b), d."},
        {"/a", "a"},
        {"/a/b/", "b/"},
        {"a / b, 1/2, a/b and https://host/a/b", "a / b, 1/2, a/b and https://host/a/b"},
        {"the end is /", "the end is /"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        char text[256];
        snprintf(text, sizeof text, "%s", texts[i][0]);
        serve_mask_paths(text);
        assert_string_equal(text, texts[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_ids_at_the_end),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

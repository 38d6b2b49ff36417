/* base64_test.c: the RFC's vectors, invalid texts, random bytes there and back, and URLs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/dice.h"

static void expect(const char *text, const char *wanted, size_t n)
{
    unsigned char *bytes = NULL;
    size_t n_bytes = 0;
    if (weir__base64_decode(text, strlen(text), &bytes, &n_bytes) != WEIR_OK) fail_msg("refused: %s", text);
    assert_int_equal(n_bytes, n);
    assert_memory_equal(bytes, wanted, n);
    weir__mem_free(bytes);
}

static void test_vectors_of_the_rfc(void **state)
{
    static const char *const pairs[][2] = {{"", ""},
                                           {"Zg==", "f"},
                                           {"Zm8=", "fo"},
                                           {"Zm9v", "foo"},
                                           {"Zm9vYg==", "foob"},
                                           {"Zm9vYmE=", "fooba"},
                                           {"Zm9vYmFy", "foobar"}};
    (void)state;
    for (size_t i = 0; i < 7; i++) expect(pairs[i][0], pairs[i][1], strlen(pairs[i][1]));
    expect("Zg", "f", 1);
    expect("Zm8", "fo", 2);
    expect(" Zm9v\r\nYg=\n= ", "foob", 4);
    expect("+/+/", "\xfb\xff\xbf", 3);
}

static void test_invalid_base64_is_refused(void **state)
{
    static const char *const bad[] = {"Z",     "Zg=",  "Zg===",    "Zm9vY", "=",    "====", "Zg==Zg==",
                                      "Zm9v=", "Zm-_", "Zm9v\x80", "Zm,v",  "Z=g=", "%5A"};
    (void)state;
    unsigned char *bytes = NULL;
    size_t n;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (weir__base64_decode(bad[i], strlen(bad[i]), &bytes, &n) != WEIR_INVALID) fail_msg("%s", bad[i]);
    assert_int_equal(weir__base64_decode("Zm9v\0Zm9v", 9, &bytes, &n), WEIR_INVALID);
    weir__mem_fail_after(0);
    assert_int_equal(weir__base64_decode("Zm9v", 4, &bytes, &n), WEIR_NO_MEMORY);
    weir__mem_fail_after(-1);
    assert_null(bytes);
    assert_int_equal(weir__mem_live(), 0);
}

/* Decoding reverses an encoder that goes bit by bit. */
static void test_random_bytes(void **state)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    dice d = {3};
    (void)state;
    for (int round = 0; round < 2000; round++) {
        unsigned char given[64];
        char text[96] = "";
        size_t n = (size_t)dice_in(&d, 0, 64), n_text = 0;
        for (size_t i = 0; i < n; i++) given[i] = (unsigned char)dice_roll(&d);
        for (size_t bit = 0; bit < 8 * n; bit += 6) {
            int value = 0;
            for (size_t k = bit; k < bit + 6; k++)
                value = 2 * value + (k < 8 * n ? given[k / 8] >> (7 - k % 8) & 1 : 0);
            text[n_text++] = digits[value];
        }
        for (; dice_one_in(&d, 2) && n_text % 4 != 0;)
            while (n_text % 4 != 0) text[n_text++] = '=';
        expect(text, (const char *)given, n);
    }
}

static void test_urls(void **state)
{
    static const char *const bad[] = {"",
                                      "data:",
                                      "data:,abc",
                                      "data:image/png,abc",
                                      "data:image/png;base64",
                                      "http://h/;base64,abc",
                                      "data:image/png;base64;x,abc",
                                      "dat:image/png;base64,abc",
                                      ";base64,abc"};
    size_t from = 0;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (weir__base64_in_url(bad[i], strlen(bad[i]), &from)) fail_msg("%s", bad[i]);
    assert_true(weir__base64_in_url("data:;base64,abc", 16, &from));
    assert_int_equal(from, 13);
    assert_true(weir__base64_in_url("DATA:image/png;charset=x;BASE64,abc", 35, &from));
    assert_int_equal(from, 32);
    assert_false(weir__base64_in_url("data:;base64,abc", 12, &from)); /* the comma is behind the text */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_the_rfc),
        cmocka_unit_test(test_invalid_base64_is_refused),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

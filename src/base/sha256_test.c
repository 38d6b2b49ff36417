/* sha256_test.c: the standard's vectors, in pieces of any size.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include "support/model.h"

static void assert_digest(const char *text, size_t repeats, const char *expected)
{
    weir__sha256 state;
    char hex[65];
    weir__sha256_init(&state);
    for (size_t i = 0; i < repeats; i++) weir__sha256_feed(&state, text, strlen(text));
    weir__sha256_hex(&state, hex);
    assert_string_equal(hex, expected);
}

/* The examples that come with the standard. */
static void test_vectors_of_the_standard(void **state)
{
    (void)state;
    assert_digest("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_digest("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_digest(
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsm"
        "nopqrstnopqrstu",
        1, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    assert_digest("aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_cuts_make_no_difference(void **state)
{
    (void)state;
    unsigned char bytes[300];
    char whole[65], cut[65];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
    for (size_t n = 0; n < sizeof bytes; n++)
        for (size_t step = 1; step < 130; step += 21) {
            weir__sha256 a, b;
            weir__sha256_init(&a);
            weir__sha256_init(&b);
            weir__sha256_feed(&a, bytes, n);
            for (size_t at = 0; at < n; at += step)
                weir__sha256_feed(&b, bytes + at, n - at < step ? n - at : step);
            weir__sha256_feed(&b, NULL, 0);
            weir__sha256_hex(&a, whole);
            weir__sha256_hex(&b, cut);
            assert_string_equal(whole, cut);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_the_standard),
        cmocka_unit_test(test_cuts_make_no_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

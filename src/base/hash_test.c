/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "model/testing.h"

static void test_kept_hashes_stay_what_they_are(void **state)
{
    (void)state;
    assert_true(weir__hash(0, "", 0) == 0);
    assert_true(weir__hash(7, "", 0) == 7);
    assert_true(weir__hash(0, "weir", 4) == UINT64_C(0xd611f81225f46915));
    assert_true(weir__hash(1, "a longer text", 13) == UINT64_C(0x4636b062960380df));
}

static void test_every_change_of_a_byte_shows(void **state)
{
    (void)state;
    unsigned char bytes[37] = {0};
    uint64_t before = weir__hash(0, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        for (int value = 1; value < 256; value++) {
            bytes[i] = (unsigned char)value;
            assert_true(weir__hash(0, bytes, sizeof bytes) != before);
            bytes[i] = 0;
        }
    for (size_t n = 0; n < sizeof bytes; n++) assert_true(weir__hash(0, bytes, n) != before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_hashes_stay_what_they_are),
        cmocka_unit_test(test_every_change_of_a_byte_shows),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}

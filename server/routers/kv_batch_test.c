/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kv_batch.h"

#define BYTES(text, n, literal)                                                                              \
    do {                                                                                                     \
        assert_int_equal((n), sizeof(literal) - 1);                                                          \
        assert_memory_equal((text), literal, sizeof(literal) - 1);                                           \
    } while (0)

/* The bytes are those that MessagePack's specification gives: a fixed array of 3 is 93, a double cb, a short
 * string a0 + n, nil c0, an unsigned of 32 and 64 bits ce and cf. */
static void test_bytes_of_a_batch(void **state)
{
    (void)state;
    const weir_cache_change changes[] = {
        {.id = 1, .parent = 0, .memory = WEIR_CACHE_DEVICE, .stored = true},
        {.id = UINT64_C(0x1122334455667788), .parent = 1, .memory = WEIR_CACHE_DEVICE, .stored = true},
        {.id = 5, .parent = 1, .memory = WEIR_CACHE_HOST, .stored = true}, /* not behind the one before */
        {.id = 7, .parent = 9, .memory = WEIR_CACHE_DISK},
        {.id = 8, .parent = 7, .memory = WEIR_CACHE_DISK},
    };
    const int32_t tokens[10] = {3, 127, 128, 70000, 4, 5};
    weir__text out = {0};
    serve_kv_batch_write(&out, 1.5, changes, tokens, 5, 2);
    assert_false(out.failed);
    BYTES(out.bytes, out.n,
          "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x93"
          "\x97\xab"
          "BlockStored\x92\x01\xcf\x11\x22\x33\x44\x55\x66\x77\x88\xc0\x94\x03\x7f\xce\0\0\0\x80\xce\0\x01"
          "\x11\x70"
          "\x02\xc0\xa3GPU"
          "\x97\xab"
          "BlockStored\x91\x05\x01\x92\x04\x05\x02\xc0\xa3"
          "CPU"
          "\x93\xac"
          "BlockRemoved\x92\x07\x08\xa4"
          "disk"
          "\xc0");
    weir__text_fini(&out);
}

static void test_long_arrays(void **state)
{
    (void)state;
    weir_cache_change changes[20];
    int32_t tokens[20];
    weir__text out = {0};
    for (int i = 0; i < 20; i++) {
        changes[i] = (weir_cache_change){.id = (uint64_t)i + 1, .parent = (uint64_t)i, .stored = true};
        tokens[i] = 0;
    }
    serve_kv_batch_write(&out, 0, changes, tokens, 20, 1);
    assert_memory_equal(out.bytes + 11,
                        "\x97\xab"
                        "BlockStored\xdd\0\0\0\x14\x01\x02",
                        20);
    weir__text_fini(&out);
}

static void test_nothing_is_cached(void **state)
{
    (void)state;
    weir__text out = {0};
    serve_kv_batch_clear(&out, 0);
    BYTES(out.bytes, out.n,
          "\x93\xcb\0\0\0\0\0\0\0\0\x91\x91\xb0"
          "AllBlocksCleared\xc0");
    weir__text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_a_batch),
        cmocka_unit_test(test_long_arrays),
        cmocka_unit_test(test_nothing_is_cached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

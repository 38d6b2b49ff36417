/* vocab_test.c: tokens from texts and back, also where there is no room.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/model.h"

#include "base/utf8.h"

static void test_text_to_tokens(void **state)
{
    (void)state;
    int32_t tokens[16];
    size_t n = 99;
    weir_model *model = fake_load("");
    assert_ok(weir_tokenize(model, "ab", WEIR_NUL, true, false, tokens, 16, &n, error));
    assert_int_equal(n, 3);
    assert_int_equal(tokens[0], WEIR__FAKE_BOS);
    assert_int_equal(tokens[2], 'b');
    assert_ok(weir_tokenize(model, "a\0\xffz", 4, false, false, tokens, 16, &n, error));
    assert_int_equal(n, 4);
    assert_int_equal(tokens[1], 0);
    assert_int_equal(tokens[2], 255);
    assert_ok(weir_tokenize(model, "<|im_start|>u", WEIR_NUL, false, true, tokens, 16, &n, error));
    assert_int_equal(n, 2);
    assert_int_equal(tokens[0], WEIR__FAKE_IM_START);

    assert_ok(weir_tokenize(model, "", WEIR_NUL, false, false, NULL, 0, &n, error));
    assert_int_equal(n, 0);
    assert_ok(weir_tokenize(model, NULL, 0, true, false, tokens, 16, &n, error));
    assert_int_equal(n, 1);
    weir_model_release(model);
}

static void test_how_many_tokens_a_text_has(void **state)
{
    (void)state;
    int32_t tokens[2];
    size_t n = 0;
    weir_model *model = fake_load("");
    assert_refused(weir_tokenize(model, "abc", WEIR_NUL, true, false, NULL, 0, &n, error), WEIR_TOO_LONG,
                   "capacity");
    assert_int_equal(n, 4);
    n = 0;
    assert_refused(weir_tokenize(model, "abc", WEIR_NUL, false, false, tokens, 2, &n, error), WEIR_TOO_LONG,
                   "capacity");
    assert_int_equal(n, 3);
    weir_model_release(model);
}

static void test_bad_arguments_of_tokenize_are_named(void **state)
{
    (void)state;
    int32_t tokens[4];
    size_t n;
    weir_model *model = fake_load("");
    assert_refused(weir_tokenize(NULL, "a", 1, true, true, tokens, 4, &n, error), WEIR_INVALID, "model");
    assert_refused(weir_tokenize(model, NULL, 1, true, true, tokens, 4, &n, error), WEIR_INVALID, "text");
    assert_refused(weir_tokenize(model, NULL, WEIR_NUL, true, true, tokens, 4, &n, error), WEIR_INVALID,
                   "text");
    assert_refused(weir_tokenize(model, "a", 1, true, true, NULL, 4, &n, error), WEIR_INVALID, "tokens");
    assert_refused(weir_tokenize(model, "a", 1, true, true, tokens, 4, NULL, error), WEIR_INVALID,
                   "n_tokens");
    assert_refused(weir_tokenize(model, "a", (size_t)INT32_MAX, true, true, tokens, 4, &n, error),
                   WEIR_INVALID, "length");
    weir_model_release(model);
}

/* ---- Back to text --------------------------------------------------------------------------------- */

static void assert_text(const weir_model *model, const int32_t *tokens, size_t n_tokens, bool special,
                        const char *want)
{
    char text[256];
    size_t length = 0;
    memset(text, 'X', sizeof text);
    assert_ok(weir_detokenize(model, tokens, n_tokens, special, text, sizeof text, &length, error));
    assert_int_equal(length, strlen(want));
    assert_string_equal(text, want);
}

static void test_tokens_to_text(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    static const int32_t plain[] = {'h', 'i', WEIR__FAKE_WORDS, WEIR__FAKE_EOT};
    static const int32_t euro[] = {0xe2, 0x82, 0xac};
    static const int32_t broken[] = {0xe2, 0x82, 'x', 0xff, 0xe2};
    assert_text(model, plain, 4, false, "hi the");
    assert_text(model, plain, 4, true, "hi the<|im_end|>");
    assert_text(model, euro, 3, false, "€");
    assert_text(model, broken, 5, false, "\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd");
    assert_text(model, NULL, 0, false, "");
    weir_model_release(model);
}

static void test_text_that_has_no_room(void **state)
{
    (void)state;
    char text[4] = "XXX";
    size_t length = 0;
    static const int32_t tokens[] = {'a', 'b', 0xff};
    weir_model *model = fake_load("");
    assert_refused(weir_detokenize(model, tokens, 3, false, text, 4, &length, error), WEIR_TOO_LONG,
                   "capacity");
    assert_int_equal(length, 5);
    assert_refused(weir_detokenize(model, tokens, 3, false, NULL, 0, &length, error), WEIR_TOO_LONG,
                   "capacity");
    assert_int_equal(length, 5);
    /* without room for the terminator there is none */
    text[2] = 'X';
    assert_ok(weir_detokenize(model, tokens, 2, false, text, 2, &length, error));
    assert_int_equal(length, 2);
    assert_memory_equal(text, "abX", 3);
    assert_ok(weir_detokenize(model, NULL, 0, false, NULL, 0, &length, error));
    assert_int_equal(length, 0);
    weir_model_release(model);
}

static void test_long_pieces_arrive_whole(void **state)
{
    (void)state;
    static char piece[1000], text[4000], want[4000];
    size_t length;
    weir_model *model = fake_load("");
    /* a character lies across each of the borders between parts */
    for (size_t i = 0; i < sizeof piece; i++) piece[i] = "\xe2\x82\xac\xf0\x9f"[i % 5];
    assert_true(weir__fake_set_piece(model, 300, piece, sizeof piece, WEIR__FAKE_TEXT));
    size_t n = weir__utf8_sanitize(piece, sizeof piece, want);
    int32_t token = 300;
    assert_ok(weir_detokenize(model, &token, 1, false, text, sizeof text, &length, error));
    assert_int_equal(length, n);
    assert_memory_equal(text, want, n);
    assert_ok(weir_piece(model, token, false, text, sizeof text, &length, error));
    assert_int_equal(length, sizeof piece);
    assert_memory_equal(text, piece, sizeof piece);

    weir__mem_fail_after(0);
    assert_refused(weir_detokenize(model, &token, 1, false, text, sizeof text, &length, error),
                   WEIR_NO_MEMORY, "");
    assert_false(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    weir_model_release(model);
}

static void test_bad_arguments_of_detokenize_are_named(void **state)
{
    (void)state;
    char text[8];
    size_t length;
    int32_t tokens[] = {'a', 320};
    weir_model *model = fake_load("");
    assert_refused(weir_detokenize(NULL, tokens, 1, false, text, 8, &length, error), WEIR_INVALID, "model");
    assert_refused(weir_detokenize(model, NULL, 1, false, text, 8, &length, error), WEIR_INVALID, "tokens");
    assert_refused(weir_detokenize(model, tokens, 2, false, text, 8, &length, error), WEIR_INVALID, "tokens");
    tokens[1] = -1;
    assert_refused(weir_detokenize(model, tokens, 2, false, text, 8, &length, error), WEIR_INVALID, "tokens");
    assert_refused(weir_detokenize(model, tokens, 1, false, NULL, 8, &length, error), WEIR_INVALID, "text");
    assert_refused(weir_detokenize(model, tokens, 1, false, text, 8, NULL, error), WEIR_INVALID, "length");
    weir_model_release(model);
}

/* The text equals sanitizing all tokens' bytes at once, whatever the tokens are. */
static void test_text_equals_the_sanitized_bytes(void **state)
{
    (void)state;
    static char bytes[4096], text[16384], want[16384];
    uint32_t x = 12345;
    weir_model *model = fake_load("");
    for (int round = 0; round < 300; round++) {
        int32_t tokens[64];
        size_t n = 0, length;
        for (size_t i = 0; i < 64; i++) {
            x = x * 1664525u + 1013904223u;
            tokens[i] = (int32_t)((x >> 8) % 320);
            assert_ok(weir_piece(model, tokens[i], false, bytes + n, sizeof bytes - n, &length, error));
            n += length;
        }
        size_t n_want = weir__utf8_sanitize(bytes, n, want);
        assert_ok(weir_detokenize(model, tokens, 64, false, text, sizeof text, &length, error));
        assert_int_equal(length, n_want);
        assert_memory_equal(text, want, length);
        assert_true(weir__utf8_valid(text, length));
    }
    weir_model_release(model);
}

/* ---- One token ------------------------------------------------------------------------------------ */

static void test_pieces_are_raw(void **state)
{
    (void)state;
    char bytes[16];
    size_t length = 99;
    weir_model *model = fake_load("");
    assert_ok(weir_piece(model, 0xff, false, bytes, sizeof bytes, &length, error));
    assert_int_equal(length, 1);
    assert_int_equal((unsigned char)bytes[0], 0xff);
    assert_ok(weir_piece(model, WEIR__FAKE_EOS, false, NULL, 0, &length, error));
    assert_int_equal(length, 0);
    assert_refused(weir_piece(model, WEIR__FAKE_EOS, true, bytes, 3, &length, error), WEIR_TOO_LONG,
                   "capacity");
    assert_int_equal(length, 4);
    assert_refused(weir_piece(model, 'a', true, NULL, 0, &length, error), WEIR_TOO_LONG, "capacity");
    assert_int_equal(length, 1);

    assert_refused(weir_piece(NULL, 'a', false, bytes, 16, &length, error), WEIR_INVALID, "model");
    assert_refused(weir_piece(model, 320, false, bytes, 16, &length, error), WEIR_INVALID, "token");
    assert_refused(weir_piece(model, -1, false, bytes, 16, &length, error), WEIR_INVALID, "token");
    assert_refused(weir_piece(model, INT32_MIN, false, bytes, 16, &length, error), WEIR_INVALID, "token");
    assert_refused(weir_piece(model, 'a', false, NULL, 16, &length, error), WEIR_INVALID, "bytes");
    assert_refused(weir_piece(model, 'a', false, bytes, 16, NULL, error), WEIR_INVALID, "length");
    weir_model_release(model);
}

static void test_which_tokens_end(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    assert_true(weir_is_eog(model, WEIR__FAKE_EOS));
    assert_true(weir_is_eog(model, WEIR__FAKE_EOT));
    assert_false(weir_is_eog(model, WEIR__FAKE_IM_START));
    assert_false(weir_is_eog(model, 'a'));
    assert_false(weir_is_eog(model, -1));
    assert_false(weir_is_eog(model, 320));
    assert_false(weir_is_eog(NULL, 0));
    weir_model_release(model);
}

static void test_free_takes_what_the_library_gave(void **state)
{
    (void)state;
    weir_free(NULL);
    char *text = weir__mem_strdup("text");
    assert_non_null(text);
    weir_free(text);
    assert_int_equal(weir__mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_text_to_tokens, nothing_left),
        cmocka_unit_test_teardown(test_how_many_tokens_a_text_has, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_of_tokenize_are_named, nothing_left),
        cmocka_unit_test_teardown(test_tokens_to_text, nothing_left),
        cmocka_unit_test_teardown(test_text_that_has_no_room, nothing_left),
        cmocka_unit_test_teardown(test_long_pieces_arrive_whole, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_of_detokenize_are_named, nothing_left),
        cmocka_unit_test_teardown(test_text_equals_the_sanitized_bytes, nothing_left),
        cmocka_unit_test_teardown(test_pieces_are_raw, nothing_left),
        cmocka_unit_test_teardown(test_which_tokens_end, nothing_left),
        cmocka_unit_test_teardown(test_free_takes_what_the_library_gave, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* utf8_test.c: every code point and every class of bytes beside a reference in a few lines.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"

/* ---- A reference that reasons about code points instead of byte ranges ---------------------------- */

static int wanted_length(unsigned char lead)
{
    if ((lead & 0x80) == 0x00) return 1;
    if ((lead & 0xe0) == 0xc0) return 2;
    if ((lead & 0xf0) == 0xe0) return 3;
    if ((lead & 0xf8) == 0xf0) return 4;
    return 0;
}

/* True if some code point's shortest encoding begins with s[0 .. n): the code points that these bytes leave
 * open are [low, high]. */
static bool can_become_valid(const unsigned char *s, int n)
{
    int wanted = wanted_length(s[0]);
    if (wanted == 0 || n > wanted) return false;
    if (wanted == 1) return true;
    uint32_t low = s[0] & (0x7fU >> wanted);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return false;
        low = low << 6 | (s[i] & 0x3f);
    }
    int open_bits = 6 * (wanted - n);
    low <<= open_bits;
    uint32_t high = low | ((1U << open_bits) - 1);
    if (wanted == 2) return high >= 0x80;
    if (wanted == 3) return high >= 0x800 && !(low >= 0xd800 && high <= 0xdfff);
    return high >= 0x10000 && low <= 0x10ffff;
}

static size_t reference(const unsigned char *s, size_t n, char *out)
{
    size_t n_out = 0;
    for (size_t at = 0; at < n;) {
        int length = 0;
        while (at + (size_t)length < n && can_become_valid(s + at, length + 1)) length++;
        if (length > 0 && length == wanted_length(s[at])) {
            memcpy(out + n_out, s + at, (size_t)length);
            n_out += (size_t)length;
        } else {
            memcpy(out + n_out, "\xef\xbf\xbd", 3);
            n_out += 3;
        }
        at += length > 0 ? (size_t)length : 1;
    }
    return n_out;
}

/* ---- Every split ---------------------------------------------------------------------------------- */

/* Feeds s[0 .. n) cut wherever a bit of cuts is set, n <= 8. After each feed the output so far, and the bytes
 * that a flush would add, must be the reference's output for the bytes so far. */
static void check_cuts(const unsigned char *s, size_t n, unsigned cuts)
{
    weir__utf8 state;
    char got[WEIR__UTF8_BOUND(8)];
    char want[WEIR__UTF8_BOUND(8)];
    size_t n_got = 0;

    weir__utf8_init(&state);
    for (size_t from = 0, to = 1; to <= n; to++) {
        if (to < n && !(cuts >> (to - 1) & 1)) continue;
        size_t n_fed = weir__utf8_feed(&state, (const char *)s + from, to - from, got + n_got);
        if (!weir__utf8_valid(got + n_got, n_fed)) fail_msg("ill-formed output");
        n_got += n_fed;
        from = to;

        weir__utf8 ended = state;
        size_t n_all = n_got + weir__utf8_flush(&ended, got + n_got);
        size_t n_want = reference(s, to, want);
        if (n_all != n_want || memcmp(got, want, n_all) != 0 || ended.n_held != 0)
            fail_msg("%02x %02x %02x %02x (%zu bytes), cuts %x", s[0], s[1], s[2], s[3], n, cuts);
        /* A held byte may still become valid. */
        if (state.n_held > 0 && !can_become_valid(state.held, state.n_held)) fail_msg("held in vain");
    }
}

static void check_every_split(const unsigned char *s, size_t n)
{
    char want[WEIR__UTF8_BOUND(8)];
    char got[WEIR__UTF8_BOUND(8)];
    for (unsigned cuts = 0; cuts < 1U << (n - 1); cuts++) check_cuts(s, n, cuts);
    size_t n_want = reference(s, n, want);
    size_t n_got = weir__utf8_sanitize((const char *)s, n, got);
    if (n_got != n_want || memcmp(got, want, n_want) != 0) fail_msg("sanitize differs");
    if (weir__utf8_valid((const char *)s, n) != (n_want == n && memcmp(want, s, n) == 0))
        fail_msg("valid differs");
}

static size_t encode(uint32_t code, unsigned char *out)
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (unsigned char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (unsigned char)((0xf00U >> n & 0xff) | code);
    return n;
}

static void every_code_point(void **test)
{
    (void)test;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        if (code >= 0xd800 && code <= 0xdfff) continue;
        unsigned char s[8] = {0};
        size_t n = encode(code, s);
        if (!weir__utf8_valid((const char *)s, n)) fail_msg("U+%X is refused", code);
        for (unsigned cuts = 0; cuts < 1U << (n - 1); cuts++) {
            weir__utf8 state;
            char got[WEIR__UTF8_BOUND(8)];
            size_t n_got = 0;
            weir__utf8_init(&state);
            for (size_t from = 0, to = 1; to <= n; to++) {
                if (to < n && !(cuts >> (to - 1) & 1)) continue;
                if (n_got != 0) fail_msg("U+%X came out early", code);
                n_got += weir__utf8_feed(&state, (const char *)s + from, to - from, got + n_got);
                from = to;
            }
            if (n_got != n || memcmp(got, s, n) != 0 || state.n_held != 0)
                fail_msg("U+%X, cuts %x", code, cuts);
        }
    }
}

static void every_pair_of_bytes(void **test)
{
    (void)test;
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        unsigned char s[8] = {(unsigned char)(pair >> 8), (unsigned char)pair};
        if (s[1] == 0) check_every_split(s, 1);
        check_every_split(s, 2);
    }
}

/* The first and the last byte of every class of Table 3-7. */
static const unsigned char edges[] = {
    0x00, 0x7f,                                                             /* ASCII */
    0x80, 0x8f, 0x90, 0x9f,                                                 /* continuations: of F4; of ED */
    0xa0, 0xbf,                                                             /* of E0 and F0 */
    0xc0, 0xc1,                                                             /* overlong */
    0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, /* leads */
    0xf5, 0xff,                                                             /* never */
};
#define N_EDGES (sizeof edges)

static void every_class_of_three_and_four(void **test)
{
    (void)test;
    for (size_t i = 0; i < N_EDGES * N_EDGES * N_EDGES * N_EDGES; i++) {
        unsigned char s[8] = {
            edges[i % N_EDGES],
            edges[i / N_EDGES % N_EDGES],
            edges[i / N_EDGES / N_EDGES % N_EDGES],
            edges[i / N_EDGES / N_EDGES / N_EDGES],
        };
        if (i < N_EDGES * N_EDGES * N_EDGES) check_every_split(s, 3);
        check_every_split(s, 4);
    }
}

/* Sequences between others, so that resuming after each kind is seen too. */
static void mixed_neighbours(void **test)
{
    (void)test;
    static const char *const texts[] = {
        "a\xc3\xa9\xe2\x82\xac",            /* aé€ */
        "\xf0\x9f\x98\x80\x62\xc3\xa9",     /* 😀bé */
        "\xf0\x9f\x98\xf0\x9f\x98\x80",     /* a truncated one before the same one whole */
        "\xe2\x82\xe2\x82\xac\xe2\x82",     /* truncated, whole, truncated */
        "\xed\xa0\x80\xed\xb0\x80",         /* surrogates */
        "\xc0\x80\xe0\x80\x80\xf0\x80\x80", /* overlong */
        "\xf4\x90\x80\x80\xf5\x80\x80",     /* beyond U+10FFFF */
        "\x80\xbf\xc3\x28\xa0\xa1\xff",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_every_split((const unsigned char *)texts[i], strlen(texts[i]));
}

/* ---- Known answers -------------------------------------------------------------------------------- */

static void check_sanitized(const char *bytes, const char *want)
{
    char got[256];
    size_t n = weir__utf8_sanitize(bytes, strlen(bytes), got);
    got[n] = '\0';
    assert_string_equal(got, want);
}

#define R "\xef\xbf\xbd"

static void unicode_examples(void **test)
{
    (void)test;
    /* The Unicode Standard, tables 3-8 to 3-11 */
    check_sanitized("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", R R R R R R R R "A");
    check_sanitized("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A");
    check_sanitized("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", R R R R R "A" R R "B");
    check_sanitized("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A");
}

static void nul_is_text(void **test)
{
    (void)test;
    char got[WEIR__UTF8_BOUND(3)];
    assert_true(weir__utf8_valid("a\0b", 3));
    assert_int_equal(weir__utf8_sanitize("a\0b", 3, got), 3);
    assert_memory_equal(got, "a\0b", 3);
}

static void empty_input(void **test)
{
    (void)test;
    weir__utf8 state;
    char got[WEIR__UTF8_BOUND(0)];
    weir__utf8_init(&state);
    assert_int_equal(weir__utf8_feed(&state, NULL, 0, got), 0);
    assert_int_equal(weir__utf8_flush(&state, got), 0);
    assert_int_equal(weir__utf8_sanitize("", 0, got), 0);
    assert_true(weir__utf8_valid(NULL, 0));
    assert_int_equal(weir__utf8_cut(NULL, 0), 0);

    assert_int_equal(weir__utf8_feed(&state, "\xe2\x82", 2, got), 0);
    assert_int_equal(weir__utf8_feed(&state, NULL, 0, got), 0);
    assert_int_equal(state.n_held, 2);
    assert_int_equal(weir__utf8_flush(&state, got), 3);
    assert_int_equal(weir__utf8_flush(&state, got), 0);
}

/* The bound is reached and not passed; the block is of that size, for the address sanitizer. */
static void bound_is_exact(void **test)
{
    (void)test;
    for (size_t n = 1; n < 20; n++) {
        weir__utf8 state;
        char bytes[20];
        char *out = malloc(WEIR__UTF8_BOUND(n));
        memset(bytes, 0xff, sizeof bytes);
        assert_non_null(out);
        weir__utf8_init(&state);
        assert_int_equal(weir__utf8_feed(&state, "\xf0\x9f\x98", 3, out), 0);
        assert_int_equal(weir__utf8_feed(&state, bytes, n, out), WEIR__UTF8_BOUND(n));
        free(out);
    }
}

/* The word-wise run at every alignment and length, broken at every place. */
static void long_runs(void **test)
{
    (void)test;
    unsigned char bytes[64];
    char got[WEIR__UTF8_BOUND(64)];
    char want[WEIR__UTF8_BOUND(64)];
    for (size_t start = 0; start < 8; start++) {
        for (size_t n = 1; n + start <= sizeof bytes; n += 3) {
            for (size_t hole = 0; hole < n; hole++) {
                memset(bytes, 'x', sizeof bytes);
                bytes[start + hole] = 0xe2;
                size_t n_want = reference(bytes + start, n, want);
                assert_int_equal(weir__utf8_sanitize((char *)bytes + start, n, got), n_want);
                assert_memory_equal(got, want, n_want);
            }
        }
    }
}

static void copy_fits(void **test)
{
    (void)test;
    char out[8];
    memset(out, 'x', sizeof out);
    assert_int_equal(weir__utf8_copy(out, sizeof out, "abcdefghi", 9), 7);
    assert_string_equal(out, "abcdefg");
    assert_int_equal(weir__utf8_copy(out, sizeof out, "abcde\xe2\x82\xac", 8), 5);
    assert_string_equal(out, "abcde");
    assert_int_equal(weir__utf8_copy(out, sizeof out, "abcd\xe2\x82\xac", 7), 7);
    assert_string_equal(out, "abcd\xe2\x82\xac");
    assert_int_equal(weir__utf8_copy(out, sizeof out, "a\xff\xe2\x82", 4), 7);
    assert_string_equal(out, "a" R R);
    assert_int_equal(weir__utf8_copy(out, 1, "abc", 3), 0);
    assert_string_equal(out, "");
    assert_int_equal(weir__utf8_copy(out, sizeof out, NULL, 0), 0);
    assert_string_equal(out, "");
}

static void cut_keeps_whole_sequences(void **test)
{
    (void)test;
    assert_int_equal(weir__utf8_cut("abc", 3), 3);
    assert_int_equal(weir__utf8_cut("a\xc3\xa9", 2), 1);
    assert_int_equal(weir__utf8_cut("a\xc3\xa9", 3), 3);
    assert_int_equal(weir__utf8_cut("a\xe2\x82\xac", 3), 1);
    assert_int_equal(weir__utf8_cut("\xf0\x9f\x98\x80", 3), 0);
    assert_int_equal(weir__utf8_cut("\xf0\x9f\x98\x80", 4), 4);
    /* Invalid bytes are no reason to cut. */
    assert_int_equal(weir__utf8_cut("a\x80\x80\x80\x80", 5), 5);
    assert_int_equal(weir__utf8_cut("\xff", 1), 1);
    assert_int_equal(weir__utf8_cut("\xed\xa0", 2), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(every_pair_of_bytes),
        cmocka_unit_test(every_class_of_three_and_four),
        cmocka_unit_test(mixed_neighbours),
        cmocka_unit_test(unicode_examples),
        cmocka_unit_test(nul_is_text),
        cmocka_unit_test(empty_input),
        cmocka_unit_test(bound_is_exact),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(copy_fits),
        cmocka_unit_test(cut_keeps_whole_sequences),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}

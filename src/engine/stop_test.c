/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/stop.h"
#include "support/dice.h"

/* ---- Randomness from a printed seed --------------------------------------------------------------- */

static uint64_t seed;
static dice d;

static uint32_t below(uint32_t n)
{
    return (uint32_t)dice_in(&d, 0, (int32_t)n - 1);
}

/* ---- A reference that searches the whole text ----------------------------------------------------- */

struct set {
    const char *strings[64];
    size_t lens[64];
    size_t n;
};

static bool ends_with(const char *text, size_t n, const char *end, size_t n_end)
{
    return n_end <= n && memcmp(text + n - n_end, end, n_end) == 0;
}

/* The length of text[0 .. n) that may be shown, and in *matched which string ended it, -1 if none. */
static size_t reference(const struct set *set, const char *text, size_t n, int *matched)
{
    *matched = -1;
    for (size_t at = 1; at <= n; at++) {
        for (size_t i = 0; i < set->n; i++) {
            if (!ends_with(text, at, set->strings[i], set->lens[i])) continue;
            if (*matched < 0 || set->lens[i] > set->lens[*matched]) *matched = (int)i;
        }
        if (*matched >= 0) return at - set->lens[*matched];
    }
    size_t held = 0;
    for (size_t i = 0; i < set->n; i++)
        for (size_t len = set->lens[i] - 1; len > held; len--)
            if (ends_with(text, n, set->strings[i], len)) held = len;
    return n - held;
}

/* Feeds text in random pieces and compares after each; blocks are of the promised sizes, for the address
 * sanitizer. */
static void check_random_splits(const struct set *set, const weir__stop *stop, const char *text, size_t n)
{
    size_t max_len = weir__stop_max_len(stop);
    char *got = malloc(n + 1);
    size_t n_got = 0;
    int matched = -1;
    weir__stop_state state;

    assert_non_null(got);
    weir__stop_state_init(&state);
    for (size_t at = 0; at < n;) {
        size_t n_fed = below(4) == 0 ? below((uint32_t)(n - at) + 1) : below(3);
        if (n_fed > n - at) n_fed = n - at;
        char *piece = malloc(n_fed + max_len);
        assert_non_null(piece);
        size_t n_piece;
        int found = weir__stop_feed(stop, &state, text + at, n_fed, piece, &n_piece);
        at += n_fed;

        size_t n_want = reference(set, text, at, &matched);
        if (found != matched || found != state.matched || n_got + n_piece != n_want)
            fail_msg("seed %llu: fed %zu of %zu: found %d, want %d; %zu bytes out, want %zu",
                     (unsigned long long)seed, at, n, found, matched, n_got + n_piece, n_want);
        memcpy(got + n_got, piece, n_piece);
        free(piece);
        n_got += n_piece;
        assert_int_equal(weir__stop_held(stop, &state), matched >= 0 ? 0 : at - n_got);
        assert_true(weir__stop_held(stop, &state) < max_len);
    }

    char *rest = malloc(max_len);
    assert_non_null(rest);
    size_t n_rest = weir__stop_flush(stop, &state, rest);
    if (matched < 0) assert_int_equal(n_got + n_rest, n);
    if (matched >= 0) assert_int_equal(n_rest, 0);
    memcpy(got + n_got, rest, n_rest);
    n_got += n_rest;
    assert_memory_equal(got, text, n_got);
    assert_int_equal(weir__stop_held(stop, &state), 0);
    free(rest);
    free(got);
}

static weir__stop *create(const struct set *set)
{
    weir__stop *stop = NULL;
    assert_int_equal(weir__stop_create(set->strings, set->lens, set->n, &stop), WEIR_OK);
    assert_non_null(stop);
    return stop;
}

static void random_sets(void **test)
{
    (void)test;
    for (int round = 0; round < 20000; round++) {
        char pool[64][12];
        struct set set = {.n = 1 + below(below(8) == 0 ? 40 : 4)};
        uint32_t n_letters = 1 + below(3);
        size_t max_len = 1 + below(12);
        for (size_t i = 0; i < set.n; i++) {
            set.strings[i] = pool[i];
            set.lens[i] = 1 + below((uint32_t)max_len);
            for (size_t k = 0; k < set.lens[i]; k++) pool[i][k] = (char)('a' + below(n_letters));
        }
        weir__stop *stop = create(&set);
        for (int text_round = 0; text_round < 3; text_round++) {
            /* A letter that no string has makes room for longer texts. */
            char text[80];
            size_t n = below(sizeof text);
            for (size_t k = 0; k < n; k++) text[k] = (char)('a' + below(n_letters + 1));
            check_random_splits(&set, stop, text, n);
        }
        weir__stop_destroy(stop);
    }
}

/* ---- Known answers -------------------------------------------------------------------------------- */

static struct set set_of(const char *const *strings, size_t n)
{
    struct set set = {.n = n};
    for (size_t i = 0; i < n; i++) {
        set.strings[i] = strings[i];
        set.lens[i] = strlen(strings[i]);
    }
    return set;
}

/* The text that gets out, in every way to cut it in two, and in single bytes. */
static void check_text(const char *const *strings, size_t n_strings, const char *text, const char *want,
                       int matched)
{
    struct set set = set_of(strings, n_strings);
    weir__stop *stop = create(&set);
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        char got[512];
        size_t n_got = 0;
        size_t n_piece;
        int found = -1;
        weir__stop_state state;
        weir__stop_state_init(&state);
        for (size_t from = 0; from < n;) {
            size_t to = cut == n + 1 ? from + 1 : from < cut ? cut : n;
            found = weir__stop_feed(stop, &state, text + from, to - from, got + n_got, &n_piece);
            n_got += n_piece;
            from = to;
        }
        n_got += weir__stop_flush(stop, &state, got + n_got);
        got[n_got] = '\0';
        assert_string_equal(got, want);
        assert_int_equal(found, matched);
    }
    weir__stop_destroy(stop);
}

#define CHECK(text, want, matched, ...)                                                                      \
    check_text((const char *const[]){__VA_ARGS__},                                                           \
               sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), text, want, matched)

static void the_first_to_complete_wins(void **test)
{
    (void)test;
    CHECK("one STOP two", "one ", 0, "STOP");
    CHECK("STOP", "", 0, "STOP");
    CHECK("one STO", "one STO", -1, "STOP");
    CHECK("xabcd", "xa", 1, "abcd", "bc");           /* inside the other */
    CHECK("xabcd", "x", 0, "abcd", "cd");            /* same end: the longest */
    CHECK("xabcd", "x", 1, "cd", "abcd");            /* whatever their order */
    CHECK("xabcd", "x", 1, "abcd", "ab");            /* a prefix of the other */
    CHECK("xabcy", "xa", 1, "abcd", "bc");           /* after the longer failed */
    CHECK("abab!", "", 2, "x", "y", "abab", "abab"); /* equals: the lowest index */
    CHECK("a", "", 0, "a", "a");
}

static void false_starts_come_out(void **test)
{
    (void)test;
    CHECK("aaab", "a", 0, "aab");
    CHECK("ababac", "ab", 0, "abac");
    CHECK("</th></think>x", "</th>", 0, "</think>");
    CHECK("<|im_<|im_end|>", "<|im_", 0, "<|im_end|>");
    CHECK("\n\nUser", "\n\nUser", -1, "\n\nUser:", "\n\n\n");
    CHECK("\n\n\nUser:", "", 1, "\n\nUser:", "\n\n\n");
    CHECK("aaaaaa", "aaaaaa", -1, "aaaaaaa");
}

static void any_byte_is_ordinary(void **test)
{
    (void)test;
    const char *strings[] = {"a\0b", "\xff"};
    const size_t lens[] = {3, 1};
    weir__stop *stop;
    weir__stop_state state;
    char out[16];
    size_t n_out;
    assert_int_equal(weir__stop_create(strings, lens, 2, &stop), WEIR_OK);
    weir__stop_state_init(&state);
    assert_int_equal(weir__stop_feed(stop, &state, "xa\0", 3, out, &n_out), -1);
    assert_int_equal(n_out, 1);
    assert_int_equal(weir__stop_feed(stop, &state, "\0a\0b\xff", 5, out, &n_out), 0);
    assert_int_equal(n_out, 3);
    assert_memory_equal(out, "a\0\0", 3);
    weir__stop_destroy(stop);
}

static void nothing_follows_a_match(void **test)
{
    (void)test;
    const char *strings[] = {"b"};
    struct set set = set_of(strings, 1);
    weir__stop *stop = create(&set);
    weir__stop_state state;
    char out[16];
    size_t n_out;
    weir__stop_state_init(&state);
    assert_int_equal(weir__stop_feed(stop, &state, NULL, 0, out, &n_out), -1);
    assert_int_equal(n_out, 0);
    assert_int_equal(weir__stop_feed(stop, &state, "abab", 4, out, &n_out), 0);
    assert_int_equal(n_out, 1);
    assert_int_equal(weir__stop_feed(stop, &state, "xyz", 3, out, &n_out), 0);
    assert_int_equal(n_out, 0);
    assert_int_equal(weir__stop_flush(stop, &state, out), 0);
    assert_int_equal(state.matched, 0);
    weir__stop_destroy(stop);
}

/* Characters fed whole come out whole, though bytes of a stop string and of the text agree in part: é and è
 * share their first byte, € and ₭ their first two. */
static void characters_stay_whole(void **test)
{
    (void)test;
    static const char *const alphabet[] = {
        "\xc3\xa9",         "\xc3\xa8", "\xe2\x82\xac", "\xe2\x82\xad", "\xf0\x9f\x98\x80",
        "\xf0\x9f\x98\x81", "a",        "\xef\xbf\xbd"};
    for (int round = 0; round < 20000; round++) {
        char pool[3][64];
        struct set set = {.n = 1 + below(3)};
        uint32_t n_letters = 1 + below(8);
        for (size_t i = 0; i < set.n; i++) {
            pool[i][0] = '\0';
            for (uint32_t k = 1 + below(4); k > 0; k--) strcat(pool[i], alphabet[below(n_letters)]);
            set.strings[i] = pool[i];
            set.lens[i] = strlen(pool[i]);
        }
        weir__stop *stop = create(&set);
        weir__stop_state state;
        char text[128] = "";
        size_t n_text = 0;
        size_t n_total = 0;
        int matched = -1;
        int want = -1;
        weir__stop_state_init(&state);
        for (uint32_t k = below(30); k > 0 && matched < 0; k--) {
            const char *character = alphabet[below(8)];
            char out[128];
            size_t n_out;
            strcat(text, character);
            n_text += strlen(character);
            matched = weir__stop_feed(stop, &state, character, strlen(character), out, &n_out);
            if (!weir__utf8_valid(out, n_out))
                fail_msg("seed %llu: half a character", (unsigned long long)seed);
            assert_memory_equal(out, text + n_total, n_out);
            n_total += n_out;
            assert_int_equal(n_total, reference(&set, text, n_text, &want));
            assert_int_equal(matched, want);
        }
        weir__stop_destroy(stop);
    }
}

/* ---- Long strings --------------------------------------------------------------------------------- */

#define LONG 10240

static void ten_kilobytes(void **test)
{
    (void)test;
    char *a = weir__mem_alloc(LONG + 1);
    char *b = weir__mem_alloc(LONG);
    char *text = weir__mem_alloc(2 * LONG);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(text);
    /* a: aaa…ab with failure links as long as they get; b: random, and shares its first half with a */
    memset(a, 'a', LONG);
    a[LONG - 1] = 'b';
    memcpy(b, a, LONG);
    for (size_t i = LONG / 2; i < LONG; i++) b[i] = (char)('a' + below(3));
    struct set set = {.strings = {a, b}, .lens = {LONG, LONG}, .n = 2};
    weir__stop *stop = create(&set);
    assert_int_equal(weir__stop_max_len(stop), LONG);

    /* One byte short of a, twice over, then a whole */
    memset(text, 'a', 2 * LONG);
    memcpy(text + LONG, a, LONG);
    weir__stop_state state;
    char *out = weir__mem_alloc(2 * LONG);
    assert_non_null(out);
    size_t n_total = 0;
    int matched = -1;
    weir__stop_state_init(&state);
    for (size_t at = 0; at < 2 * LONG; at++) {
        size_t n_out;
        assert_int_equal(matched, -1);
        matched = weir__stop_feed(stop, &state, text + at, 1, out + n_total, &n_out);
        n_total += n_out;
        if (at < 2 * LONG - 1)
            assert_int_equal(weir__stop_held(stop, &state), at < LONG - 1 ? at + 1 : LONG - 1);
    }
    assert_int_equal(matched, 0);
    assert_int_equal(n_total, LONG);
    assert_memory_equal(out, text, LONG);

    /* Held in full, then let go */
    size_t n_out;
    weir__stop_state_init(&state);
    assert_int_equal(weir__stop_feed(stop, &state, b, LONG - 1, out, &n_out), -1);
    n_total = n_out;
    assert_int_equal(weir__stop_feed(stop, &state, "!", 1, out + n_total, &n_out), -1);
    n_total += n_out;
    assert_int_equal(n_total, LONG);
    assert_memory_equal(out, b, LONG - 1);
    assert_int_equal(out[LONG - 1], '!');
    weir__stop_state_init(&state);
    assert_int_equal(weir__stop_feed(stop, &state, b, LONG, out, &n_out), 1);

    weir__mem_free(out);
    weir__stop_destroy(stop);
    weir__mem_free(text);
    weir__mem_free(b);
    weir__mem_free(a);
}

/* Every byte value, so that a node has 256 children. */
static void wide_nodes(void **test)
{
    (void)test;
    char bytes[256][2];
    const char *strings[256];
    size_t lens[256];
    weir__stop *stop;
    for (int i = 0; i < 256; i++) {
        bytes[i][0] = (char)(i * 7);
        bytes[i][1] = (char)i;
        strings[i] = bytes[i];
        lens[i] = 2;
    }
    assert_int_equal(weir__stop_create(strings, lens, 256, &stop), WEIR_OK);
    for (int i = 0; i < 256; i++) {
        weir__stop_state state;
        char out[4];
        size_t n_out;
        weir__stop_state_init(&state);
        assert_int_equal(weir__stop_feed(stop, &state, bytes[i], 2, out, &n_out), i);
        assert_int_equal(n_out, 0);
    }
    weir__stop_destroy(stop);
}

/* ---- Errors --------------------------------------------------------------------------------------- */

static void bad_strings_are_refused(void **test)
{
    (void)test;
    const char *strings[] = {"a", ""};
    const size_t lens[] = {1, 0};
    const size_t huge[] = {(size_t)64 << 20, 1};
    weir__stop *stop = (weir__stop *)&lens;
    assert_int_equal(weir__stop_create(strings, lens, 2, &stop), WEIR_INVALID);
    assert_null(stop);
    assert_int_equal(weir__stop_create(strings, lens, 0, &stop), WEIR_INVALID);
    assert_int_equal(weir__stop_create(strings, huge, 2, &stop), WEIR_TOO_LONG);
    assert_null(stop);
    weir__stop_destroy(NULL);
}

static void every_allocation_fails_once(void **test)
{
    (void)test;
    const char *strings[] = {"abc", "b", "cab"};
    const size_t lens[] = {3, 1, 3};
    long n = 0;
    for (bool pending = false; !pending; n++) {
        weir__stop *stop;
        weir__mem_fail_after(n);
        weir_status status = weir__stop_create(strings, lens, 3, &stop);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        assert_int_equal(stop != NULL, pending);
        weir__stop_destroy(stop);
        assert_int_equal(weir__mem_live(), 0);
    }
    assert_true(n > 1);
}

static void feeding_allocates_nothing(void **test)
{
    (void)test;
    const char *strings[] = {"abc"};
    struct set set = set_of(strings, 1);
    weir__stop *stop = create(&set);
    weir__stop_state state;
    char out[16];
    size_t n_out;
    weir__mem_fail_after(0);
    weir__stop_state_init(&state);
    weir__stop_feed(stop, &state, "ab", 2, out, &n_out);
    weir__stop_flush(stop, &state, out);
    assert_true(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    weir__stop_destroy(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_to_complete_wins),
        cmocka_unit_test(false_starts_come_out),
        cmocka_unit_test(any_byte_is_ordinary),
        cmocka_unit_test(nothing_follows_a_match),
        cmocka_unit_test(random_sets),
        cmocka_unit_test(characters_stay_whole),
        cmocka_unit_test(ten_kilobytes),
        cmocka_unit_test(wide_nodes),
        cmocka_unit_test(bad_strings_are_refused),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(feeding_allocates_nothing),
    };
    seed = dice_environment("WEIR_TEST_SEED", 1);
    d.state = seed;
    printf("WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}

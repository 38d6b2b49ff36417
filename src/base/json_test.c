/* json_test.c: texts that are read, refused or bounded, and numbers as others write them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "base/json_read.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "support/dice.h"
#include "support/jansson.h"
#include "weir/more.h"

static void nobody_reads_of_flags_and_types(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        size_t flags;
    } cases[] = {
        {"", "too early", 0},
        {"{\"a\": 1", "too early", 0},
        {"[1] 2", "behind its end", 0},
        {"{\"a\": 1, \"a\": 2}", "duplicate key in an object, near '\"a\"'", JSON_REJECT_DUPLICATES},
        {"[\"a\\u0000\"]", "U+0000", 0},
        {"{\"a\\u0000\": 1}", "U+0000", JSON_ALLOW_NUL},
        {"[1e999]", "too large", 0},
        {"[99999999999999999999]", "too large", 0},
        {"[nope]", "or character, near 'nope'", 0},
        {"7", "unexpected value", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_error_t why;
        json_t *value = json_loadb(cases[i].text, strlen(cases[i].text), cases[i].flags, &why);
        assert_null(value);
        assert_non_null(strstr(weir__json_problem(&why).text, cases[i].says));
        assert_null(strstr(weir__json_problem(&why).text, "JSON_"));
    }
}

/* Escapes that no text here can have become U+FFFD in conversations, and are refused elsewhere; all other
 * bytes stay. */
static void unfit_escapes_are_replaced_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value; /* NULL: no JSON */
    } cases[] = {
        {"\"a\\u0000b\"", "a\xef\xbf\xbd"
                          "b"},
        {"\"\\u0000\\u0000\"", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\"\\\\u0000\"", "\\u0000"},
        {"\"\\\\\\u0000\"", "\\\xef\xbf\xbd"},
        {"\"\\u0001\\u000A\\n\\\"\"", "\x01\n\n\""},
        {"\"\\uD83D\\ude00\"", "\xf0\x9f\x98\x80"},
        {"\"\\ud83d\"", "\xef\xbf\xbd"},
        {"\"\\ude00!\"", "\xef\xbf\xbd!"},
        {"\"\\ud83dx\\ude00\"", "\xef\xbf\xbdx\xef\xbf\xbd"},
        {"\"\\ud83d\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
        {"\"\\ud83d\\u0000\"", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\"\\u000\"", NULL},
        {"\"\\u00g0\"", NULL},
        {"\"\\u0000", NULL},
        {"\"\\ud83d\\", NULL},
        {"\"a\nb\\u0000\"", NULL}, /* a control character itself may not stand there */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = NULL;
        weir_status status =
            weir__json_parse_texts(cases[i].text, WEIR_NUL, "body", WEIR_FORMAT, &value, NULL);
        assert_int_equal(status, cases[i].value != NULL ? WEIR_OK : WEIR_FORMAT);
        if (cases[i].value != NULL) assert_string_equal(json_string_value(value), cases[i].value);
        bool whole = cases[i].value != NULL && strstr(cases[i].value, "\xef\xbf\xbd") == NULL;
        json_decref(value);
        value = NULL;
        status = weir__json_parse(cases[i].text, WEIR_NUL, "body", WEIR_FORMAT, &value, NULL);
        assert_int_equal(status, whole ? WEIR_OK : WEIR_FORMAT);
        json_decref(value);
    }
    json_t *value = NULL;
    assert_int_equal(weir__json_parse_texts("\"\0\"", 3, "body", WEIR_FORMAT, &value, NULL), WEIR_FORMAT);
}

static void long_integers_become_reals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } reals[] = {
        {"9223372036854775808", 0x1p63},
        {"-9223372036854775809", -0x1p63},
        {"18446744073709551616", 0x1p64},
        {"1000000000000000000000000000000", 1e30},
        {" -1000000000000000000000000000000 ", -1e30},
        {"1e30", 1e30},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        json_t *value = NULL;
        assert_int_equal(weir__json_parse(reals[i].text, WEIR_NUL, "body", WEIR_FORMAT, &value, NULL),
                         WEIR_OK);
        assert_true(json_is_real(value) && json_real_value(value) == reals[i].value);
        json_decref(value);
    }
    static const char whole[] =
        "[\"\\\"99999999999999999999\",9223372036854775807,-9223372036854775808,1.99999999999999999999,"
        "{\"99999999999999999999\":99999999999999999999}]";
    json_t *list = NULL;
    assert_int_equal(weir__json_parse(whole, WEIR_NUL, "body", WEIR_FORMAT, &list, NULL), WEIR_OK);
    assert_string_equal(json_string_value(json_array_get(list, 0)), "\"99999999999999999999");
    assert_true(json_integer_value(json_array_get(list, 1)) == INT64_MAX);
    assert_true(json_integer_value(json_array_get(list, 2)) == INT64_MIN);
    assert_true(json_real_value(json_array_get(list, 3)) == 2);
    assert_true(json_real_value(json_object_get(json_array_get(list, 4), "99999999999999999999")) == 1e20);
    json_decref(list);

    static const char *const bad[] = {"1e999", "[99999999999999999999", "0000000000000000000000",
                                      "99999999999999999999x", "--99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(weir__json_parse(bad[i], WEIR_NUL, "body", WEIR_FORMAT, &list, NULL), WEIR_FORMAT);
    char endless[500] = "";
    memset(endless, '9', sizeof endless - 1);
    assert_int_equal(weir__json_parse(endless, WEIR_NUL, "body", WEIR_FORMAT, &list, NULL), WEIR_FORMAT);
}

/* Long integers keep their digits in texts of conversations; all that walks the values gives them back as
 * they came. */
static void long_integers_keep_their_digits(void **state)
{
    (void)state;
    static const char *const same[] = {
        "18446744073709551615", "[-9223372036854775809,{\"n\":12345678901234567890123456789012345678901}]",
        "9223372036854775807", "-9223372036854775808", "{\"a\":[9223372036854775808]}"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *value = NULL;
        assert_int_equal(weir__json_parse_texts(same[i], WEIR_NUL, "body", WEIR_FORMAT, &value, NULL),
                         WEIR_OK);
        json_t *copy = json_deep_copy(value);
        char *text = weir__json_dump(copy);
        assert_string_equal(text, same[i]);
        assert_true(json_equal(copy, value));
        weir__mem_free(text);
        json_decref(copy);
        json_decref(value);
    }
    /* The largest double has 309 digits: those up to it are numbers, with a sign, too. */
    char edge[311] = "-";
    json_t *value = NULL;
    for (size_t sign = 0; sign < 2; sign++) {
        memset(edge + sign, '1', 309);
        edge[sign + 309] = '\0';
        assert_int_equal(weir__json_parse_texts(edge, WEIR_NUL, "body", WEIR_FORMAT, &value, NULL), WEIR_OK);
        char *text = weir__json_dump(value);
        assert_string_equal(text, edge);
        weir__mem_free(text);
        json_decref(value);
        memset(edge + sign, '2', 309);
        assert_int_equal(weir__json_parse_texts(edge, WEIR_NUL, "body", WEIR_FORMAT, &value, NULL),
                         WEIR_FORMAT);
        edge[0] = '-';
    }
    /* Members of that name that are no such digits are members. */
    static const char *const members[] = {"{\"\xef\xb7\x90\xef\xb7\x90\":\"7\"}",
                                          "{\"\xef\xb7\x90\xef\xb7\x90\":\"99999999999999999999x\"}"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(weir__json_parse_texts(members[i], WEIR_NUL, "body", WEIR_FORMAT, &value, NULL),
                         WEIR_OK);
        char *text = weir__json_dump(value);
        assert_string_equal(text, members[i]);
        weir__mem_free(text);
        json_decref(value);
    }
}

/* Reals are written as Python writes them; json_cpython.py compares many more. */
static void reals_are_as_short_as_can_be(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.1, "0.1"},
        {1, "1.0"},
        {-0.0, "-0.0"},
        {0.1 + 0.2, "0.30000000000000004"},
        {3.14159265358979, "3.14159265358979"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {1.5e-7, "1.5e-07"},
        {0.0001, "0.0001"},
        {0x1p-1017, "7.120236347223045e-307"},
        {5e-324, "5e-324"},
        {-1.7976931348623157e308, "-1.7976931348623157e+308"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[WEIR__JSON_REAL_MAX];
        assert_int_equal(weir__json_real_text(cases[i].value, text), strlen(cases[i].text));
        assert_string_equal(text, cases[i].text);
    }
}

/* jansson's own reader is the oracle, for texts in which neither escapes nor integers differ. */
static void jansson_reads_the_same(void **state)
{
    (void)state;
    static const char *const words[] = {
        "{",    "}",   "[",    "]",       ":",      ",",        "\"a\"",  "\"b\\n\"", "\"\\u00e9\"",
        "true", "nul", "null", "-12",     "0",      "0.5e3",    "1E-2",   "01",       "-",
        " ",    "\n",  "1.",   "\"\\x\"", "\"open", "\xc3\xa9", "falsey", "false",    "1e400"};
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    for (int round = 0; round < 200000; round++) {
        char text[400] = "";
        weir_error error = {0};
        int n = dice_in(&d, 1, 14), depth = 0;
        for (int i = 0; i < n; i++) { /* mostly what may come next */
            bool wild = dice_one_in(&d, 6);
            const char *word =
                words[wild ? dice_in(&d, 0, (int)(sizeof words / sizeof *words) - 1) : dice_in(&d, 6, 15)];
            if (!wild && dice_one_in(&d, 3)) word = "[";
            depth += word[0] == '[';
            strcat(text, word);
            if (!wild && word[0] != '[')
                strcat(text, depth > 0 && dice_one_in(&d, 3) ? (depth--, "]") : depth > 0 ? "," : "");
        }
        while (depth-- > 0 && !dice_one_in(&d, 9)) strcat(text, "1]");
        json_error_t what;
        json_t *value = NULL, *expected = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &what);
        weir_status status = weir__json_parse(text, WEIR_NUL, "body", WEIR_FORMAT, &value, &error);
        if ((expected != NULL) != (status == WEIR_OK) || (expected != NULL && !json_equal(value, expected)))
            fail_msg("%s: %s", text, error.message);
        char place[64];
        snprintf(place, sizeof place, "line %d, column %d:", what.line, what.column);
        if (expected == NULL && strstr(error.message, place) == NULL)
            fail_msg("%s: %s, not %s", text, error.message, place);
        json_decref(expected);
        json_decref(value);
    }
}

/* ---- Without memory ---- */

static const char nested[] =
    "{\"a\":[1,2.5,\"a long text, longer than the first buffer of a "
    "token\",[],{},null,1,2,3,4,5,6,7],\"b\\n\":{"
    "\"c\":true,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1,\"k\":\"\\u00e9\"}}";

/* A valid text is never called invalid, whichever allocation fails, of ours or of jansson's. */
static void a_failing_allocation_is_no_fault_of_the_text(void **state)
{
    (void)state;
    json_t *expected = json_loads(nested, 0, NULL);
    assert_non_null(expected);
    json_set_alloc_funcs(failing_malloc, free);
    for (int ours = 0; ours <= 1; ours++) {
        weir_status status = WEIR_NO_MEMORY;
        for (long n = 0; status == WEIR_NO_MEMORY; n++) {
            json_t *value = NULL;
            long live = weir__mem_live();
            allocations_left = ours ? -1 : n;
            if (ours) weir__mem_fail_after(n);
            status = weir__json_parse(nested, WEIR_NUL, "body", WEIR_FORMAT, &value, NULL);
            weir__mem_fail_after(-1);
            allocations_left = -1;
            assert_true(status == WEIR_OK ? json_equal(value, expected) : value == NULL);
            assert_int_equal(weir__mem_live(), live);
            json_decref(value);
        }
        assert_int_equal(status, WEIR_OK);
    }
    json_decref(expected);
    json_set_alloc_funcs(malloc, free);
}

static void a_copy_is_whole_or_none(void **state)
{
    (void)state;
    json_t *values = json_loads(nested, 0, NULL);
    json_set_alloc_funcs(failing_malloc, free);
    const char *key;
    json_t *value;
    json_object_foreach(values, key, value)
    {
        json_t *copy = NULL;
        for (long n = 0; copy == NULL; n++) {
            allocations_left = n;
            copy = weir__json_copy(value);
            allocations_left = -1;
            assert_true(copy == NULL || json_equal(copy, value));
        }
        json_decref(copy);
    }
    json_decref(values);
    json_set_alloc_funcs(malloc, free);
}

static void a_deep_copy_is_whole_or_none(void **state)
{
    (void)state;
    json_t *value = json_loads("{\"a\":[{\"b\":[1,\"x\",{}]},[]],\"c\":null}", 0, NULL), *copy = NULL;
    json_set_alloc_funcs(failing_malloc, free);
    for (long n = 0; copy == NULL; n++) {
        allocations_left = n;
        copy = weir__json_own(value);
        allocations_left = -1;
    }
    assert_true(json_equal(copy, value));
    json_array_append_new(json_object_get(json_array_get(json_object_get(copy, "a"), 0), "b"), json_true());
    json_array_append_new(json_array_get(json_object_get(copy, "a"), 1), json_true());
    char *text = weir__json_dump(value);
    assert_string_equal(text, "{\"a\":[{\"b\":[1,\"x\",{}]},[]],\"c\":null}");
    weir__mem_free(text);
    json_decref(copy);
    json_decref(value);
    json_set_alloc_funcs(malloc, free);
}

static void long_integers_become_the_nearest_reals(void **state)
{
    (void)state;
    json_t *value = NULL, *plain = json_loads("[1,{\"a\":2.5}]", 0, NULL);
    assert_int_equal(
        weir__json_parse_exact("[1,{\"a\":18446744073709551616}]", WEIR_NUL, "x", WEIR_FORMAT, &value, NULL),
        WEIR_OK);
    json_t *near = weir__json_near(value), *same = weir__json_near(plain);
    char *text = weir__json_dump(near);
    assert_string_equal(text, "[1,{\"a\":1.8446744073709552e+19}]");
    assert_ptr_equal(same, plain);
    weir__mem_free(text);
    json_decref(same);
    json_decref(near);
    json_decref(plain);
    json_decref(value);
}

/* ---- Values of others ---- */

static void expect_fault(json_t *value, const char *words)
{
    weir_error error = {0};
    weir_status status = weir__json_check(value, "x", &error);
    assert_int_equal(status, words == NULL ? WEIR_OK : WEIR_INVALID);
    if (words != NULL && strstr(error.message, words) == NULL) fail_msg("%s", error.message);
    if (words != NULL) assert_string_equal(error.field, "x");
    json_decref(value);
}

static json_t *nest(int depth)
{
    json_t *value = json_array();
    for (int i = 1; i < depth; i++) value = json_pack("[o]", value);
    return value;
}

/* An array counts as 9 values: 2^21 values over 2^18 arrays, and itself. */
static void values_are_spent(void **state)
{
    (void)state;
    json_t *value = json_loads("[1,{\"a\":[]},null]", 0, NULL);
    size_t left = 3 * 9 + 2, one_less = left - 1;
    assert_true(weir__json_spend(value, &left) && left == 0);
    assert_false(weir__json_spend(value, &one_less));
    json_decref(value);
}

static void values_of_others_are_checked(void **state)
{
    (void)state;
    expect_fault(json_loads("[1,2.5,\"\u00e9\",{\"a\":null}]", 0, NULL), NULL);
    expect_fault(nest(WEIR__JSON_DEPTH_MAX), NULL);
    expect_fault(nest(WEIR__JSON_DEPTH_MAX + 1), "nested deeper");
    expect_fault(json_pack("[o]", json_stringn("a\0b", 3)), "U+0000");
    expect_fault(json_pack("[o]", json_stringn_nocheck("\xff", 1)), "UTF-8");
    json_t *key = json_object();
    json_object_set_new_nocheck(key, "\xff", json_null());
    expect_fault(json_pack("[o]", key), "key");
    json_t *wide = json_array(); /* far more values than it takes memory */
    for (int i = 0; i < 4096; i++) json_array_append_new(wide, json_null());
    json_t *many = json_array();
    for (int i = 0; i < 1024; i++) json_array_append(many, wide);
    json_decref(wide);
    expect_fault(many, "values, which is the limit");
    json_t *self = json_array();
    json_array_append(self, self); /* jansson refuses that, but not a longer circle */
    json_t *inner = json_pack("[O]", self);
    json_array_append(self, inner);
    weir_error error = {0};
    assert_int_equal(weir__json_check(self, "x", &error), WEIR_INVALID);
    json_array_clear(inner);
    json_decref(inner);
    json_decref(self);
    char digits[400];
    memset(digits, '9', sizeof digits - 1);
    digits[sizeof digits - 1] = '\0';
    expect_fault(json_pack("{s:s}", WEIR__JSON_BIG, digits), "too large");
}

/* ---- Counts and interrupts ---- */

/* `n` times the item, with commas, between two brackets. Freed by the caller. */
static char *repeat(char open, const char *item, size_t n, char close)
{
    size_t length = strlen(item);
    char *text = malloc(n * (length + 12) + 3), *at = text;
    assert_non_null(text);
    *at++ = open;
    for (size_t i = 0; i < n; i++) {
        if (i > 0) *at++ = ',';
        at += open == '{' ? sprintf(at, "\"%zu\":%s", i, item) : sprintf(at, "%s", item);
    }
    *at++ = close;
    *at = '\0';
    return text;
}

static void what_takes_much_for_its_bytes_is_counted_first(void **state)
{
    (void)state;
    static const struct {
        char open, close;
        const char *item, *says;
        size_t most; /* items */
    } cases[] = {
        {'[', ']', "{}", "objects and arrays", WEIR__JSON_CONTAINERS_MAX - 1},
        {'[', ']', "[]", "objects and arrays", WEIR__JSON_CONTAINERS_MAX - 1},
        {'[', ']', "1", "values", WEIR__JSON_VALUES_MAX - 1},
        {'[', ']', "18446744073709551616", "integers beyond 64 bits", WEIR__JSON_BIG_MAX},
        {'{', '}', "1", "members of objects", WEIR__JSON_WIDTH_MAX},
        {'[', ']', "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}", "members of objects", WEIR__JSON_MEMBERS_MAX / 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t more = 0; more < 2; more++) {
            weir_error error = {0};
            json_t *value = NULL;
            char *text = repeat(cases[i].open, cases[i].item, cases[i].most + more, cases[i].close);
            weir_status status = weir__json_parse_exact(text, WEIR_NUL, "body", WEIR_FORMAT, &value, &error);
            assert_int_equal(status, more == 0 ? WEIR_OK : WEIR_FORMAT);
            assert_true(more == 0 || strstr(error.message, cases[i].says) != NULL);
            json_decref(value);
            free(text);
        }
    /* Brackets, colons and commas of texts do not count. */
    char *text = repeat('[', "\"{}[],:\\\"{\"", 200000, ']');
    json_t *value = NULL;
    assert_int_equal(weir__json_parse(text, WEIR_NUL, "body", WEIR_FORMAT, &value, NULL), WEIR_OK);
    assert_int_equal(json_array_size(value), 200000);
    json_decref(value);
    free(text);
}

typedef struct asking {
    size_t n, last;
} asking;

static bool ask(void *user)
{
    asking *a = user;
    return ++a->n == a->last;
}

/* A few KiB of text lie between two questions, whatever is in them: work of at most some microseconds. */
static void the_interrupt_is_asked_every_few_bytes(void **state)
{
    (void)state;
    static const char *const items[] = {"1.5e-7", "\"a text of some length\"", "{\"a\":[]}", "\"\\u0001\""};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        char *text = repeat('[', items[i], 20000, ']');
        size_t length = strlen(text);
        asking a = {0};
        json_t *value = NULL;
        weir_interrupt_set(ask, &a);
        assert_int_equal(weir__json_parse(text, length, "body", WEIR_FORMAT, &value, NULL), WEIR_OK);
        assert_true(a.n >= length / 4096);
        size_t n_reading = a.n;
        a.n = 0;
        char *dump = weir__json_dump(value);
        assert_non_null(dump);
        assert_true(a.n >= 20000 / 256); /* pieces: at least one for each item */
        weir__mem_free(dump);
        const size_t n_writing = a.n;

        for (size_t last = 1; last <= n_reading; last += n_reading / 3) {
            weir_error error = {0};
            json_t *none = NULL;
            a = (asking){.last = last};
            assert_int_equal(weir__json_parse(text, length, "body", WEIR_FORMAT, &none, &error),
                             WEIR_ABORTED);
            assert_int_equal(a.n, last);
            assert_null(none);
        }
        a = (asking){.last = n_writing / 2};
        assert_null(weir__json_dump(value));
        assert_int_equal(a.n, n_writing / 2);
        weir_interrupt_set(NULL, NULL);
        json_decref(value);
        free(text);
    }
}

/* The interrupt is asked even within one string, plain or of escapes. */
static void the_interrupt_is_asked_within_a_string(void **state)
{
    (void)state;
    static const char *const items[] = {"some text ", "\\n", "\\u00e4"};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        weir__text text = {0};
        assert_true(weir__text_add(&text, "\"", 1));
        while (text.n < 1 << 20) assert_true(weir__text_add_string(&text, items[i]));
        assert_true(weir__text_add(&text, "\"", 1));
        asking a = {.last = 100};
        json_t *none = NULL;
        weir_interrupt_set(ask, &a);
        assert_int_equal(weir__json_parse(text.bytes, text.n, "body", WEIR_FORMAT, &none, NULL),
                         WEIR_ABORTED);
        assert_int_equal(a.n, 100);
        weir_interrupt_set(NULL, NULL);
        weir__text_fini(&text);
    }
}

static void wide_objects_are_found(void **state)
{
    (void)state;
    char *text = repeat('{', "1", 8192, '}'), *more = repeat('{', "1", 8193, '}');
    json_t *narrow = NULL, *wide = NULL;
    assert_int_equal(weir__json_parse(text, WEIR_NUL, "x", WEIR_FORMAT, &narrow, NULL), WEIR_OK);
    assert_int_equal(weir__json_parse(more, WEIR_NUL, "x", WEIR_FORMAT, &wide, NULL), WEIR_OK);
    assert_true(weir__json_is_narrow(narrow));
    assert_false(weir__json_is_narrow(wide));
    json_t *two = json_pack("[O,{s:O}]", narrow, "a", narrow);
    assert_false(weir__json_is_narrow(two));
    json_decref(two);
    json_decref(wide);
    json_decref(narrow);
    free(more);
    free(text);
}

/* ---- Writing ---- */

static void an_object_is_written_member_by_member(void **state)
{
    (void)state;
    weir__text text = {0};
    weir__text_add_string(&text, "{");
    weir__json_string(&text, "name", "a\"b\\c\n\x01");
    weir__json_string(&text, "none", NULL);
    weir__json_bytes(&text, "bytes", "\xff!", 2);
    weir__json_bytes(&text, "empty", NULL, 0);
    weir__json_number(&text, "whole", 3.0, 3);
    weir__json_number(&text, "part", 0.125, 2);
    weir__json_number(&text, "infinite", (double)INFINITY, 2);
    weir__json_key(&text, "list");
    weir__text_add_string(&text, "[");
    for (int i = 0; i < 3; i++) {
        weir__json_next(&text);
        weir__text_printf(&text, "%d", i);
    }
    weir__text_add_string(&text, "]}");
    assert_string_equal(text.bytes,
                        "{\"name\":\"a\\\"b\\\\c\\n\\u0001\",\"none\":null,\"bytes\":\"\xef\xbf\xbd!\","
                        "\"empty\":\"\",\"whole\":3,\"part\":0.12,\"infinite\":0,\"list\":[0,1,2]}");
    weir__text_fini(&text);
}

/* The bits of a float that is read, and what %g writes, are the oracle. */
static void floats_are_as_short_as_can_be(void **state)
{
    static const struct {
        float value;
        const char *text;
    } cases[] = {
        {0.8f, "0.8"},
        {3, "3"},
        {-0.5f, "-0.5"},
        {1e-7f, "1e-07"},
        {0.9999999f, "0.9999999"},
        {16777216, "16777216"},
        {0, "0"},
        {INFINITY, "0"},
        {NAN, "0"},
        {1e20f, "1e+20"},
        {FLT_MAX, "3.4028235e+38"},
        {1e-45f, "1e-45"},
    };
    dice d = {1};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir__text text = {0};
        weir__json_float(&text, "x", cases[i].value);
        assert_non_null(text.bytes);
        assert_string_equal(text.bytes + strlen("\"x\":"), cases[i].text);
        weir__text_fini(&text);
    }
    for (int i = 0; i < 100000; i++) {
        weir__text text = {0};
        char shorter[WEIR__JSON_REAL_MAX];
        float value;
        int n = 0; /* significant digits */
        const uint32_t bits = (uint32_t)dice_roll(&d);
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        weir__json_float(&text, "x", value);
        const char *written = text.bytes + strlen("\"x\":");
        assert_true(strtof(written, NULL) == value);
        for (const char *at = written; *at != '\0' && *at != 'e'; at++)
            if (*at >= '0' && *at <= '9' && (n > 0 || *at != '0')) n++;
        if (strchr(written, '.') != NULL && n > 1 && n <= FLT_DECIMAL_DIG) {
            snprintf(shorter, sizeof shorter, "%.*g", n - 1, (double)value);
            assert_true(strtof(shorter, NULL) != value);
        }
        weir__text_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_reads_of_flags_and_types),
        cmocka_unit_test(unfit_escapes_are_replaced_or_refused),
        cmocka_unit_test(long_integers_become_reals),
        cmocka_unit_test(long_integers_keep_their_digits),
        cmocka_unit_test(reals_are_as_short_as_can_be),
        cmocka_unit_test(jansson_reads_the_same),
        cmocka_unit_test(floats_are_as_short_as_can_be),
        cmocka_unit_test(a_failing_allocation_is_no_fault_of_the_text),
        cmocka_unit_test(a_copy_is_whole_or_none),
        cmocka_unit_test(a_deep_copy_is_whole_or_none),
        cmocka_unit_test(long_integers_become_the_nearest_reals),
        cmocka_unit_test(values_are_spent),
        cmocka_unit_test(values_of_others_are_checked),
        cmocka_unit_test(what_takes_much_for_its_bytes_is_counted_first),
        cmocka_unit_test(the_interrupt_is_asked_every_few_bytes),
        cmocka_unit_test(the_interrupt_is_asked_within_a_string),
        cmocka_unit_test(wide_objects_are_found),
        cmocka_unit_test(an_object_is_written_member_by_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* error_test.c: messages are cut at code points, names of members are marked, and setting an error allocates
 * nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <weir/more.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"

static void names_and_texts(void **test)
{
    (void)test;
    assert_string_equal(weir_status_name(WEIR_OK), "WEIR_OK");
    assert_string_equal(weir_status_text(WEIR_OK), "ok");
    assert_string_equal(weir_status_name(WEIR_NO_MEMORY), "WEIR_NO_MEMORY");
    assert_string_equal(weir_status_text(WEIR_NO_MEMORY), "out of memory");
    assert_string_equal(weir_status_name((weir_status)-99), "unknown status");
    assert_string_equal(weir_status_text((weir_status)99), "unknown status");
#define X(name, value, text)                                                                                 \
    assert_int_equal(WEIR_##name, value);                                                                    \
    assert_string_equal(weir_status_name((weir_status)(value)), "WEIR_" #name);                              \
    assert_string_equal(weir_status_text((weir_status)(value)), text);
    WEIR_STATUS_MAP(X)
#undef X
    assert_string_equal(weir_error_kind_name(WEIR_ERROR_RANGE), "WEIR_ERROR_RANGE");
    assert_string_equal(weir_error_kind_name((weir_error_kind)99), "unknown kind");
}

static void set_fills_all(void **test)
{
    (void)test;
    weir_error error;
    memset(&error, 'x', sizeof error);
    assert_int_equal(weir__error_set(&error, WEIR_INVALID, "top_k", "top_k is %d; at least %s", -1, "0"),
                     WEIR_INVALID);
    assert_int_equal(error.code, WEIR_INVALID);
    assert_string_equal(error.field, "top_k");
    assert_string_equal(error.message, "top_k is -1; at least 0");
}

static void null_error_and_field(void **test)
{
    (void)test;
    weir_error error;
    assert_int_equal(weir__error_set(NULL, WEIR_IO, "path", "no"), WEIR_IO);
    assert_int_equal(weir__error_set(&error, WEIR_IO, NULL, "no"), WEIR_IO);
    assert_string_equal(error.field, "");
}

/* Every alignment of the cut against a 1-, 2-, 3- and 4-byte character. */
static void cuts_at_code_points(void **test)
{
    (void)test;
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t c = 0; c < 4; c++) {
        for (size_t shift = 0; shift < 4; shift++) {
            char text[1024] = "zzzz";
            size_t n = shift;
            weir_error error;
            while (n + 4 < sizeof text) {
                strcpy(text + n, characters[c]);
                n += strlen(characters[c]);
            }
            weir__error_set(&error, WEIR_FORMAT, text, "%s", text);
            assert_true(weir__utf8_valid(error.message, strlen(error.message)));
            assert_true(weir__utf8_valid(error.field, strlen(error.field)));
            assert_memory_equal(error.message, text, strlen(error.message));
            assert_memory_equal(error.field, text, strlen(error.field));
            assert_true(strlen(error.message) + strlen(characters[c]) >= sizeof error.message);
            assert_true(strlen(error.field) + strlen(characters[c]) >= sizeof error.field);
        }
    }
}

static void fits_to_the_last_byte(void **test)
{
    (void)test;
    weir_error error;
    char text[sizeof error.message];
    memset(text, 'm', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    weir__error_set(&error, WEIR_IO, NULL, "%s", text);
    assert_string_equal(error.message, text);
    /* One byte more, in one character that then has to go whole */
    weir__error_set(&error, WEIR_IO, NULL, "%.510s\xc3\xa9", text);
    assert_int_equal(strlen(error.message), 510);
}

static void file_names_become_utf8(void **test)
{
    (void)test;
    weir_error error;
    weir__error_set(&error, WEIR_NOT_FOUND, "f\xff", "cannot open %s", "caf\xe9.gguf");
    assert_string_equal(error.message, "cannot open caf\xef\xbf\xbd.gguf");
    assert_string_equal(error.field, "f\xef\xbf\xbd");
}

static void long_paths_keep_both_ends(void **test)
{
    (void)test;
    char path[300], shown[WEIR__ERROR_PATH];
    snprintf(path, sizeof path, "%0200d", 0);
    assert_string_equal(weir__error_path(shown, path), path);
    snprintf(path, sizeof path, "~/%0250d/model.gguf", 0);
    weir__error_path(shown, path);
    assert_memory_equal(shown, "~/000", 5);
    assert_int_equal(strlen(shown), sizeof shown - 1);
    assert_string_equal(shown + strlen(shown) - 14, "000/model.gguf");
}

static void wraps_itself(void **test)
{
    (void)test;
    weir_error error;
    weir__error_set(&error, WEIR_IO, "path", "disk full");
    weir__error_set(&error, WEIR_BACKEND, error.field + 1, "while saving: %s", error.message);
    assert_string_equal(error.field, "ath");
    assert_string_equal(error.message, "while saving: disk full");
}

static void only_formats_mark_names(void **test)
{
    (void)test;
    weir_error error;
    weir__error_set(&error, WEIR_FORMAT, "a`b", "`temp` and `%s`: %s", "top_k", "`quoted`");
    assert_string_equal(error.message, "`temp` and `top_k`: 'quoted'");
    assert_string_equal(error.field, "a`b");
    weir__error_set(&error, WEIR_FORMAT, NULL, "`path` is %s", "\xffname\xff`");
    assert_string_equal(error.message, "path is \xef\xbf\xbdname\xef\xbf\xbd'");
}

static void kinds_and_numbers(void **test)
{
    (void)test;
    weir_error error;
    assert_int_equal(weir__error_null(&error, "path"), WEIR_INVALID);
    assert_int_equal(error.kind, WEIR_ERROR_MISSING);
    assert_false(error.has_value || error.has_low || error.has_high);
    assert_int_equal(weir__error_range(&error, WEIR_INVALID, "n", 7, 1, 4, "`n` is %d", 7), WEIR_INVALID);
    assert_string_equal(error.message, "`n` is 7; allowed: 1 to 4");
    assert_true(error.has_value && error.has_low && error.has_high);
    assert_true(error.value == 7 && error.low == 1 && error.high == 4);
    weir__error_range(&error, WEIR_TOO_LONG, "n", NAN, 9007199254740992.0, INFINITY, "`n` is none");
    assert_string_equal(error.message, "`n` is none; allowed: 9007199254740992 and up");
    assert_true(!error.has_value && error.has_low && !error.has_high);
    assert_int_equal(weir__error_range(NULL, WEIR_TOO_LONG, "n", 1, 2, 3, "no"), WEIR_TOO_LONG);
    assert_int_equal(weir__invalid(NULL, WEIR_ERROR_FORM, "n", "no"), WEIR_INVALID);
}

static void wraps_keep_names_and_numbers(void **test)
{
    (void)test;
    weir_error error;
    weir__error_range(&error, WEIR_INVALID, "n", 7, 1, 4, "`n` is %d", 7);
    assert_int_equal(weir__error_wrap(&error, &error, WEIR_BACKEND, "m[1]", "`m[%d]`: ", 1), WEIR_BACKEND);
    assert_string_equal(error.message, "`m[1]`: `n` is 7; allowed: 1 to 4");
    assert_string_equal(error.field, "m[1]");
    assert_int_equal(error.code, WEIR_BACKEND);
    assert_int_equal(error.kind, WEIR_ERROR_RANGE);
    assert_true(error.value == 7 && error.high == 4);
    assert_int_equal(weir__error_wrap(NULL, &error, WEIR_IO, "", "no"), WEIR_IO);
}

/* The option of "temp"; counts the names in *user. */
static const char *option_of(const char *name, void *user)
{
    ++*(int *)user;
    return strcmp(name, "temp") == 0 ? "--temp" : NULL;
}

static void texts_have_the_callers_names(void **test)
{
    (void)test;
    weir_error error;
    char text[64];
    int n = 0;
    weir__error_set(&error, WEIR_FORMAT, NULL, "`temp` and `%s` and %s", "top_k", "temp");
    weir_error_text(&error, NULL, NULL, text, sizeof text);
    assert_string_equal(text, "temp and top_k and temp");
    weir_error_text(&error, option_of, &n, text, sizeof text);
    assert_string_equal(text, "--temp and top_k and temp");
    assert_int_equal(n, 2);
    weir_error_text(&error, option_of, &n, text, 12);
    assert_string_equal(text, "--temp and ");
    weir__error_set(&error, WEIR_FORMAT, NULL, "\xe2\x82\xac\xe2\x82\xac");
    weir_error_text(&error, NULL, NULL, text, 6);
    assert_string_equal(text, "\xe2\x82\xac");
    weir_error_text(&(weir_error){.code = WEIR_IO}, NULL, NULL, text, sizeof text);
    assert_string_equal(text, weir_status_text(WEIR_IO));
    weir_error_text(&(weir_error){.code = WEIR_OK}, NULL, NULL, text, sizeof text);
    assert_string_equal(text, "");
}

static void copy_takes_all(void **test)
{
    (void)test;
    weir_error from;
    weir_error to;
    weir__error_set(&from, WEIR_BUSY, "queue", "full");
    assert_int_equal(weir__error_copy(&to, &from), WEIR_BUSY);
    assert_int_equal(to.code, WEIR_BUSY);
    assert_string_equal(to.field, "queue");
    assert_string_equal(to.message, "full");
    assert_int_equal(weir__error_copy(NULL, &from), WEIR_BUSY);
    assert_int_equal(weir__error_copy(&from, &from), WEIR_BUSY);
}

static void allocates_nothing(void **test)
{
    (void)test;
    weir_error error;
    weir__mem_fail_after(0);
    weir__error_set(&error, WEIR_NO_MEMORY, "field", "%s", "message");
    assert_true(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    assert_string_equal(error.message, "message");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_texts),
        cmocka_unit_test(set_fills_all),
        cmocka_unit_test(null_error_and_field),
        cmocka_unit_test(cuts_at_code_points),
        cmocka_unit_test(fits_to_the_last_byte),
        cmocka_unit_test(file_names_become_utf8),
        cmocka_unit_test(long_paths_keep_both_ends),
        cmocka_unit_test(wraps_itself),
        cmocka_unit_test(only_formats_mark_names),
        cmocka_unit_test(kinds_and_numbers),
        cmocka_unit_test(wraps_keep_names_and_numbers),
        cmocka_unit_test(texts_have_the_callers_names),
        cmocka_unit_test(copy_takes_all),
        cmocka_unit_test(allocates_nothing),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}

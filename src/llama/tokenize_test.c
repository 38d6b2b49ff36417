/* tokenize_test.c: texts that tokenizers take long for: many marks, and bytes that cannot end a
 * character.
 * SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "support/effort.h"
#include "support/llama.h"

#define MARK "<|im_end|>"

/* n times `unit`. */
static char *repeat(const char *unit, size_t n)
{
    size_t length = strlen(unit);
    char *text = malloc(n * length + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + i * length, unit, length);
    text[n * length] = '\0';
    return text;
}

static size_t ids_of(const char *text, int32_t *ids, size_t capacity)
{
    size_t n = 0;
    assert_ok(ops->tokenize(model, text, strlen(text), false, true, ids, capacity, &n, error));
    return n;
}

/* The tokens of a text with marks are its parts' tokens one after another, wherever the marks lie. */
static void test_marks_cut_a_text(void **state)
{
    (void)state;
    static const char *const parts[] = {MARK, "hello",  MARK MARK,  " two  words",
                                        "\n", MARK "x", ("y" MARK), "é"};
    int32_t whole[256], part[64];
    uint32_t random = 1;
    for (int round = 0; round < 200; round++) {
        char text[512] = "";
        size_t n = 0, n_part;
        int32_t wanted[256];
        for (int i = 0; i < 12; i++) {
            random = random * 1664525u + 1013904223u;
            const char *piece = parts[(random >> 16) % (sizeof parts / sizeof *parts)];
            strcat(strcat(text, piece), MARK); /* so that each part stands alone */
            n_part = ids_of(piece, part, 64);
            memcpy(wanted + n, part, n_part * sizeof *part);
            n += n_part;
            n += ids_of(MARK, wanted + n, 1);
        }
        assert_int_equal(ids_of(text, whole, 256), n);
        assert_memory_equal(whole, wanted, n * sizeof *whole);
    }
}

/* Each of 40,000 marks once took a walk over those before it: 25 s. */
static void test_many_marks_take_little_time(void **state)
{
    (void)state;
    size_t n = EFFORT(40000, 10000);
    int32_t *ids = malloc(2 * n * sizeof *ids);
    assert_non_null(ids);
    char *marks = repeat(MARK, n), *mixed = repeat("a" MARK, n);
    clock_t begin = clock(); /* of the process: other programs do not count */
    assert_int_equal(ids_of(marks, ids, 2 * n), n);
    assert_int_equal(ids_of(mixed, ids, 2 * n), 2 * n);
    assert_true(clock() - begin < (clock_t)10 * CLOCKS_PER_SEC);
    free(mixed);
    free(marks);
    free(ids);
}

/* A stack larger than memory is asked for, and little of it used. */
static void test_a_long_text_needs_no_memory_for_its_stack(void **state)
{
    (void)state;
    size_t n = (size_t)EFFORT(6, 1) << 20, n_tokens = 0;
    char *text = repeat("abcdefg ", n / 8);
    int32_t *ids = malloc(n * sizeof *ids);
    assert_non_null(ids);
    assert_ok(ops->tokenize(model, text, n, false, false, ids, n, &n_tokens, error));
    assert_true(n_tokens > n / 8);
    free(ids);
    free(text);
}

static bool second_time(void *user)
{
    return ++*(int *)user == 2;
}

static void count_errors(weir_log_level level, const char *message, void *user)
{
    (void)message;
    if (level == WEIR_LOG_ERROR) ++*(int *)user;
}

static void test_the_interrupt_ends_it(void **state)
{
    (void)state;
    int asked = 0, n_errors = 0;
    size_t n = 0;
    char *marks = repeat(MARK, 20000), *words = repeat("some words ", 20000);
    char *const texts[] = {marks, words};
    weir_log_set(count_errors, &n_errors); /* an interrupt is no failure */
    for (int i = 0; i < 2; i++) {
        asked = 0;
        weir_interrupt_set(second_time, &asked);
        assert_int_equal(ops->tokenize(model, texts[i], strlen(texts[i]), false, true, NULL, 0, &n, NULL),
                         WEIR_ABORTED);
        assert_int_equal(asked, 2);
        weir_interrupt_set(NULL, NULL);
        assert_int_equal(ops->tokenize(model, texts[i], strlen(texts[i]), false, true, NULL, 0, &n, NULL),
                         WEIR_TOO_LONG);
    }
    weir_log_set(NULL, NULL);
    assert_int_equal(n_errors, 0);
    free(words);
    free(marks);
}

/* No token stands for more bytes than that. */
static void test_the_longest_piece(void **state)
{
    (void)state;
    weir_model_info info = {.size = sizeof info};
    ops->model_describe(model, &info);
    int32_t longest = info.longest_piece;
    static const char *const units[] = {" ", "\n", "\t", "a", "=", "-", "*", "_", "é", MARK};
    assert_true(longest > 0);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        char *text = repeat(units[i], 3000);
        size_t n = 0;
        assert_int_equal(ops->tokenize(model, text, strlen(text), false, true, NULL, 0, &n, NULL),
                         WEIR_TOO_LONG);
        assert_true(n * (size_t)longest >= strlen(text));
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks_cut_a_text),
        cmocka_unit_test(test_many_marks_take_little_time),
        cmocka_unit_test(test_a_long_text_needs_no_memory_for_its_stack),
        cmocka_unit_test(test_the_interrupt_ends_it),
        cmocka_unit_test(test_the_longest_piece),
    };
    return RUN_MODEL_TESTS(tests);
}

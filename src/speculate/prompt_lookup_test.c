/* prompt_lookup_test.c: each text is followed from its beginning, and the longer match wins.
 * SPDX-License-Identifier: Apache-2.0 */
#include "speculate/drafter.h"
#include "support/model.h"

#define POISON 99 /* lies behind a text, and must not be read */

static weir_model *load(void)
{
    weir_model *model = NULL;
    assert_int_equal(weir_model_load("fake:", NULL, &model, NULL), WEIR_OK);
    return model;
}

/* One draft for a text of this number; how many tokens it has. */
static int32_t draft(weir__drafter *drafter, uint64_t number, const int32_t *tokens, int32_t n, int32_t *out)
{
    weir__draft one = {.text = number, .tokens = tokens, .n_tokens = n, .most = 8, .shared = true};
    weir__draft *all[] = {&one};
    weir__drafting drafting = {.room = 1000, .throughput = {.tokens = 1, .ns = 1000, .row_ns = 1}};
    drafter->ops->draft(drafter, all, 1, &drafting);
    if (one.n > 0) memcpy(out, one.token, (size_t)one.n * sizeof *out);
    return one.n;
}

static void fill(int32_t *tokens, int32_t n, const char *text)
{
    int32_t length = (int32_t)strlen(text);
    for (int32_t i = 0; i < n; i++) tokens[i] = i < length ? text[i] : POISON;
}

/* A slot's next text is shorter, and of it alone the draft is made. */
static void each_text_is_read_from_its_beginning(void **state)
{
    (void)state;
    weir_model *model = load();
    weir__drafter *drafter = weir__drafter_lookup(model, 1, 0);
    int32_t first[64], second[64], out[WEIR__DRAFT_MAX];
    assert_non_null(drafter);
    fill(first, 64, "abcdefgh abcdefgh abcdefgh abcdefgh abcdef");
    assert_true(draft(drafter, 1, first, 42, out) > 0);
    assert_int_equal(out[0], 'g');

    fill(second, 64, "wxyz 1 wxy"); /* its rest is POISON */
    int32_t n = draft(drafter, 2, second, 10, out);
    assert_true(n > 0);
    assert_int_equal(out[0], 'z');
    for (int32_t i = 0; i < n; i++) assert_int_not_equal(out[i], POISON);

    fill(second, 64, "no pair of these");
    assert_int_equal(draft(drafter, 3, second, 16, out), 0); /* nor from the texts before them */
    fill(second, 64, "ab");
    assert_int_equal(draft(drafter, 4, second, 2, out), 0);
    drafter->ops->destroy(drafter);
    weir_model_release(model);
}

/* The next token after a text, which ends with it. */
static int32_t next(weir__drafter *drafter, uint64_t number, const char *text)
{
    int32_t tokens[64], out[WEIR__DRAFT_MAX], n = (int32_t)strlen(text);
    fill(tokens, 64, text);
    out[0] = 0;
    draft(drafter, number, tokens, n, out);
    const weir__draft end = {.text = number, .tokens = tokens, .n_tokens = n, .shared = true};
    drafter->ops->learn(drafter, &end);
    return out[0];
}

static void the_longer_match_is_used(void **state)
{
    (void)state;
    weir_model *model = load();
    weir__drafter *drafter = weir__drafter_lookup(model, 1, 1 << 20);
    assert_non_null(drafter);
    assert_int_equal(next(drafter, 1, "012345678 long"), 0);
    assert_int_equal(next(drafter, 2, "78 short, and 78 "), 's');
    assert_int_equal(next(drafter, 3, "78 short, and 345678 "), 'l');
    assert_int_equal(next(drafter, 4, "5678 own text, and 345678 "), 'l');
    assert_int_equal(next(drafter, 5, "345678 own text, and 345678 "), 'o'); /* as long as another's */
    drafter->ops->destroy(drafter);
    weir_model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_text_is_read_from_its_beginning),
        cmocka_unit_test(the_longer_match_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Probabilities of tokens as JSON: against jansson, which refuses a key that stands twice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "scores.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "model/fake.h"

#define N_TOP 4

static weir_model *model;

/* Tokens 'b' and 'c' have the text "a" too; 'x' is a part of a code point. */
static int load(void **state)
{
    (void)state;
    return weir_model_load("fake:", NULL, &model, NULL) == WEIR_OK &&
                   weir__fake_set_piece(model, 'b', "a", 1, WEIR__FAKE_TEXT) &&
                   weir__fake_set_piece(model, 'c', "a", 1, WEIR__FAKE_TEXT) &&
                   weir__fake_set_piece(model, 'x', "\xc3", 1, WEIR__FAKE_TEXT)
               ? 0
               : -1;
}

static int unload(void **state)
{
    (void)state;
    weir_model_release(model);
    return 0;
}

static json_t *parse(weir__text *text)
{
    json_error_t why;
    assert_false(text->failed);
    json_t *json = json_loadb(text->bytes, text->n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (json == NULL) fail_msg("%s: %.*s", why.text, (int)text->n, text->bytes);
    weir__text_fini(text);
    return json;
}

/* Two tokens, each with N_TOP likeliest. */
static serve_scores scores_of(const weir_logprob *top)
{
    static const int32_t tokens[] = {'a', 'z'};
    static const float logprobs[] = {-1, -2};
    const weir_chunk chunk = {
        .tokens = tokens, .n_tokens = 2, .logprobs = logprobs, .top_logprobs = top, .n_top_logprobs = N_TOP};
    serve_scores scores = {0};
    assert_true(serve_scores_add(&scores, &chunk, N_TOP));
    return scores;
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number at %s", key);
    return json_number_value(value);
}

static const weir_logprob likeliest[2][N_TOP] = {
    {{'b', -0.5F}, {'a', -1}, {'x', -2}, {'c', -3}},
    {{'y', -0.25F}, {'z', -2}, {'c', -3}, {'b', -INFINITY}},
};

/* An object has a text once: with the likeliest of its tokens. */
static void a_completion_tells_a_text_once(void **state)
{
    (void)state;
    serve_scores scores = scores_of(likeliest[0]);
    weir__text text = {0};
    serve_scores_add_completion(&scores, model, &text);
    json_t *json = parse(&text), *tops = json_object_get(json, "top_logprobs");
    const json_t *first = json_array_get(tops, 0), *second = json_array_get(tops, 1);
    assert_int_equal(json_array_size(tops), 2);
    assert_int_equal(json_object_size(first), 2);
    assert_true(number_at(first, "a") == -0.5);
    assert_true(number_at(first, "bytes:\\xc3") == -2);
    assert_int_equal(json_object_size(second), 3);
    assert_true(number_at(second, "y") == -0.25);
    assert_true(number_at(second, "a") == -3);
    assert_true(number_at(second, "z") == -2);
    assert_string_equal(json_string_value(json_array_get(json_object_get(json, "tokens"), 1)), "z");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "text_offset"), 1)), 1);
    json_decref(json);
    serve_scores_fini(&scores);
}

/* A list has all of them. */
static void a_chat_tells_every_token(void **state)
{
    (void)state;
    serve_scores scores = scores_of(likeliest[0]);
    weir__text text = {0};
    serve_scores_add_chat(&scores, model, false, &text);
    json_t *json = parse(&text);
    for (size_t i = 0; i < 2; i++) {
        const json_t *entry = json_array_get(json_object_get(json, "content"), i);
        const json_t *top = json_object_get(entry, "top_logprobs");
        assert_true(number_at(entry, "logprob") == -1 - (double)i);
        assert_int_equal(json_array_size(top), N_TOP);
        for (size_t k = 0; k < N_TOP; k++) {
            double want = (double)likeliest[i][k].logprob;
            assert_true(number_at(json_array_get(top, k), "logprob") == (isfinite(want) ? want : -9999));
        }
    }
    json_decref(json);
    serve_scores_fini(&scores);
}

static void reported_scores_are_forgotten(void **state)
{
    (void)state;
    serve_scores scores = scores_of(likeliest[0]);
    weir__text text = {0};
    serve_scores_add_completion(&scores, model, &text);
    weir__text_fini(&text);
    serve_scores_add_completion(&scores, model, &text);
    assert_string_equal(text.bytes, "null");
    weir__text_fini(&text);
    serve_scores_fini(&scores);
}

/* Scores of tokens with these texts; 'b' is "a" too. */
static serve_scores scores_of_text(const char *tokens)
{
    int32_t ids[32];
    float logprobs[32];
    size_t n = strlen(tokens);
    for (size_t i = 0; i < n; i++) {
        ids[i] = tokens[i] == '#' ? WEIR__FAKE_IM_START : tokens[i] == '~' ? WEIR__FAKE_WORDS : tokens[i];
        logprobs[i] = -1 - (float)i;
    }
    const weir_chunk chunk = {.tokens = ids, .n_tokens = n, .logprobs = logprobs};
    serve_scores scores = {0};
    assert_true(serve_scores_add(&scores, &chunk, 0));
    return scores;
}

/* The tokens that are assigned to a text, and how many of them remain. */
static void expect_taken(serve_scores *scores, const char *bytes, const char *numbers, size_t n_left)
{
    weir__text list = {0}, entries = {0};
    serve_scores_take(scores, model, bytes, strlen(bytes), &entries);
    weir__text_add_string(&list, "[");
    weir__text_add(&list, entries.bytes, entries.n);
    weir__text_add_string(&list, "]");
    weir__text_fini(&entries);
    json_t *json = parse(&list), *entry;
    size_t i;
    json_array_foreach(json, i, entry)
    {
        char number[16];
        snprintf(number, sizeof number, "%g ", -1 - number_at(entry, "logprob"));
        weir__text_add_string(&list, number);
    }
    assert_string_equal(list.n > 0 ? list.bytes : "", numbers);
    assert_int_equal(scores->n, n_left);
    weir__text_fini(&list);
    json_decref(json);
}

static void a_text_has_its_tokens(void **state)
{
    (void)state;
    assert_true(weir__fake_set_piece(model, WEIR__FAKE_WORDS, "two words", 9, WEIR__FAKE_TEXT));
    serve_scores scores = scores_of_text("#think#yes~!#");
    serve_scores_take(&scores, model, "think", 5, NULL); /* reasoning */
    assert_int_equal(scores.n, 7);
    expect_taken(&scores, "yes", "7 8 9 ", 3);
    expect_taken(&scores, "two", "10 ", 3); /* a token whose text comes in two pieces belongs to the first */
    expect_taken(&scores, " words!", "11 ", 1);
    expect_taken(&scores, "", "", 1);
    serve_scores_fini(&scores);

    scores = scores_of_text("quoted");
    serve_scores_take(&scores, model, "other", 5, NULL); /* nothing is known */
    assert_int_equal(scores.n, 6);
    expect_taken(&scores, "\"", "0 1 2 3 4 5 ", 0); /* the parser made it of all of them */
    expect_taken(&scores, "more", "", 0);
    serve_scores_fini(&scores);
}

/* Wherever memory ends, there is no JSON that looks whole. */
static void without_memory(void **state)
{
    bool done = false;
    (void)state;
    for (long n = 0; !done; n++) {
        serve_scores scores = scores_of(likeliest[0]);
        weir__text text = {0};
        weir__mem_fail_after(n);
        serve_scores_add_completion(&scores, model, &text);
        done = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(text.failed, !done);
        weir__text_fini(&text);
        serve_scores_fini(&scores);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_tells_a_text_once),
        cmocka_unit_test(a_chat_tells_every_token),
        cmocka_unit_test(reported_scores_are_forgotten),
        cmocka_unit_test(a_text_has_its_tokens),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, load, unload);
}

/* generate_test.c: the ends of a generation, its pieces of text, and its errors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/model.h"

#include "base/utf8.h"

/* Calls of the callback. */
typedef struct seen {
    int32_t tokens[512];
    int32_t n;
    char text[4096];
    size_t length;
    bool flushed; /* a call with token -1 */
    int32_t stop_after;
} seen;

static bool see(int32_t token, const char *text, size_t length, void *user)
{
    seen *s = user;
    assert_false(s->flushed);
    assert_true(weir__utf8_valid(text, length));
    memcpy(s->text + s->length, text, length);
    s->length += length;
    if (token < 0) {
        assert_true(length > 0);
        s->flushed = true;
    } else {
        s->tokens[s->n++] = token;
    }
    return s->n != s->stop_after;
}

/* Generates after "hi" and checks the text against the tokens'. */
static weir_reason run(weir_context *context, weir_sampler *sampler, int32_t max_tokens, seen *s)
{
    static const int32_t prompt[] = {'h', 'i'};
    char text[4096];
    size_t length;
    weir_reason reason = WEIR_REASON_NOT_FINISHED;
    int32_t stop_after = s->stop_after;
    memset(s, 0, sizeof *s);
    s->stop_after = stop_after;
    assert_ok(weir_context_generate(context, sampler, prompt, 2, max_tokens, see, s, &reason, error));
    assert_ok(
        weir_detokenize(context->model, s->tokens, (size_t)s->n, false, text, sizeof text, &length, error));
    if (reason != WEIR_REASON_CANCELLED) {
        assert_int_equal(s->length, length);
        assert_memory_equal(s->text, text, length);
    }
    return reason;
}

/* The tokens are those that follow each other. */
static void assert_chain(const weir_model *model, const seen *s)
{
    int32_t history[600] = {'h', 'i'};
    for (int32_t i = 0; i < s->n; i++) {
        assert_int_equal(s->tokens[i], weir__fake_next(model, history, 2 + i));
        history[2 + i] = s->tokens[i];
    }
}

static void test_tokens_follow_each_other_until_max_tokens(void **state)
{
    (void)state;
    weir_model *model = fake_load("any=1");
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    static seen s;
    for (int32_t n = 0; n <= 100; n++) {
        assert_int_equal(run(context, sampler, n, &s), WEIR_REASON_LENGTH);
        assert_int_equal(s.n, n);
        assert_chain(model, &s);
        /* the last token is not computed: no further one is needed */
        assert_int_equal(weir_sequence_pos_max(context, 0), n == 0 ? 1 : n);
    }
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_the_context_ends_it(void **state)
{
    (void)state;
    weir_model *model = fake_load("exact=1");
    weir_context *context = fake_context(model, 12, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    static seen s;
    assert_int_equal(run(context, sampler, -1, &s), WEIR_REASON_LENGTH);
    assert_int_equal(s.n, 11);
    assert_chain(model, &s);
    assert_int_equal(run(context, sampler, 1000, &s), WEIR_REASON_LENGTH);
    assert_int_equal(s.n, 11);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_the_model_ends_it(void **state)
{
    (void)state;
    char options[32];
    static seen s;
    int ended = 0;
    for (int seed = 0; seed < 20; seed++) {
        snprintf(options, sizeof options, "eos_every=10,seed=%d", seed);
        weir_model *model = fake_load(options);
        weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
        weir_sampler *sampler = fake_greedy(model);
        weir_reason reason = run(context, sampler, 200, &s);
        assert_chain(model, &s);
        for (int32_t i = 0; i < s.n; i++) assert_false(weir_is_eog(model, s.tokens[i]));
        if (reason == WEIR_REASON_END) {
            int32_t history[600] = {'h', 'i'};
            memcpy(history + 2, s.tokens, (size_t)s.n * sizeof *history);
            assert_true(weir_is_eog(model, weir__fake_next(model, history, 2 + s.n)));
            ended++;
        }
        weir_sampler_destroy(sampler);
        weir_context_destroy(context);
        fake_release(model);
    }
    assert_true(ended >= 18);
}

static void test_the_caller_ends_it(void **state)
{
    (void)state;
    weir_model *model = fake_load("any=1");
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    static seen s;
    for (int32_t n = 1; n < 30; n++) {
        s.stop_after = n;
        assert_int_equal(run(context, sampler, -1, &s), WEIR_REASON_CANCELLED);
        assert_int_equal(s.n, n);
        assert_false(s.flushed);
    }
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static const int32_t *script;

static int32_t scripted(void *user, const int32_t *history, int32_t n)
{
    (void)user, (void)history;
    return script[n - 2];
}

/* Counts how often it was asked between passes; ends the answer at the stop_at-th time. */
typedef struct asked {
    int n, stop_at, n_tokens;
} asked;

static bool ask(int32_t token, const char *text, size_t length, void *user)
{
    asked *a = user;
    if (token >= 0) {
        a->n_tokens++;
        return true;
    }
    assert_int_equal(length, 0);
    assert_string_equal(text, "");
    return ++a->n != a->stop_at;
}

static void test_the_caller_ends_it_between_passes(void **state)
{
    (void)state;
    static int32_t prompt[70];
    for (int i = 0; i < 70; i++) prompt[i] = 'a' + i % 26;
    weir_model *model = fake_load("");
    weir_sampler *sampler = fake_greedy(model);
    weir_context_params params = weir_context_params_default();
    weir_context *context;
    weir_reason reason;
    params.n_ctx = 512;
    params.n_batch = 32;
    assert_ok(weir_context_create(model, &params, &context, error));
    asked a = {.stop_at = 2};
    assert_ok(weir_context_generate(context, sampler, prompt, 70, 3, ask, &a, &reason, error));
    assert_int_equal(reason, WEIR_REASON_CANCELLED);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.n_tokens, 0);
    assert_int_equal(weir_sequence_pos_max(context, 0), 63);
    a = (asked){0};
    assert_ok(weir_context_generate(context, sampler, prompt, 70, 3, ask, &a, &reason, error));
    assert_int_equal(reason, WEIR_REASON_LENGTH);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.n_tokens, 3);
    a = (asked){0};
    assert_ok(weir_context_generate(context, sampler, prompt, 64, 3, ask, &a, &reason, error));
    assert_int_equal(a.n, 1);
    weir_context_destroy(context);
    weir_sampler_destroy(sampler);
    fake_release(model);
}

static void test_characters_arrive_whole(void **state)
{
    (void)state;
    static const int32_t euro[] = {0xe2, 0x82, 0xac, 'x', 0xe2, 0x82, WEIR__FAKE_EOS};
    static const int32_t empty[] = {300, 301, WEIR__FAKE_IM_START, 'y', WEIR__FAKE_EOT};
    static seen s;
    weir_model *model = fake_load("");
    assert_true(weir__fake_set_piece(model, 300, "", 0, WEIR__FAKE_TEXT));
    assert_true(weir__fake_set_piece(model, 301, "\xf0\x9f\x99\x82", 4, WEIR__FAKE_TEXT));
    weir__fake_of(model)->next = scripted;
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    script = euro;
    assert_int_equal(run(context, sampler, -1, &s), WEIR_REASON_END);
    assert_int_equal(s.n, 6);
    assert_true(s.flushed);
    assert_int_equal(s.length, 7);
    assert_memory_equal(s.text, "€x\xef\xbf\xbd", 7);
    script = empty;
    assert_int_equal(run(context, sampler, -1, &s), WEIR_REASON_END);
    assert_int_equal(s.n, 4);
    assert_false(s.flushed);
    assert_memory_equal(s.text, "🙂y", 5);
    /* held text comes at the length's end too */
    script = euro;
    assert_int_equal(run(context, sampler, 2, &s), WEIR_REASON_LENGTH);
    assert_true(s.flushed);
    assert_memory_equal(s.text, "\xef\xbf\xbd", 3);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_long_pieces(void **state)
{
    (void)state;
    static const int32_t longer[] = {300, 'x', 300, WEIR__FAKE_EOS};
    static char piece[1500];
    static seen s;
    weir_model *model = fake_load("");
    memset(piece, 'p', sizeof piece);
    assert_true(weir__fake_set_piece(model, 300, piece, sizeof piece, WEIR__FAKE_TEXT));
    weir__fake_of(model)->next = scripted;
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    script = longer;
    assert_int_equal(run(context, sampler, -1, &s), WEIR_REASON_END);
    assert_int_equal(s.length, 2 * sizeof piece + 1);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_nobody_needs_to_listen(void **state)
{
    (void)state;
    static const int32_t prompt[] = {'h', 'i'};
    weir_model *model = fake_load("");
    weir_context *context = fake_context(model, 512, 2, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    assert_ok(weir_prefill(context, prompt, 2, 1, NULL, error));
    assert_ok(weir_context_generate(context, sampler, prompt, 2, 5, NULL, NULL, NULL, error));
    assert_int_equal(weir_sequence_pos_max(context, 0), 5);
    assert_int_equal(weir_sequence_pos_max(context, 1), 1);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_a_grammar_holds(void **state)
{
    (void)state;
    static seen s;
    weir_model *model = fake_load("");
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.grammar = "root ::= \"yes\" | \"no\"";
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(run(context, sampler, -1, &s), WEIR_REASON_END);
        assert_true((s.length == 3 && memcmp(s.text, "yes", 3) == 0) ||
                    (s.length == 2 && memcmp(s.text, "no", 2) == 0));
        assert_ok(weir_sampler_reset(sampler, error));
    }
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_bad_arguments_are_named(void **state)
{
    (void)state;
    int32_t prompt[] = {'h', 320};
    static int32_t many[600];
    weir_reason reason = WEIR_REASON_DEADLINE;
    weir_model *model = fake_load(""), *other = fake_load("");
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model), *stranger = fake_greedy(other);
#define GENERATE(context, sampler, prompt, n_prompt, max)                                                    \
    weir_context_generate(context, sampler, prompt, n_prompt, max, NULL, NULL, &reason, error)
    assert_refused(GENERATE(NULL, sampler, prompt, 1, 1), WEIR_INVALID, "context");
    assert_refused(GENERATE(context, NULL, prompt, 1, 1), WEIR_INVALID, "sampler");
    assert_refused(GENERATE(context, stranger, prompt, 1, 1), WEIR_INVALID, "sampler");
    assert_refused(GENERATE(context, sampler, NULL, 1, 1), WEIR_INVALID, "tokens");
    assert_refused(GENERATE(context, sampler, prompt, 0, 1), WEIR_INVALID, "n_tokens");
    assert_refused(GENERATE(context, sampler, prompt, 2, 1), WEIR_INVALID, "tokens");
    assert_refused(GENERATE(context, sampler, prompt, 1, -2), WEIR_INVALID, "max_tokens");
    assert_refused(GENERATE(context, sampler, many, 513, 1), WEIR_TOO_LONG, "n_prompt");
    assert_int_equal(reason, WEIR_REASON_DEADLINE);
    assert_ok(GENERATE(context, sampler, many, 512, 1));
    weir_sampler_destroy(sampler);
    weir_sampler_destroy(stranger);
    weir_context_destroy(context);
    fake_release(model);
    fake_release(other);
}

static void test_a_pass_that_fails(void **state)
{
    (void)state;
    static const int32_t prompt[] = {'h', 'i'};
    weir_reason reason = WEIR_REASON_DEADLINE;
    static seen s;
    weir_model *model = fake_load("");
    weir__fake *fake = weir__fake_of(model);
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    for (int at = 0; at < 4; at++) {
        memset(&s, 0, sizeof s);
        atomic_store(&fake->fail_decode_at, at);
        assert_refused(weir_context_generate(context, sampler, prompt, 2, 10, see, &s, &reason, error),
                       WEIR_BACKEND, "");
        assert_int_equal(s.n, at);
        memset(&s, 0, sizeof s);
        atomic_store(&fake->fail_sample_at, at);
        assert_refused(weir_context_generate(context, sampler, prompt, 2, 10, see, &s, &reason, error),
                       WEIR_BACKEND, "");
        assert_int_equal(s.n, at);
    }
    assert_int_equal(reason, WEIR_REASON_DEADLINE);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

/* An interrupt function that says true at the `last`-th question. */
typedef struct patience {
    int asked, last;
} patience;

static bool lose_patience(void *user)
{
    patience *p = user;
    return ++p->asked >= p->last;
}

/* An interrupt ends it even in the middle of a prompt that is one pass. */
static void test_an_interrupt_ends_it_within_a_pass(void **state)
{
    (void)state;
    static int32_t prompt[400];
    static seen s;
    weir_reason reason = WEIR_REASON_DEADLINE;
    weir_model *model = fake_load("any=1");
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    for (int i = 0; i < 400; i++) prompt[i] = 'a';
    /* one question before a pass, and one before each of its tokens */
    static const struct {
        int last, n_tokens, pos_max;
    } ends[] = {{1, 0, -1},    {2, 0, -1},    {100, 0, -1},  {401, 0, -1},
                {402, 1, 399}, {403, 1, 399}, {404, 2, 400}, {410, 5, 403}};
    for (size_t i = 0; i < N_ELEMENTS(ends); i++) {
        patience p = {.last = ends[i].last};
        memset(&s, 0, sizeof s);
        s.stop_after = -1;
        weir_interrupt_set(lose_patience, &p);
        assert_refused(weir_context_generate(context, sampler, prompt, 400, 100, see, &s, &reason, error),
                       WEIR_ABORTED, "");
        weir_interrupt_set(NULL, NULL);
        assert_int_equal(p.asked, p.last);
        assert_int_equal(reason, WEIR_REASON_DEADLINE);
        assert_int_equal(s.n, ends[i].n_tokens);
        /* of the prompt nothing is left, of the answer the computed tokens */
        assert_int_equal(weir_sequence_pos_max(context, 0), ends[i].pos_max);
    }
    memset(&s, 0, sizeof s);
    assert_int_equal(run(context, sampler, 20, &s), WEIR_REASON_LENGTH);
    assert_chain(model, &s);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

static void test_it_survives_each_failing_allocation(void **state)
{
    (void)state;
    static const int32_t prompt[] = {'h', 'i'}, longer[] = {300, 'x', WEIR__FAKE_EOS};
    static char piece[1500];
    bool pending = false;
    static seen s;
    weir_model *model = fake_load("");
    memset(piece, 'p', sizeof piece);
    assert_true(weir__fake_set_piece(model, 300, piece, sizeof piece, WEIR__FAKE_TEXT));
    weir__fake_of(model)->next = scripted;
    script = longer;
    weir_context *context = fake_context(model, 512, 1, WEIR_LAYOUT_AUTO);
    weir_sampler *sampler = fake_greedy(model);
    long live = weir__mem_live();
    int failures = 0;
    for (long n = 0; !pending; n++) {
        weir_error error = {0};
        memset(&s, 0, sizeof s);
        weir__mem_fail_after(n);
        weir_status status = weir_context_generate(context, sampler, prompt, 2, 10, see, &s, NULL, &error);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        assert_int_equal(error.code, status);
        assert_int_equal(weir__mem_live(), live);
        failures += !pending;
    }
    assert_true(failures >= 3);
    assert_int_equal(s.length, sizeof piece + 1);
    weir_sampler_destroy(sampler);
    weir_context_destroy(context);
    fake_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_tokens_follow_each_other_until_max_tokens, nothing_left),
        cmocka_unit_test_teardown(test_the_context_ends_it, nothing_left),
        cmocka_unit_test_teardown(test_the_model_ends_it, nothing_left),
        cmocka_unit_test_teardown(test_the_caller_ends_it, nothing_left),
        cmocka_unit_test_teardown(test_the_caller_ends_it_between_passes, nothing_left),
        cmocka_unit_test_teardown(test_characters_arrive_whole, nothing_left),
        cmocka_unit_test_teardown(test_long_pieces, nothing_left),
        cmocka_unit_test_teardown(test_nobody_needs_to_listen, nothing_left),
        cmocka_unit_test_teardown(test_a_grammar_holds, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_are_named, nothing_left),
        cmocka_unit_test_teardown(test_a_pass_that_fails, nothing_left),
        cmocka_unit_test_teardown(test_an_interrupt_ends_it_within_a_pass, nothing_left),
        cmocka_unit_test_teardown(test_it_survives_each_failing_allocation, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

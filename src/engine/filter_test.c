/* filter_test.c: tokens that may not come, and ends that may not come yet.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/engine/draft.h"

#define N_PROMPT 3

/* A model that says the letters a to f over and over, by the number of tokens alone, and wants to end once it
 * has said `wanted`. */
typedef struct cycler {
    int32_t wanted;
} cycler;

static cycler the_cycler;

static int32_t cycle(void *user, const int32_t *history, int32_t n)
{
    const cycler *c = user;
    (void)history;
    int32_t at = n - N_PROMPT;
    return at < c->wanted ? 'a' + at % 6 : WEIR__FAKE_EOS;
}

static void load_cycler(rig *r, int32_t wanted)
{
    rig_load(r, "fake:");
    the_cycler = (cycler){.wanted = wanted};
    r->fake->next = cycle;
    r->fake->next_user = &the_cycler;
}

static weir_request ask(rig *r)
{
    static const int32_t prompt[N_PROMPT] = {'x', 'y', 'z'};
    weir_request request = weir_request_default();
    request.tokens = prompt;
    request.n_tokens = N_PROMPT;
    request.sampler = &r->greedy;
    return request;
}

static void answer(rig *r, const weir_request *request, sink *got)
{
    *got = (sink){0};
    rig_run_out(r, rig_submit(r, request), got);
}

static bool has_tokens(const sink *got, const int32_t *of, size_t n)
{
    for (size_t i = 0; i < got->n_tokens; i++) {
        bool found = false;
        for (size_t k = 0; k < n; k++) found = found || got->tokens[i] == of[k];
        if (!found) return false;
    }
    return true;
}

/* ---- min_tokens ------------------------------------------------------------------------------------ */

static void an_end_token_waits_for_min_tokens(void **state)
{
    rig *r = *state;
    sink got;
    load_cycler(r, 2);
    rig_start(r);
    for (int32_t n = 0; n <= 9; n++) {
        weir_request request = ask(r);
        request.min_tokens = n;
        answer(r, &request, &got);
        assert_int_equal(got.reason, WEIR_REASON_END);
        assert_int_equal(got.n_tokens, n < 2 ? 2 : n);
        assert_memory_equal(got.text, "ab", 2);
    }
}

static void a_stop_text_is_looked_for_behind_min_tokens(void **state)
{
    rig *r = *state;
    static const char *const stops[] = {"cd"};
    static const char *const wanted[] = {"ab", "ab", "ab", "abcdefab", "abcdefab", "abcdefab"};
    sink got;
    load_cycler(r, 100);
    rig_start(r);
    for (int32_t n = 0; n < (int32_t)COUNT(wanted); n++) {
        weir_request request = ask(r);
        request.min_tokens = n;
        request.stop = stops;
        request.n_stop = 1;
        answer(r, &request, &got);
        assert_sink(got, WEIR_REASON_STOP_WORDS, wanted[n]);
    }
}

static void a_complete_grammar_ends_before_min_tokens(void **state)
{
    rig *r = *state;
    sink got;
    load_cycler(r, 100);
    rig_start(r);
    weir_sampler_params sampler = r->greedy;
    sampler.grammar = "root ::= \"abc\" \"d\"?";
    weir_request request = ask(r);
    request.sampler = &sampler;
    request.min_tokens = 20;
    answer(r, &request, &got);
    assert_sink(got, WEIR_REASON_END, "abcd");
    sampler.grammar = "root ::= \"ab\"";
    answer(r, &request, &got);
    assert_sink(got, WEIR_REASON_END, "ab");
}

/* ---- Stops ------------------------------------------------------------------------------------------ */

static void a_stop_token_ends_the_answer(void **state)
{
    rig *r = *state;
    static const int32_t stops[] = {'q', 'c'};
    sink got;
    load_cycler(r, 100);
    rig_start(r);
    weir_request request = ask(r);
    request.stop_tokens = stops;
    request.n_stop_tokens = 2;
    answer(r, &request, &got);
    assert_sink(got, WEIR_REASON_END, "ab");
    assert_int_equal(got.n_tokens, 2);
    request.include_stop = true;
    answer(r, &request, &got);
    assert_sink(got, WEIR_REASON_END, "abc");
    assert_int_equal(got.n_tokens, 3);
    request.include_stop = false;
    request.min_tokens = 4; /* the third token is another one */
    answer(r, &request, &got);
    assert_int_equal(got.reason, WEIR_REASON_END);
    assert_memory_equal(got.text, "ab", 2);
    assert_true(got.tokens[2] != 'c');
    assert_int_equal(got.n_tokens, 8); /* the next "c" is the ninth */
}

static void a_stop_text_may_stay_in_the_text(void **state)
{
    rig *r = *state;
    static const char *const stops[] = {"zz", "de"};
    sink got;
    load_cycler(r, 100);
    rig_start(r);
    weir_request request = ask(r);
    request.stop = stops;
    request.n_stop = 2;
    answer(r, &request, &got);
    assert_sink(got, WEIR_REASON_STOP_WORDS, "abc");
    request.include_stop = true;
    request.logprobs = true;
    answer(r, &request, &got);
    assert_sink(got, WEIR_REASON_STOP_WORDS, "abcde");
}

/* ---- Tokens that may not come ----------------------------------------------------------------------- */

/* Another mechanism says the same: a bias of minus infinity for all other tokens. */
static void allowed_tokens_are_as_biases_against_all_others(void **state)
{
    rig *r = *state;
    static const int32_t allowed[] = {'e', 'h', 'l', 'o', ' '};
    weir_logit_bias biases[512];
    size_t n = 0;
    sink got, wanted;
    rig_load(r, "fake:seed=3");
    rig_start(r);
    for (int32_t token = 0; token < r->model->info.n_vocab; token++) {
        bool is_allowed = false;
        for (size_t k = 0; k < COUNT(allowed); k++) is_allowed = is_allowed || allowed[k] == token;
        if (!is_allowed) biases[n++] = (weir_logit_bias){token, -INFINITY};
    }
    for (uint32_t seed = 0; seed < 6; seed++) {
        weir_sampler_params plain = rig_hot(seed), biased = rig_hot(seed);
        if (seed == 0) plain.temp = biased.temp = 0;
        biased.logit_bias = biases;
        biased.n_logit_bias = n;
        weir_request request = ask(r);
        request.max_tokens = 30;
        request.sampler = &biased;
        answer(r, &request, &wanted);
        request.sampler = &plain;
        request.allowed_tokens = allowed;
        request.n_allowed_tokens = COUNT(allowed);
        answer(r, &request, &got);
        assert_sink(got, WEIR_REASON_LENGTH, wanted.text);
        assert_int_equal(got.n_tokens, 30);
        assert_true(has_tokens(&got, allowed, COUNT(allowed)));
    }
}

static void a_bad_word_loses_its_last_token(void **state)
{
    rig *r = *state;
    static const char *const words[] = {"bc", "  efa"};
    sink got;
    load_cycler(r, 60);
    rig_start(r);
    weir_request request = ask(r);
    request.bad_words = words;
    request.n_bad_words = 1;
    answer(r, &request, &got);
    assert_int_equal(got.n_tokens, 60);
    for (size_t i = 0; i < got.n_tokens; i++) {
        bool completes = i > 0 && i % 6 == 2; /* the model says "c" after "b" */
        if (completes) assert_true(got.tokens[i] != 'c');
        if (!completes) assert_int_equal(got.tokens[i], 'a' + (int32_t)i % 6);
    }
    request.n_bad_words = 2;
    answer(r, &request, &got);
    for (size_t i = 0; i < got.n_tokens; i++) {
        bool completes = i % 6 == 2 || (i > 0 && i % 6 == 0);
        assert_true(completes == (got.tokens[i] != 'a' + (int32_t)i % 6));
    }
}

static void a_bad_word_of_one_token_never_comes(void **state)
{
    rig *r = *state;
    static const char *const words[] = {"c"};
    sink got;
    load_cycler(r, 30);
    rig_start(r);
    weir_request request = ask(r);
    request.bad_words = words;
    request.n_bad_words = 1;
    answer(r, &request, &got);
    assert_int_equal(got.n_tokens, 30);
    assert_null(strchr(got.text, 'c'));
}

static void where_nothing_may_come_the_answer_ends_or_fails(void **state)
{
    rig *r = *state;
    static const char *const words[] = {"a", "b"};
    static const int32_t allowed[] = {'a', 'b'};
    sink got;
    weir_error error;
    load_cycler(r, 30);
    rig_start(r);
    weir_request request = ask(r);
    request.bad_words = words;
    request.n_bad_words = 2;
    request.allowed_tokens = allowed;
    request.n_allowed_tokens = 2;
    answer(r, &request, &got);
    assert_sink(got, WEIR_REASON_END, "");
    weir_sampler_params sampler = r->greedy;
    sampler.grammar = "root ::= \"d\"";
    request.sampler = &sampler;
    weir_stream *stream = rig_submit(r, &request);
    got = (sink){0};
    rig_run_out(r, stream, &got);
    assert_int_equal(got.reason, WEIR_REASON_ERROR);
    weir_stream_error(stream, &error);
    assert_int_equal(error.code, WEIR_INVALID);
    assert_string_equal(error.field, "allowed_tokens");
}

/* ---- Together with the rest of the engine ------------------------------------------------------------ */

static weir_request ask_all(rig *r)
{
    static const char *const words[] = {"bc", "fab", "e"};
    static const int32_t stops[] = {'d'};
    weir_request request = ask(r);
    request.bad_words = words;
    request.n_bad_words = COUNT(words);
    request.stop_tokens = stops;
    request.n_stop_tokens = 1;
    request.min_tokens = 40;
    return request;
}

static void several_answers_each_keep_the_rules(void **state)
{
    rig *r = *state;
    static const int32_t allowed[] = {'a', 'b', 'c', WEIR__FAKE_EOS};
    weir_stream *streams[4];
    weir_sampler_params hot = rig_hot(5);
    bool differ = false;
    sink got[4] = {0};
    rig_load(r, "fake:seed=9,eos_every=3");
    rig_start(r);
    hot.ignore_eos = false;
    weir_request request = ask(r);
    request.sampler = &hot;
    request.allowed_tokens = allowed;
    request.n_allowed_tokens = COUNT(allowed);
    request.min_tokens = 12;
    request.max_tokens = 50;
    for (int i = 0; i < 4; i++) streams[i] = rig_stream(r);
    assert_int_equal(weir_engine_submit_n(r->engine, &request, 4, streams, NULL), WEIR_OK);
    rig_run(r);
    for (int i = 0; i < 4; i++) {
        sink_take(&got[i], streams[i]);
        assert_true(got[i].n_tokens >= 12);
        assert_true(has_tokens(&got[i], allowed, 3));
        differ = differ || strcmp(got[i].text, got[0].text) != 0;
    }
    assert_true(differ);
}

static void a_fork_sees_the_words_of_its_source(void **state)
{
    rig *r = *state;
    static const char *const words[] = {"abcd"};
    sink got = {0};
    load_cycler(r, 12);
    rig_start(r);
    weir_request request = ask(r);
    weir_stream *source = rig_submit(r, &request), *stream = rig_stream(r);
    rig_run_out(r, source, &got);
    assert_sink(got, WEIR_REASON_END, "abcdefabcdef");
    weir_request more = weir_request_default();
    more.sampler = &r->greedy;
    more.bad_words = words;
    more.n_bad_words = 1;
    more.min_tokens = 14; /* new ones */
    assert_int_equal(weir_engine_fork(r->engine, source, 3, &more, stream, NULL), WEIR_OK);
    got = (sink){0};
    rig_run_out(r, stream, &got);
    assert_true(got.tokens[0] != 'd');
    assert_memory_equal(got.tokens + 1, ((int32_t[]){'e', 'f', 'a', 'b', 'c'}), 5 * sizeof(int32_t));
    assert_true(got.tokens[6] != 'd');
    assert_int_equal(got.n_tokens, 14);
}

/* A fork holds back what its source held back, and min_tokens lets it out. */
static void a_fork_lets_out_what_was_held_back(void **state)
{
    rig *r = *state;
    static const char *const stops[] = {"bcx"};
    sink got = {0};
    load_cycler(r, 9);
    rig_start(r);
    weir_request request = ask(r);
    request.stop = stops;
    request.n_stop = 1;
    weir_stream *source = rig_submit(r, &request), *stream = rig_stream(r);
    rig_run_out(r, source, &got);
    weir_request more = weir_request_default();
    more.sampler = &r->greedy;
    more.stop = stops;
    more.n_stop = 1;
    more.min_tokens = 2;
    assert_int_equal(weir_engine_fork(r->engine, source, 3, &more, stream, NULL), WEIR_OK);
    got = (sink){0};
    rig_run_out(r, stream, &got);
    assert_string_equal(weir_stream_source_text(stream, NULL), "a");
    assert_sink(got, WEIR_REASON_END, "bcdefabc");
}

static void drafts_do_not_pass_the_filter(void **state)
{
    rig *r = *state;
    sink plain = {0}, drafted = {0};
    load_cycler(r, 90);
    rig_start(r);
    weir_request request = ask_all(r);
    request.max_tokens = 80;
    request.n_draft_max = 0;
    answer(r, &request, &plain);
    assert_true(plain.n_tokens >= 40);
    request.n_draft_max = -1;
    request.prediction = "abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdef";
    weir_stream *stream = rig_submit(r, &request);
    draft_run(r);
    sink_take(&drafted, stream);
    assert_sink(drafted, plain.reason, plain.text);
    assert_int_equal(drafted.n_tokens, plain.n_tokens);
    assert_true(weir_stream_usage(stream).n_drafted > 0);
}

static void a_preempted_stream_keeps_its_filter(void **state)
{
    rig *r = *state;
    sink alone = {0}, got = {0};
    r->params.n_slots = 1;
    load_cycler(r, 90);
    rig_start(r);
    weir_request request = ask_all(r), other = ask(r);
    answer(r, &request, &alone);
    weir_stream *stream = rig_submit(r, &request);
    rig_ticks(r, 9);
    other.priority = 1;
    weir_stream *urgent = rig_submit(r, &other);
    rig_run_out(r, stream, &got);
    assert_int_equal(rig_stats(r).n_resumes, 1);
    assert_sink(got, alone.reason, alone.text);
    got = (sink){0};
    sink_take(&got, urgent);
    assert_int_equal(got.n_tokens, 90);
}

/* ---- The prompt -------------------------------------------------------------------------------------- */

static void a_truncated_prompt_is_its_last_tokens(void **state)
{
    rig *r = *state;
    int32_t prompt[40], back[40];
    size_t n = 0;
    sink got, wanted;
    rig_load(r, "fake:seed=4");
    r->params.n_ctx = 32;
    rig_start(r);
    for (int32_t i = 0; i < 40; i++) prompt[i] = 'a' + i * i % 26;
    static const struct {
        int32_t kept, max_tokens, n;
    } cases[] = {{10, 8, 10}, {-1, 8, 24}, {-1, -1, 31}, {-1, 100, 1}, {1, 5, 1}, {31, -1, 31}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_request request = ask(r);
        request.max_tokens = cases[i].max_tokens;
        request.tokens = prompt + 40 - cases[i].n;
        request.n_tokens = (size_t)cases[i].n;
        answer(r, &request, &wanted);
        request.tokens = prompt;
        request.n_tokens = 40;
        request.truncate_prompt = cases[i].kept;
        weir_stream *stream = rig_submit(r, &request);
        got = (sink){0};
        rig_run_out(r, stream, &got);
        assert_sink(got, wanted.reason, wanted.text);
        assert_int_equal(weir_stream_usage(stream).n_prompt, cases[i].n);
        assert_int_equal(weir_stream_prompt(stream, NULL, 0, &n), WEIR_TOO_LONG);
        assert_int_equal(n, cases[i].n);
        assert_int_equal(weir_stream_prompt(stream, back, 40, &n), WEIR_OK);
        assert_memory_equal(back, prompt + 40 - cases[i].n, n * sizeof *back);
    }
    weir_request request = ask(r);
    request.truncate_prompt = 20; /* more than there are */
    weir_stream *stream = rig_submit(r, &request);
    rig_run(r);
    assert_int_equal(weir_stream_usage(stream).n_prompt, N_PROMPT);
    assert_int_equal(weir_stream_prompt(rig_stream(r), back, 40, &n), WEIR_STATE);
    assert_int_equal(weir_stream_prompt(NULL, back, 40, &n), WEIR_INVALID);
}

/* ---- What is refused ---------------------------------------------------------------------------------- */

static void what_is_out_of_range_is_refused(void **state)
{
    rig *r = *state;
    static const int32_t tokens[257] = {1, -1}, far[] = {100000};
    static const char *const none[] = {NULL}, *const empty[] = {"  "}, *const broken[] = {"\xff"};
    char text[260];
    const char *const many[129] = {"x"}, *const longer[] = {text};
    weir_stream *stream = rig_stream(r);
    load_cycler(r, 3);
    rig_start(r);
    memset(text, 'x', 257);
    text[257] = '\0';
    for (int i = 0; i < 13; i++) {
        weir_request q = ask(r);
        const char *field = "";
        switch (i) {
        case 0: q.min_tokens = -1, field = "min_tokens"; break;
        case 1: q.min_tokens = 6, q.max_tokens = 5, field = "min_tokens"; break;
        case 2: q.stop_tokens = tokens, q.n_stop_tokens = 257, field = "n_stop_tokens"; break;
        case 3: q.stop_tokens = tokens, q.n_stop_tokens = 2, field = "stop_tokens"; break;
        case 4: q.n_stop_tokens = 1, field = "stop_tokens"; break;
        case 5: q.allowed_tokens = far, q.n_allowed_tokens = 1, field = "allowed_tokens"; break;
        case 6: q.allowed_tokens = far, q.n_allowed_tokens = (1 << 20) + 1, field = "n_allowed_tokens"; break;
        case 7: q.bad_words = many, q.n_bad_words = 129, field = "n_bad_words"; break;
        case 8: q.bad_words = none, q.n_bad_words = 1, field = "bad_words"; break;
        case 9: q.bad_words = empty, q.n_bad_words = 1, field = "bad_words"; break;
        case 10: q.bad_words = longer, q.n_bad_words = 1, field = "bad_words"; break;
        case 11: q.bad_words = broken, q.n_bad_words = 1, field = "bad_words"; break;
        default: q.truncate_prompt = -2, field = "truncate_prompt"; break;
        }
        char name[64];
        snprintf(name, sizeof name, "requests[0].%s", field);
        rig_refuses(r, &q, 1, &stream, WEIR_INVALID, name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(an_end_token_waits_for_min_tokens),
        RIG_TEST(a_stop_text_is_looked_for_behind_min_tokens),
        RIG_TEST(a_complete_grammar_ends_before_min_tokens),
        RIG_TEST(a_stop_token_ends_the_answer),
        RIG_TEST(a_stop_text_may_stay_in_the_text),
        RIG_TEST(allowed_tokens_are_as_biases_against_all_others),
        RIG_TEST(a_bad_word_loses_its_last_token),
        RIG_TEST(a_bad_word_of_one_token_never_comes),
        RIG_TEST(where_nothing_may_come_the_answer_ends_or_fails),
        RIG_TEST(several_answers_each_keep_the_rules),
        RIG_TEST(a_fork_sees_the_words_of_its_source),
        RIG_TEST(a_fork_lets_out_what_was_held_back),
        DRAFT_TEST(drafts_do_not_pass_the_filter),
        RIG_TEST(a_preempted_stream_keeps_its_filter),
        RIG_TEST(a_truncated_prompt_is_its_last_tokens),
        RIG_TEST(what_is_out_of_range_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

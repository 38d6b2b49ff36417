/* reasoning_test.c: reasoning that ends where its budget says, or when a reader asks for it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/draft.h"

#define START    "<think>"
#define END      "</think>"
#define ANSWER   "It is 4: <think>, I said."
#define N_PROMPT 9

/* A model that thinks the alphabet over and over, from the letter that the number of tokens says, until it
 * reads END, and then answers. opens: it writes START first; n_thinks: it ends by itself after so many
 * letters. */
typedef struct thinker {
    int32_t n_prompt;
    bool opens;
    int32_t n_thinks;
} thinker;

static bool ends_with(const int32_t *history, int32_t n, const char *text)
{
    int32_t length = (int32_t)strlen(text);
    for (int32_t i = 0; i < length; i++)
        if (n < length || history[n - length + i] != (unsigned char)text[i]) return false;
    return true;
}

static int32_t think(void *user, const int32_t *history, int32_t n)
{
    const thinker *t = user;
    int32_t from = t->n_prompt + (t->opens ? (int32_t)strlen(START) : 0);
    if (n < from) return START[n - t->n_prompt];
    for (int32_t at = t->n_prompt; at <= n; at++) {
        if (!ends_with(history, at, END) || at - (int32_t)strlen(END) < t->n_prompt) continue;
        return n - at < (int32_t)strlen(ANSWER) ? ANSWER[n - at] : WEIR__FAKE_EOS;
    }
    int32_t over = n - from - t->n_thinks;
    if (over >= 0 && over < (int32_t)strlen(END)) return END[over];
    return 'a' + n % 26;
}

/* Writes the text that the thinker says with this budget. */
static void fill_text(const thinker *t, int32_t budget, char *text)
{
    int32_t from = t->n_prompt + (t->opens ? (int32_t)strlen(START) : 0), n = budget;
    if (n < 0 || n > t->n_thinks) n = t->n_thinks;
    text += sprintf(text, "%s", t->opens ? START : "");
    for (int32_t i = 0; i < n; i++) *text++ = (char)('a' + (from + i) % 26);
    sprintf(text, "%s%s", END, ANSWER);
}

static thinker the_thinker = {.n_prompt = N_PROMPT, .n_thinks = 1000};

static void load_thinker(rig *r, const char *path, bool opens, int32_t n_thinks)
{
    rig_load(r, path);
    the_thinker = (thinker){.n_prompt = N_PROMPT, .opens = opens, .n_thinks = n_thinks};
    r->fake->next = think;
    r->fake->next_user = &the_thinker;
}

static weir_request ask(rig *r, int32_t budget)
{
    static const int32_t prompt[N_PROMPT] = {'W', 'h', 'a', 't', ' ', 'i', 's', ' ', '?'};
    weir_request request = weir_request_default();
    request.tokens = prompt;
    request.n_tokens = N_PROMPT;
    request.sampler = &r->greedy;
    request.reasoning_start = the_thinker.opens ? START : NULL;
    request.reasoning_end = END;
    request.reasoning_budget = budget;
    return request;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static void judge(weir_stream *stream, int32_t budget)
{
    static sink got;
    char wanted[sizeof got.text];
    memset(&got, 0, sizeof got);
    sink_take(&got, stream);
    fill_text(&the_thinker, budget, wanted);
    assert_sink(got, WEIR_REASON_END, wanted);
    weir_usage usage = weir_stream_usage(stream);
    int32_t n = budget < 0 ? the_thinker.n_thinks : least(budget, the_thinker.n_thinks);
    assert_int_equal(usage.n_reasoning, n);
    assert_int_equal(usage.n_generated, (int32_t)strlen(wanted) + 1);
}

/* ---- Budgets -------------------------------------------------------------------------------------- */

static void reasoning_has_as_many_tokens_as_its_budget(void **state)
{
    rig *r = *state;
    for (int opens = 0; opens < 2; opens++) {
        load_thinker(r, "fake:", opens, 60);
        rig_start(r);
        for (int32_t budget = -1; budget < 70; budget += 1 + budget / 8) {
            weir_request request = ask(r, budget);
            weir_stream *stream = rig_submit(r, &request);
            rig_run(r);
            judge(stream, budget);
            rig_release(r, stream);
        }
        rig_stop(r);
    }
}

static void drafts_change_nothing(void **state)
{
    rig *r = *state;
    uint64_t n_accepted = 0;
    load_thinker(r, "fake:", true, 90);
    r->params.n_slots = 8;
    rig_start(r);
    for (int32_t budget = 30; budget < 70; budget += 8) {
        weir_stream *streams[8];
        for (int i = 0; i < 8; i++) {
            weir_request request = ask(r, budget + i);
            streams[i] = rig_submit(r, &request);
        }
        draft_run(r);
        for (int i = 0; i < 8; i++) judge(streams[i], budget + i);
    }
    n_accepted = rig_stats(r).n_accepted;
    assert_true(n_accepted > 100);
}

/* The sampler draws: a token that had to come takes no random number. */
static void draws_are_the_same_with_drafts(void **state)
{
    rig *r = *state;
    weir_sampler_params hot = rig_hot(3);
    char said[2][8192];
    for (int drafts = 0; drafts < 2; drafts++) {
        static sink got;
        rig_load(r, "fake:");
        r->fake->next = NULL;
        r->params.n_draft_max = drafts ? 16 : 0;
        rig_start(r);
        weir_request request = ask(r, 40);
        request.reasoning_start = NULL;
        request.sampler = &hot;
        request.max_tokens = 150;
        hot.logit_bias = (weir_logit_bias[]){{'x', 12}, {'y', 12}};
        hot.n_logit_bias = 2;
        weir_stream *stream = rig_submit(r, &request);
        if (drafts)
            draft_run(r);
        else
            rig_run(r);
        memset(&got, 0, sizeof got);
        sink_take(&got, stream);
        assert_int_equal(weir_stream_usage(stream).n_reasoning, 40);
        assert_non_null(strstr(got.text, END));
        snprintf(said[drafts], sizeof said[drafts], "%s", got.text);
        rig_stop(r);
    }
    assert_string_equal(said[0], said[1]);
}

static void a_suspended_request_keeps_its_count(void **state)
{
    rig *r = *state;
    weir_stream *streams[6];
    load_thinker(r, "fake:exact=1", false, 1000);
    r->params.n_slots = 6;
    r->params.n_ctx = 160;
    r->params.n_kv = 200;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    for (int saved = 0; saved < 2; saved++) {
        r->params.cache_bytes = saved ? UINT64_MAX : 0;
        rig_start(r);
        for (int i = 0; i < 6; i++) {
            weir_request request = ask(r, 40 + i);
            streams[i] = rig_submit(r, &request);
        }
        rig_run(r);
        assert_true(rig_stats(r).n_suspensions > 0);
        for (int i = 0; i < 6; i++) judge(streams[i], 40 + i);
        rig_stop(r);
    }
}

static void each_of_several_answers_has_the_budget(void **state)
{
    rig *r = *state;
    weir_stream *streams[3] = {rig_stream(r), rig_stream(r), rig_stream(r)};
    load_thinker(r, "fake:", true, 1000);
    rig_start(r);
    weir_request request = ask(r, 11);
    assert_int_equal(weir_engine_submit_n(r->engine, &request, 3, streams, NULL), WEIR_OK);
    rig_run(r);
    for (int i = 0; i < 3; i++) judge(streams[i], 11);
}

/* A fork's budget includes what its source has used; also if the source had just begun to
 * end its reasoning. */
static void a_fork_goes_on_with_its_sources_count(void **state)
{
    rig *r = *state;
    for (int32_t at = 0; at < 60; at++) {
        static sink whole, got;
        char text[sizeof got.text], wanted[sizeof got.text];
        load_thinker(r, "fake:", true, 1000);
        rig_start(r);
        weir_request request = ask(r, 23);
        weir_stream *source = rig_submit(r, &request), *fork = rig_stream(r);
        rig_run(r);
        memset(&whole, 0, sizeof whole);
        memset(&got, 0, sizeof got);
        sink_take(&whole, source);
        request.tokens = NULL;
        request.n_tokens = 0;
        assert_int_equal(weir_engine_fork(r->engine, source, at, &request, fork, NULL), WEIR_OK);
        rig_run(r);
        sink_take(&got, fork);
        snprintf(text, sizeof text, "%s%s", weir_stream_source_text(fork, NULL), got.text);
        fill_text(&the_thinker, 23, wanted);
        assert_string_equal(text, wanted);
        int32_t used = at < 7 ? 0 : least(at - 7, 23);
        assert_int_equal(weir_stream_usage(fork).n_reasoning, 23 - used);
        rig_release(r, fork);
        rig_release(r, source);
        rig_stop(r);
    }
}

/* ---- Where reasoning begins and ends --------------------------------------------------------------- */

/* The model says these tokens, whatever comes in between. */
typedef struct speech {
    const int32_t *tokens;
    int32_t n, n_prompt;
} speech;

static int32_t speak(void *user, const int32_t *history, int32_t n)
{
    const speech *s = user;
    (void)history;
    return n - s->n_prompt < s->n ? s->tokens[n - s->n_prompt] : WEIR__FAKE_EOS;
}

static void say(rig *r, speech *s, int32_t *room, const char *text)
{
    int32_t n = (int32_t)strlen(text);
    for (int32_t i = 0; i < n; i++) room[i] = (unsigned char)text[i];
    *s = (speech){room, n, N_PROMPT};
    rig_load(r, "fake:");
    r->fake->next = speak;
    r->fake->next_user = s;
    rig_start(r);
}

static void only_an_answer_that_begins_with_it_reasons(void **state)
{
    rig *r = *state;
    static const struct {
        const char *text;
        int32_t n_reasoning;
    } cases[] = {
        {"Write <think> and </think>.", 0},
        {" \n<think>ab</think>It is 4.", 2},
        {"<think></think>It is 4, not <think>5</think>.", 0},
        {"<think>a < b, </thin</think>Yes.", 13},
        {"<think>never ends", 10},
        {"<thin", 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        static sink got;
        int32_t room[128];
        speech s;
        the_thinker.opens = true;
        say(r, &s, room, cases[i].text);
        weir_request request = ask(r, 1000);
        weir_stream *stream = rig_submit(r, &request);
        memset(&got, 0, sizeof got);
        rig_run_out(r, stream, &got);
        assert_sink(got, WEIR_REASON_END, cases[i].text);
        assert_int_equal(weir_stream_usage(stream).n_reasoning, cases[i].n_reasoning);
        rig_stop(r);
    }
}

/* Tokens of more than a byte that lie across the marks: one that has a part of the text before is reasoning,
 * one that has a part of the text behind is not. */
static void tokens_across_the_marks(void **state)
{
    rig *r = *state;
    enum { LEFT = WEIR__FAKE_WORDS, RIGHT, MIDDLE };
    static const int32_t said[] = {'a', 'b', LEFT, MIDDLE, RIGHT, 'c'};
    static sink got;
    speech s = {said, COUNT(said), N_PROMPT};
    rig_load(r, "fake:");
    assert_true(weir__fake_set_piece(r->model, LEFT, "x</", 3, WEIR__FAKE_TEXT));
    assert_true(weir__fake_set_piece(r->model, MIDDLE, "thi", 3, WEIR__FAKE_TEXT));
    assert_true(weir__fake_set_piece(r->model, RIGHT, "nk>\n\n", 5, WEIR__FAKE_TEXT));
    r->fake->next = speak;
    r->fake->next_user = &s;
    rig_start(r);
    the_thinker.opens = false;
    weir_request request = ask(r, -1);
    weir_stream *stream = rig_submit(r, &request);
    memset(&got, 0, sizeof got);
    rig_run_out(r, stream, &got);
    assert_sink(got, WEIR_REASON_END, "abx</think>\n\nc");
    assert_int_equal(weir_stream_usage(stream).n_reasoning, 3);
}

/* A budget that ends within a character waits for its end, but not for ever. */
static void characters_stay_whole(void **state)
{
    rig *r = *state;
    static const struct {
        const char *text, *wanted;
        int32_t n_reasoning;
    } cases[] = {
        {"a\xc3\xa9zzz", "a\xc3\xa9" END, 3},
        {"a\xf0\x9f\x98\x80zzz", "a\xf0\x9f\x98\x80" END, 5},
        {"abzzz", "ab" END, 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        static sink got;
        int32_t room[128];
        speech s;
        the_thinker.opens = false;
        say(r, &s, room, cases[i].text);
        s.n = cases[i].n_reasoning; /* then the end that is forced, then the model's own */
        weir_request request = ask(r, 2);
        weir_stream *stream = rig_submit(r, &request);
        memset(&got, 0, sizeof got);
        rig_run_out(r, stream, &got);
        assert_sink(got, WEIR_REASON_END, cases[i].wanted);
        assert_int_equal(weir_stream_usage(stream).n_reasoning, cases[i].n_reasoning);
        rig_stop(r);
    }
}

/* A mark that is a control token is one wherever it comes. */
static void control_tokens_begin_it_again(void **state)
{
    rig *r = *state;
    enum { OPENS = WEIR__FAKE_WORDS, CLOSES };
    static const int32_t said[] = {'x', OPENS, 'a', 'b', CLOSES, 'y', OPENS, 'c', 'd', 'e', CLOSES, 'z'};
    static sink got;
    speech s = {said, COUNT(said), N_PROMPT};
    rig_load(r, "fake:longest=1");
    assert_true(weir__fake_set_piece(r->model, OPENS, "<|analysis|>", 12, WEIR__FAKE_CONTROL));
    assert_true(weir__fake_set_piece(r->model, CLOSES, "<|final|>", 9, WEIR__FAKE_CONTROL));
    r->fake->next = speak;
    r->fake->next_user = &s;
    rig_start(r);
    weir_request request = ask(r, 3);
    request.reasoning_start = "<|analysis|>";
    request.reasoning_end = "<|final|>";
    request.special = true;
    weir_stream *stream = rig_submit(r, &request);
    memset(&got, 0, sizeof got);
    rig_run_out(r, stream, &got);
    /* the second one has one token left; `speak` goes on by its clock */
    assert_sink(got, WEIR_REASON_END, "x<|analysis|>ab<|final|>y<|analysis|>c<|final|>e<|final|>z");
    assert_int_equal(weir_stream_usage(stream).n_reasoning, 3);
}

/* ---- Grammars ------------------------------------------------------------------------------------- */

static void a_grammar_that_allows_no_end_here_delays_it(void **state)
{
    rig *r = *state;
    static const struct {
        const char *grammar;
        int32_t n_reasoning;
    } cases[] = {
        {"root ::= [a-z]* \"</think>\" [ -~]*", 5},
        {"root ::= ([a-z] [a-z])* \"</think>\" [ -~]*", 6},
        {"root ::= [a-z] [a-z] [a-z] \"</think>\" [ -~]*", 3},
    };
    load_thinker(r, "fake:", false, 1000);
    rig_start(r);
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_sampler_params sampler = r->greedy;
        sampler.grammar = cases[i].grammar;
        weir_request request = ask(r, 5);
        request.sampler = &sampler;
        weir_stream *stream = rig_submit(r, &request);
        rig_run(r);
        judge(stream, cases[i].n_reasoning);
    }
}

/* ---- Ends from outside ---------------------------------------------------------------------------- */

static void a_reader_may_end_it(void **state)
{
    rig *r = *state;
    weir_error error = {0};
    load_thinker(r, "fake:", true, 1000);
    r->params.n_slots = 1;
    rig_start(r);
    weir_request request = ask(r, -1);
    weir_stream *running = rig_submit(r, &request), *queued = rig_submit(r, &request), *fresh = rig_stream(r);
    rig_ticks(r, 7 + 12); /* the first gives a token, too */
    assert_int_equal(weir_stream_usage(running).n_generated, 19);
    assert_int_equal(weir_stream_end_reasoning(running, &error), WEIR_OK);
    assert_int_equal(weir_stream_end_reasoning(running, &error), WEIR_OK);
    assert_int_equal(weir_stream_end_reasoning(queued, &error), WEIR_OK);
    assert_int_equal(weir_stream_end_reasoning(fresh, &error), WEIR_STATE);
    assert_int_equal(weir_stream_end_reasoning(NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "stream");
    rig_run(r);
    judge(running, 12);
    judge(queued, 0);
    assert_int_equal(weir_stream_end_reasoning(running, &error), WEIR_STATE);
    request.reasoning_start = request.reasoning_end = NULL;
    request.max_tokens = 5;
    weir_stream *plain = rig_submit(r, &request);
    assert_int_equal(weir_stream_end_reasoning(plain, &error), WEIR_UNSUPPORTED);
    rig_run(r);
    assert_int_equal(weir_stream_usage(plain).n_reasoning, 0);
}

/* A reader that asks later for the same does not get an answer whose reasoning another one has ended. */
static void a_flight_that_was_cut_is_not_shared(void **state)
{
    rig *r = *state;
    weir_flight *flights[3] = {NULL};
    bool joined[3] = {false};
    load_thinker(r, "fake:", true, 1000);
    rig_start(r);
    weir_request request = ask(r, 30);
    assert_int_equal(weir_flight_open(r->engine, &request, true, &flights[0], &joined[0], NULL), WEIR_OK);
    rig_ticks(r, 10);
    assert_int_equal(weir_flight_open(r->engine, &request, true, &flights[1], &joined[1], NULL), WEIR_OK);
    assert_true(joined[1]);
    assert_int_equal(weir_stream_end_reasoning(weir_flight_stream(flights[0]), NULL), WEIR_OK);
    assert_int_equal(weir_flight_open(r->engine, &request, true, &flights[2], &joined[2], NULL), WEIR_OK);
    assert_false(joined[2]);
    rig_run(r);
    assert_int_equal(weir_stream_usage(weir_flight_stream(flights[0])).n_reasoning, 3);
    assert_int_equal(weir_stream_usage(weir_flight_stream(flights[2])).n_reasoning, 30);
    for (int i = 0; i < 3; i++) weir_flight_release(flights[i]);
}

/* ---- Refusals ------------------------------------------------------------------------------------- */

static void marks_are_checked(void **state)
{
    rig *r = *state;
    char text[300];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    load_thinker(r, "fake:", true, 1000);
    rig_start(r);
    weir_request request = ask(r, 3);
    request.reasoning_end = NULL;
    rig_refuses(r, &request, 1, NULL, WEIR_INVALID, "requests[0].reasoning_start");
    request.reasoning_start = NULL;
    rig_refuses(r, &request, 1, NULL, WEIR_INVALID, "requests[0].reasoning_budget");
    request = ask(r, -2);
    rig_refuses(r, &request, 1, NULL, WEIR_INVALID, "requests[0].reasoning_budget");
    request = ask(r, 3);
    request.reasoning_end = text;
    rig_refuses(r, &request, 1, NULL, WEIR_INVALID, "requests[0].reasoning_end");
    request = ask(r, 3);
    request.reasoning_start = text;
    rig_refuses(r, &request, 1, NULL, WEIR_INVALID, "requests[0].reasoning_start");
}

static void submits_survive_a_lack_of_memory(void **state)
{
    rig *r = *state;
    load_thinker(r, "fake:", true, 1000);
    rig_start(r);
    weir_request request = ask(r, 3);
    weir_status status = WEIR_NO_MEMORY;
    for (int n = 0; status == WEIR_NO_MEMORY; n++) {
        weir_stream *stream = rig_stream(r);
        weir__mem_fail_after(n);
        status = weir_engine_submit(r->engine, &request, 1, &stream, NULL);
        weir__mem_fail_after(-1);
        if (status == WEIR_OK) {
            rig_run(r);
            judge(stream, 3);
        }
        rig_release(r, stream);
        r->n_streams--;
    }
    assert_int_equal(status, WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(reasoning_has_as_many_tokens_as_its_budget),
        DRAFT_TEST(drafts_change_nothing),
        DRAFT_TEST(draws_are_the_same_with_drafts),
        RIG_TEST(a_suspended_request_keeps_its_count),
        RIG_TEST(each_of_several_answers_has_the_budget),
        RIG_TEST(a_fork_goes_on_with_its_sources_count),
        RIG_TEST(only_an_answer_that_begins_with_it_reasons),
        RIG_TEST(tokens_across_the_marks),
        RIG_TEST(characters_stay_whole),
        RIG_TEST(control_tokens_begin_it_again),
        RIG_TEST(a_grammar_that_allows_no_end_here_delays_it),
        RIG_TEST(a_reader_may_end_it),
        RIG_TEST(a_flight_that_was_cut_is_not_shared),
        RIG_TEST(marks_are_checked),
        RIG_TEST(submits_survive_a_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Requests that a submit accepts and refuses; a refusal leaves nothing behind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/request.h"

#include <math.h>

#include "support/engine/engine.h"
#include "support/sound.h"

static void start(rig *r)
{
    rig_script(r, 'A', 4, "answer");
    rig_script(r, 'B', 3, "other");
    rig_start(r);
}

/* One request on one fresh stream, which is fresh afterwards. */
static void refused(rig *r, const weir_request *request, weir_status status, const char *field)
{
    weir_stream *stream = rig_stream(r);
    weir_chunk chunk;
    rig_refuses(r, request, 1, &stream, status, field);
    assert_int_equal(weir_stream_index(stream), -1);
    assert_int_equal(weir_stream_try_next(stream, &chunk), WEIR_STATE);
    assert_int_equal(weir_stream_interval(stream), 1);
    assert_true(rig_tick(r).idle);
    rig_release(r, stream);
}

/* ---- The prompt ----------------------------------------------------------------------------------- */

static void a_request_has_exactly_one_prompt(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = weir_request_default();
    refused(r, &request, WEIR_INVALID, "requests[0].text");
    request = rig_ask(r, 'A');
    request.text = "as well";
    refused(r, &request, WEIR_INVALID, "requests[0].text");
}

static void an_empty_prompt_is_refused(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = rig_ask(r, 'A');
    request.n_tokens = 0;
    refused(r, &request, WEIR_INVALID, "requests[0].tokens");
    request = weir_request_default();
    request.text = "";
    request.add_special = false;
    refused(r, &request, WEIR_INVALID, "requests[0].add_special");
    request = rig_ask(r, 'A');
    request.tokens = NULL;
    refused(r, &request, WEIR_INVALID, "requests[0].tokens");
}

static void an_empty_text_may_become_a_token_of_the_models_own(void **state)
{
    rig *r = *state;
    rig_script(r, WEIR__FAKE_BOS, 1, "hi");
    start(r);
    weir_request request = weir_request_default();
    request.text = "";
    request.sampler = &r->greedy;
    weir_stream *stream = rig_submit(r, &request);
    sink got = {0};
    rig_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "hi");
    assert_int_equal(weir_stream_usage(stream).n_prompt, 1);
}

static void media_need_a_place_and_a_model_that_reads_them(void **state)
{
    rig *r = *state;
    start(r);
    weir_media *media = sound_make(1);
    assert_non_null(media);
    weir_media_use uses[] = {{media, 0}, {media, 1}};
    weir_request request = weir_request_default();
    request.n_media = 1;
    request.text = "A";
    refused(r, &request, WEIR_INVALID, "requests[0].media"); /* NULL */
    request.media = uses;
    refused(r, &request, WEIR_UNSUPPORTED, "requests[0].media");
    uses[0].at = 2;
    refused(r, &request, WEIR_INVALID, "requests[0].media");
    uses[0] = (weir_media_use){NULL, 0};
    refused(r, &request, WEIR_INVALID, "requests[0].media");
    request = rig_ask(r, 'A');
    request.media = uses;
    request.n_media = 1;
    uses[0] = (weir_media_use){media, request.n_tokens + 1};
    refused(r, &request, WEIR_INVALID, "requests[0].media");
    weir_media_release(media);
}

static void token_ids_outside_the_vocabulary_are_refused(void **state)
{
    rig *r = *state;
    start(r);
    int32_t tokens[] = {1, 2, 3};
    weir_request request = weir_request_default();
    request.tokens = tokens;
    request.n_tokens = COUNT(tokens);
    static const int32_t bad[] = {-1, 320, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < COUNT(bad); i++) {
        tokens[2] = bad[i];
        refused(r, &request, WEIR_INVALID, "requests[0].tokens");
    }
    tokens[2] = 319;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
}

static void penalties_are_told_the_prompt(void **state)
{
    rig *r = *state;
    start(r);
    weir_sampler_params params = r->greedy;
    int32_t tokens[] = {1, 2, 3};
    weir_request request = weir_request_default();
    request.tokens = tokens;
    request.n_tokens = COUNT(tokens);
    request.sampler = &params;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    assert_int_equal(atomic_load(&weir__fake_of(r->model)->n_counted), 0);
    params.penalty_present = 1;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    assert_int_equal(atomic_load(&weir__fake_of(r->model)->n_counted), 3);
}

static void any_bytes_are_a_prompt(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = weir_request_default();
    request.text = "\xff\0\xc3\x28 <";
    request.text_length = 6;
    request.sampler = &r->greedy;
    request.add_special = false;
    weir_stream *stream = rig_submit(r, &request);
    rig_tick(r);
    assert_int_equal(weir_stream_usage(stream).n_prompt, 6);
}

static void a_text_of_many_short_tokens_is_read_whole(void **state)
{
    rig *r = *state;
    char text[201];
    start(r);
    memset(text, 'x', 200);
    text[200] = '\0';
    weir_request request = weir_request_default();
    request.text = text; /* one token a byte: twice the first guess */
    request.sampler = &r->greedy;
    weir_stream *stream = rig_submit(r, &request);
    rig_tick(r);
    assert_int_equal(weir_stream_usage(stream).n_prompt, 201);
    request.add_special = false;
    request.text_length = 7;
    stream = rig_submit(r, &request);
    rig_tick(r);
    assert_int_equal(weir_stream_usage(stream).n_prompt, 7);
}

static void special_tokens_in_a_text_are_read_when_asked_for(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = weir_request_default();
    request.text = "<|im_end|>";
    request.sampler = &r->greedy;
    request.add_special = false;
    weir_stream *stream = rig_submit(r, &request);
    rig_tick(r);
    assert_int_equal(weir_stream_usage(stream).n_prompt, 1);
    request.parse_special = false;
    stream = rig_submit(r, &request);
    rig_tick(r);
    assert_int_equal(weir_stream_usage(stream).n_prompt, 10);
}

/* ---- Limits of size ------------------------------------------------------------------------------- */

static weir_request of_length(rig *r, int32_t n_prompt)
{
    rig_script(r, 'L', n_prompt, "llllllllllllllllllllllllllllllllllllllllllllllllllllllllllll");
    return rig_ask(r, 'L');
}

static void prompts_that_can_never_fit_are_refused_at_submit(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = of_length(r, 257);
    refused(r, &request, WEIR_TOO_LONG, "requests[0].tokens");
    request.max_tokens = 0;
    refused(r, &request, WEIR_TOO_LONG, "requests[0].tokens");
    request = of_length(r, 256); /* fills the context: no room for an answer */
    refused(r, &request, WEIR_TOO_LONG, "requests[0].tokens");
    char text[300];
    memset(text, 'x', sizeof text);
    request = weir_request_default();
    request.text = text;
    request.text_length = sizeof text;
    refused(r, &request, WEIR_TOO_LONG, "requests[0].text");
}

/* Bytes decide, whatever the tokens are, so that nobody has to look for them. */
static void a_text_that_is_hopelessly_long_is_refused_by_its_bytes(void **state)
{
    rig *r = *state;
    weir_error why = {0};
    start(r);
    weir_stream *stream = rig_stream(r);
    size_t longest = (size_t)r->model->info.longest_piece;
    size_t n = longest * 257;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'x', n);
    weir_request request = weir_request_default();
    request.text = text;
    request.text_length = n;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &stream, &why), WEIR_TOO_LONG);
    assert_string_equal(why.field, "requests[0].text");
    assert_non_null(strstr(why.message, "bytes, which are at least 257 tokens"));
    request.text_length = n - 1; /* might be 256 tokens, so they are counted */
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, &stream, &why), WEIR_TOO_LONG);
    assert_null(strstr(why.message, "at least"));
    free(text);
    rig_release(r, stream);
}

static void a_prompt_may_fill_the_context_when_no_answer_is_wanted(void **state)
{
    rig *r = *state;
    r->params.chunk_size = 100;
    start(r);
    weir_request request = of_length(r, 256);
    request.max_tokens = 0;
    weir_stream *stream = rig_submit(r, &request);
    sink got = {0};
    rig_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_LENGTH, "");
    assert_int_equal(weir_stream_usage(stream).n_generated, 0);
    assert_int_equal(weir_stream_usage(stream).ttft_ns, 0);
    assert_int_equal(rig_stats(r).n_prompt_tokens, 256); /* all of it, in chunks */
    assert_int_equal(atomic_load(&r->fake->n_rows), 0);  /* nobody asked for logits */
}

static void an_answer_without_limit_fills_the_context(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = of_length(r, 250);
    weir_stream *stream = rig_submit(r, &request);
    sink got = {0};
    rig_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_LENGTH, "llllll");
    request.max_tokens = 1000000; /* more than fits means as much as fits */
    stream = rig_submit(r, &request);
    got = (sink){0};
    rig_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_LENGTH, "llllll");
}

static void the_engine_limits_the_tokens_of_a_request(void **state)
{
    rig *r = *state;
    static const int32_t asked[] = {-1, 3, 4, 5, 1000};
    static const char *const want[] = {"answ", "ans", "answ", "answ", "answ"};
    r->params.max_tokens = 4;
    start(r);
    for (size_t i = 0; i < COUNT(asked); i++) {
        weir_request request = rig_ask(r, 'A');
        sink got = {0};
        request.max_tokens = asked[i];
        weir_stream *stream = rig_submit(r, &request);
        rig_run(r);
        sink_take(&got, stream);
        assert_sink(got, WEIR_REASON_LENGTH, want[i]);
    }
}

/* -1 is no limit and 0 is none, for the engine as for a request. */
static void a_limit_of_no_tokens_is_one(void **state)
{
    rig *r = *state;
    assert_int_equal(weir_engine_params_default().max_tokens, -1);
    r->params.max_tokens = 0;
    start(r);
    sink got = {0};
    weir_stream *stream = rig_submit_key(r, 'A');
    rig_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_LENGTH, "");
    assert_int_equal(weir_stream_usage(stream).n_generated, 0);
}

static void a_negative_number_of_tokens_is_refused(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = rig_ask(r, 'A');
    request.max_tokens = -2;
    refused(r, &request, WEIR_INVALID, "requests[0].max_tokens");
    request.max_tokens = INT32_MIN;
    refused(r, &request, WEIR_INVALID, "requests[0].max_tokens");
}

static void the_cells_of_a_request_leave_out_the_last_token(void **state)
{
    (void)state;
    assert_int_equal(weir__request_cells(&(weir__request){.history.n_prompt = 10, .max_tokens = 0}), 10);
    assert_int_equal(weir__request_cells(&(weir__request){.history.n_prompt = 10, .max_tokens = 1}), 10);
    assert_int_equal(weir__request_cells(&(weir__request){.history.n_prompt = 10, .max_tokens = 6}), 15);
}

/* ---- Stop strings, deadline, sampler -------------------------------------------------------------- */

static void stop_strings_have_bounds(void **state)
{
    rig *r = *state;
    static char huge[16386];
    const char *many[65];
    const char *texts[] = {"fine", NULL};
    size_t lengths[] = {4, 0};
    start(r);
    for (size_t i = 0; i < COUNT(many); i++) many[i] = "x";
    memset(huge, 'y', sizeof huge - 1);
    weir_request request = rig_ask(r, 'A');
    request.n_stop = 1;
    refused(r, &request, WEIR_INVALID, "requests[0].stop"); /* a NULL array */
    request.stop = many;
    request.n_stop = 65;
    refused(r, &request, WEIR_INVALID, "requests[0].n_stop");
    request.n_stop = SIZE_MAX;
    refused(r, &request, WEIR_INVALID, "requests[0].n_stop");
    request.stop = texts;
    request.n_stop = 2;
    refused(r, &request, WEIR_INVALID, "requests[0].stop"); /* a NULL string */
    texts[1] = "";
    refused(r, &request, WEIR_INVALID, "requests[0].stop");
    weir_error error;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, &error), WEIR_INVALID);
    assert_non_null(strstr(error.message, "`stop[1]` has 0 bytes; allowed: 1 to 16384"));
    texts[1] = huge;
    refused(r, &request, WEIR_INVALID, "requests[0].stop");
    texts[1] = "\xc3";
    refused(r, &request, WEIR_INVALID, "requests[0].stop");
    request.stop_length = lengths;
    texts[1] = "not so empty";
    refused(r, &request, WEIR_INVALID, "requests[0].stop");

    huge[16384] = '\0';
    texts[1] = huge;
    lengths[1] = WEIR_NUL;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    request.stop = many;
    request.stop_length = NULL;
    request.n_stop = 64;
    assert_int_equal(weir_engine_submit(r->engine, &request, 1, NULL, NULL), WEIR_OK);
    rig_run(r);
}

static void a_stop_string_may_hold_a_nul_byte(void **state)
{
    rig *r = *state;
    static const int32_t answer[] = {'a', 0, 'b', 0, 'c', 'd'};
    const char *texts[] = {"\0c"};
    size_t lengths[] = {2};
    rig_script_ids(r, 'N', 2, answer, COUNT(answer));
    start(r);
    weir_request request = rig_ask(r, 'N');
    request.stop = texts;
    request.stop_length = lengths;
    request.n_stop = 1;
    weir_stream *stream = rig_submit(r, &request);
    sink got = {0};
    rig_run(r);
    sink_take(&got, stream);
    assert_int_equal(got.reason, WEIR_REASON_STOP_WORDS);
    assert_int_equal(got.n_text, 3);
    assert_memory_equal(got.text, "a\0b", 3);
}

static void a_deadline_is_not_negative_and_may_be_never(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = rig_ask(r, 'A');
    request.deadline_ms = -1;
    refused(r, &request, WEIR_INVALID, "requests[0].deadline_ms");
    request.deadline_ms = INT64_MIN;
    refused(r, &request, WEIR_INVALID, "requests[0].deadline_ms");
    request.deadline_ms = INT64_MAX;
    weir_stream *stream = rig_submit(r, &request);
    rig_run(r);
    assert_int_equal(weir_stream_reason(stream), WEIR_REASON_END);
}

static void priorities_have_a_range(void **state)
{
    rig *r = *state;
    static const int32_t bad[] = {-101, 101, INT32_MIN, INT32_MAX}, good[] = {-100, 0, 100};
    start(r);
    weir_request request = rig_ask(r, 'A');
    for (size_t i = 0; i < COUNT(bad); i++) {
        request.priority = bad[i];
        refused(r, &request, WEIR_INVALID, "requests[0].priority");
    }
    for (size_t i = 0; i < COUNT(good); i++) {
        request.priority = good[i];
        rig_submit(r, &request);
    }
    rig_run(r);
    assert_int_equal(rig_stats(r).n_finished[WEIR_REASON_END], COUNT(good));
}

/* Requests that wait share by the bytes of the salt, and no salt is one too. */
static void salts_are_told_apart_by_their_bytes(void **state)
{
    rig *r = *state;
    static const struct {
        const char *salt;
        size_t length;
        int place; /* of a dry run behind two requests of salt "a", one of which had tokens */
    } cases[] = {{"a", WEIR_NUL, 2}, {"ab", 1, 2}, {"ab", WEIR_NUL, 1},
                 {"", WEIR_NUL, 1},  {NULL, 0, 1}, {"a\0", 2, 1}};
    r->params.n_slots = 1;
    start(r);
    weir_request request = rig_ask(r, 'A');
    request.cache_salt = "a";
    rig_submit(r, &request);
    rig_tick(r);
    rig_submit(r, &request);
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_forecast f = {.size = sizeof f};
        request.cache_salt = cases[i].salt;
        request.cache_salt_length = cases[i].length;
        assert_int_equal(weir_engine_plan_request(r->engine, &request, &f, NULL), WEIR_OK);
        assert_int_equal(f.queue_place, cases[i].place);
    }
    rig_run(r);
}

static void a_bad_sampler_names_its_request_and_field(void **state)
{
    rig *r = *state;
    weir_request requests[2];
    weir_sampler_params bad = r->greedy;
    weir_stream *streams[2] = {rig_stream(r), rig_stream(r)};
    start(r);
    requests[0] = rig_ask(r, 'A');
    requests[1] = rig_ask(r, 'B');
    requests[1].sampler = &bad;
    bad.temp = NAN;
    rig_refuses(r, requests, 2, streams, WEIR_INVALID, "requests[1].sampler.temp");
    bad.temp = 0;
    bad.size = 0;
    rig_refuses(r, requests, 2, streams, WEIR_INVALID, "requests[1].sampler");
}

static void a_request_of_an_older_header_has_the_defaults_of_what_it_lacks(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = rig_ask(r, 'A');
    request.size = offsetof(weir_request, max_tokens);
    request.max_tokens = 2; /* not part of that header */
    request.deadline_ms = -1;
    weir_stream *stream = rig_submit(r, &request);
    sink got = {0};
    rig_run(r);
    sink_take(&got, stream);
    assert_sink(got, WEIR_REASON_END, "answer");
}

static void a_request_of_another_size_is_refused(void **state)
{
    rig *r = *state;
    start(r);
    weir_request request = rig_ask(r, 'A');
    request.size = 0;
    refused(r, &request, WEIR_INVALID, "requests[0]");
    request.size = sizeof request + 1;
    refused(r, &request, WEIR_INVALID, "requests[0]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_request_has_exactly_one_prompt),
        RIG_TEST(an_empty_prompt_is_refused),
        RIG_TEST(an_empty_text_may_become_a_token_of_the_models_own),
        RIG_TEST(media_need_a_place_and_a_model_that_reads_them),
        RIG_TEST(token_ids_outside_the_vocabulary_are_refused),
        RIG_TEST(penalties_are_told_the_prompt),
        RIG_TEST(any_bytes_are_a_prompt),
        RIG_TEST(a_text_of_many_short_tokens_is_read_whole),
        RIG_TEST(special_tokens_in_a_text_are_read_when_asked_for),
        RIG_TEST(prompts_that_can_never_fit_are_refused_at_submit),
        RIG_TEST(a_text_that_is_hopelessly_long_is_refused_by_its_bytes),
        RIG_TEST(a_prompt_may_fill_the_context_when_no_answer_is_wanted),
        RIG_TEST(an_answer_without_limit_fills_the_context),
        RIG_TEST(the_engine_limits_the_tokens_of_a_request),
        RIG_TEST(a_limit_of_no_tokens_is_one),
        RIG_TEST(a_negative_number_of_tokens_is_refused),
        cmocka_unit_test(the_cells_of_a_request_leave_out_the_last_token),
        RIG_TEST(stop_strings_have_bounds),
        RIG_TEST(a_stop_string_may_hold_a_nul_byte),
        RIG_TEST(a_deadline_is_not_negative_and_may_be_never),
        RIG_TEST(priorities_have_a_range),
        RIG_TEST(salts_are_told_apart_by_their_bytes),
        RIG_TEST(a_bad_sampler_names_its_request_and_field),
        RIG_TEST(a_request_of_an_older_header_has_the_defaults_of_what_it_lacks),
        RIG_TEST(a_request_of_another_size_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/emit.h"

#include "model/sampler.h"
#include "support/dice.h"
#include "support/engine/engine.h"

/* ---- A vocabulary that the tests write as they go -------------------------------------------------- */

#define N_PIECES 4096

typedef struct piece {
    const char *bytes;
    size_t length;
    bool control; /* empty unless special */
} piece;

typedef struct emitter {
    piece pieces[N_PIECES];
    weir_model model;
    weir_sampler sampler;
    weir__request request;
    weir__emit_scratch scratch;
    weir__waker *waker;
    bool over; /* the stream has its terminal chunk */
    int32_t tokens[N_PIECES];
    bool stopped;
    sink got;
    weir_result result;
    long live;
} emitter;

static int32_t read_piece(const weir__bmodel *model, int32_t token, bool special, char *bytes,
                          int32_t capacity)
{
    const piece *p = (const piece *)model + token;
    if (p->control && !special) return 0;
    if (p->length > (size_t)capacity) return -(int32_t)p->length;
    memcpy(bytes, p->bytes, p->length);
    return (int32_t)p->length;
}

static const weir__backend ops = {.name = "pieces", .piece = read_piece};

static int setup(void **state)
{
    emitter *e = calloc(1, sizeof *e);
    if (e == NULL) return -1;
    e->live = weir__mem_live();
    e->model.ops = &ops;
    e->model.model = (weir__bmodel *)e->pieces;
    e->sampler.model = &e->model;
    e->request.sampler = &e->sampler;
    e->request.history.tokens = e->tokens;
    weir__emit_init(&e->request.emit, &e->model);
    *state = e;
    if (weir__waker_create(&e->waker) != WEIR_OK) return -1;
    if (weir_stream_create(&e->request.stream, NULL) != WEIR_OK) return -1;
    return weir__stream_attach(e->request.stream, 0, 1, 1, e->waker) == WEIR_OK ? 0 : -1;
}

static void stop_at(emitter *e, const char *const *strings, size_t n)
{
    size_t lengths[64];
    for (size_t i = 0; i < n; i++) lengths[i] = strlen(strings[i]);
    assert_int_equal(weir__stop_create(strings, lengths, n, &e->request.emit.stop), WEIR_OK);
}

static void finish(emitter *e)
{
    static const weir_usage usage = {0};
    if (weir__emit_end(&e->request.emit, &e->scratch, &e->stopped) != WEIR_OK) fail_msg("no memory");
    weir_chunk rest = weir__request_rest(&e->request);
    rest.reason = WEIR_REASON_END;
    weir__stream_finish(e->request.stream, &rest, NULL, &usage);
    e->over = true;
    sink_take(&e->got, e->request.stream);
}

static int teardown(void **state)
{
    emitter *e = *state;
    static const weir_usage usage = {0};
    weir__mem_fail_after(-1);
    static const weir_chunk end = {.reason = WEIR_REASON_END};
    if (!e->over) weir__stream_finish(e->request.stream, &end, NULL, &usage);
    weir_stream_release(e->request.stream);
    weir__waker_release(e->waker);
    weir__emit_fini(&e->request.emit);
    weir__emit_scratch_fini(&e->scratch);
    long left = weir__mem_live() - e->live;
    free(e);
    if (left != 0) print_error("%ld blocks left behind\n", left);
    return left == 0 ? 0 : -1;
}

#define EMIT_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Generates a token of these bytes, which stay the caller's. How many chunks came out. */
static int say_bytes(emitter *e, const char *bytes, size_t length)
{
    static const weir_usage usage = {0};
    int32_t token = e->request.history.n_tokens;
    assert_true(e->request.history.n_tokens < N_PIECES);
    e->pieces[token].bytes = bytes;
    e->pieces[token].length = length;
    e->tokens[e->request.history.n_tokens++] = token;
    assert_int_equal(weir__emit_token(&e->request.emit, &e->scratch, token, WEIR__NO_CALL, &e->stopped),
                     WEIR_OK);
    if (!e->stopped) assert_true(weir__request_emit(&e->request, &usage));
    return sink_take(&e->got, e->request.stream);
}

static int say(emitter *e, const char *text)
{
    return say_bytes(e, text, strlen(text));
}

/* ---- Well-formed text ----------------------------------------------------------------------------- */

static void each_token_goes_out_with_its_text(void **state)
{
    emitter *e = *state;
    assert_int_equal(say(e, "Hel"), 1);
    assert_string_equal(e->got.last, "Hel");
    assert_int_equal(e->got.last_tokens, 1);
    assert_int_equal(say(e, "lo"), 1);
    assert_string_equal(e->got.last, "lo");
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "Hello");
    assert_int_equal(e->got.n_tokens, 2);
}

static void an_end_with_nothing_held_back_needs_no_memory(void **state)
{
    emitter *e = *state;
    static const char *const stop[] = {"END"};
    for (int i = 0; i < 3; i++) { /* nothing generated; text; text that might have begun a stop string */
        if (i == 1) assert_int_equal(say(e, "Hello"), 1);
        if (i == 2) stop_at(e, stop, 1);
        if (i == 2) assert_int_equal(say(e, "E") + say(e, "!"), 1);
        weir__mem_fail_after(0);
        weir_status status = weir__emit_end(&e->request.emit, &e->scratch, &e->stopped);
        weir__mem_fail_after(-1);
        assert_int_equal(status, WEIR_OK);
        assert_int_equal(e->request.emit.text.n, e->request.emit.sent_text);
    }
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "HelloE!");
}

static void a_token_without_text_rides_with_the_next(void **state)
{
    emitter *e = *state;
    assert_int_equal(say(e, ""), 0);
    assert_int_equal(say(e, "a"), 1);
    assert_int_equal(e->got.last_tokens, 2);
    assert_int_equal(say(e, ""), 0);
    assert_int_equal(say(e, ""), 0);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "a");
    assert_int_equal(e->got.last_tokens, 2); /* with the terminal chunk */
    assert_int_equal(e->got.n_tokens, 4);
}

static void a_split_character_waits_for_its_last_byte(void **state)
{
    emitter *e = *state;
    assert_int_equal(say(e, "a\xf0\x9f"), 1);
    assert_string_equal(e->got.last, "a");
    assert_int_equal(say(e, "\x99"), 0);
    assert_int_equal(say(e, "\x82!"), 1);
    assert_string_equal(e->got.last, "\xf0\x9f\x99\x82!");
    assert_int_equal(e->got.last_tokens, 2);
}

static void invalid_bytes_are_replaced_at_once(void **state)
{
    emitter *e = *state;
    assert_int_equal(say(e, "\xff"), 1);
    assert_string_equal(e->got.last, "\xef\xbf\xbd");
    assert_int_equal(say(e, "\xe2\x82"), 0);
    assert_int_equal(say(e, "x"), 1); /* one for the maximal subpart */
    assert_string_equal(e->got.last, "\xef\xbf\xbdx");
}

static void bytes_held_at_the_end_become_a_replacement(void **state)
{
    emitter *e = *state;
    assert_int_equal(say(e, "ok"), 1);
    assert_int_equal(say(e, "\xf0\x9f\x99"), 0);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "ok\xef\xbf\xbd");
    assert_string_equal(e->got.last, "\xef\xbf\xbd");
    assert_int_equal(e->got.last_tokens, 1);
}

static void nul_bytes_are_text(void **state)
{
    emitter *e = *state;
    assert_int_equal(say_bytes(e, "a\0b", 3), 1);
    assert_int_equal(e->got.n_text, 3);
    assert_memory_equal(e->got.text, "a\0b", 4);
}

static void a_long_piece_comes_whole(void **state)
{
    emitter *e = *state;
    char text[3000];
    memset(text, 'q', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(say(e, text), 1);
    assert_string_equal(e->got.last, text);
}

static void control_tokens_are_silent_unless_asked_for(void **state)
{
    emitter *e = *state;
    static const int32_t preserved[] = {1, 3, 5};
    for (int32_t i = 0; i < 8; i++) e->pieces[i].control = true;
    e->request.emit.preserved = preserved; /* tokens that the chat's parser reads */
    e->request.emit.n_preserved = COUNT(preserved);
    static const char *const texts[] = {"<0>", "<1>", "<2>", "<3>", "<4>", "<5>"};
    for (size_t i = 0; i < COUNT(texts); i++) assert_int_equal(say(e, texts[i]), i % 2);
    e->request.emit.special = true;
    assert_int_equal(say(e, "<6>"), 1);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "<1><3><5><6>");
    assert_int_equal(e->got.n_tokens, 7);
}

/* ---- Stop strings --------------------------------------------------------------------------------- */

static void a_stop_string_across_tokens_never_leaks(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"STOP"}, 1);
    assert_int_equal(say(e, "go S"), 1);
    assert_string_equal(e->got.last, "go ");
    assert_int_equal(say(e, "TO"), 0);
    assert_int_equal(say(e, "P it"), 0);
    assert_true(e->stopped);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "go ");
    assert_int_equal(e->got.n_tokens, 3);
}

static void text_before_a_stop_in_the_same_token_is_kept(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"##"}, 1);
    say(e, "before##after");
    assert_true(e->stopped);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "before");
    assert_int_equal(e->got.n_chunks, 1);
}

static void a_text_that_is_no_stop_after_all_is_released(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"abcd"}, 1);
    assert_int_equal(say(e, "a"), 0);
    assert_int_equal(say(e, "b"), 0);
    assert_int_equal(say(e, "cX"), 1);
    assert_string_equal(e->got.last, "abcX");
    assert_int_equal(e->got.last_tokens, 3);
    assert_int_equal(say(e, "xa"), 1);
    assert_string_equal(e->got.last, "x");
    assert_false(e->stopped);
}

static void a_character_may_straddle_what_is_held_back(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"\xe2\x82\xac!"}, 1); /* "€!" */
    assert_int_equal(say(e, "5 \xe2"), 1);
    assert_string_equal(e->got.last, "5 ");
    assert_int_equal(say(e, "\x82"), 0);
    assert_int_equal(say(e, "\xac"), 0);     /* whole now, and may begin the stop string */
    assert_int_equal(say(e, "\xe2\x82"), 0); /* "€" goes only when the next character is known */
    assert_int_equal(say(e, "\xac?"), 1);
    assert_string_equal(e->got.last, "\xe2\x82\xac\xe2\x82\xac?");
    assert_int_equal(say(e, "\xe2\x82\xac"), 0);
    say(e, "!");
    assert_true(e->stopped);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "5 \xe2\x82\xac\xe2\x82\xac?");
}

static void text_held_back_for_a_stop_goes_out_at_the_end(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"<end>", "<eof>"}, 2);
    assert_int_equal(say(e, "x<e"), 1);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "x<e");
    assert_string_equal(e->got.last, "<e");
    assert_false(e->stopped);
}

static void held_by_stop_and_held_by_utf8_come_out_in_order(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"ab\xc3\xa9z"}, 1);
    assert_int_equal(say(e, "ab\xc3"), 0);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "ab\xef\xbf\xbd");
}

static void the_replacement_at_the_end_may_complete_a_stop(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"!\xef\xbf\xbd"}, 1);
    assert_int_equal(say(e, "a!"), 1);
    assert_int_equal(say(e, "\xf0"), 0);
    assert_false(e->stopped);
    finish(e);
    assert_true(e->stopped);
    assert_sink(e->got, WEIR_REASON_END, "a");
}

/* ---- Interval ------------------------------------------------------------------------------------- */

static void every_nth_token_brings_a_chunk_after_the_first(void **state)
{
    emitter *e = *state;
    static const int want[] = {1, 0, 0, 1, 0, 0, 1, 0};
    weir_stream_set_interval(e->request.stream, 3);
    for (size_t i = 0; i < COUNT(want); i++) assert_int_equal(say(e, "x"), want[i]);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "xxxxxxxx");
    assert_int_equal(e->got.last_tokens, 1);
}

static void the_first_text_is_never_delayed(void **state)
{
    emitter *e = *state;
    weir_stream_set_interval(e->request.stream, 100);
    assert_int_equal(say(e, ""), 0);
    assert_int_equal(say(e, "\xc3"), 0);
    assert_int_equal(say(e, "\xa9"), 1);
    assert_int_equal(e->got.last_tokens, 3);
    for (int i = 0; i < 99; i++) assert_int_equal(say(e, "x"), 0);
    assert_int_equal(say(e, "x"), 1);
}

static void text_held_by_the_interval_comes_with_the_end(void **state)
{
    emitter *e = *state;
    weir_stream_set_interval(e->request.stream, 10);
    say(e, "a");
    say(e, "b");
    say(e, "c");
    assert_string_equal(e->got.text, "a");
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "abc");
    assert_string_equal(e->got.last, "bc");
    assert_int_equal(e->got.last_tokens, 2);
}

static void a_chunk_that_is_due_waits_for_text(void **state)
{
    emitter *e = *state;
    weir_stream_set_interval(e->request.stream, 2);
    assert_int_equal(say(e, "a"), 1);
    assert_int_equal(say(e, ""), 0);
    assert_int_equal(say(e, ""), 0); /* due, with nothing to show */
    assert_int_equal(say(e, "b"), 1);
    assert_int_equal(e->got.last_tokens, 3);
}

static void the_interval_may_change_at_any_token(void **state)
{
    emitter *e = *state;
    assert_int_equal(say(e, "x"), 1);
    weir_stream_set_interval(e->request.stream, 1000);
    for (int i = 0; i < 5; i++) assert_int_equal(say(e, "x"), 0);
    weir_stream_set_interval(e->request.stream, 6);
    assert_int_equal(say(e, "x"), 1);
    assert_int_equal(e->got.last_tokens, 6);
    weir_stream_set_interval(e->request.stream, 1);
    assert_int_equal(say(e, "x"), 1);
    assert_int_equal(e->got.last_tokens, 1);
}

/* ---- Streamed, kept, neither ---------------------------------------------------------------------- */

static void a_result_gets_the_whole_text_and_the_stream_the_deltas(void **state)
{
    emitter *e = *state;
    e->request.result = &e->result;
    assert_int_equal(say(e, "one "), 1);
    assert_int_equal(say(e, "two "), 1);
    assert_string_equal(e->got.last, "two ");
    weir_stream_set_interval(e->request.stream, 5);
    say(e, "three");
    finish(e);
    assert_string_equal(e->got.last, "three");
    assert_int_equal(e->request.emit.text.n, 13);
    assert_memory_equal(e->request.emit.text.bytes, e->got.text, e->request.emit.text.n);
}

static void a_stream_alone_keeps_nothing_that_was_sent(void **state)
{
    emitter *e = *state;
    char text[256];
    memset(text, 'm', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 20; i++) say(e, text);
    size_t capacity = e->request.emit.text.capacity;
    for (int i = 0; i < 10; i++) say(e, text);
    assert_int_equal(e->request.emit.text.n, 0);
    assert_int_equal(e->request.emit.text.capacity, capacity);
    assert_true(capacity < 4 * sizeof text);
}

static void without_a_stream_nothing_is_put_anywhere(void **state)
{
    emitter *e = *state;
    static const weir_usage usage = {0};
    weir_stream *stream = e->request.stream;
    bool stopped = false;
    e->pieces[0].bytes = "abc";
    e->pieces[0].length = 3;
    e->request.stream = NULL;
    e->request.history.n_tokens = 1;
    assert_int_equal(weir__emit_token(&e->request.emit, &e->scratch, 0, WEIR__NO_CALL, &stopped), WEIR_OK);
    assert_true(weir__request_emit(&e->request, &usage));
    e->request.stream = stream;
    assert_int_equal(sink_take(&e->got, stream), 0);
    assert_int_equal(e->request.emit.sent_tokens, 0);
}

/* ---- Calls ---------------------------------------------------------------------------------------- */

/* Says text as say does, for a token that a call begins in, `before` bytes behind the start of its text. */
static int say_call(emitter *e, const char *text, size_t before)
{
    static const weir_usage usage = {0};
    int32_t token = e->request.history.n_tokens;
    e->pieces[token] = (piece){.bytes = text, .length = strlen(text)};
    e->tokens[e->request.history.n_tokens++] = token;
    assert_int_equal(weir__emit_token(&e->request.emit, &e->scratch, token, before, &e->stopped), WEIR_OK);
    if (!e->stopped) assert_true(weir__request_emit(&e->request, &usage));
    return sink_take(&e->got, e->request.stream);
}

static void stop_strings_end_no_call(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"STOP", "}"}, 2);
    say(e, "text ST");
    assert_string_equal(e->got.text, "text ");
    say_call(e, "O{STOP", 1); /* what was held back cannot become a stop string any more */
    assert_string_equal(e->got.text, "text STO{STOP");
    say_call(e, "STOP}", 0);
    say_call(e, "ST", 0);
    assert_string_equal(e->got.text, "text STO{STOPSTOP}ST");
    assert_false(e->stopped);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "text STO{STOPSTOP}ST");
}

static void a_stop_string_before_a_call_ends_the_text(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"STOP"}, 1);
    say(e, "text ST");
    say_call(e, "OP<call>", 2);
    assert_true(e->stopped);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "text ");
}

/* A code point that begins before the call and ends in it. */
static void a_call_begins_within_a_character(void **state)
{
    emitter *e = *state;
    stop_at(e, (const char *[]){"\xE2\x82\xAC"}, 1);
    say(e, "a\xE2");
    say_call(e, "\x82\xACz", 1);
    finish(e);
    assert_sink(e->got, WEIR_REASON_END, "a\xE2\x82\xACz");
}

/* ---- Out of memory -------------------------------------------------------------------------------- */

static void a_chunk_that_found_no_memory_goes_with_the_next(void **state)
{
    emitter *e = *state;
    static const weir_usage usage = {0};
    bool stopped = false;
    e->tokens[1] = 1;
    e->pieces[0] = (piece){.bytes = "a", .length = 1};
    e->pieces[1] = (piece){.bytes = "b", .length = 1};
    e->request.history.n_tokens = 1;
    assert_int_equal(weir__emit_token(&e->request.emit, &e->scratch, 0, WEIR__NO_CALL, &stopped), WEIR_OK);
    weir__mem_fail_after(0);
    assert_false(weir__request_emit(&e->request, &usage));
    weir__mem_fail_after(-1);
    weir_stream_set_interval(e->request.stream, 50); /* it is still the first */
    e->request.history.n_tokens = 2;
    assert_int_equal(weir__emit_token(&e->request.emit, &e->scratch, 1, WEIR__NO_CALL, &stopped), WEIR_OK);
    assert_true(weir__request_emit(&e->request, &usage));
    assert_int_equal(sink_take(&e->got, e->request.stream), 1);
    assert_string_equal(e->got.text, "ab");
    assert_int_equal(e->got.n_tokens, 2);
}

static void every_allocation_of_a_token_may_fail(void **state)
{
    emitter *e = *state;
    static const char text[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
    e->pieces[0] = (piece){.bytes = text, .length = sizeof text - 1};
    long n = 0;
    for (;; n++) {
        weir__emit *emit = &e->request.emit;
        weir__emit_scratch scratch = {0};
        bool stopped = false;
        weir__emit_init(emit, &e->model);
        stop_at(e, (const char *[]){"stop"}, 1);
        weir__mem_fail_after(n);
        weir_status status = weir__emit_token(&e->request.emit, &scratch, 0, WEIR__NO_CALL, &stopped);
        if (status == WEIR_OK) status = weir__emit_end(&e->request.emit, &scratch, &stopped);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (pending) {
            assert_int_equal(status, WEIR_OK);
            assert_int_equal(emit->text.n, strlen(text));
            assert_memory_equal(emit->text.bytes, text, emit->text.n);
        } else if (status != WEIR_OK) {
            assert_int_equal(status, WEIR_NO_MEMORY);
        }
        weir__emit_fini(emit);
        weir__emit_scratch_fini(&scratch);
        if (pending) break;
        assert_int_equal(status, WEIR_NO_MEMORY);
    }
    assert_true(n >= 4); /* piece, its growth, the clean text, the text */
}

/* ---- Anything against a reference ------------------------------------------------------------------ */

static dice d;

static uint32_t below(uint32_t n)
{
    return (uint32_t)dice_in(&d, 0, (int32_t)n - 1);
}

static bool ends_with(const char *text, size_t n, const char *tail)
{
    size_t length = strlen(tail);
    return length <= n && memcmp(text + n - length, tail, length) == 0;
}

/* The length of text[0 .. n) that may be shown; *stopped: a stop string lies in it. At the end nothing is
 * held. */
static size_t shown(const char *text, size_t n, const char *const *stops, size_t n_stops, bool at_end,
                    bool *stopped)
{
    *stopped = false;
    for (size_t at = 1; at <= n; at++) {
        size_t longest = 0;
        for (size_t i = 0; i < n_stops; i++)
            if (ends_with(text, at, stops[i]) && strlen(stops[i]) > longest) longest = strlen(stops[i]);
        if (longest > 0) {
            *stopped = true;
            return at - longest;
        }
    }
    size_t held = 0;
    for (size_t i = 0; i < n_stops && !at_end; i++)
        for (size_t length = held + 1; length < strlen(stops[i]); length++)
            if (length <= n && memcmp(text + n - length, stops[i], length) == 0) held = length;
    return n - held;
}

/* Random tokens out of few bytes, so that stop strings and characters are split everywhere. */
static void any_split_gives_the_text_that_the_whole_gives(void **state)
{
    static const char *const stops[] = {
        "ab", "ba\xc3\xa9", "\xc3\xa9\xc3\xa9", "aab", "\xef\xbf\xbd\xef\xbf\xbd", "\342\202\254a"};
    static const char *const units[] = {"a",    "b",        "\xc3\xa9", "\xe2\x82\xac", "\xc3", "\xa9",
                                        "\xe2", "\x82\xac", "",         "aa",           "\xff", "c"};
    static char bytes[4096], clean[WEIR__UTF8_BOUND(4096)], tail[8];
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        emitter *e;
        d.state = seed;
        assert_int_equal(setup((void **)&e), 0);
        const char *chosen[COUNT(stops)];
        size_t n_chosen = 0, n = 0;
        for (size_t i = 0; i < COUNT(stops); i++)
            if (below(3) == 0) chosen[n_chosen++] = stops[i];
        if (n_chosen > 0) stop_at(e, chosen, n_chosen);
        if (below(2) == 0) weir_stream_set_interval(e->request.stream, 1 + (int32_t)below(4));

        bool stopped = false;
        weir__utf8 utf8;
        size_t n_tokens = below(24);
        for (size_t t = 0; t < n_tokens && !stopped; t++) {
            size_t from = n;
            for (uint32_t u = below(3); u > 0; u--) {
                const char *unit = units[below(COUNT(units))];
                memcpy(bytes + n, unit, strlen(unit));
                n += strlen(unit);
            }
            say_bytes(e, bytes + from, n - from);
            weir__utf8_init(&utf8);
            size_t n_clean = weir__utf8_feed(&utf8, bytes, n, clean);
            size_t visible = shown(clean, n_clean, chosen, n_chosen, false, &stopped);
            if (e->stopped != stopped) fail_msg("seed %d: stopped %d", (int)seed, e->stopped);
            if (e->got.n_text > visible) fail_msg("seed %d: too much at token %zu", (int)seed, t);
            if (!stopped && weir_stream_interval(e->request.stream) == 1 && e->got.n_text != visible)
                fail_msg("seed %d: too little at token %zu", (int)seed, t);
            if (memcmp(e->got.text, clean, e->got.n_text) != 0) fail_msg("seed %d: other text", (int)seed);
        }
        finish(e);
        weir__utf8_init(&utf8);
        size_t n_clean = weir__utf8_feed(&utf8, bytes, n, clean);
        size_t n_tail = weir__utf8_flush(&utf8, tail);
        memcpy(clean + n_clean, tail, n_tail);
        size_t visible = shown(clean, n_clean + n_tail, chosen, n_chosen, true, &stopped);
        if (e->got.n_text != visible || memcmp(e->got.text, clean, visible) != 0 || e->stopped != stopped ||
            e->got.n_tokens != (size_t)e->request.history.n_tokens)
            fail_msg("seed %d: other text at the end", (int)seed);
        assert_int_equal(teardown((void **)&e), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMIT_TEST(each_token_goes_out_with_its_text),
        EMIT_TEST(an_end_with_nothing_held_back_needs_no_memory),
        EMIT_TEST(a_token_without_text_rides_with_the_next),
        EMIT_TEST(a_split_character_waits_for_its_last_byte),
        EMIT_TEST(invalid_bytes_are_replaced_at_once),
        EMIT_TEST(bytes_held_at_the_end_become_a_replacement),
        EMIT_TEST(nul_bytes_are_text),
        EMIT_TEST(a_long_piece_comes_whole),
        EMIT_TEST(control_tokens_are_silent_unless_asked_for),
        EMIT_TEST(a_stop_string_across_tokens_never_leaks),
        EMIT_TEST(text_before_a_stop_in_the_same_token_is_kept),
        EMIT_TEST(a_text_that_is_no_stop_after_all_is_released),
        EMIT_TEST(a_character_may_straddle_what_is_held_back),
        EMIT_TEST(text_held_back_for_a_stop_goes_out_at_the_end),
        EMIT_TEST(held_by_stop_and_held_by_utf8_come_out_in_order),
        EMIT_TEST(the_replacement_at_the_end_may_complete_a_stop),
        EMIT_TEST(every_nth_token_brings_a_chunk_after_the_first),
        EMIT_TEST(the_first_text_is_never_delayed),
        EMIT_TEST(text_held_by_the_interval_comes_with_the_end),
        EMIT_TEST(a_chunk_that_is_due_waits_for_text),
        EMIT_TEST(the_interval_may_change_at_any_token),
        EMIT_TEST(a_result_gets_the_whole_text_and_the_stream_the_deltas),
        EMIT_TEST(a_stream_alone_keeps_nothing_that_was_sent),
        EMIT_TEST(without_a_stream_nothing_is_put_anywhere),
        EMIT_TEST(stop_strings_end_no_call),
        EMIT_TEST(a_stop_string_before_a_call_ends_the_text),
        EMIT_TEST(a_call_begins_within_a_character),
        EMIT_TEST(a_chunk_that_found_no_memory_goes_with_the_next),
        EMIT_TEST(every_allocation_of_a_token_may_fail),
        cmocka_unit_test(any_split_gives_the_text_that_the_whole_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
